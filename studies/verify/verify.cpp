// SPDX-License-Identifier: Apache-2.0
// Causes are found by simulation: each plausible change of the scenario is tried, and what brings the prediction nearest to the run comes
// first. What remains is asked again with that change in place.
#include "studies/verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/units_text.hpp"
#include "sim/costs/cost_model.hpp"
#include "studies/compare/variant.hpp"
#include "studies/compare/what_if.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

using Calls = std::map<CollectiveShape, std::int64_t>;

constexpr std::size_t most_causes = 3;
constexpr double least_explained = 0.05;  // of the difference that is left: less is no explanation
constexpr double memory_noise = 0.02;     // allocators differ by so much between versions and runs

std::vector<CollectiveShape> predicted_order(const Schedule& schedule) {
  std::vector<CollectiveShape> order;
  for (const Op& op : schedule.ops) {
    const auto* c = std::get_if<Communicate>(&op.action);
    if (c == nullptr || c->control) continue;
    const Group& group = schedule.group_of(c->communicator);
    if (group.size > 1 && !(c->payload.value() <= most_control_elements && passes(c->kind) == 2))
      order.push_back({c->kind, c->dtype, c->payload.value(), group.size, group.stride});
  }
  return order;
}

Calls calls_of(const std::vector<CollectiveShape>& order) {
  Calls calls;
  for (const CollectiveShape& shape : order) ++calls[shape];
  return calls;
}

/// What of either stands against nothing of the other, in bytes over those measured.
double traffic_distance(const Calls& predicted, const Calls& measured) {
  double apart = 0, whole = 0;
  for (const auto& [shape, calls] : measured) whole += static_cast<double>(calls * shape.payload().value());
  const auto add = [&](const CollectiveShape& shape, std::int64_t calls) {
    apart += static_cast<double>(std::abs(calls) * shape.payload().value());
  };
  for (const auto& [shape, calls] : measured) {
    const auto found = predicted.find(shape);
    add(shape, calls - (found == predicted.end() ? 0 : found->second));
  }
  for (const auto& [shape, calls] : predicted)
    if (!measured.contains(shape)) add(shape, calls);
  return whole == 0 ? (apart > 0 ? 1 : 0) : apart / whole;
}

double relative_difference(double predicted, double measured) { return measured == 0 ? 0 : std::abs(predicted / measured - 1); }

/// How far a prediction is from the run.
struct Distance {
  double traffic = 0, memory = 0;
  bool order = true;
  [[nodiscard]] double sum() const { return traffic + (memory > memory_noise ? memory : 0) + (order ? 0 : 0.02); }
};

class RunComparison {
 public:
  explicit RunComparison(const RecordedStep& run) : run_(run) {
    for (const RecordedCollective& c : run.collectives) order_.push_back(c.shape);
    calls_ = calls_of(order_);
  }

  [[nodiscard]] Distance distance(const SimulationResult& result) const {
    const std::vector<CollectiveShape> order = predicted_order(*result.schedule);
    Distance d{.traffic = traffic_distance(calls_of(order), calls_), .memory = 0, .order = order == order_};
    if (run_.peak) d.memory = relative_difference(static_cast<double>(result.memory.peak.value()), static_cast<double>(run_.peak->value()));
    return d;
  }
  [[nodiscard]] const std::vector<CollectiveShape>& order() const { return order_; }
  [[nodiscard]] const Calls& calls() const { return calls_; }

 private:
  const RecordedStep& run_;
  std::vector<CollectiveShape> order_;
  Calls calls_;
};

// Changes that people make without saying so -----------------------------------------------------------------------------------------

void add_option(const OptionSpec& option, const Options& given, std::vector<Change>& changes) {
  const auto offer = [&](const std::string& value, const std::string& text) {
    changes.push_back({text, {fmt::format("strategy.{}={}", option.name, value)}});
  };
  if (option.kind == OptionKind::boolean) {
    const bool now = given.boolean(option.name, option.fallback == "true");
    offer(now ? "false" : "true", fmt::format("{} is {}", option.name, now ? "off" : "on"));
  } else if (option.kind == OptionKind::word) {
    for (const std::string& word : option.words) offer(word, fmt::format("{} is {}", option.name, word));
  }
}

