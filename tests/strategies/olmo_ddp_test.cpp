// SPDX-License-Identifier: Apache-2.0
// OLMo-core's DDP: buckets, which tensors are sharded, what is sent.
#include <gmock/gmock.h>

#include "jobs.hpp"
#include "schedule_facts.hpp"

namespace shardsim::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// One matrix of 64 x 64 and a bias of 64 a block: 4096 elements are sharded on ranks that divide them, 64 are not.
std::shared_ptr<const Architecture> blocks(int count) {
  return inline_layers("- {name: block, repeat: " + std::to_string(count) + ", block: true, parameters: {w: [64, 64], b: [64]}}\n");
}

TEST(OlmoDdp, AllReducesFp32AndGathersWhatIsSharded) {
  const Schedule schedule = valid_schedule(make_job(blocks(3), "olmo_ddp", {.ranks = 4, .micro_batches = 2}));
  EXPECT_THAT(payloads(schedule, Collective::all_reduce), ElementsAre(3 * 4160));
  EXPECT_THAT(payloads(schedule, Collective::all_gather), ElementsAre(3 * 4096));
  EXPECT_EQ(bytes_sent(schedule), (8 * 3 * 4160 + 2 * 3 * 4096) * 3 / 4);
}

TEST(OlmoDdp, SmallTensorsAndThoseThatDoNotDivideAreUpdatedEverywhere) {
  EXPECT_THAT(payloads(valid_schedule(make_job(blocks(3), "olmo_ddp", {.ranks = 3})), Collective::all_gather), IsEmpty());
  EXPECT_EQ(bytes_sent(valid_schedule(make_job(toy(), "olmo_ddp", {.ranks = 4}))), 8 * 1980 * 3 / 4);
}

TEST(OlmoDdp, FlushesBeforeABucketWouldOverflow) {
  // fp32 bytes: 16,640 a block; a bucket of 33,000 holds the bias and the matrix of one block and of the next, reversed.
  const Schedule schedule =
      valid_schedule(make_job(blocks(3), "olmo_ddp", {.ranks = 4, .options = {{"bucket_cap_mb", 33300.0 / 1048576}}}));
  EXPECT_THAT(payloads(schedule, Collective::all_reduce), ElementsAre(2 * 4160, 4160));
}

TEST(OlmoDdp, GathersEachParamGroup) {
  const auto two = inline_layers("- {name: block, repeat: 2, block: true, parameters: {w: [64, 64], b: [8192]}}\n");
  const Schedule schedule = valid_schedule(make_job(two, "olmo_ddp", {.ranks = 4, .split_weight_decay = true}));
  EXPECT_THAT(payloads(schedule, Collective::all_gather), ElementsAre(2 * 4096, 2 * 8192));
}

TEST(OlmoDdp, KeepsFp32GradientsWholeAndTheOptimizerSharded) {
  const Schedule schedule = valid_schedule(make_job(blocks(3), "olmo_ddp", {.ranks = 4}));
  const std::int64_t psi = 3 * 4160, sharded = 3 * 4096;
  EXPECT_EQ(alive_after(schedule, in_category(Category::parameters)).front(), 2 * psi);
  EXPECT_EQ(alive_after(schedule, in_category(Category::gradients)).front(), 4 * psi);
  EXPECT_EQ(alive_after(schedule, in_category(Category::optimizer_states)).front(), 12 * (sharded / 4 + psi - sharded));
  EXPECT_EQ(most_alive(schedule, in_category(Category::communication_buffers)), 2 * sharded + 2 * sharded / 4)
      << "the gather buffer and the packed shards";
}

TEST(OlmoDdp, ABf16WireNeedsABufferOfItsOwn) {
  const Schedule schedule = valid_schedule(make_job(blocks(3), "olmo_ddp", {.ranks = 4, .reduce = DType::bf16}));
  EXPECT_EQ(alive_after(schedule, in_category(Category::communication_buffers)).front(), 2 * 3 * 4160);
  EXPECT_EQ(bytes_sent(schedule), (4 * 3 * 4160 + 2 * 3 * 4096) * 3 / 4);
}

TEST(OlmoDdp, MuonGathersEveryMatrixInFp32) {
  const Schedule schedule = valid_schedule(make_job(blocks(3), "olmo_ddp", {.ranks = 4, .optimizer = OptimizerKind::muon}));
  EXPECT_EQ(bytes_sent(schedule), (8 * 3 * 4160 + (2 + 4) * 3 * 4096) * 3 / 4);
}

// foreach works on 600 million elements at once: Llama-2-7B on four ranks steps on 1,685 million.
TEST(OlmoDdp, StepsInChunks) {
  EXPECT_EQ(most_alive(valid_schedule(make_job(preset_named("llama-2-7b"), "olmo_ddp", {.ranks = 4})), labelled("optimizer temporaries")),
            4 * 600'000'000LL);
  EXPECT_EQ(most_alive(valid_schedule(make_job(equal_blocks(3), "olmo_ddp", {.ranks = 4})), labelled("optimizer temporaries")),
            4 * 3 * 64 * 64 / 4);
}

TEST(OlmoDdp, RefusesReduceScatterOfBucketedGradients) {
  const OwnedJob job = make_job(toy(), "olmo_ddp", {.options = {{"reduce_scatter_grads", true}}});
  EXPECT_THAT(check(job.job).text(), HasSubstr("cannot be combined"));
}

}  // namespace
}  // namespace shardsim::testing
