// SPDX-License-Identifier: Apache-2.0
// Options without effect are named in the schedule's warnings; combinations that a library forbids are problems that say so. One row an
// option, for every strategy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "jobs.hpp"

namespace shardsim::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Given = std::vector<std::pair<std::string, Options::Value>>;

struct Row {
  const char* strategy;
  Given options;
  const char* says;
  JobOptions job{};
  std::function<void(Training&)> change{};
};

std::string row_name(const ::testing::TestParamInfo<Row>& row) {
  std::string name = std::string(row.param.strategy) + "_" + (row.param.options.empty() ? "training" : row.param.options.back().first) +
                     "_" + std::to_string(row.index);
  return name;
}

OwnedJob job_of(const Row& row) {
  JobOptions options = row.job;
  options.options = row.options;
  OwnedJob owned = make_job(toy(), row.strategy, options);
  if (row.change) row.change(owned.job.training);
  return owned;
}

const std::int64_t one = 1, two = 2, many = 1000;
const std::string fp32 = "fp32", no_shard = "NO_SHARD", keep = "false", titan = "torchtitan";

class NoEffect : public ::testing::TestWithParam<Row> {};

TEST_P(NoEffect, IsNamed) {
  const Schedule schedule = valid_schedule(job_of(GetParam()));
  EXPECT_THAT(schedule.warnings, Contains(HasSubstr(GetParam().says)));
  Row plain = GetParam();
  if (plain.options.empty()) return;
  plain.options.clear();
  plain.change = {};
  EXPECT_THAT(emit(job_of(plain).job).warnings, ::testing::Not(Contains(HasSubstr("has no effect"))))
      << "nothing given, nothing to warn of";
}

void gradients_are_zeroed(Training& training) { training.optimizer.set_to_none = false; }
void offloads_parameters(Training& training) { training.offload.parameters = OffloadTarget::cpu; }

INSTANTIATE_TEST_SUITE_P(
    Options, NoEffect,
    ::testing::Values(
        Row{"ddp", {{"no_sync", true}}, "no_sync has no effect with one micro-batch"},
        Row{"ddp", {{"static_graph", true}, {"find_unused_parameters", true}}, "find_unused_parameters has no effect on the buckets"},
        Row{"ddp", {{"expert_capacity_factor", 1.5}}, "expert_capacity_factor has no effect"},
        Row{"zero_redundancy", {{"no_sync", false}}, "no_sync has no effect with one micro-batch"},
        Row{"zero_redundancy",
            {{"overlap_with_ddp", true}, {"parameters_as_bucket_view", true}},
            "parameters_as_bucket_view has no effect"},
        Row{"zero_redundancy",
            {{"overlap_with_ddp", true}},
            "clip_grad_norm has no effect",
            {},
            [](Training& training) { training.optimizer.clip_grad_norm = 1.0; }},
        Row{"zero1", {{"allgather_bucket_size", many}}, "allgather_bucket_size has no effect"},
        Row{"zero1", {{"allgather_partitions", true}}, "allgather_partitions has no effect"},
        Row{"zero1",
            {{"contiguous_gradients", false}, {"reduce_scatter", true}},
            "reduce_scatter has no effect: without contiguous_gradients"},
        Row{"zero1",
            {{"reduce_scatter", false}, {"use_multi_rank_bucket_allreduce", false}},
            "use_multi_rank_bucket_allreduce has no effect: reduce_scatter is off"},
        Row{"zero1", {{"grad_accum_dtype", fp32}, {"overlap_comm", true}}, "overlap_comm has no effect: BF16_Optimizer"},
        Row{"zero1", {{"round_robin_gradients", true}}, "round_robin_gradients has no effect", {.ranks = 1}},
        Row{"zero1", {{"expert_capacity_factor", 1.0}}, "expert_capacity_factor has no effect"},
        Row{"zero1", {}, "offload of parameters has no effect", {}, offloads_parameters},
        Row{"zero2", {}, "offload of parameters has no effect", {}, offloads_parameters},
        Row{"zero2", {{"allgather_bucket_size", many}}, "allgather_bucket_size has no effect"},
        Row{"zero2", {{"grad_accum_dtype", fp32}}, "accumulation dtype has no effect"},
        Row{"zero3", {{"allgather_bucket_size", many}}, "allgather_bucket_size has no effect at stage 3"},
        Row{"zero3", {{"round_robin_gradients", true}}, "round_robin_gradients has no effect at stage 3"},
        Row{"zero3", {{"zero_quantized_gradients", true}}, "zero_quantized_gradients has no effect on one node"},
        Row{"zero3", {{"zero_hpz_partition_size", one}}, "zero_hpz_partition_size has no effect"},
        Row{"mics", {{"allgather_bucket_size", many}}, "allgather_bucket_size has no effect at stage 3"},
        Row{"mics", {{"mics_shard_size", two}, {"zero_hpz_partition_size", two}}, "zero_hpz_partition_size has no effect: MiCS"},
        Row{"mics", {{"mics_shard_size", two}, {"zero_quantized_weights", true}}, "zero_quantized_weights has no effect: MiCS"},
        Row{"fsdp1",
            {{"sharding_strategy", no_shard}, {"backward_prefetch", std::string("BACKWARD_POST")}},
            "backward_prefetch has no effect with NO_SHARD"},
        Row{"fsdp1", {{"sharding_strategy", no_shard}, {"forward_prefetch", true}}, "forward_prefetch has no effect with NO_SHARD"},
        Row{"fsdp1", {{"no_sync", true}}, "no_sync has no effect with one micro-batch"},
        Row{"fsdp2", {{"no_sync", true}}, "no_sync has no effect: FSDP2 modules have none"},
        Row{"fsdp2", {{"requires_gradient_sync", false}}, "requires_gradient_sync has no effect: there is one micro-batch"},
        Row{"fsdp2", {{"reshard_after_backward", false}}, "reshard_after_backward has no effect: there is one micro-batch"},
        Row{"fsdp2", {{"requires_all_reduce", false}}, "requires_all_reduce has no effect: nothing is replicated", {.micro_batches = 2}},
        Row{"fsdp2", {{"unshard_in_backward", false}}, "unshard_in_backward has no effect"},
        Row{"fsdp2", {{"forward_prefetch", two}}, "forward_prefetch has no effect: a shard group of one rank", {.ranks = 1}},
        Row{"fsdp2", {{"reshard_after_forward", std::string("1")}}, "parameters stay gathered"},
        Row{"fsdp2", {{"expert_capacity_factor", 1.5}}, "expert_capacity_factor has no effect"},
        Row{"megatron", {{"bucket_size", many}}, "bucket_size has no effect"},
        Row{"megatron", {{"average_in_collective", true}}, "average_in_collective has no effect on one rank", {.ranks = 1}},
        Row{"megatron", {{"expert_capacity_factor", 1.5}}, "expert_capacity_factor has no effect"},
        Row{"megatron", {}, "zero_grad has no effect", {}, gradients_are_zeroed},
        Row{"olmo_ddp", {{"no_sync", true}}, "no_sync has no effect with one micro-batch"},
        Row{"olmo_ddp", {{"expert_capacity_factor", 1.5}}, "expert_capacity_factor has no effect"},
        Row{"olmo_ddp", {}, "zero_grad has no effect", {}, gradients_are_zeroed}),
    row_name);

