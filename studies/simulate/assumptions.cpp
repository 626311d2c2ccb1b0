// SPDX-License-Identifier: Apache-2.0
// What a prediction assumes about its machine, and how much hangs on each.
#include "studies/simulate/assumptions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/units_text.hpp"
#include "studies/simulate/prepared_job.hpp"

namespace shardsim {
namespace {

constexpr double worse = 0.9;          // of a rate or an efficiency; latencies grow by the inverse
constexpr double worth_saying = 5e-4;  // of the step

template <class Quantity>
void slow(Quantity& rate) {
  rate = rate * worse;
}
void slow(double& share) { share *= worse; }
void lengthen(Seconds& time) { time = time * (1 / worse); }

/// One value of the profile, or a few that are measured together.
struct Row {
  std::string_view key;
  std::string (*value)(const Cluster&);
  void (*make_worse)(Profile&);
  std::string_view measure;
};

constexpr std::string_view cuda = "shardsim calibrate cuda --base PROFILE -o MINE.yaml";
constexpr std::string_view nccl = "shardsim calibrate nccl --base PROFILE -o MINE.yaml, or calibrate import nccl-tests LOGS";

constexpr std::string_view nic_count = "network.nics_per_node";

constexpr std::array<Row, 14> assumption_rows{{
    {nic_count, [](const Cluster& c) { return fmt::format("{} {} a node", c.nics_per_node, c.nics_per_node == 1 ? "NIC" : "NICs"); },
     [](Profile& p) { slow(p.network.nic_bandwidth); }, "ibstat, or shardsim doctor"},
    {"network.nic_bandwidth",
     [](const Cluster& c) { return fmt::format("{:.0f} Gbit/s of each NIC", c.profile.network.nic_bandwidth.base() * 8e-9); },
     [](Profile& p) { slow(p.network.nic_bandwidth); }, nccl},
    {"network.efficiency", [](const Cluster& c) { return fmt::format("{:.2f} of the NICs' line rate", c.profile.network.efficiency); },
     [](Profile& p) { slow(p.network.efficiency); }, nccl},
    {"network.inter_latency", [](const Cluster& c) { return to_text(c.profile.network.inter_latency) + " a step between nodes"; },
     [](Profile& p) { lengthen(p.network.inter_latency); }, nccl},
    {"node.ring_bandwidth", [](const Cluster& c) { return to_text(c.profile.node.ring_bandwidth) + " of a ring inside a node"; },
     [](Profile& p) { slow(p.node.ring_bandwidth); }, nccl},
    {"collectives",
     [](const Cluster& c) { return fmt::format("times of {} collectives of public machines", c.profile.collectives.size()); },
     [](Profile& p) {
       for (CollectiveFit& fit : p.collectives) {
         for (CollectiveSegment& segment : fit.segments) {
           lengthen(segment.alpha);
           slow(segment.algbw);
         }
         for (CollectiveFit::Sample& sample : fit.samples)
           for (Seconds* time : {&sample.min, &sample.median, &sample.p90}) lengthen(*time);
       }
     },
     nccl},
    {"gpu.gemm", [](const Cluster& c) { return fmt::format("matrix products reach {:.2f} of the peak", c.profile.gpu.gemm.efficiency); },
     [](Profile& p) { slow(p.gpu.gemm.efficiency); }, cuda},
    {"gpu.attention_efficiency",
     [](const Cluster& c) {
       return fmt::format("attention reaches {:.2f} and {:.2f} of the peak", c.profile.gpu.attention_efficiency,
                          c.profile.gpu.attention_backward_efficiency);
     },
     [](Profile& p) {
       slow(p.gpu.attention_efficiency);
       slow(p.gpu.attention_backward_efficiency);
     },
     cuda},
    {"gpu.elementwise_efficiency",
     [](const Cluster& c) {
       return fmt::format("memory-bound kernels reach {:.2f} of the memory's rate", c.profile.gpu.elementwise_efficiency);
     },
     [](Profile& p) { slow(p.gpu.elementwise_efficiency); }, cuda},
    {"gpu.kernel_launch", [](const Cluster& c) { return to_text(c.profile.gpu.kernel_launch) + " of the host a kernel"; },
     [](Profile& p) {
       lengthen(p.gpu.kernel_launch);
       lengthen(p.gpu.collective_launch);
     },
     cuda},
    {"gpu.overlap_slowdown",
     [](const Cluster& c) {
       return fmt::format("compute takes {:.0f} % longer beside a collective", c.profile.gpu.overlap_slowdown * 100);
     },
     [](Profile& p) { p.gpu.overlap_slowdown /= worse; }, cuda},
    {"gpu.host_link", [](const Cluster& c) { return to_text(c.profile.gpu.host_link) + " between GPU and host"; },
     [](Profile& p) { slow(p.gpu.host_link); }, cuda},
    {"node.host_memory_bandwidth", [](const Cluster& c) { return to_text(c.profile.node.host_memory_bandwidth) + " of a node's DRAM"; },
     [](Profile& p) { slow(p.node.host_memory_bandwidth); }, "shardsim calibrate local -o HOST.yaml"},
    {"gpu.device_kernel_gap", [](const Cluster& c) { return to_text(c.profile.gpu.device_kernel_gap) + " between two kernels"; },
     [](Profile& p) { lengthen(p.gpu.device_kernel_gap); }, cuda},
}};

bool is_known(const std::string& origin) { return origin.starts_with("measured") || origin.starts_with("set by the scenario"); }

/// Fits carry origins of their own.
std::string origin_of_row(const Profile& profile, std::string_view key) {
  if (key != "collectives") return origin_of(profile, key);
  for (const CollectiveFit& fit : profile.collectives)
    if (!is_known(fit.origin)) return fit.origin;
  return profile.collectives.empty() ? std::string() : "measured";
}

bool is_set(const Scenario& scenario, std::string_view key) {
  const ConfigNode* block = scenario.root.find("cluster");
  return block != nullptr && block->find(key) != nullptr;
}

void add_memory(const Profile& profile, const SimulationResult& now, Assumptions& out) {
  const std::string origin = origin_of(profile, "overheads.context");
  if (now.memory.overhead == Bytes{} || is_known(origin)) return;
  out.push_back({"overheads.context", fmt::format("{} outside the allocator: CUDA context, NCCL", to_text(now.memory.overhead)), origin, 0,
                 now.memory.overhead, "nvidia-smi beside torch.cuda.memory_reserved, or shardsim calibrate cuda"});
}

}  // namespace

Assumptions assumptions_of(const Scenario& scenario, const SimulationResult& now) {
  const Profile& profile = scenario.cluster.profile;
  const PreparedJob job = prepare_job(scenario);
  const Detail quick{.timeline = false, .allocator = std::nullopt};
  Scenario plain = scenario;
  plain.checkpoint = {};
  Assumptions out;
  for (const Row& row : assumption_rows) {
    const std::string origin = origin_of_row(profile, row.key);
    const bool nics = row.key == nic_count;
    if (is_known(origin) || (nics && is_set(scenario, "nics_per_node")) || (row.key == "collectives" && profile.collectives.empty()))
      continue;
    Cluster cluster = scenario.cluster;
    row.make_worse(cluster.profile);
    const Seconds time = simulate_prepared(plain, job, CostModel(cluster), quick).step.time;
    const double share = time / now.step.time - 1;
    if (share < worth_saying && !(nics && cluster.nodes > 1)) continue;  // how many NICs there are is said in any case
    out.push_back({std::string(row.key), row.value(scenario.cluster), origin, share, {}, std::string(row.measure)});
  }
  std::stable_sort(out.begin(), out.end(), [](const Assumption& a, const Assumption& b) { return a.time > b.time; });
  add_memory(profile, now, out);
  return out;
}

}  // namespace shardsim
