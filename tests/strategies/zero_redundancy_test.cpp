// SPDX-License-Identifier: Apache-2.0
// torch's ZeroRedundancyOptimizer: who owns what, what is broadcast, and what it leaves of DDP.
#include <gmock/gmock.h>

#include <numeric>

#include "jobs.hpp"
#include "schedule_facts.hpp"

namespace shardsim::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Toy T on two ranks, largest first: 808 and 808; 80 four times in turn; 10 and 10, 8, 8 and 8: 808 + 160 + 10 + 8 + 8 and 986.
TEST(ZeroRedundancy, GivesWholeParametersToTheLeastLoadedRank) {
  const OwnedJob first = make_job(toy(), "zero_redundancy", {.ranks = 2});
  OwnedJob second = make_job(toy(), "zero_redundancy", {.ranks = 2, .rank = 1});
  EXPECT_EQ(alive_after(valid_schedule(first), in_category(Category::optimizer_states)).front(), 12 * 994);
  EXPECT_EQ(alive_after(valid_schedule(second), in_category(Category::optimizer_states)).front(), 12 * 986);
}

TEST(ZeroRedundancy, BroadcastsEveryParameterFromItsOwner) {
  const Schedule schedule = valid_schedule(make_job(toy(), "zero_redundancy", {.ranks = 2}));
  std::vector<std::int64_t> by_root(2);
  Elements expected_offset;
  for (const Communicate& c : collectives(schedule)) {
    if (c.kind != Collective::broadcast) continue;
    by_root[static_cast<std::size_t>(c.root)] += c.payload.value();
    EXPECT_EQ(c.offset, expected_offset) << "broadcasts cover the parameters one after another";
    expected_offset += c.payload;
  }
  EXPECT_EQ(payloads(schedule, Collective::broadcast).size(), 11U);
  EXPECT_THAT(by_root, ElementsAre(994, 986));
}

TEST(ZeroRedundancy, BroadcastsOneBucketForEachRank) {
  const Schedule schedule = valid_schedule(make_job(toy(), "zero_redundancy", {.ranks = 2, .options = {{"parameters_as_bucket_view", true}}}));
  EXPECT_THAT(payloads(schedule, Collective::broadcast), ElementsAre(994, 986));
  const Schedule more_ranks_than_parameters = valid_schedule(make_job(toy(), "zero_redundancy", {.ranks = 16, .rank = 15, .options = {{"parameters_as_bucket_view", true}}}));
  EXPECT_EQ(payloads(more_ranks_than_parameters, Collective::broadcast).size(), 11U);
}

TEST(ZeroRedundancy, SendsSixBytesAParameterInBf16AndTwelveInFp32) {
  for (const std::int64_t n : {2, 3, 4, 8}) {
    for (const bool view : {false, true}) {
      const std::vector<std::pair<std::string, Options::Value>> options{{"gradient_as_bucket_view", view}};
      EXPECT_EQ(bytes_sent(valid_schedule(make_job(toy(), "zero_redundancy", {.ranks = n, .micro_batches = 2, .options = options}))),
                (6 * 1980 * (n - 1) + n - 1) / n);
      EXPECT_EQ(bytes_sent(valid_schedule(make_job(
                    toy(), "zero_redundancy", {.ranks = n, .parameters = DType::fp32, .gradients = DType::fp32, .master = std::nullopt, .options = options}))),
                (12 * 1980 * (n - 1) + n - 1) / n);
    }
  }
}

TEST(ZeroRedundancy, UpdatesOnlyWhatItOwns) {
  const OwnedJob job = make_job(toy(), "zero_redundancy", {.ranks = 4, .parameters = DType::fp32, .gradients = DType::fp32, .master = std::nullopt, .rank = 3});
  std::int64_t updated = 0;
  const Schedule schedule = valid_schedule(job);
  EXPECT_TRUE(moments_fit_weights(schedule));
  for (const Op& op : schedule.ops)
    if (const auto* u = std::get_if<Update>(&op.action)) updated += u->count.value();
  // 808 and 808 go to ranks 0 and 1; then rank 2 and 3 share 4 x 80, 10, 10, 8, 8, 8: 80 + 80 + 10 + 8 + 8 and 80 + 80 + 10 + 8.
  EXPECT_EQ(updated, 178);
}

TEST(ZeroRedundancy, SaysWhyItDiffersFromThePaper) {
  EXPECT_THAT(emit(make_job(toy(), "zero_redundancy").job).differs_because, ::testing::HasSubstr("broadcast"));
  EXPECT_THAT(emit(make_job(toy(), "zero_redundancy").job).warnings, IsEmpty());
}

}  // namespace
}  // namespace shardsim::testing