class Forbidden : public ::testing::TestWithParam<Row> {};

TEST_P(Forbidden, IsAProblemThatSaysSo) { EXPECT_THAT(check(job_of(GetParam()).job).text(), HasSubstr(GetParam().says)); }

void offloads_the_optimizer_to_nvme(Training& training) { training.offload.optimizer = OffloadTarget::nvme; }
void offloads_the_optimizer(Training& training) { training.offload.optimizer = OffloadTarget::cpu; }

INSTANTIATE_TEST_SUITE_P(
    Options, Forbidden,
    ::testing::Values(
        Row{"ddp", {{"expert_parallel_size", two}}, "the model has no routed experts"},
        Row{"zero_redundancy",
            {{"overlap_with_ddp", true}},
            "a single parameter group only",
            {},
            [](Training& training) { training.optimizer.split_weight_decay = true; }},
        Row{"zero_redundancy", {{"overlap_with_ddp", true}, {"no_sync", false}}, "accumulation needs no_sync", {.micro_batches = 2}},
        Row{"fsdp2", {{"replicate", std::int64_t{3}}}, "does not divide the world of 8 ranks"},
        Row{"fsdp2", {{"reshard_after_forward", std::string("3")}}, "does not divide the shard group of 8 ranks"},
        Row{"fsdp2", {{"reshard_after_forward", std::string("sometimes")}}, "is not true, false or a number of ranks"},
        Row{"fsdp2", {{"expert_parallel_size", two}}, "the model has no routed experts"},
        Row{"fsdp1", {{"replicate", two}}, "replicate needs sharding_strategy HYBRID_SHARD"},
        Row{"zero1", {}, "offload of the optimizer to nvme needs ZeRO stage 3", {}, offloads_the_optimizer_to_nvme},
        Row{"zero2", {}, "an fp16 master copy needs offload", {.master = DType::fp16}},
        Row{"zero2", {{"expert_parallel_size", two}}, "the model has no routed experts"},
        Row{"zero3", {{"zero_hpz_partition_size", std::int64_t{3}}}, "does not divide the world of 8 ranks"},
        Row{"mics", {{"mics_shard_size", std::int64_t{3}}}, "does not divide the world of 8 ranks"},
        Row{"mics", {{"mics_shard_size", two}}, "local sharding has no support for CPU offloading", {}, offloads_the_optimizer},
        Row{"megatron", {{"overlap_param_gather", true}}, "needs overlap_grad_reduce"},
        Row{"megatron", {{"num_distributed_optimizer_instances", std::int64_t{3}}}, "does not divide the world of 8 ranks"},
        Row{"megatron",
            {{"use_distributed_optimizer", false}, {"overlap_grad_reduce", true}, {"overlap_param_gather", true}},
            "needs use_distributed_optimizer"},
        Row{"megatron", {}, "offload is not supported", {}, offloads_the_optimizer},
        Row{"olmo_ddp", {{"reduce_scatter_grads", true}}, "cannot be combined with the bucketed DDP"},
        Row{"olmo_ddp", {}, "offload is not supported", {}, offloads_the_optimizer}),
    row_name);

}  // namespace
}  // namespace shardsim::testing
