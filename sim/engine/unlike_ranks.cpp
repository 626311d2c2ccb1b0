// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/unlike_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/engine/rank_classes.hpp"
#include "sim/engine/time_split.hpp"

namespace shardsim {
namespace {

SimTime times(SimTime time, double factor) {
  return factor == 1 ? time : SimTime{static_cast<std::int64_t>(std::llround(static_cast<double>(time.picoseconds()) * factor))};
}

/// The machine of one state: only another GPU or another NIC rate needs prices of its own.
std::vector<OpCost> prices_of(const RankState& state, const ReplayProgram& program, const CostModel& costs,
                              const std::vector<OpCost>& usual) {
  if (!state.profile && state.nic == 1) return usual;
  Cluster cluster = costs.cluster();
  if (state.profile) cluster.profile = *state.profile;
  cluster.profile.network.nic_bandwidth = cluster.profile.network.nic_bandwidth * state.nic;
  if (state.nic != 1)  // what was measured between nodes was measured at the full rate
    std::erase_if(cluster.profile.collectives, [](const CollectiveFit& fit) { return fit.nodes > 1; });
  return CostModel(cluster, costs.stack()).prices(program);
}

std::vector<OpCost> scaled(std::vector<OpCost> prices, const RankState& state) {
  for (OpCost& cost : prices) {
    const bool copies = cost.share[static_cast<std::size_t>(Resource::host_link)] > 0;
    if (cost.collective)
      cost.device = times(cost.device, state.collectives);
    else if (!copies)
      cost.device = times(cost.device, state.compute);
    cost.host = times(cost.host, state.host);
  }
  return prices;
}

}  // namespace

UnlikeReplay replay_unlike(const std::shared_ptr<const ReplayProgram>& program, const CostModel& costs) {
  const RankStates& ranks = costs.cluster().states;
  const ReplayOptions options{.overlap_slowdown = costs.cluster().profile.gpu.overlap_slowdown};
  const std::vector<OpCost> usual = costs.prices(*program);
  std::vector<std::vector<OpCost>> by_state;
  for (const RankState& state : ranks.states) by_state.push_back(scaled(prices_of(state, *program, costs, usual), state));

  std::vector<RankClass> classes = fold_ranks(program->schedule(), ranks.of_rank);
  std::vector<RankProgram> programs;
  programs.reserve(classes.size());
  for (RankClass& c : classes) programs.push_back({.program = program, .prices = by_state[c.state], .meetings = std::move(c.meetings)});
  std::vector<Timeline> timelines = simulate(programs, options);

  // Whoever computes nearly all the time is not waited for in vain: what another rank idles beyond that, it waits.
  SimTime end;
  std::vector<SimTime> idle;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    end = std::max(end, timelines[i].end);
    const TimeSplit split = split_time(programs[i], timelines[i]);
    idle.push_back(timelines[i].end - split.compute - split.optimizer);
  }
  for (std::size_t i = 0; i < classes.size(); ++i) idle[i] += end - timelines[i].end;
  std::vector<std::size_t> order(classes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return idle[a] < idle[b]; });
  RankDifferences differences;
  differences.class_count = std::ssize(classes);
  const auto described = [&](std::size_t i) {
    return RankDifferences::Class{classes[i].first, classes[i].ranks, ranks.states[classes[i].state].why, idle[i] - idle[order.front()]};
  };
  for (const std::size_t i : order)
    if (differences.classes.size() < RankDifferences::most_shown) differences.classes.push_back(described(i));
  if (classes.size() > RankDifferences::most_shown) differences.classes.back() = described(order.back());
  const RankProgram alike{.program = program, .prices = usual};
  differences.alike = simulate({&alike, 1}, options).front().end;

  UnlikeReplay replay{std::move(programs[order.front()]), std::move(timelines[order.front()]), nullptr};
  replay.timeline.end = end;
  replay.differences = std::make_shared<const RankDifferences>(std::move(differences));
  return replay;
}

}  // namespace shardsim
