// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// One unit whose shard of 10 bf16 elements on each of 4 ranks is gathered, used and freed.
struct OneGather {
  ScheduleBuilder builder;
  UnitId unit = builder.unit("layers.0");
  StreamId gather = builder.stream("all_gather");
  CommunicatorId shard = builder.communicator("shard", "shard", 4);
  BufferId held, full;
  OpId gathered;

  OneGather() {
    Schedule& schedule = builder.schedule();
    schedule.strategy = "fsdp2";
    schedule.semantics = "framework";
    schedule.library = "a library";
    schedule.world_size = 4;
    held = builder.buffer({.label = {"shard", unit}, .category = Category::parameters, .persistent = true, .elements = Elements{10}});
    full = builder.allocate(
        {.label = {"all_gather_output", unit}, .category = Category::communication_buffers, .pool = gather, .elements = Elements{40}});
    gathered = builder.communicate(
        {"FSDP::all_gather", unit}, gather,
        {.kind = Collective::all_gather, .communicator = shard, .payload = Elements{40}, .source = held, .target = full});
    builder.wait_stream(ScheduleBuilder::compute_stream(), gather);
    const WorkId work = builder.work({.products = {{.m = 2, .n = 3, .k = 4}}, .attention = {}, .memory = Bytes{64}, .kernels = 2});
    builder.compute({"forward", unit}, work, Pass::forward, {.layer = 0, .first = 0, .last = 3});
    builder.free(full, ScheduleBuilder::compute_stream());
  }
};

TEST(ScheduleText, OneLineAnOpWithPlainNumbers) {
  EXPECT_EQ(to_text(OneGather{}.builder.schedule()),
            "schedule: fsdp2 with framework semantics, rank 0 of 4, 1 micro-batch\n"
            "library: a library\n"
            "streams:\n"
            "  0 default\n"
            "  1 all_gather\n"
            "communicators:\n"
            "  0 shard: group shard, 4 ranks, stride 1\n"
            "persistent buffers:\n"
            "  shard(layers.0)  #0 parameters bf16 10 elements 20 bytes pool default\n"
            "forward of micro-batch 0:\n"
            "     0 host        all_gather_output(layers.0)               "
            "allocate #1 communication_buffers bf16 40 elements 80 bytes pool all_gather\n"
            "     1 all_gather  FSDP::all_gather(layers.0)                all_gather bf16 40 elements 80 bytes on shard #0 -> #1\n"
            "     2 default     wait(layers.0)                            wait for 1 FSDP::all_gather(layers.0)\n"
            "     3 default     forward(layers.0)                         forward 48 FLOPs 64 bytes 2 kernels layer 0 modules 0:3\n"
            "     4 host        all_gather_output(layers.0)               "
            "free #1 communication_buffers bf16 40 elements 80 bytes pool all_gather also used by default\n");
}

TEST(ScheduleBuilder, FindsTablesByName) {
  ScheduleBuilder builder;
  EXPECT_EQ(builder.unit("a"), builder.unit("a"));
  EXPECT_NE(builder.unit("a"), builder.unit("b"));
  EXPECT_EQ(builder.stream("default"), ScheduleBuilder::compute_stream());
  const CommunicatorId gather = builder.communicator("all_gather", "shard", 8);
  EXPECT_EQ(builder.communicator("all_gather", "shard", 8), gather);
  EXPECT_NE(builder.communicator("reduce_scatter", "shard", 8), gather);
  EXPECT_EQ(builder.schedule().groups.size(), 1u);
  EXPECT_THROW(builder.communicator("other", "shard", 4), std::logic_error);
}

TEST(ScheduleBuilder, DoesNotWaitForNothingOrForTheOwnStream) {
  ScheduleBuilder builder;
  const StreamId side = builder.stream("side");
  builder.wait(side, OpId{});
  builder.wait_stream(side, ScheduleBuilder::compute_stream());
  EXPECT_THAT(builder.schedule().ops, IsEmpty());
  const OpId op = builder.compute({"forward", {}}, WorkId{}, Pass::forward, {});
  builder.wait(ScheduleBuilder::compute_stream(), op);
  EXPECT_EQ(builder.schedule().ops.size(), 1u);
  builder.wait_stream(side, ScheduleBuilder::compute_stream());
  EXPECT_EQ(builder.last(side), OpId{1});
  EXPECT_EQ(builder.last(ScheduleBuilder::compute_stream()), op);
}