/// Sizes of buckets cannot be guessed from a list alone: those of the run say where to look.
void add_buckets(const StrategyInfo& strategy, const Calls& measured, std::vector<Change>& changes) {
  Bytes largest;
  std::int64_t elements = 0;
  for (const auto& [shape, calls] : measured)
    if (shape.kind == Collective::all_reduce || shape.kind == Collective::reduce_scatter || shape.kind == Collective::reduce) {
      largest = std::max(largest, shape.payload());
      elements = std::max(elements, shape.elements);
    }
  const double mib = static_cast<double>(largest.value()) / (1 << 20);
  for (const OptionSpec& option : strategy.options) {
    if (option.name.find("bucket") == std::string::npos || (option.kind != OptionKind::number && option.kind != OptionKind::integer))
      continue;
    std::vector<double> sizes;
    if (option.kind == OptionKind::number)  // MiB
      for (const double size : {1., 2., 4., 5., 8., 10., 16., 20., 25., 32., 40., 50., 64., 100., 128., 200., 256., 500.})
        sizes.push_back(size);
    else
      for (const double size : {1e6, 1e7, 2e7, 5e7, 1e8, 2e8, 5e8, 1e9}) sizes.push_back(size);
    if (option.kind == OptionKind::number && mib >= 1) sizes.insert(sizes.end(), {std::floor(mib), std::ceil(mib), std::floor(mib * 0.9)});
    if (option.kind == OptionKind::integer && elements > 0) sizes.push_back(static_cast<double>(elements));
    for (const double size : sizes)
      if (size >= std::max(option.minimum, 1.0))
        changes.push_back({fmt::format("{} is {:.0f}", option.name, size), {fmt::format("strategy.{}={:.0f}", option.name, size)}});
  }
}

std::vector<Change> changes_of(const Scenario& base, const Calls& measured) {
  std::vector<Change> changes;
  const StrategyInfo& strategy = *find_strategy(base.strategy.name);
  for (const OptionSpec& option : strategy.options) add_option(option, base.strategy.options, changes);
  add_buckets(strategy, measured, changes);
  const auto offer = [&](std::string text, std::string assignment) { changes.push_back({std::move(text), {std::move(assignment)}}); };
  for (const char* dtype : {"fp32", "bf16", "fp16"})
    offer(fmt::format("gradients are reduced in {}", dtype), fmt::format("training.precision.reduce={}", dtype));
  for (const char* name : {"mixed", "autocast", "pure-bf16", "fp32"})
    offer(fmt::format("the precision is {}", name), fmt::format("training.precision={}", name));
  for (const char* kind : {"none", "core_attention", "selective_ops", "full"})
    offer(fmt::format("activation checkpointing is {}", std::string_view(kind) == "none" ? "off" : kind),
          fmt::format("training.activation_checkpointing={}", kind));
  for (const int every : {2, 3, 4})
    offer(fmt::format("only one layer in {} is checkpointed", every),
          fmt::format("training.activation_checkpointing={{every: {}}}", every));
  for (const int steps : {1, 2, 4, 8, 16})
    offer(fmt::format("a step has {} micro-batches", steps), fmt::format("training.gradient_accumulation_steps={}", steps));
  for (const int batch : {1, 2, 4, 8, 16, 32})
    offer(fmt::format("a micro-batch has {} sequences", batch), fmt::format("training.micro_batch_size={}", batch));
  offer("the embedding is frozen", "model.trainable=['*layers*', '*blocks*', '*.h.*', '*norm*', '*ln_f*', 'lm_head*']");
  offer("everything trains", "model.trainable=all");
  for (const char* loss : {"cross_entropy", "fused"}) offer(fmt::format("the loss is {}", loss), fmt::format("training.loss={}", loss));
  offer("the model computes the loss", "training.loss_in_model=true");
  offer("the loss is outside the model", "training.loss_in_model=false");
  for (const StrategyInfo& other : strategies())
    if (other.name != base.strategy.name) changes.push_back({"the strategy is " + other.name, choose_strategy(base, other.name)});
  return changes;
}

/// The step under a change; nothing where it cannot be simulated.
std::optional<SimulationResult> tried_change(const Scenario& base, const std::vector<std::string>& assignments) {
  const auto scenario = vary(base, assignments);
  if (!scenario) return std::nullopt;
  try {
    return simulate_scenario(*scenario, {.allocator = std::nullopt});
  } catch (const InputError&) { return std::nullopt; }
}

std::vector<Cause> causes_of(const Scenario& scenario, const SimulationResult& predicted, const RunComparison& run) {
  std::vector<Cause> causes;
  std::vector<std::string> applied;
  const double whole = run.distance(predicted).sum();
  double left = whole;
  while (causes.size() < most_causes && left > 1e-9) {
    const Scenario base = applied.empty() ? scenario : value_or_throw(vary(scenario, applied));
    std::optional<Cause> best;
    double nearest = left * (1 - least_explained);
    for (const Change& change : changes_of(base, run.calls())) {
      std::vector<std::string> all = applied;
      all.insert(all.end(), change.assignments.begin(), change.assignments.end());
      const auto result = tried_change(scenario, all);
      if (!result) continue;
      const double distance = run.distance(*result).sum();
      if (distance >= nearest) continue;
      nearest = distance;
      best = Cause{change.text, change.assignments, (left - distance) / whole};
    }
    if (!best) break;
    applied.insert(applied.end(), best->assignments.begin(), best->assignments.end());
    left = nearest;
    causes.push_back(std::move(*best));
  }
  return causes;
}

// Time -----------------------------------------------------------------------------------------------------------------------------------

