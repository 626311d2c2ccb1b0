// SPDX-License-Identifier: Apache-2.0
// A plan in words. Every "what would move it" is simulated, not looked up.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/units_text.hpp"
#include "studies/compare/variant.hpp"
#include "studies/compare/what_if.hpp"
#include "studies/plan/feasible.hpp"
#include "studies/plan/options.hpp"
#include "studies/plan/planner.hpp"
#include "studies/plan/words.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

std::string largest_term(const Memory& memory) {
  const auto largest = std::max_element(memory.at_peak.begin(), memory.at_peak.end());
  const auto index = static_cast<std::size_t>(largest - memory.at_peak.begin());
  std::string name(category_names[index]);
  std::replace(name.begin(), name.end(), '_', ' ');
  return fmt::format("{} ({} of {})", name, to_text(*largest), to_text(memory.device_peak));
}

/// The cheapest change that makes a job fit that does not: the first that does, in order of what it costs the user.
std::string cheapest_rescue(const Scenario& base, double headroom) {
  for (const Change& change : memory_changes(base))
    if (const auto result = what_if(base, change.assignments); result && fits_with(result->memory, headroom))
      return fmt::format("{} alone makes it fit ({}, step {})", change.text, to_text(result->memory.device_peak),
                         to_text(result->step.time));
  return "no single change makes it fit";
}

/// "71.20 GiB of 79.15 GiB: 60.01 GiB allocated, 70.05 GiB reserved, 1.15 GiB outside the allocator".
std::string memory_text(const Memory& memory) {
  return fmt::format("{} of {}: {} allocated, {} reserved by the allocator, {} outside it", to_text(memory.device_peak),
                     to_text(memory.capacity), to_text(memory.peak), to_text(memory.reserved_peak), to_text(memory.overhead));
}

Answer does_it_fit(const Scenario& base, const SimulationResult& now, double headroom) {
  const Memory& memory = now.memory;
  const std::string question = "Does the scenario as written fit?";
  const std::string term = "the largest term at the peak is " + largest_term(memory);
  const bool host = memory.host_capacity > Bytes{} && memory.host_pinned_node > memory.host_capacity;
  if (host)
    return {question,
            fmt::format("no: {} of pinned host memory a node, {} there", to_text(memory.host_pinned_node), to_text(memory.host_capacity)),
            fmt::format("each of {} ranks a node pins {}; {}", base.cluster.gpus_per_node, to_text(memory.host_pinned),
                        cheapest_rescue(base, headroom))};
  if (!memory.fits) return {question, "no: " + memory_text(memory), term + "; " + cheapest_rescue(base, headroom)};
  if (!fits_with(memory, headroom))
    return {question, "at the edge: " + memory_text(memory),
            fmt::format("{}, and {} is all that stays free; {}", term, to_text(memory.capacity - memory.device_peak),
                        cheapest_rescue(base, headroom))};
  return {question, "yes: " + memory_text(memory), fmt::format("{}; {} are free", term, to_text(memory.capacity - memory.device_peak))};
}

/// Why fewer GPUs than `enough` do not do: what the leanest way on the most of them that were tried needs. Empty if none was tried.
std::string too_few(const SearchResult& found, std::int64_t enough) {
  const Evaluated* ran = nullptr;
  for (const Evaluated& e : found.too_large)
    if (e.gpus() < enough && (ran == nullptr || e.gpus() > ran->gpus())) ran = &e;
  const Excluded* excluded = nullptr;
  for (const Excluded& e : found.excluded)
    if (e.candidate.gpus() < enough && (excluded == nullptr || e.candidate.gpus() > excluded->candidate.gpus())) excluded = &e;
  if (ran != nullptr && (excluded == nullptr || ran->gpus() >= excluded->candidate.gpus()))
    return fmt::format("on {} the leanest way ({}) needs {}; its largest term is {}", gpus_text(ran->gpus()), ran->candidate.text(),
                       to_text(ran->result.memory.device_peak), largest_term(ran->result.memory));
  if (excluded == nullptr) return {};
  return fmt::format("on {} the leanest way ({}) holds at least {} of parameters, optimizer states and activations",
                     gpus_text(excluded->candidate.gpus()), excluded->candidate.text(), to_text(excluded->memory));
}

