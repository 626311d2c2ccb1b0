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
  const Schedule schedule =
      valid_schedule(make_job(toy(), "zero_redundancy", {.ranks = 2, .options = {{"parameters_as_bucket_view", true}}}));
  EXPECT_THAT(payloads(schedule, Collective::broadcast), ElementsAre(994, 986));
  const Schedule more_ranks_than_parameters =
      valid_schedule(make_job(toy(), "zero_redundancy", {.ranks = 16, .rank = 15, .options = {{"parameters_as_bucket_view", true}}}));
  EXPECT_EQ(payloads(more_ranks_than_parameters, Collective::broadcast).size(), 11U);
}

TEST(ZeroRedundancy, SendsSixBytesAParameterInBf16AndTwelveInFp32) {
  for (const std::int64_t n : {2, 3, 4, 8}) {
    for (const bool view : {false, true}) {
      const std::vector<std::pair<std::string, Options::Value>> options{{"gradient_as_bucket_view", view}};
      EXPECT_EQ(bytes_sent(valid_schedule(make_job(toy(), "zero_redundancy", {.ranks = n, .micro_batches = 2, .options = options}))),
                (6 * 1980 * (n - 1) + n - 1) / n);
      EXPECT_EQ(bytes_sent(valid_schedule(make_job(
                    toy(), "zero_redundancy",
                    {.ranks = n, .parameters = DType::fp32, .gradients = DType::fp32, .master = std::nullopt, .options = options}))),
                (12 * 1980 * (n - 1) + n - 1) / n);
    }
  }
}

TEST(ZeroRedundancy, UpdatesOnlyWhatItOwns) {
  const OwnedJob job = make_job(toy(), "zero_redundancy",
                                {.ranks = 4, .parameters = DType::fp32, .gradients = DType::fp32, .master = std::nullopt, .rank = 3});
  std::int64_t updated = 0;
  const Schedule schedule = valid_schedule(job);
  EXPECT_TRUE(moments_fit_weights(schedule));
  for (const Op& op : schedule.ops)
    if (const auto* u = std::get_if<Update>(&op.action)) updated += u->count.value();
  // 808 and 808 go to ranks 0 and 1; then rank 2 and 3 share 4 x 80, 10, 10, 8, 8, 8: 80 + 80 + 10 + 8 + 8 and 80 + 80 + 10 + 8.
  EXPECT_EQ(updated, 178);
}

/// Buckets of one matrix each, of ranks 0, 1, 0: each is waited for, stepped on and broadcast by its owner before gradients are copied
/// back.
TEST(ZeroRedundancy, OverlapsTheStepWithDdp) {
  const std::vector<std::pair<std::string, Options::Value>> options{{"overlap_with_ddp", true}, {"bucket_cap_mb", 0.001}};
  for (const std::int64_t rank : {0, 1}) {
    const OwnedJob owned = make_job(equal_blocks(3), "zero_redundancy", {.ranks = 2, .rank = rank, .options = options});
    const Schedule schedule = valid_schedule(owned);
    std::vector<std::string> order;
    for (const Op& op : schedule.ops) {
      const std::string verb = op.label.verb;
      if (verb == "nccl:broadcast" || verb == "optimizer.step" || verb == "nccl:all_reduce") order.push_back(to_text(op.label, schedule));
      EXPECT_TRUE(op.phase != Phase::step || !std::holds_alternative<Update>(op.action));
    }
    std::vector<std::string> expected{"nccl:all_reduce(bucket 0)", "nccl:all_reduce(bucket 1)", "nccl:all_reduce(bucket 2)"};
    for (std::int64_t b = 0; b < 3; ++b) {
      if (b % 2 == rank) expected.push_back("optimizer.step(bucket " + std::to_string(b) + ")");
      expected.push_back("nccl:broadcast(bucket " + std::to_string(b) + ")");
    }
    EXPECT_EQ(order, expected);
    EXPECT_EQ(bytes_sent(schedule), 6 * 3 * 4096 / 2);
    EXPECT_EQ(alive_after(schedule, in_category(Category::optimizer_states)).front(), 12 * 4096 * (rank == 0 ? 2 : 1));
  }
  const Schedule first = valid_schedule(make_job(equal_blocks(3), "zero_redundancy", {.ranks = 2, .warm = false, .options = options}));
  EXPECT_THAT(payloads(first, Collective::broadcast), IsEmpty()) << "DDP settles its buckets first";
}

TEST(ZeroRedundancy, SaysWhyItDiffersFromThePaper) {
  EXPECT_THAT(emit(make_job(toy(), "zero_redundancy").job).differs_because, ::testing::HasSubstr("broadcast"));
  EXPECT_THAT(emit(make_job(toy(), "zero_redundancy").job).warnings, IsEmpty());
}

}  // namespace
}  // namespace shardsim::testing
