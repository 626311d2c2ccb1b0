// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO stages 1 and 2: what is alive when (the rows of the memory table, to the byte), and what offload moves to the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule_facts.hpp"
#include "strategies/strategy.hpp"
#include "toy_model.hpp"

namespace shardsim::testing {
namespace {

using ::testing::IsEmpty;

constexpr std::int64_t psi = 1980, flat = 1984, n = 4, partition = flat / n;
constexpr std::int64_t bucket = 3000;

struct MemoryCase {
  std::shared_ptr<const Model> model = toy_model();
  Job job;

  MemoryCase(const std::string& strategy, std::int32_t micro_batches) {
    job.model = model.get();
    job.strategy.name = strategy;
    job.world_size = n;
    job.training.gradient_accumulation_steps = micro_batches;
    job.strategy.options.set("reduce_bucket_size", bucket);
  }
  [[nodiscard]] Schedule schedule() const {
    EXPECT_TRUE(check(job).empty());
    Schedule schedule = emit(job);
    EXPECT_THAT(validate(schedule), IsEmpty());
    return schedule;
  }
};

std::int64_t before_the_step(const Schedule& schedule, Category category) { return alive_after(schedule, in_category(category)).front(); }

TEST(Zero12Memory, ParametersAreWholeAndStatesSharded) {
  for (const char* strategy : {"zero1", "zero2"}) {
    const Schedule schedule = MemoryCase(strategy, 1).schedule();
    EXPECT_EQ(before_the_step(schedule, Category::parameters), 2 * flat);
    EXPECT_EQ(before_the_step(schedule, Category::optimizer_states), 12 * partition);
    EXPECT_EQ(before_the_step(schedule, Category::gradients), 0);
  }
}

TEST(Zero12Memory, Stage1KeepsAllGradientsBetweenMicroBatches) {
  const Schedule schedule = MemoryCase("zero1", 2).schedule();
  EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 0, in_category(Category::gradients)), 2 * psi);
  // At the boundary only whole parameters that touch the partition are left: on rank 0 the embedding.
  EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 1, in_category(Category::gradients)), 2 * 808);
}

TEST(Zero12Memory, Stage2KeepsWholeParametersThatTouchThePartition) {
  MemoryCase second("zero2", 2);
  second.job.rank = 1;  // elements 496 to 992: embed 808, then 80, 10, 80, 8 and the next 80
  const Schedule schedule = second.schedule();
  const std::int64_t owned = 2 * (808 + 80 + 10 + 80 + 8 + 80);
  EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 0, in_category(Category::gradients)), owned);
  EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 1, in_category(Category::gradients)), owned);
  EXPECT_EQ(most_alive(schedule, labelled("grads_in_partition")), 2 * owned) << "a second partition in later micro-batches";
  EXPECT_EQ(most_alive(MemoryCase("zero2", 1).schedule(), labelled("grads_in_partition")), 2 * 808);
}

TEST(Zero12Memory, TheBucketBufferIsAlwaysWhole) {
  for (const char* strategy : {"zero1", "zero2"}) {
    MemoryCase one(strategy, 2);
    EXPECT_EQ(most_alive(one.schedule(), labelled("ipg buffer")), 2 * bucket);
    // Stage 1 keeps it through the next micro-batch's forward; stage 2 frees it in every epilogue.
    EXPECT_EQ(alive_at_end_of(one.schedule(), Phase::backward, 0, labelled("ipg buffer")),
              std::string_view(strategy) == "zero1" ? 2 * bucket : 0);
    EXPECT_EQ(alive_at_end_of(one.schedule(), Phase::backward, 1, labelled("ipg buffer")), 0);
    one.job.strategy.options.set("overlap_comm", true);
    EXPECT_EQ(most_alive(one.schedule(), labelled("ipg buffer")), 2 * 2 * bucket);
    one.job.strategy.options.set("contiguous_gradients", false);
    EXPECT_EQ(most_alive(one.schedule(), labelled("ipg buffer")), 0);
  }
}

TEST(Zero12Memory, SlicesAreFlattenedForTheAllReduce) {
  EXPECT_EQ(most_alive(MemoryCase("zero1", 1).schedule(), labelled("flatten")), 2 * psi);
  MemoryCase plain("zero1", 1);
  plain.job.strategy.options.set("reduce_scatter", false);
  EXPECT_EQ(most_alive(plain.schedule(), labelled("flatten")), 0) << "one all-reduce in place";
  MemoryCase alone("zero1", 1);
  alone.job.world_size = 1;
  EXPECT_EQ(most_alive(alone.schedule(), labelled("flatten")), 0) << "one owner: flatten of one tensor is a view";
}