Answer fewest_gpus(const Plan& plan, const SearchResult& found) {
  const std::string question = "How many GPUs at least?";
  const std::string why = too_few(found, plan.minimum_gpus.value_or(std::numeric_limits<std::int64_t>::max()));
  const std::string reasons = fmt::format("{}", fmt::join(plan.left_out, "; "));
  if (plan.minimum_gpus)
    return {question, grouped(*plan.minimum_gpus), why.empty() ? "it is the smallest number that the plan may use" : why};
  const std::string beyond = plan.gpus_beyond ? fmt::format("; with one sequence a GPU {} would do", gpus_text(*plan.gpus_beyond)) : "";
  if (found.evaluated == 0 && found.excluded.empty())
    return {question, "the plan has nothing to choose from", reasons.empty() ? "the libraries refuse every candidate" : reasons};
  return {question, "nothing that the plan may choose fits" + beyond, why};
}

Answer fastest(const Plan& plan, const SearchResult& found) {
  const Evaluated& best = plan.time->evaluated;
  const Evaluated* second = nullptr;  // the fastest with another strategy on as many GPUs
  for (const Evaluated& e : found.fitting)
    if (e.gpus() == best.gpus() && e.candidate.strategy != best.candidate.strategy && (second == nullptr || e.time() < second->time()))
      second = &e;
  const Memory& memory = best.result.memory;
  std::string why = fmt::format("bound by {}; it needs {}", best.result.step.bound_by, memory_text(memory));
  if (second != nullptr) {
    const double longer = second->time() / best.time() - 1;
    why += fmt::format("; the next strategy, {}, {}", second->candidate.text(),
                       longer < 0.0005 ? "is as fast" : fmt::format("takes {} longer", percent_text(longer)));
  }
  return {"Which way is the fastest?",
          fmt::format("{} on {}: {} a step", best.candidate.text(), gpus_text(best.gpus()), to_text(best.time())), why};
}

/// What the time consists of beside training.
std::string losses(const Plan& plan, const PlanEntry& entry) {
  const Economics& e = entry.economics;
  return fmt::format("{} in {} steps of {}; goodput {:.1f} % with a checkpoint of {} every {} and a failure every {}",
                     tokens_text(plan.request.tokens), whole_text(e.steps), to_text(entry.evaluated.time()), e.goodput * 100,
                     to_text(e.checkpoint), to_text(e.interval),
                     to_text(plan.request.node_mtbf / static_cast<double>(entry.evaluated.candidate.nodes)));
}

Answer how_long(const Plan& plan, const PlanEntry& entry, const std::string& question) {
  const Economics& e = entry.economics;
  if (e.hopeless()) return {question, "for ever: failures leave no time to train", losses(plan, entry)};
  const std::string money = e.cost ? ", $" + whole_text(*e.cost) : "";
  return {question,
          fmt::format("{} on {}, {} GPU-hours{} ({})", wall_text(e.wall), gpus_text(entry.evaluated.gpus()), whole_text(e.gpu_hours), money,
                      entry.evaluated.candidate.text()),
          losses(plan, entry)};
}

Answer how_much(const Plan& plan, const PlanEntry& entry) {
  const std::string question = "How much does training cost, the cheapest way?";
  const Economics& e = entry.economics;
  if (e.hopeless()) return how_long(plan, entry, question);
  const std::string hours = whole_text(e.gpu_hours) + " GPU-hours";
  const std::string way =
      fmt::format("{} on {} ({})", wall_text(e.wall), gpus_text(entry.evaluated.gpus()), entry.evaluated.candidate.text());
  if (!e.cost) return {question, fmt::format("{}: {}; no price is known, --price DOLLARS gives one", hours, way), losses(plan, entry)};
  return {question, fmt::format("${}: {}, {}", whole_text(*e.cost), hours, way),
          fmt::format("a GPU-hour costs ${:.2f}; {}", *plan.request.price_per_gpu_hour, losses(plan, entry))};
}

Answer in_time(const Plan& plan) {
  const std::string question =
      fmt::format("How many GPUs end within {:g} {}?", *plan.request.days, *plan.request.days == 1 ? "day" : "days");
  if (plan.deadline) {
    const Answer found = how_long(plan, *plan.deadline, question);
    return {question, grouped(plan.deadline->evaluated.gpus()) + ": " + found.answer, found.why};
  }
  const Answer best = how_long(plan, *plan.time, question);
  return {question, "none of those that the plan may use; the fastest takes " + best.answer, best.why};
}

Answer largest(const Scenario& base, const Plan& plan) {
  const std::string question = "Which micro-batch fits in the scenario as written?";
  const double headroom = plan.request.headroom;
  if (!plan.largest_micro_batch)
    return {question, "none",
            fmt::format("one sequence does not fit with {:.0f} % to spare: {}", headroom * 100, cheapest_rescue(base, headroom))};
  const std::int64_t own = base.training.micro_batch_size;
  const std::int64_t next = *plan.largest_micro_batch + 1;
  const auto beyond = what_if(base, {fmt::format("training.micro_batch_size={}", next)});
  return {question,
          fmt::format("{} {} ({} tokens) a rank{}", grouped(*plan.largest_micro_batch),
                      *plan.largest_micro_batch == 1 ? "sequence" : "sequences",
                      grouped(*plan.largest_micro_batch * base.training.sequence_length),
                      own == *plan.largest_micro_batch ? ", as written" : fmt::format("; written is {}", grouped(own))),
          beyond ? fmt::format("{} need {} of {}; the largest term is {}", grouped(next), to_text(beyond->memory.device_peak),
                               to_text(beyond->memory.capacity), largest_term(beyond->memory))
                 : "more cannot be simulated"};
}

