// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> all_reduce_bytes(const Schedule& schedule) {
  std::vector<std::int64_t> sizes;
  for (const Op& op : schedule.ops)
    if (const auto* c = std::get_if<Communicate>(&op.action); c && !c->control && c->kind == Collective::all_reduce)
      sizes.push_back(bytes(c->payload, c->dtype).value());
  return sizes;
}

JobOptions fp32_job(std::int64_t n) {
  return {.ranks = n, .parameters = DType::fp32, .gradients = DType::fp32, .master = std::nullopt, .sequence = 1};
}

// pytorch#48880: ResNet-18 on 4 GPUs, caps 25 and 35 MiB, first bucket 1 MiB.
TEST(DdpBuckets, ResNet18) {
  const auto model = preset_named("resnet-18");
  EXPECT_THAT(all_reduce_bytes(valid_schedule(make_job(model, "ddp", fp32_job(4)))), ElementsAre(2052000, 28852224, 15853824));
  JobOptions wide = fp32_job(4);
  wide.options = {{"bucket_cap_mb", 35.0}, {"first_bucket_mb", 1.0}};
  EXPECT_THAT(all_reduce_bytes(valid_schedule(make_job(model, "ddp", wide))), ElementsAre(2052000, 38297600, 6408448));
  // Batch norm's buffers beside: 20 norms with two statistics a channel (4,800 channels), and a counter each; the chain's first three ranks
  // send.
  EXPECT_EQ(sent(model, "ddp", fp32_job(4)), 70137072 + 2 * 4800 * 4 + 20 * 8);
}

TEST(DdpBytes, ToyWithFp32Gradients) {
  EXPECT_EQ(sent(toy(), "ddp", fp32_job(2)), 7920);
  EXPECT_EQ(sent(toy(), "ddp", fp32_job(4)), 11880);
  EXPECT_EQ(sent(toy(), "ddp", fp32_job(8)), 13860);
}

TEST(DdpBytes, Llama2_7BDoesNotDependOnAccumulation) {
  for (std::int32_t g : {1, 4})
    EXPECT_NEAR(static_cast<double>(sent(preset_named("llama-2-7b"), "ddp", {.ranks = 8, .micro_batches = g})) / 1e9, 23.584, 5e-4);
}

TEST(DdpBytes, WithoutNoSyncEveryMicroBatchIsReduced) {
  JobOptions each = fp32_job(4);
  each.micro_batches = 3;
  each.options = {{"no_sync", false}};
  EXPECT_EQ(sent(toy(), "ddp", each), 3 * 11880);
}

TEST(DdpFirstIteration, HasOneBucketAndNoOverlap) {
  JobOptions cold = fp32_job(4);
  cold.warm = false;
  EXPECT_THAT(all_reduce_bytes(valid_schedule(make_job(preset_named("resnet-18"), "ddp", cold))), ElementsAre(46758048));
}

// Toy T in fp32: embedding and head 3,232 bytes each, a block 712, the norm 32. Rebuilt buckets follow arrival: head | norm, blocks,
// embedding. Looking for unused parameters keeps the first iteration's buckets for good: by definition, embedding | the rest, launched in
// reverse.
TEST(DdpUnused, BucketsStayInDefinitionOrder) {
  JobOptions job = fp32_job(4);
  job.options = {{"first_bucket_mb", 0.001}, {"bucket_cap_mb", 0.002}};
  EXPECT_THAT(all_reduce_bytes(valid_schedule(make_job(toy(), "ddp", job))), ElementsAre(3232, 4688));
  job.options.emplace_back("find_unused_parameters", true);
  EXPECT_THAT(all_reduce_bytes(valid_schedule(make_job(toy(), "ddp", job))), ElementsAre(4688, 3232));
  job.warm = false;
  EXPECT_THAT(all_reduce_bytes(valid_schedule(make_job(toy(), "ddp", job))), ElementsAre(4688, 3232))
      << "the first iteration has buckets too";
  job.options.emplace_back("static_graph", true);
  job.warm = true;
  EXPECT_THAT(all_reduce_bytes(valid_schedule(make_job(toy(), "ddp", job))), ElementsAre(3232, 4688)) << "a static graph is rebuilt";
}

