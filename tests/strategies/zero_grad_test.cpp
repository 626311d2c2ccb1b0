// SPDX-License-Identifier: Apache-2.0
// zero_grad(set_to_none=False): which libraries keep their gradients between steps, filled with zeros, and which do not listen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs.hpp"
#include "schedule_facts.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Given = std::vector<std::pair<std::string, Options::Value>>;

OwnedJob keeping(const std::string& strategy, JobOptions options) {
  OwnedJob owned = make_job(equal_blocks(3), strategy, options);
  owned.job.training.optimizer.set_to_none = false;
  return owned;
}

constexpr std::int64_t three_squares = 3 * 64 * 64;

std::int64_t gradients_after(const Schedule& schedule) { return alive_after(schedule, in_category(Category::gradients)).back(); }
std::int64_t gradients_before(const Schedule& schedule) { return alive_after(schedule, in_category(Category::gradients)).front(); }
std::size_t zero_fills(const Schedule& schedule) {
  return static_cast<std::size_t>(
      std::count_if(schedule.ops.begin(), schedule.ops.end(), [](const Op& op) { return op.label.verb == std::string("zero_grad"); }));
}

/// FSDP's shards keep 4 bytes of gradient; a reduced shard is added to them and freed, in the first micro-batch too.
TEST(ZeroGrad, ShardsKeepTheirGradients) {
  for (const char* strategy : {"fsdp1", "fsdp2"})
    for (const bool warm : {true, false})
      for (const std::int32_t g : {1, 2}) {
        const Schedule s = valid_schedule(keeping(strategy, {.ranks = 4, .micro_batches = g, .reduce = DType::fp32, .warm = warm}));
        EXPECT_EQ(gradients_before(s), warm ? 4 * three_squares / 4 : 0) << strategy;
        EXPECT_EQ(gradients_after(s), 4 * three_squares / 4) << strategy;
        EXPECT_EQ(zero_fills(s), 3U) << strategy;
        EXPECT_EQ(bytes_sent(s), bytes_sent(valid_schedule(make_job(
                                     equal_blocks(3), strategy, {.ranks = 4, .micro_batches = g, .reduce = DType::fp32, .warm = warm}))));
      }
}

/// HSDP with the all-reduce in the last micro-batch only: partial shards stay apart from the kept gradient.
TEST(ZeroGrad, PartialShardsAreNotTheGradient) {
  for (const bool warm : {true, false}) {
    const Schedule s = valid_schedule(keeping("fsdp2", {.ranks = 4,
                                                        .micro_batches = 3,
                                                        .reduce = DType::fp32,
                                                        .warm = warm,
                                                        .options = {{"replicate", std::int64_t{2}}, {"requires_all_reduce", false}}}));
    EXPECT_EQ(gradients_after(s), 4 * three_squares / 2);
  }
}

/// DDP: gradients stay beside their buckets, or stay views of them: nothing is allocated in backward then.
TEST(ZeroGrad, DdpKeepsGradientsOrViews) {
  const Schedule plain = valid_schedule(keeping("ddp", {.ranks = 4}));
  EXPECT_EQ(gradients_before(plain), 2 * three_squares);
  EXPECT_EQ(most_alive(plain, in_category(Category::gradients)), 2 * three_squares);
  const Given view{{"gradient_as_bucket_view", true}};
  const Schedule views = valid_schedule(keeping("ddp", {.ranks = 4, .options = view}));
  EXPECT_EQ(most_alive(views, labelled(".grad")), 0);
  EXPECT_GT(most_alive(valid_schedule(make_job(equal_blocks(3), "ddp", {.ranks = 4, .options = view})), labelled(".grad")), 0);
  const Schedule first = valid_schedule(keeping("ddp", {.ranks = 4, .warm = false, .options = view}));
  EXPECT_GT(most_alive(first, labelled(".grad")), 0);
  EXPECT_EQ(alive_after(first, labelled(".grad")).back(), 0);
}

/// The engine empties gradients itself (DeepSpeed), or always fills its buffers with zeros (Megatron, OLMo): the choice is named as without
/// effect.
TEST(ZeroGrad, IsNotReadByEngines) {
  for (const char* strategy : {"zero1", "zero2", "zero3", "mics", "megatron", "olmo_ddp"}) {
    const OwnedJob owned = keeping(strategy, {.ranks = 4});
    EXPECT_THAT(emit(owned.job).warnings, Contains(HasSubstr("zero_grad has no effect"))) << strategy;
    EXPECT_EQ(fold_memory(emit(owned.job), 1).resident,
              fold_memory(emit(make_job(equal_blocks(3), strategy, {.ranks = 4}).job), 1).resident)
        << strategy;
  }
}

}  // namespace
}  // namespace shardsim::testing