Answer option_values(const Scenario& base, double headroom) {
  const TunedOptions tuned = tune_options(base, headroom);
  const std::string question = "Which bucket, prefetch and sharding values are the fastest in the scenario as written?";
  if (tuned.tried.empty())
    return {question, tuned.fits_before ? "there is nothing to choose" : "none of them makes it fit",
            base.strategy.name + (tuned.fits_before ? " has no such options" : ": see above for what would")};
  std::string why;
  for (const TriedOption& option : tuned.tried)
    why += fmt::format("{}{} of {}: {}", why.empty() ? "" : "; ", option.name, fmt::join(option.values, ", "),
                       option.best.empty() ? "no gain"
                       : tuned.fits_before ? fmt::format("{} saves {}", option.best, percent_text(option.saved))
                                           : option.best + " fits");
  const auto assignments = tuned.assignments();
  if (assignments.empty()) return {question, "as they are", why};
  if (!tuned.fits_before)
    return {question, fmt::format("as written it does not fit; {} does, {} a step", fmt::join(assignments, ", "), to_text(tuned.after)),
            why};
  return {question,
          fmt::format("{}: {} a step in place of {} (-{})", fmt::join(assignments, ", "), to_text(tuned.after), to_text(tuned.before),
                      percent_text(tuned.saved())),
          why};
}

/// What another library would bring: a change of code base, so it is told apart and never the plan's answer.
Answer elsewhere(const Plan& plan) {
  const Evaluated& best = plan.time->evaluated;
  const std::string question = fmt::format("And if you changed the library, on as many GPUs?");
  std::string list, fastest = "nothing faster";
  double least = 0.995;
  for (const PlanEntry& entry : plan.elsewhere) {
    const Evaluated& e = entry.evaluated;
    const double ratio = e.time() / best.time();
    const std::string difference =
        std::abs(ratio - 1) < 0.0005 ? "as fast" : percent_text(std::abs(ratio - 1)) + (ratio < 1 ? " faster" : " slower");
    list += fmt::format("{}{}: {}, {}", list.empty() ? "" : "; ", library_of(e.candidate.strategy), e.candidate.text(), difference);
    if (ratio >= least) continue;
    least = ratio;
    fastest = fmt::format("{} ({}): -{}", e.candidate.strategy, library_of(e.candidate.strategy), percent_text(1 - ratio));
  }
  return {question, fastest, list};
}

Answer edge(const Plan& plan) {
  const Evaluated& e = plan.fragile->evaluated;
  const Memory& memory = e.result.memory;
  return {"Is there something faster with less memory free?",
          fmt::format("{} on {}: {} a step, FRAGILE", e.candidate.text(), gpus_text(e.gpus()), to_text(e.time())),
          fmt::format("it needs {}{}; fragmentation and longer sequences differ from run to run", memory_text(memory),
                      memory.allocator_retries > 0 ? ", and the allocator gives its cache back to the driver, which stalls steps" : "")};
}

}  // namespace

std::vector<Answer> answers(const Scenario& base, const Plan& plan, const SearchResult& found) {
  const SimulationResult now = simulate_scenario(base);
  const double headroom = plan.request.headroom;
  std::vector<Answer> out{does_it_fit(base, now, headroom), fewest_gpus(plan, found), largest(base, plan)};
  out.push_back(option_values(base, headroom));
  if (!plan.time) return out;
  Candidate best = plan.time->evaluated.candidate;
  out.push_back(fastest(plan, found));
  out.push_back(how_long(plan, *plan.time, "How long does training take, the fastest way?"));
  out.push_back(how_much(plan, *plan.cost));
  if (plan.request.days) out.push_back(in_time(plan));
  best.accumulation = std::min(best.accumulation, exact_micro_batches);  // shares of a step do not need all of its micro-batches
  const Scenario job = value_or_throw(scenario_of(base, best));
  out.push_back(network_answer(job));
  out.push_back(mover_answer(job, headroom));
  if (plan.fragile) out.push_back(edge(plan));
  if (!plan.elsewhere.empty()) out.push_back(elsewhere(plan));
  return out;
}

}  // namespace shardsim
