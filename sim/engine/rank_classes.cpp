// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/rank_classes.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace shardsim {
namespace {

using Colors = std::vector<std::int32_t>;  // by rank

/// The number of a rank's group among those of one kind: ranks {first, first + stride, ...}, `size` of them.
std::size_t group_of(const Group& group, std::size_t rank) {
  const auto size = static_cast<std::size_t>(group.size), stride = static_cast<std::size_t>(group.stride);
  return rank / (size * stride) * stride + rank % stride;
}

/// For each group of a kind, which set of colors it holds: equal numbers for equal sets.
std::vector<std::int32_t> color_sets(const Group& group, const Colors& colors) {
  const std::size_t groups = (colors.size() + static_cast<std::size_t>(group.size) - 1) / static_cast<std::size_t>(group.size);
  std::vector<std::vector<std::int32_t>> members(groups);
  for (std::size_t rank = 0; rank < colors.size(); ++rank) members.at(group_of(group, rank)).push_back(colors[rank]);
  std::map<std::vector<std::int32_t>, std::int32_t> known;
  std::vector<std::int32_t> sets;
  sets.reserve(groups);
  for (auto& set : members) {
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
    sets.push_back(known.try_emplace(std::move(set), static_cast<std::int32_t>(known.size())).first->second);
  }
  return sets;
}

/// Splits classes whose members' groups differ. Returns how many there are then.
std::size_t refine(const std::vector<Group>& groups, Colors& colors) {
  std::vector<std::vector<std::int32_t>> keys(colors.size());
  for (std::size_t rank = 0; rank < colors.size(); ++rank) keys[rank].push_back(colors[rank]);
  for (const Group& group : groups) {
    if (group.size <= 1) continue;
    const std::vector<std::int32_t> sets = color_sets(group, colors);
    for (std::size_t rank = 0; rank < colors.size(); ++rank) keys[rank].push_back(sets[group_of(group, rank)]);
  }
  std::map<std::vector<std::int32_t>, std::int32_t> known;
  for (std::size_t rank = 0; rank < colors.size(); ++rank)
    colors[rank] = known.try_emplace(std::move(keys[rank]), static_cast<std::int32_t>(known.size())).first->second;
  return known.size();
}

}  // namespace

std::vector<RankClass> fold_ranks(const Schedule& schedule, std::span<const std::uint32_t> state_of_rank) {
  if (std::ssize(state_of_rank) != schedule.world_size) throw std::logic_error("fold_ranks: a state for each rank of the world is needed");
  for (const Group& group : schedule.groups)
    if (schedule.world_size % (group.size * group.stride) != 0)
      throw std::logic_error("fold_ranks: group " + group.name + " does not tile the world");
  Colors colors(state_of_rank.begin(), state_of_rank.end());
  for (std::size_t classes = 0, found = refine(schedule.groups, colors); found != classes;) {
    classes = found;
    found = refine(schedule.groups, colors);
  }

  std::vector<RankClass> classes(static_cast<std::size_t>(*std::max_element(colors.begin(), colors.end())) + 1);
  for (std::size_t rank = 0; rank < colors.size(); ++rank) {
    RankClass& c = classes[static_cast<std::size_t>(colors[rank])];
    if (c.ranks++ == 0) {
      c.first = static_cast<std::int64_t>(rank);
      c.state = state_of_rank[rank];
    }
  }
  for (const Communicator& communicator : schedule.communicators) {
    const Group& group = schedule.groups[static_cast<std::size_t>(communicator.group.index)];
    const std::vector<std::int32_t> sets = color_sets(group, colors);
    for (RankClass& c : classes) c.meetings.push_back(sets[group_of(group, static_cast<std::size_t>(c.first))]);
  }
  return classes;  // numbered in the order in which ranks first show them
}

}  // namespace shardsim
