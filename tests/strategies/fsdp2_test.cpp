// SPDX-License-Identifier: Apache-2.0
// FSDP2 against hand-worked fixtures: bytes, event times of three equal blocks, allocations in host order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "jobs.hpp"
#include "sim/engine/engine.hpp"
#include "sim/memory/memory.hpp"
#include "sim/schedule/schedule_builder.hpp"

namespace shardsim::testing {
namespace {

using ::testing::ElementsAre;

JobOptions mixed(std::int64_t n, std::int32_t g = 1) { return {.ranks = n, .micro_batches = g, .reduce = DType::fp32}; }

TEST(Fsdp2Bytes, Toy) {
  EXPECT_EQ(sent(toy(), "fsdp2", mixed(2)), 6344);
  EXPECT_EQ(sent(toy(), "fsdp2", mixed(4)), 9876);
  EXPECT_EQ(sent(toy(), "fsdp2", mixed(8)), 12026);
  EXPECT_EQ(sent(toy(), "fsdp2", mixed(1)), 0);
}

double gigabytes(const JobOptions& options) { return static_cast<double>(sent(preset_named("llama-2-7b"), "fsdp2", options)) / 1e9; }

TEST(Fsdp2Bytes, Llama2_7B) {
  EXPECT_NEAR(gigabytes({.ranks = 8}), 34.918, 5e-4);
  EXPECT_NEAR(gigabytes({.ranks = 64, .micro_batches = 4}), 157.131, 5e-4);
  EXPECT_NEAR(gigabytes(mixed(8)), 46.710, 5e-4);
  EXPECT_NEAR(gigabytes(mixed(8, 4)), 186.841, 5e-4);
  JobOptions last_only = mixed(8, 4);
  last_only.options = {{"requires_gradient_sync", false}};
  EXPECT_NEAR(gigabytes(last_only), 116.087, 5e-4);
  JobOptions keep = mixed(64, 4);
  keep.options = {{"reshard_after_forward", std::string("false")}};
  EXPECT_NEAR(gigabytes(keep), 159.195, 5e-4);
  JobOptions hybrid = mixed(64, 4);
  hybrid.options = {{"replicate", std::int64_t{8}}};
  EXPECT_NEAR(gigabytes(hybrid), 210.425, 5e-4);
}

// 16 bytes a parameter over n ranks while gradients are there; FSDP shards count as parameters.
TEST(Fsdp2Memory, StatesAreSixteenBytesOverN) {
  const Memory memory = fold_memory(valid_schedule(make_job(equal_blocks(3), "fsdp2", mixed(4))), 1);
  EXPECT_EQ(sum(memory.persistent).value(), 16 * 3 * 64 * 64 / 4);
  EXPECT_EQ(memory.resident.value(), 12 * 3 * 64 * 64 / 4);
}

// Timeline ----------------------------------------------------------------------------------------------------------------------------

struct Durations {
  std::int64_t all_gather, reduce_scatter;
};

std::int64_t ticks(const Schedule& schedule, const Op& op, const Durations& d) {
  const std::string verb = op.label.verb;
  const bool block = op.label.unit.valid() && schedule.units[static_cast<std::size_t>(op.label.unit.index)].starts_with("block");
  if (verb == "forward") return block ? 10 : 0;
  if (verb == "backward") return block ? 20 : 0;
  if (verb == "FSDP::all_gather_copy_in" || verb == "FSDP::all_gather_copy_out" || verb == "FSDP::chunk_cat") return 1;
  if (verb == "FSDP::all_gather") return d.all_gather;
  if (verb == "FSDP::reduce_scatter") return d.reduce_scatter;
  return 0;
}

/// Begin and end of every op by "verb block phase", and of the phases, in ticks.
struct Replay {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> spans;
  std::int64_t forward_end = 0, step_end = 0;
};

Replay replay(const Durations& durations, std::vector<std::pair<std::string, Options::Value>> options = {}) {
  JobOptions job = mixed(4);
  job.options = std::move(options);
  const Schedule schedule = valid_schedule(make_job(equal_blocks(3), "fsdp2", job));
  std::vector<OpCost> costs;
  for (const Op& op : schedule.ops) {
    OpCost cost;
    cost.device = SimTime{ticks(schedule, op, durations)};
    cost.compute = std::holds_alternative<Compute>(op.action);
    cost.collective = std::holds_alternative<Communicate>(op.action);
    costs.push_back(cost);
  }
  const RankProgram program = priced_op_by_op(schedule, costs);
  const Timeline timeline = simulate(std::span(&program, 1), {}).front();
  Replay result;
  for (const Slice& slice : timeline.slices) {
    const Op& op = schedule.at(slice.op);
    const std::int64_t end = slice.end.picoseconds();
    if (std::string(op.label.verb) == "forward") result.forward_end = std::max(result.forward_end, end);
    if (op.stream == ScheduleBuilder::compute_stream() || std::string(op.label.verb) == "FSDP::reduce_scatter")
      result.step_end = std::max(result.step_end, end);
    result.spans[to_text(op.label, schedule) + (op.phase == Phase::forward ? " f" : " b")] = {slice.begin.picoseconds(), end};
  }
  return result;
}

using Span = std::pair<std::int64_t, std::int64_t>;

TEST(Fsdp2Timeline, FastNetwork) {
  const Replay r = replay({8, 12});
  EXPECT_EQ(r.forward_end, 42);
  EXPECT_EQ(r.step_end, 120);
  EXPECT_EQ(r.spans.at("FSDP::all_gather(block.2) f"), (Span{17, 25}));
  EXPECT_EQ(r.spans.at("FSDP::all_gather(block.2) b"), (Span{33, 41}));
  EXPECT_EQ(r.spans.at("FSDP::all_gather(block.1) b"), (Span{44, 52}));
  EXPECT_EQ(r.spans.at("FSDP::reduce_scatter(block.2) b"), (Span{64, 76}));
  EXPECT_EQ(r.spans.at("FSDP::all_gather(block.0) b"), (Span{76, 84}));
  EXPECT_EQ(r.spans.at("FSDP::reduce_scatter(block.1) b"), (Span{86, 98}));
  EXPECT_EQ(r.spans.at("FSDP::reduce_scatter(block.0) b"), (Span{108, 120}));
}

TEST(Fsdp2Timeline, SlowNetwork) {
  const Replay r = replay({15, 30});
  EXPECT_EQ(r.forward_end, 57);
  EXPECT_EQ(r.step_end, 191);
  EXPECT_EQ(r.spans.at("FSDP::reduce_scatter(block.2) b"), (Span{85, 115}));
  EXPECT_EQ(r.spans.at("FSDP::all_gather(block.0) b"), (Span{115, 130}));
  EXPECT_EQ(r.spans.at("FSDP::chunk_cat(block.1) b").first, 115);
  EXPECT_EQ(r.spans.at("FSDP::reduce_scatter(block.1) b"), (Span{130, 160}));
  EXPECT_EQ(r.spans.at("FSDP::reduce_scatter(block.0) b"), (Span{161, 191}));
}

TEST(Fsdp2Timeline, TwoInputBuffersMoveTheStallToTheReduceScatters) {
  const Replay r = replay({15, 30}, {{"reduce_scatter_max_input_buffers", std::int64_t{2}}});
  EXPECT_EQ(r.forward_end, 57);
  EXPECT_EQ(r.step_end, 190);
  EXPECT_EQ(r.spans.at("FSDP::chunk_cat(block.1) b").first, 106);
}

TEST(Fsdp2Timeline, SeparateCommunicatorOverlapsGathersAndReductions) {
  const Replay r = replay({15, 30}, {{"separate_reduce_scatter_group", true}});
  EXPECT_EQ(r.step_end, 177);
  EXPECT_EQ(r.spans.at("FSDP::all_gather(block.0) b"), (Span{87, 102}));
  EXPECT_EQ(r.spans.at("FSDP::reduce_scatter(block.1) b"), (Span{116, 146}));
  EXPECT_EQ(r.spans.at("FSDP::reduce_scatter(block.0) b"), (Span{147, 177}));
}

// Memory in host order ------------------------------------------------------------------------------------------------------------------

/// Bytes per element of a unit after each change of B, P, G and R, in host order, for one phase.
std::vector<std::int64_t> held_per_element(const Schedule& schedule, Phase phase, std::int64_t unit_elements) {
  std::vector<std::int64_t> trace;
  std::int64_t held = 0;
  for (const Op& op : schedule.ops) {
    BufferId id;
    std::int64_t sign = 0;
    if (const auto* a = std::get_if<Allocate>(&op.action)) {
      id = a->buffer;
      sign = 1;
    }
    if (const auto* f = std::get_if<Free>(&op.action)) {
      id = f->buffer;
      sign = -1;
    }
    if (sign == 0) continue;
    const std::string verb = schedule.at(id).label.verb;
    if (verb != "all-gather output" && verb != "unsharded parameters" && verb != "unsharded .grad" && verb != "reduce-scatter input")
      continue;
    held += sign * schedule.at(id).size().value() / unit_elements;
    if (op.phase == phase) trace.push_back(held);
  }
  return trace;
}

TEST(Fsdp2Memory, HostOrderOfThreeBlocks) {
  const Schedule schedule = valid_schedule(make_job(equal_blocks(3), "fsdp2", mixed(4)));
  EXPECT_THAT(held_per_element(schedule, Phase::forward, 64 * 64), ElementsAre(2, 4, 2, 4, 2, 4, 2, 4, 2, 4, 2, 0));
  EXPECT_THAT(held_per_element(schedule, Phase::backward, 64 * 64),
              ElementsAre(2, 4, 2, 4, 6, 4, 8, 6, 8, 6, 8, 10, 8, 4, 8, 6, 8, 6, 8, 6, 2, 6, 4, 0));
}

TEST(Fsdp2Memory, OneRankNeedsNoGatherBuffers) {
  const Schedule schedule = valid_schedule(make_job(equal_blocks(3), "fsdp2", mixed(1)));
  EXPECT_THAT(held_per_element(schedule, Phase::backward, 64 * 64), ElementsAre(2, 4, 2, 6, 4, 6, 8, 6, 2, 6, 4, 6, 8, 6, 2, 6, 4, 0));
}

// The project's own counts: all-gathers in forward blocks + 1, in backward blocks (the root is kept), reduce-scatters blocks + 1.
TEST(Fsdp2Events, CollectivesPerPhase) {
  const Schedule schedule = valid_schedule(make_job(toy(), "fsdp2", mixed(4)));
  std::map<std::string, int> count;
  for (const Op& op : schedule.ops)
    if (const auto* c = std::get_if<Communicate>(&op.action)) ++count[std::string(name_of(c->kind)) + " " + std::string(name_of(op.phase))];
  EXPECT_EQ(count["all_gather forward"], 3);
  EXPECT_EQ(count["all_gather backward"], 2);
  EXPECT_EQ(count["reduce_scatter backward"], 3);
}

std::vector<std::string> events(const Schedule& schedule) {
  std::vector<std::string> list;
  for (const Op& op : schedule.ops) {
    const std::string verb = op.label.verb;
    if (verb == "FSDP::all_gather" || verb == "FSDP::reduce_scatter")
      list.push_back(verb.substr(6) + " " + schedule.units[static_cast<std::size_t>(op.label.unit.index)]);
  }
  return list;
}

TEST(Fsdp2Events, OrderWithImplicitAndExplicitPrefetch) {
  EXPECT_THAT(events(valid_schedule(make_job(toy(), "fsdp2", mixed(4)))),
              ElementsAre("all_gather root", "all_gather block.0", "all_gather block.1", "all_gather block.1", "all_gather block.0",
                          "reduce_scatter block.1", "reduce_scatter block.0", "reduce_scatter root"));
  JobOptions ahead = mixed(4);
  ahead.options = {{"forward_prefetch", std::int64_t{1}}};
  EXPECT_THAT(events(valid_schedule(make_job(equal_blocks(3), "fsdp2", ahead))),
              ElementsAre("all_gather block.0", "all_gather block.1", "all_gather block.2", "all_gather block.2", "all_gather block.1",
                          "reduce_scatter block.2", "all_gather block.0", "reduce_scatter block.1", "reduce_scatter block.0"));
}

}  // namespace
}  // namespace shardsim::testing
