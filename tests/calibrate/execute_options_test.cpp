// SPDX-License-Identifier: Apache-2.0
// Options of strategies on real memory and a real network, with gradients set to none and filled with zeros between steps: bytes and peaks
// exact, losses and gradients those of one rank.
#include <gtest/gtest.h>

#include "calibrate/execute/execution.hpp"
#include "execute_job.hpp"

namespace shardsim::execute {
namespace {

struct Given {
  const char* strategy;
  std::vector<std::pair<std::string, Options::Value>> options;
};

const std::string hybrid = "HYBRID_SHARD", post = "BACKWARD_POST", titan = "torchtitan", fp32 = "fp32", keep = "false", two_ranks = "2";
const std::int64_t two = 2;

class ExecutedOptions : public testing::TestWithParam<Given> {};

TEST_P(ExecutedOptions, AgreeWithOneRank) {
  for (const bool set_to_none : {true, false}) {
    test::OwnedJob job = test::small_job(AttentionKind::flash, GetParam().strategy, Semantics::framework);
    test::use_mixed_precision(job);
    job.training.gradient_accumulation_steps = 2;
    job.training.optimizer.set_to_none = set_to_none;
    job.world_size = job.gpus_per_node = 4;
    for (const auto& [name, value] : GetParam().options) job.strategy.options.set(name, value);
    ASSERT_TRUE(check(job).empty()) << check(job).text();
    const ExecutionResult result = execute_local(job, {.steps = 3});
    EXPECT_EQ(result.sent.measured, result.sent.predicted);
    EXPECT_EQ(result.peak.measured, result.peak.predicted);
    EXPECT_TRUE(result.agree()) << "loss " << result.loss.largest_difference << ", gradient " << result.gradient.largest_difference;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, ExecutedOptions,
                         testing::Values(Given{"ddp", {{"gradient_as_bucket_view", true}}},
                                         Given{"ddp", {{"gradient_as_bucket_view", true}, {"no_sync", false}}},
                                         Given{"ddp", {{"no_sync", false}}}, Given{"ddp", {{"find_unused_parameters", true}}},
                                         Given{"zero_redundancy", {{"overlap_with_ddp", true}, {"bucket_cap_mb", 0.01}}},
                                         Given{"fsdp1", {{"backward_prefetch", post}}}, Given{"fsdp1", {{"no_sync", true}}},
                                         Given{"fsdp1", {{"sharding_strategy", hybrid}, {"replicate", two}}},
                                         Given{"fsdp2", {{"reshard_root_after_forward", true}}}, Given{"fsdp2", {{"wrap", titan}}},
                                         Given{"fsdp2", {{"reshard_after_forward", keep}, {"reshard_after_backward", false}}},
                                         Given{"fsdp2", {{"reshard_after_forward", two_ranks}}},
                                         Given{"fsdp2", {{"replicate", two}, {"requires_all_reduce", false}}},
                                         Given{"fsdp2", {{"replicate", two}, {"requires_gradient_sync", false}}},
                                         Given{"mics", {{"mics_shard_size", two}}}, Given{"zero3", {{"zero_hpz_partition_size", two}}},
                                         Given{"zero2", {{"use_multi_rank_bucket_allreduce", false}}},
                                         Given{"zero1", {{"grad_accum_dtype", fp32}}},
                                         Given{"megatron", {{"num_distributed_optimizer_instances", two}}}),
                         [](const testing::TestParamInfo<Given>& given) {
                           std::string name = given.param.strategy;
                           for (const auto& [option, value] : given.param.options) name += "_" + option;
                           return name + "_" + std::to_string(given.index);
                         });

}  // namespace
}  // namespace shardsim::execute
