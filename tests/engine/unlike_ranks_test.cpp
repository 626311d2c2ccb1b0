// SPDX-License-Identifier: Apache-2.0
// Ranks that differ: classes of alike ranks, a worked straggler, and folded against unfolded replays of small worlds.
#include "sim/engine/unlike_ranks.hpp"

#include <gtest/gtest.h>

#include <random>

#include "sim/engine/due_times.hpp"
#include "sim/engine/rank_classes.hpp"
#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {
namespace {

/// A world of `n` ranks with a shard group of `s` neighbours and a replica group across them.
Schedule two_groups(std::int64_t n, std::int64_t s) {
  Schedule schedule;
  schedule.world_size = n;
  schedule.groups = {{.name = "shard", .size = s, .stride = 1}, {.name = "replicate", .size = n / s, .stride = s}};
  schedule.communicators = {{.name = "shard", .group = GroupId{0}}, {.name = "replicate", .group = GroupId{1}}};
  return schedule;
}

std::vector<std::int64_t> sizes(const std::vector<RankClass>& classes) {
  std::vector<std::int64_t> out;
  for (const RankClass& c : classes) out.push_back(c.ranks);
  return out;
}

TEST(FoldRanks, AlikeRanksAreOneClass) {
  const std::vector<std::uint32_t> states(8, 0);
  const auto classes = fold_ranks(two_groups(8, 4), states);
  EXPECT_EQ(sizes(classes), (std::vector<std::int64_t>{8}));
  EXPECT_EQ(classes[0].meetings, (std::vector<std::int32_t>{0, 0}));
}

// 8 ranks, shard groups {0..3} and {4..7}, replica groups {0,4} {1,5} {2,6} {3,7}. Rank 3 is slow. Its shard neighbours meet it in their
// shard group, rank 7 in its replica group, and 4, 5, 6 meet only those: four classes.
TEST(FoldRanks, ASlowRankSplitsItsNeighboursFromTheRest) {
  std::vector<std::uint32_t> states(8, 0);
  states[3] = 1;
  const auto classes = fold_ranks(two_groups(8, 4), states);
  EXPECT_EQ(sizes(classes), (std::vector<std::int64_t>{3, 1, 3, 1}));  // {0,1,2} {3} {4,5,6} {7}
  EXPECT_EQ(classes[1].first, 3);
  EXPECT_EQ(classes[3].first, 7);
  EXPECT_EQ(classes[0].meetings[0], classes[1].meetings[0]);  // they meet on the shard communicator
  EXPECT_EQ(classes[1].meetings[1], classes[3].meetings[1]);  // 3 and 7 on the replica one
  EXPECT_NE(classes[0].meetings[1], classes[1].meetings[1]);
}

TEST(FoldRanks, AStateIsNeededForEachRank) {
  const std::vector<std::uint32_t> states(7, 0);
  EXPECT_THROW((void)fold_ranks(two_groups(8, 4), states), std::logic_error);
}

TEST(DueTimes, TreeAndScanAgree) {
  for (const std::size_t count : {1U, 2U, 47U, 48U, 49U, 64U, 65U, 200U}) {
    DueTimes due(count);
    std::vector<DueTimes::Time> plain(count, DueTimes::never);
    std::mt19937 random(7);
    for (int i = 0; i < 2000; ++i) {
      const std::size_t at = random() % count;
      plain[at] = random() % 8 == 0 ? DueTimes::never : static_cast<DueTimes::Time>(random() % 50);
      due.set(at, plain[at]);
      const auto earliest = std::min_element(plain.begin(), plain.end());
      const DueTimes::Next next = due.next();
      ASSERT_EQ(next.time, *earliest);
      if (*earliest == DueTimes::never) continue;
      ASSERT_EQ(next.index, static_cast<std::size_t>(earliest - plain.begin()));
      std::vector<DueTimes::Time> others = plain;
      others.erase(others.begin() + (earliest - plain.begin()));
      ASSERT_EQ(next.others, others.empty() ? DueTimes::never : *std::min_element(others.begin(), others.end()));
    }
  }
}

}  // namespace
}  // namespace shardsim
