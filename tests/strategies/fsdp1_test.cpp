// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "jobs.hpp"
#include "schedule_facts.hpp"

namespace shardsim::testing {
namespace {

using ::testing::ElementsAre;

JobOptions reduce_fp32(std::int64_t n) { return {.ranks = n, .reduce = DType::fp32}; }

TEST(Fsdp1Bytes, ToyWithOriginalParameters) {
  for (const auto& [n, expected] : std::vector<std::pair<std::int64_t, std::int64_t>>{{2, 6344}, {4, 9516}, {8, 11102}}) {
    JobOptions options = reduce_fp32(n);
    options.options = {{"use_orig_params", true}};
    EXPECT_EQ(sent(toy(), "fsdp1", options), expected) << n;
  }
}

TEST(Fsdp1Bytes, Llama2_7B) {
  EXPECT_NEAR(static_cast<double>(sent(preset_named("llama-2-7b"), "fsdp1", {.ranks = 8})) / 1e9, 34.918, 5e-4);
  EXPECT_NEAR(static_cast<double>(sent(preset_named("llama-2-7b"), "fsdp1", {.ranks = 8, .micro_batches = 4})) / 1e9, 139.672, 5e-4);
  EXPECT_NEAR(static_cast<double>(sent(preset_named("llama-2-7b"), "fsdp1", {.ranks = 64})) / 1e9, 39.283, 5e-4);
}

// Root u_r and blocks u_b (padded, no padding needed here): G e_p (u_r + 2 u_b) + R e_r (u_r + u_b), and its variants.
TEST(Fsdp1Bytes, ShardingStrategies) {
  const std::int64_t root = 2 * 128 * 64, block = 64 * 64, blocks = 3 * block, n = 8;
  const auto model = inline_layers(
      "- {name: embed, parameters: {weight: [128, 64]}}\n- {name: block, repeat: 3, block: true, parameters: {w: [64, 64]}}\n- {name: "
      "head, parameters: {weight: [128, 64]}}\n");
  const auto bytes_sent = [&](const char* strategy, std::vector<std::pair<std::string, Options::Value>> more = {}) {
    JobOptions options{.ranks = n, .options = std::move(more)};
    options.options.emplace_back("sharding_strategy", std::string(strategy));
    return sent(model, "fsdp1", options);
  };
  EXPECT_EQ(bytes_sent("FULL_SHARD"), (2 * (root + 2 * blocks) + 2 * (root + blocks)) * 7 / 8);
  EXPECT_EQ(bytes_sent("SHARD_GRAD_OP"), 4 * (root + blocks) * 7 / 8);
  EXPECT_EQ(bytes_sent("NO_SHARD"), 2 * 2 * (root + blocks) * 7 / 8);
  EXPECT_EQ(bytes_sent("HYBRID_SHARD", {{"replicate", std::int64_t{2}}}),
            (2 * (root + 2 * blocks) + 2 * (root + blocks)) * 3 / 4 + 2 * 2 * (root + blocks) / 4 / 2);
  EXPECT_EQ(bytes_sent("_HYBRID_SHARD_ZERO2", {{"replicate", std::int64_t{2}}}),
            4 * (root + blocks) * 3 / 4 + 2 * 2 * (root + blocks) / 4 / 2);
}

// When the next unit is gathered changes nothing in how much is.
TEST(Fsdp1Bytes, PrefetchingGathersNothingTwice) {
  for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"})
    for (const std::int32_t g : {1, 2}) {
      const auto with = [&](const char* prefetch, bool forward) {
        return sent(toy(), "fsdp1",
                    {.ranks = 4,
                     .micro_batches = g,
                     .options = {{"sharding_strategy", std::string(strategy)},
                                 {"backward_prefetch", std::string(prefetch)},
                                 {"forward_prefetch", forward}}});
      };
      for (const char* prefetch : {"BACKWARD_POST", "none"})
        for (const bool forward : {false, true}) EXPECT_EQ(with(prefetch, forward), with("BACKWARD_PRE", false)) << strategy << prefetch;
    }
}

TEST(Fsdp1Bytes, NoSyncReducesOnce) {
  JobOptions options{.ranks = 4, .micro_batches = 3, .options = {{"no_sync", true}}};
  const std::int64_t blocks = 3 * 64 * 64;
  EXPECT_EQ(sent(equal_blocks(3), "fsdp1", options), (3 * 2 * 2 * blocks + 2 * blocks) * 3 / 4);
}

// Full flat parameters alive at once, in host order: the root's stay; forward has one unit, backward two where the next is prefetched
// before this one computes (BACKWARD_PRE), one or two where after (BACKWARD_POST), one without.
TEST(Fsdp1Memory, UnitsAliveAtOnce) {
  const auto model = inline_layers(
      "- {name: embed, parameters: {weight: [128, 64]}}\n- {name: block, repeat: 4, block: true, parameters: {w: [64, 64]}}\n");
  const std::int64_t unit = 2 * 64 * 64, root = 2 * 128 * 64;
  const auto most = [&](const char* prefetch, bool forward_prefetch, Phase phase) {
    const Schedule s = valid_schedule(make_job(
        model, "fsdp1", {.ranks = 4, .options = {{"backward_prefetch", std::string(prefetch)}, {"forward_prefetch", forward_prefetch}}}));
    const std::vector<std::int64_t> alive = alive_after(s, labelled("unsharded flat parameter"));
    std::int64_t found = 0;
    for (std::size_t i = 0; i < s.ops.size(); ++i)
      if (s.ops[i].phase == phase) found = std::max(found, alive[i + 1]);
    return found;
  };
  EXPECT_EQ(most("BACKWARD_PRE", false, Phase::forward), root + unit);
  EXPECT_EQ(most("BACKWARD_PRE", true, Phase::forward), root + 2 * unit);
  EXPECT_EQ(most("BACKWARD_PRE", false, Phase::backward), root + 2 * unit);
  EXPECT_EQ(most("BACKWARD_POST", false, Phase::backward), root + unit);
  EXPECT_EQ(most("none", false, Phase::backward), root + unit);
}

// Eight units and a root: which op each wait of the rate limiter is on.
TEST(Fsdp1Limiter, WaitsForTheSecondYoungestFree) {
  const auto model = inline_layers(
      "- {name: embed, parameters: {weight: [128, 64]}}\n- {name: block, repeat: 8, block: true, parameters: {w: [64, 64]}}\n");
  const Schedule schedule = valid_schedule(make_job(model, "fsdp1", {.ranks = 4}));
  std::vector<std::string> waits;
  for (const Op& op : schedule.ops) {
    const auto* wait = std::get_if<HostWait>(&op.action);
    if (!wait) continue;
    waits.push_back(schedule.units[static_cast<std::size_t>(op.label.unit.index)] + " <- " +
                    to_text(schedule.at(wait->op).label, schedule));
  }
  const auto last_op_before_free = [](const char* unit, const char* of) { return std::string(unit) + " <- " + of; };
  EXPECT_THAT(waits, ElementsAre(last_op_before_free("block.2", "forward(block.0)"), last_op_before_free("block.3", "forward(block.1)"),
                                 last_op_before_free("block.4", "forward(block.2)"), last_op_before_free("block.5", "forward(block.3)"),
                                 last_op_before_free("block.6", "forward(block.4)"), last_op_before_free("block.7", "forward(block.5)"),
                                 last_op_before_free("root", "forward(block.6)"), last_op_before_free("block.5", "forward(block.7)"),
                                 last_op_before_free("block.4", "SplitBackward::cat(block.7)"),
                                 last_op_before_free("block.3", "SplitBackward::cat(block.6)"),
                                 last_op_before_free("block.2", "SplitBackward::cat(block.5)"),
                                 last_op_before_free("block.1", "SplitBackward::cat(block.4)"),
                                 last_op_before_free("block.0", "SplitBackward::cat(block.3)")));
}

std::vector<std::string> labels(const Schedule& schedule, Phase phase) {
  std::vector<std::string> out;
  for (const Op& op : schedule.ops)
    if (op.phase == phase) out.push_back(to_text(op.label, schedule));
  return out;
}

std::ptrdiff_t place(const std::vector<std::string>& in, const std::string& label) {
  return std::find(in.begin(), in.end(), label) - in.begin();
}

// The root's pre-backward hook sits on what its forward returns. Where that is the loss, its prefetch gathers the last block before the
// loss' backward makes the gradient of the logits; where it is the logits, after.
TEST(Fsdp1Prefetch, StartsBeforeTheLossWhereTheModelComputesIt) {
  for (const bool in_model : {false, true}) {
    OwnedJob owned = make_job(preset_named("gpt2"), "fsdp1", {.ranks = 4});
    owned.job.training.loss_in_model = in_model;
    const auto backward = labels(valid_schedule(owned), Phase::backward);
    const auto loss = place(backward, "backward(loss)"), gather = place(backward, "FSDP::all_gather(transformer.h.11)");
    ASSERT_LT(std::max(loss, gather), std::ssize(backward));
    EXPECT_EQ(gather < loss, in_model);
  }
}

// Reentrant checkpointing around a unit runs the wrapped block's forward again, hooks and all: it frees the block, and backward gathers it
// a third time.
TEST(Fsdp1Reentrant, GathersEachBlockThreeTimes) {
  const std::int64_t blocks = 3 * 64 * 64;
  for (const auto& [reentrant, gathers] : {std::pair{false, 2}, std::pair{true, 3}}) {
    OwnedJob owned = make_job(equal_blocks(3), "fsdp1", {.ranks = 4, .checkpointing = Checkpointing::full});
    owned.job.training.checkpointing.use_reentrant = owned.job.training.checkpointing.around_unit = reentrant;
    EXPECT_EQ(traffic_of(owned).total.value(), (gathers + 1) * 2 * blocks * 3 / 4);
  }
}

/// How many gradients of so many elements are alive at once, at most.
std::int64_t most_gradients(const Schedule& schedule, std::int64_t elements) {
  std::int64_t now = 0, most = 0;
  const auto size = [&](BufferId b) {
    return std::string_view(schedule.at(b).label.verb) == "gradient" && schedule.at(b).elements.value() == elements ? 1 : 0;
  };
  for (const Op& op : schedule.ops) {
    if (const auto* allocate = std::get_if<Allocate>(&op.action)) now += size(allocate->buffer);
    if (const auto* free = std::get_if<Free>(&op.action)) now -= size(free->buffer);
    most = std::max(most, now);
  }
  return most;
}

// GPT-2 with frozen blocks and adapters in units of their own: the hooks of the frozen blocks keep every input's gradient (16 tokens x
// 768) to the end of backward; the embedding is frozen, so the first block's input has none.
TEST(Fsdp1Reentrant, FrozenBlocksKeepTheirInputs) {
  const auto model = [](bool reentrant) {
    Training training;
    training.sequence_length = 16;
    training.precision = {.parameters = DType::bf16,
                          .compute = DType::bf16,
                          .gradients = DType::bf16,
                          .reduce = {},
                          .master = {},
                          .moments = DType::bf16,
                          .name = "pure-bf16"};
    training.checkpointing = {.kind = Checkpointing::full, .every = 1, .use_reentrant = reentrant, .around_unit = reentrant};
    Trainable adapters;
    adapters.all = false;
    adapters.lora_rank = 2;
    adapters.targets = {"c_attn"};
    auto built = build_model(preset_named("gpt2"), training, adapters);
    if (!built) throw std::runtime_error(built.error().text());
    OwnedJob owned;
    owned.model = *built;
    owned.job.model = owned.model.get();
    owned.job.training = training;
    owned.job.strategy.name = "fsdp1";
    owned.job.world_size = 2;
    return owned;
  };
  const Schedule plain = valid_schedule(model(false)), held = valid_schedule(model(true));
  EXPECT_LE(most_gradients(plain, 16 * 768), 4);
  EXPECT_GE(most_gradients(held, 16 * 768), 11);
  // Not reentrant, a block's pre-backward prefetches its own adapters; the block before follows when the first adapter's turn comes.
  const auto backward = labels(plain, Phase::backward);
  EXPECT_GT(place(backward, "FSDP::all_gather(transformer.h.10)"), place(backward, "backward(transformer.h.11)"));
  // Reentrant, the forward had no graph and left no hooks: a block is gathered when it runs again, and not before.
  const auto again = labels(held, Phase::backward);
  EXPECT_GT(place(again, "FSDP::all_gather(transformer.h.11)"), place(again, "backward(lm_head)"));
}

}  // namespace
}  // namespace shardsim::testing