/// The mean over the calls of a shape that have a time.
std::map<CollectiveShape, Seconds> mean_times(const RecordedStep& run) {
  std::map<CollectiveShape, std::pair<double, int>> sums;
  for (const RecordedCollective& c : run.collectives)
    if (c.time) {
      sums[c.shape].first += c.time->base();
      ++sums[c.shape].second;
    }
  std::map<CollectiveShape, Seconds> means;
  for (const auto& [shape, sum] : sums) means[shape] = Seconds{sum.first / sum.second};
  return means;
}

/// Which collectives take longer than the profile says, and what else the step has lost.
void add_time_causes(const Scenario& scenario, Verification& v) {
  if (!v.measured_step || *v.measured_step <= v.predicted_step) return;
  const double lost = (*v.measured_step - v.predicted_step).base();
  double in_collectives = 0;
  for (const TrafficDifference& row : v.traffic) {
    if (!row.predicted_time || !row.measured_time || row.measured_time->base() <= 1.25 * row.predicted_time->base()) continue;
    const double more = (*row.measured_time - *row.predicted_time).base() * static_cast<double>(row.measured);
    in_collectives += more;
    const double bus = static_cast<double>(row.shape.payload().value()) * passes(row.shape.kind) *
                       static_cast<double>(row.shape.ranks - 1) / static_cast<double>(row.shape.ranks);
    v.causes.push_back({fmt::format("{} of {} over {} ranks takes {:.1f} times as long as predicted: {} where the profile says {}",
                                    name_of(row.shape.kind), to_text_decimal(row.shape.payload()), row.shape.ranks,
                                    *row.measured_time / *row.predicted_time, to_text(ByteRate{bus / row.measured_time->base()}),
                                    to_text(ByteRate{bus / row.predicted_time->base()})),
                        {},
                        std::min(1.0, more / lost)});
  }
  const double rest = lost - in_collectives;
  if (rest > 0.1 * lost)
    v.causes.push_back({fmt::format("{} of the step are in no collective: kernels slower than the profile {} says, the host, data loading, "
                                    "or a slower rank; a trace of the "
                                    "PyTorch profiler (shardsim calibrate import kineto) tells kernels from gaps",
                                    to_text(Seconds{rest}), scenario.cluster.profile.name),
                        {},
                        rest / lost});
}

}  // namespace

Verification verify(const Scenario& scenario, const RunRecord& run) {
  if (run.ranks != scenario.cluster.world_size())
    throw InputError(fmt::format("the run has {} ranks and the scenario {}: set cluster.nodes and cluster.gpus_per_node", run.ranks,
                                 scenario.cluster.world_size()));
  const RecordedStep step = run.steady();
  const RunComparison recorded(step);
  const SimulationResult predicted = simulate_scenario(scenario);
  const std::vector<CollectiveShape> order = predicted_order(*predicted.schedule);
  const Calls calls = calls_of(order);

  Verification v;
  v.scenario = scenario.file;
  v.library = run.library;
  v.same_order = order == recorded.order();
  if (!v.same_order)
    v.first_out_of_order = static_cast<std::size_t>(
        std::mismatch(order.begin(), order.end(), recorded.order().begin(), recorded.order().end()).first - order.begin());
  const std::map<CollectiveShape, Seconds> times = mean_times(step);
  const CostModel costs(scenario.cluster);
  Calls either = calls;
  either.insert(recorded.calls().begin(), recorded.calls().end());
  double communication = 0;
  for (const auto& entry : either) {
    TrafficDifference row{.shape = entry.first};
    if (const auto found = calls.find(row.shape); found != calls.end()) row.predicted = found->second;
    if (const auto found = recorded.calls().find(row.shape); found != recorded.calls().end()) row.measured = found->second;
    if (const auto found = times.find(row.shape); found != times.end()) {
      row.measured_time = found->second;
      row.predicted_time =
          costs.collective(row.shape.kind, row.shape.payload(), Group{.name = "", .size = row.shape.ranks, .stride = row.shape.stride})
              .time.seconds();
      communication += found->second.base() * static_cast<double>(row.measured);
    }
    v.same_traffic = v.same_traffic && row.predicted == row.measured;
    v.traffic.push_back(std::move(row));
  }
  std::stable_sort(v.traffic.begin(), v.traffic.end(), [](const TrafficDifference& a, const TrafficDifference& b) {
    return a.shape.payload().value() * std::max(a.predicted, a.measured) > b.shape.payload().value() * std::max(b.predicted, b.measured);
  });
  v.predicted_peak = predicted.memory.peak;
  v.predicted_reserved = predicted.memory.reserved_peak;
  v.measured_peak = step.peak;
  v.measured_reserved = step.reserved;
  v.predicted_step = predicted.step.time;
  v.predicted_communication = predicted.step.communication;
  v.measured_step = step.time;
  if (!times.empty()) v.measured_communication = Seconds{communication};
  v.causes = causes_of(scenario, predicted, recorded);
  add_time_causes(scenario, v);
  return v;
}

}  // namespace shardsim
