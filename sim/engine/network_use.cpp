// SPDX-License-Identifier: Apache-2.0
// Which of the bytes that ranks send stay inside their node, and what crosses between nodes.
#include "sim/engine/network_use.hpp"

#include <algorithm>
#include <vector>

namespace shardsim {
namespace {

/// Ranks of the group that stand on one node; ranks are numbered node by node.
std::int64_t ranks_on_a_node(const Group& group, std::int64_t gpus_per_node) {
  return std::clamp<std::int64_t>(gpus_per_node / group.stride, 1, group.size);
}

/// What of the bytes that each rank of the group sends leaves a node, by all of the node's ranks: a ring leaves it once for all its ranks
/// there, an all-to-all with every pair that it parts.
double leaving(const Group& group, Collective collective, double sent_per_rank, std::int64_t gpus_per_node) {
  const std::int64_t here = ranks_on_a_node(group, gpus_per_node);
  if (here == group.size) return 0;
  const auto all = static_cast<double>(gpus_per_node);
  if (collective == Collective::all_to_all)
    return all * sent_per_rank * static_cast<double>(group.size - here) / static_cast<double>(group.size - 1);
  return all / static_cast<double>(here) * sent_per_rank;
}

struct Flow {
  SimTime begin, end;
  double rate;  ///< bytes a second
};

/// The most that any second of the step holds. Steps follow one another, so that of a shorter one it is the mean.
double busiest_second(std::vector<Flow> flows, Seconds step, double bytes) {
  if (flows.empty() || step.base() <= 1) return step.base() > 0 ? bytes / step.base() : 0;
  const auto held = [&](double from) {
    double sum = 0;
    for (const Flow& flow : flows) {
      const double shared = std::min(flow.end.seconds().base(), from + 1) - std::max(flow.begin.seconds().base(), from);
      if (shared > 0) sum += shared * flow.rate;
    }
    return sum;
  };
  double most = 0;
  constexpr int windows = 64;  // of one second, spread over the step
  for (int i = 0; i < windows; ++i) most = std::max(most, held((step.base() - 1) * i / (windows - 1)));
  return most;
}

}  // namespace

void add_network_use(const Schedule& schedule, const Cluster& cluster, const Timeline& timeline, Traffic& traffic) {
  const auto group_named = [&](const std::string& name) {
    return *std::find_if(schedule.groups.begin(), schedule.groups.end(), [&](const Group& group) { return group.name == name; });
  };
  double all = 0, between = 0;
  for (const TrafficRow& row : traffic.by_group) {
    if (row.control) continue;
    const auto sent = static_cast<double>(row.sent_per_rank.value());
    all += sent * static_cast<double>(cluster.gpus_per_node);
    between += leaving(group_named(row.group), row.collective, sent, cluster.gpus_per_node);
  }
  traffic.sent_between_nodes = Bytes{static_cast<std::int64_t>(between)};
  traffic.sent_inside_node = Bytes{static_cast<std::int64_t>(all - between)};
  if (between <= 0) return;
  const double by_nic = between / static_cast<double>(cluster.nics_per_node);
  traffic.sent_by_nic = Bytes{static_cast<std::int64_t>(by_nic)};
  std::vector<Flow> flows;
  double listed = 0;
  for (const Slice& slice : timeline.slices) {
    const auto* call = std::get_if<Communicate>(&schedule.at(slice.op).action);
    if (call == nullptr || slice.end <= slice.begin) continue;
    const Group& group = schedule.group_of(call->communicator);
    const double weight = leaving(group, call->kind, static_cast<double>(bytes(call->payload, call->dtype).value()), cluster.gpus_per_node);
    if (weight <= 0) continue;
    listed += weight;
    flows.push_back({slice.begin, slice.end, weight / (slice.end - slice.begin).seconds().base()});
  }
  // Payloads weigh the calls against each other; together they are the bytes that the account has.
  for (Flow& flow : flows) flow.rate *= by_nic / listed;
  const Seconds step = timeline.end.seconds();
  traffic.nic_mean = ByteRate{step.base() > 0 ? by_nic / step.base() : 0};
  traffic.nic_busiest = ByteRate{busiest_second(std::move(flows), step, by_nic)};
}

}  // namespace shardsim