TEST(Zero12Memory, TheStepCastsThePartitionGroupByGroup) {
  MemoryCase other("zero2", 1);
  other.job.rank = 1;
  const Schedule schedule = other.schedule();
  EXPECT_EQ(most_alive(schedule, labelled("flat_grad_partition")), 2 * partition);
  EXPECT_EQ(most_alive(schedule, labelled("single_grad_partition")), 4 * partition);
  EXPECT_EQ(most_alive(schedule, labelled("g.double")), 8 * 312) << "the largest slice: what the embedding leaves to rank 1";
  EXPECT_EQ(most_alive(MemoryCase("zero2", 1).schedule(), labelled("flat_grad_partition")), 0)
      << "rank 0 owns one slice: no copy to flatten it";
}

TEST(Zero12Memory, WithoutContiguousGradientsTheyAreReducedFromWhereTheyAre) {
  MemoryCase each("zero2", 2);
  each.job.strategy.options.set("contiguous_gradients", false);
  const Schedule schedule = each.schedule();
  EXPECT_EQ(most_alive(schedule, labelled("flatten")), 2 * psi);
  EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 0, in_category(Category::gradients)), 2 * 808);
  EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 0, in_category(Category::unsharded_gradients)), 0);
}

TEST(Zero12Memory, Bf16OptimizerKeepsAllGradientsTwice) {
  MemoryCase bf16("zero1", 2);
  bf16.job.training.precision.gradients = DType::fp32;
  const Schedule schedule = bf16.schedule();
  EXPECT_EQ(before_the_step(schedule, Category::gradients), 4 * flat);
  EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 1, in_category(Category::gradients)), 4 * flat + 2 * psi);
  EXPECT_EQ(alive_at_end_of(schedule, Phase::step, 1, in_category(Category::gradients)), 4 * flat);
  EXPECT_EQ(most_alive(schedule, in_category(Category::communication_buffers)), 2 * flat) << "the copy in the communication dtype";
}

TEST(Zero12Memory, Fp16WithFp32AccumulationKeepsAnFp32Sum) {
  MemoryCase fp16("zero1", 2);
  fp16.job.training.precision.parameters = DType::fp16;
  fp16.job.training.precision.gradients = DType::fp32;
  const Schedule schedule = fp16.schedule();
  EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 0, in_category(Category::gradients)), 4 * psi);
  EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 0, in_category(Category::unsharded_gradients)), 0);
}

TEST(Zero12Memory, OffloadLeavesParametersAndBucketsOnTheGpu) {
  for (const char* strategy : {"zero1", "zero2"}) {
    MemoryCase cpu(strategy, 2);
    cpu.job.training.offload.optimizer = OffloadTarget::cpu;
    const Schedule schedule = cpu.schedule();
    EXPECT_EQ(before_the_step(schedule, Category::optimizer_states), 0);
    EXPECT_EQ(alive_at_end_of(schedule, Phase::backward, 1, in_category(Category::gradients)), 0);
    EXPECT_EQ(alive_after(schedule, labelled("temp_grad_buffer_for_gpu_offload")).front(), 2 * 808);
    EXPECT_EQ(alive_after(schedule, labelled("single_partition_of_fp32_groups.grad")).front(), 4 * partition);
    std::int64_t to_host = 0, to_device = 0;
    for (const Op& op : schedule.ops)
      if (const auto* c = std::get_if<Copy>(&op.action)) {
        to_host += c->path == CopyPath::to_host ? c->count.value() : 0;
        to_device += c->path == CopyPath::to_device ? c->count.value() : 0;
      }
    const bool accumulates = std::string_view(strategy) == "zero2";
    EXPECT_EQ(to_host, (accumulates ? 2 * 808 : 0) + partition);
    EXPECT_EQ(to_device, (accumulates ? 808 : 0) + partition);
  }
}

TEST(Zero12Memory, PureBf16KeepsABf16Partition) {
  MemoryCase pure("zero2", 1);
  pure.job.training.precision.master.reset();
  pure.job.training.precision.moments = DType::bf16;
  EXPECT_EQ(before_the_step(pure.schedule(), Category::optimizer_states), 6 * partition);
}

TEST(Zero12Memory, TheFirstStepMakesTheMoments) {
  MemoryCase first("zero1", 1);
  first.job.training.warm = false;
  EXPECT_EQ(alive_at_end_of(first.schedule(), Phase::backward, 0, in_category(Category::optimizer_states)), 4 * partition);
}

}  // namespace
}  // namespace shardsim::testing