// A static graph's first iteration reduces nothing before backward has ended; from the second on it overlaps.
TEST(DdpFirstIteration, OfAStaticGraphReducesAfterBackward) {
  for (const bool warm : {false, true}) {
    JobOptions job = fp32_job(4);
    job.warm = warm;
    job.options = {{"static_graph", true}, {"bucket_cap_mb", 0.001}};
    const Schedule schedule = valid_schedule(make_job(equal_blocks(3), "ddp", job));
    std::size_t last_backward = 0, first_reduction = schedule.ops.size();
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      if (std::holds_alternative<Compute>(schedule.ops[i].action) && schedule.ops[i].phase == Phase::backward) last_backward = i;
      if (std::holds_alternative<Communicate>(schedule.ops[i].action)) first_reduction = std::min(first_reduction, i);
    }
    EXPECT_EQ(first_reduction > last_backward, !warm);
  }
}

TEST(DdpUnused, MapIsControlTraffic) {
  JobOptions job = fp32_job(4);
  job.options = {{"find_unused_parameters", true}};
  const OwnedJob owned = make_job(toy(), "ddp", job);
  const Traffic traffic = traffic_of(owned);
  EXPECT_EQ(traffic.total.value(), 11880);
  EXPECT_EQ(traffic.control.value(), 2 * 3 * 4 * 11 / 4);  // 11 parameters, one int32 each
}

// bf16 with fp32 master: 2 + 2 + 12 bytes, and 2 more for buckets that gradients are copied into.
TEST(DdpMemory, BucketViewsSaveACopy) {
  const std::int64_t psi = 3 * 64 * 64;
  for (const auto& [view, bytes_per_element] : std::vector<std::pair<bool, std::int64_t>>{{false, 18}, {true, 16}}) {
    const OwnedJob owned = make_job(equal_blocks(3), "ddp", {.ranks = 4, .options = {{"gradient_as_bucket_view", view}}});
    const Schedule schedule = valid_schedule(owned);
    const Memory memory = fold_memory(schedule, 1);
    std::int64_t buckets = 0;
    for (const Buffer& b : schedule.buffers)
      if (std::string(b.label.verb) == "Reducer bucket" && b.category == Category::communication_buffers) buckets += b.size().value();
    EXPECT_EQ(sum(memory.persistent).value() + buckets, bytes_per_element * psi) << view;
  }
}

// All-reduce k starts only after bucket k is complete, and in bucket order.
TEST(DdpOrder, BucketsLaunchInIndexOrderBeforeBackwardEnds) {
  JobOptions job = fp32_job(4);
  job.options = {{"bucket_cap_mb", 0.001}};  // one bucket for each parameter of 64 x 64
  const Schedule schedule = valid_schedule(make_job(equal_blocks(3), "ddp", job));
  std::vector<std::string> order;
  for (const Op& op : schedule.ops) {
    const std::string verb = op.label.verb;
    if (op.phase == Phase::backward && (verb == "backward" || verb == "nccl:all_reduce")) order.push_back(to_text(op.label, schedule));
  }
  EXPECT_THAT(order, ElementsAre("backward(loss)", "backward(block.2)", "nccl:all_reduce(bucket 0)", "backward(block.1)",
                                 "nccl:all_reduce(bucket 1)", "backward(block.0)", "nccl:all_reduce(bucket 2)"));
}

TEST(NaiveDp, ThreeLoopsSendTheSame) {
  for (const char* mode : {"flat", "per_parameter", "async_per_parameter"}) {
    const OwnedJob owned = make_job(toy(), "naive_dp", {.ranks = 8, .options = {{"all_reduce", std::string(mode)}}});
    EXPECT_EQ(traffic_of(owned).total.value(), 2 * 7 * 1980 * 2 / 8) << mode;
    EXPECT_EQ(all_reduce_bytes(emit(owned.job)).size(), std::string(mode) == "flat" ? 1u : 11u) << mode;
  }
}

}  // namespace
}  // namespace shardsim::testing
