// SPDX-License-Identifier: Apache-2.0
// What limits one way to run a job, and what would move it: every claim is simulated.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/units_text.hpp"
#include "studies/compare/what_if.hpp"
#include "studies/plan/feasible.hpp"
#include "studies/plan/planner.hpp"
#include "studies/plan/words.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

constexpr double hidden_share = 0.01;  // of the step: less exposed communication counts as hidden
constexpr double most_times = 64;      // as fast as today: beyond, a faster link is no answer

/// The link that a job's communication is made to wait for, and the key that sets its speed.
struct Link {
  std::string name, key;
  ByteRate today;

  [[nodiscard]] std::vector<std::string> at(double times) const { return {fmt::format("{}={:.0f} B/s", key, today.base() * times)}; }
};

Link link_of(const Scenario& job) {
  const Profile& profile = job.cluster.profile;
  if (job.cluster.nodes > 1) return {"a NIC", "cluster.nic_bandwidth", profile.network.nic_bandwidth};
  return {"the ring inside the node", "cluster.ring_bandwidth", profile.node.ring_bandwidth};
}

double exposed_share(const SimulationResult& result) { return result.step.exposed_communication / result.step.time; }

std::optional<double> exposed_at(const Scenario& job, const Link& link, double times) {
  const auto result = what_if(job, link.at(times));
  return result ? std::optional(exposed_share(*result)) : std::nullopt;
}

/// How many times as fast the link must be, to five percent; nothing if most_times does not hide the communication.
std::optional<double> times_to_hide(const Scenario& job, const Link& link) {
  const auto hidden = [&](double times) { return exposed_at(job, link, times).value_or(1) <= hidden_share; };
  double low = 1, high = most_times;
  if (!hidden(high)) return std::nullopt;
  while (high / low > 1.05) {
    const double middle = std::sqrt(low * high);
    (hidden(middle) ? high : low) = middle;
  }
  return high;
}

/// Rounded up, so that what is named does hide it.
std::string rate_text(const Link& link, double times) {
  const bool bits = link.key == "cluster.nic_bandwidth";
  return fmt::format("{} {}", whole_text(std::ceil(link.today.base() * times * (bits ? 8e-9 : 1e-9) - 1e-6)), bits ? "Gbit/s" : "GB/s");
}

/// What holds an offloaded step up: the host's DRAM, which a CPU optimizer reads and writes, and the link to it.
void add_offload_changes(const Scenario& job, std::vector<Change>& changes) {
  const Offload& offload = job.training.offload;
  if (offload.optimizer == OffloadTarget::none && offload.parameters == OffloadTarget::none) return;
  const Profile& profile = job.cluster.profile;
  if (profile.node.host_memory_bandwidth > ByteRate{})
    changes.push_back({"host memory twice as fast",
                       {fmt::format("cluster.host_memory_bandwidth={:.0f} B/s", profile.node.host_memory_bandwidth.base() * 2)}});
  changes.push_back({"a link to the host twice as fast", {fmt::format("cluster.host_link={:.0f} B/s", profile.gpu.host_link.base() * 2)}});
  if (offload.parameters != OffloadTarget::none && offload.optimizer != OffloadTarget::none)
    changes.push_back({"parameters on the GPU, the optimizer on the host", {"training.offload={optimizer: cpu}"}});
  changes.push_back({"no offload", {"training.offload=none"}});
}

std::vector<Change> step_changes(const Scenario& job) {
  std::vector<Change> changes;
  add_offload_changes(job, changes);
  if (!job.training.compile) changes.push_back({"compiling the model", {"training.compile=true"}});
  changes.push_back({"a host twice as fast", {fmt::format("cluster.host_speed={}", 2 * job.cluster.profile.node.host_speed)}});
  if (job.cluster.nodes > 1)
    changes.push_back({"NICs twice as fast", link_of(job).at(2)});
  else if (job.cluster.gpus_per_node > 1)
    changes.push_back({"links inside the node twice as fast", link_of(job).at(2)});
  changes.push_back({"GPU memory twice as fast",
                     {fmt::format("cluster.memory_bandwidth={:.0f} B/s", job.cluster.profile.gpu.memory_bandwidth.base() * 2)}});
  if (job.training.checkpointing.kind != Checkpointing::none)
    changes.push_back({"no activation checkpointing", {"training.activation_checkpointing=none"}});
  return changes;
}

}  // namespace

std::string bandwidth_to_hide(const Scenario& job) {
  const Link link = link_of(job);
  const auto times = times_to_hide(job, link);
  if (!times) return fmt::format("no speed of {} hides all of it: what is left cannot overlap, or stands elsewhere", link.name);
  return fmt::format("to hide it (to 1 % of the step) {} would need {} (now {})", link.name, rate_text(link, *times), rate_text(link, 1));
}

Answer network_answer(const Scenario& job) {
  const std::string question = "Is the network the bottleneck of the fastest way?";
  const SimulationResult now = simulate_scenario(job);
  const double exposed = exposed_share(now);
  if (job.cluster.world_size() == 1) return {question, "no", "one GPU sends nothing; bound by " + now.step.bound_by};
  std::string why = fmt::format("{} of the step is exposed communication", percent_text(exposed));
  if (exposed <= hidden_share) return {question, "no", why + "; bound by " + now.step.bound_by};
  const Link link = link_of(job);
  if (const auto twice = exposed_at(job, link, 2), four = exposed_at(job, link, 4); twice && four)
    why += fmt::format("; with {} twice as fast {}, four times {}", link.name, percent_text(*twice), percent_text(*four));
  return {question, std::string(exposed > 0.1 ? "yes" : "a little") + (job.cluster.nodes == 1 ? ", inside the node" : ""),
          why + "; " + bandwidth_to_hide(job)};
}

Answer mover_answer(const Scenario& job, double headroom) {
  const SimulationResult now = simulate_scenario(job);
  std::string list, best = "nothing that was tried";
  double more_than = 0.005;  // of the step: less is no answer
  for (const Change& change : step_changes(job)) {
    const auto result = what_if(job, change.assignments);
    if (!result) continue;
    const double saved = 1 - result->step.time / now.step.time;
    const bool lost = fits_with(now.memory, headroom) && !fits_with(result->memory, headroom);
    list += fmt::format("{}{}: {}", list.empty() ? "" : "; ", change.text, saved > 0.0005 ? "-" + percent_text(saved) : "no change");
    if (lost) list += fmt::format(", but {} do not fit", to_text(result->memory.device_peak));
    if (lost || saved <= more_than) continue;
    more_than = saved + 0.01;  // what costs more, and stands later, must be worth it
    best = fmt::format("{}: -{}", change.text, percent_text(saved));
  }
  return {"What would move the step time of the fastest way?", best, list + "; bound by " + now.step.bound_by};
}

}  // namespace shardsim