TEST(ScheduleBuilder, StampsPhaseAndMicroBatch) {
  ScheduleBuilder builder;
  builder.phase(Phase::backward);
  builder.micro_batch(3);
  builder.synchronize({"synchronize", {}});
  EXPECT_EQ(builder.schedule().ops[0].phase, Phase::backward);
  EXPECT_EQ(builder.schedule().ops[0].micro_batch, 3);
  EXPECT_THROW(builder.micro_batch(1 << 15), std::logic_error);
}

TEST(Validate, AcceptsASoundSchedule) { EXPECT_THAT(validate(OneGather{}.builder.schedule()), IsEmpty()); }

TEST(Validate, BuffersAreUsedOnlyWhileAlive) {
  OneGather late;
  late.builder.copy({"copy", late.unit}, late.gather, {.source = late.held, .target = late.full, .count = Elements{10}});
  EXPECT_THAT(validate(late.builder.schedule()),
              ElementsAre("op 5 copy(layers.0) uses buffer 1 all_gather_output(layers.0) after it was freed"));
  OneGather early;
  const BufferId unborn = early.builder.buffer({.label = {"scratch", {}}, .elements = Elements{1}});
  early.builder.copy({"copy", early.unit}, early.gather, {.target = unborn, .count = Elements{1}});
  EXPECT_THAT(validate(early.builder.schedule()),
              ElementsAre("op 5 copy(layers.0) uses buffer 2 scratch before it is allocated", "buffer 2 scratch is never allocated"));
}

TEST(Validate, BuffersAreAllocatedAndFreedOnce) {
  OneGather again;
  again.builder.allocate(again.full);
  EXPECT_THAT(validate(again.builder.schedule()),
              ElementsAre("op 5 allocates buffer 1 a second time", "buffer 1 all_gather_output(layers.0) is never freed"));
  OneGather twice;
  twice.builder.free(twice.full);
  EXPECT_THAT(validate(twice.builder.schedule()), ElementsAre("op 5 frees buffer 1, which is not alive"));
}

TEST(Validate, StatesMadeByTheStepAreThereOnlyAfterwards) {
  ScheduleBuilder builder;
  const BufferId state = builder.buffer({.label = {"exp_avg", {}}, .persistent = true, .elements = Elements{4}});
  const BufferId view = builder.buffer({.label = {"view", {}}, .elements = Elements{2}, .view_of = state});
  builder.copy({"too early", {}}, ScheduleBuilder::compute_stream(), {.target = view, .count = Elements{2}});
  builder.allocate(state);
  builder.copy({"fine", {}}, ScheduleBuilder::compute_stream(), {.target = view, .count = Elements{2}});
  EXPECT_THAT(validate(builder.schedule()), ElementsAre("op 0 too early uses buffer 0 exp_avg before it is allocated"));
}

TEST(Validate, WaitsAreOnEarlierOps) {
  OneGather g;
  g.builder.schedule().ops.push_back({.action = Wait{OpId{9}}, .stream = g.gather, .label = {"wait", {}}});
  g.builder.schedule().ops.push_back({.action = HostWait{OpId{0}}, .stream = {}, .label = {"wait", {}}});
  EXPECT_THAT(validate(g.builder.schedule()),
              ElementsAre("op 5 waits for 9, which is not an earlier op", "op 6 waits for 0, which runs on no stream"));
}

TEST(Validate, OpsAreLabelledAndHaveTheirStream) {
  OneGather g;
  g.builder.schedule().ops.push_back({.action = Compute{}, .stream = {}, .label = {}});
  g.builder.schedule().ops.push_back({.action = Synchronize{}, .stream = g.gather, .label = {"synchronize", {}}, .micro_batch = 1});
  EXPECT_THAT(validate(g.builder.schedule()),
              ElementsAre("op 5 has no label", "op 5 needs a stream", "op 6 belongs to unknown micro-batch 1",
                          "op 6 happens on the host and must not have a stream"));
}

TEST(Validate, CollectivesStayInsideTheirBuffer) {
  OneGather g;
  const BufferId bucket = g.builder.allocate({.label = {"bucket", {}}, .elements = Elements{100}});
  g.builder.communicate({"all_reduce", {}}, g.gather,
                        {.communicator = g.shard, .root = 4, .payload = Elements{60}, .target = bucket, .offset = Elements{41}});
  g.builder.free(bucket);
  EXPECT_THAT(validate(g.builder.schedule()),
              ElementsAre("op 6 has root 4 outside its group", "op 6 all_reduce moves elements 41 to 101 of a buffer of 100"));
}

TEST(Validate, GroupsDivideTheWorld) {
  OneGather g;
  g.builder.schedule().world_size = 6;
  EXPECT_THAT(validate(g.builder.schedule()), ElementsAre(HasSubstr("group shard of 4 ranks 1 apart does not divide a world of 6")));
}

}  // namespace
}  // namespace shardsim
