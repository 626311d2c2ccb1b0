// SPDX-License-Identifier: Apache-2.0
// What the FSDP2 project states about itself, without a GPU: its bounds on memory, the number of collectives a phase and an accumulation
// mode, and the order of unshard, reshard and post-backward events. Facts from PyTorch's test/distributed/_composable/fsdp
// (test_fully_shard_memory.py, test_fully_shard_comm.py, test_fully_shard_training.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "jobs.hpp"
#include "schedule_facts.hpp"

namespace shardsim::testing {
namespace {

using ::testing::ElementsAreArray;
using Given = std::vector<std::pair<std::string, Options::Value>>;
using Events = std::vector<std::string>;

// Memory ---------------------------------------------------------------------------------------------------------------------------------

constexpr std::int64_t width = 768, words = 32, positions = 16;

/// Three blocks of 12 w^2 and two norms, as in the project's test; fp32 on two ranks.
std::shared_ptr<const Architecture> transformer() {
  const std::string d = std::to_string(width), d4 = std::to_string(4 * width);
  return inline_layers("- {name: embeddings, parameters: {tokens: [" + std::to_string(words) + ", " + d + "], positions: [" +
                       std::to_string(positions) + ", " + d + "]}}\n" + "- {name: layers, repeat: 3, block: true, parameters: {wq: [" + d +
                       ", " + d + "], wk: [" + d + ", " + d + "], wv: [" + d + ", " + d + "], wo: [" + d + ", " + d + "], w1: [" + d4 +
                       ", " + d + "], w2: [" + d + ", " + d4 + "], n1: [" + d + "], n2: [" + d + "]}}\n" +
                       "- {name: norm, parameters: {weight: [" + d + "]}}\n- {name: output, parameters: {weight: [" +
                       std::to_string(words) + ", " + d + "]}}\n");
}

constexpr std::int64_t block = 12 * width * width + 2 * width;  // max_unsharded_numel
constexpr std::int64_t non_block = (2 * words + positions + 1) * width;
constexpr std::int64_t whole = 3 * block + non_block, sharded = whole / 2;  // model_(un)sharded_numel

/// Largest number of fp32 elements of model states and communication buffers on the GPU in a phase. The project allows 16 MB for the rest.
std::int64_t most_in(const Schedule& schedule, Phase phase) {
  const std::vector<std::int64_t> alive = alive_after(schedule, [](const Buffer& b) {
    return !b.host && b.category != Category::temporaries && b.category != Category::activations && b.category != Category::logits;
  });
  std::int64_t most = 0;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i)
    if (schedule.ops[i].phase == phase) most = std::max(most, std::max(alive[i], alive[i + 1]));
  return most / 4;
}

Schedule first_step(const char* reshard, bool offload) {
  OwnedJob owned = make_job(transformer(), "fsdp2",
                            {.ranks = 2,
                             .parameters = DType::fp32,
                             .gradients = DType::fp32,
                             .master = std::nullopt,
                             .warm = false,
                             .options = {{"reshard_after_forward", std::string(reshard)}}});
  if (offload) owned.job.training.offload = {.parameters = OffloadTarget::cpu, .optimizer = OffloadTarget::cpu};
  return valid_schedule(owned);
}

TEST(Fsdp2MemoryBounds, ReshardAfterForward) {
  const Schedule s = first_step("true", false);
  EXPECT_LE(most_in(s, Phase::forward), sharded + 3 * block + non_block);
  EXPECT_LE(most_in(s, Phase::backward), 2 * sharded + 4 * block + non_block);
  EXPECT_LE(most_in(s, Phase::step), 4 * sharded);                                             // parameters, gradients, two moments
  EXPECT_EQ(alive_after(s, [](const Buffer& b) { return !b.host; }).back(), 4 * 3 * sharded);  // zero_grad frees the gradients
}

TEST(Fsdp2MemoryBounds, KeepAfterForward) {
  const Schedule s = first_step("false", false);
  EXPECT_LE(most_in(s, Phase::forward), sharded + whole + block);
  // The project's test allows 16 MB more; the gradients of what is no block need 0.25 MB of them.
  EXPECT_LE(most_in(s, Phase::backward), sharded + whole + block + block / 2 + non_block);
  EXPECT_LE(most_in(s, Phase::step), 4 * sharded);
}

TEST(Fsdp2MemoryBounds, CpuOffload) {
  const Schedule s = first_step("true", true);
  EXPECT_LE(most_in(s, Phase::forward), 3 * block + non_block);
  EXPECT_LE(most_in(s, Phase::backward), 4 * block + 2 * non_block + block / 2);  // a reduced shard waits for its copy to the host
  EXPECT_EQ(most_in(s, Phase::step), 0);
}

/// Bytes of B, P, G and R after each change in host order, for a root (an embedding) of r elements and three blocks of u: 2 bytes gathered,
/// 4 reduced. The root is gathered first and reduced last, and its parameters stay all the while.
TEST(Fsdp2Memory, HostOrderWithARoot) {
  using Pair = std::pair<std::int64_t, std::int64_t>;  // coefficients of u and r
  const std::vector<Pair> expected{
      {0, 2}, {0, 4}, {2, 4}, {2, 2}, {4, 2}, {2, 2}, {4, 2}, {2, 2}, {4, 2}, {2, 2}, {4, 2}, {2, 2},  {4, 2}, {2, 2}, {0, 2},  // forward
      {2, 2}, {4, 2}, {2, 2}, {4, 2}, {6, 2}, {4, 2}, {8, 2}, {6, 2}, {8, 2}, {6, 2}, {8, 2}, {10, 2}, {8, 2}, {4, 2}, {8, 2},
      {6, 2}, {8, 2}, {6, 2}, {8, 2}, {6, 2}, {2, 2}, {6, 2}, {4, 2},  // backward of the blocks
      {4, 4}, {4, 2}, {0, 2}, {0, 6}, {0, 4}, {0, 0}};                 // final callback
  const std::int64_t u = 64 * 64, r = 128 * 64;
  const auto model = inline_layers(
      "- {name: embed, parameters: {weight: [128, 64]}}\n- {name: block, repeat: 3, block: true, parameters: {w: [64, 64]}}\n");
  const Schedule s = valid_schedule(make_job(model, "fsdp2", {.ranks = 4, .reduce = DType::fp32}));
  std::vector<std::int64_t> held, wanted;
  std::int64_t now = 0;
  for (const Op& op : s.ops) {
    const auto* a = std::get_if<Allocate>(&op.action);
    const auto* f = std::get_if<Free>(&op.action);
    if (!a && !f) continue;
    const Buffer& b = s.at(a ? a->buffer : f->buffer);
    const std::string_view verb = b.label.verb;
    if (verb != "all-gather output" && verb != "unsharded parameters" && verb != "unsharded .grad" && verb != "reduce-scatter input")
      continue;
    held.push_back(now += (a ? 1 : -1) * b.size().value());
  }
  for (const auto& [of_block, of_root] : expected) wanted.push_back(of_block * u + of_root * r);
  EXPECT_EQ(held, wanted);
}

// Counts ---------------------------------------------------------------------------------------------------------------------------------

std::int64_t count(const Schedule& schedule, Collective kind, std::optional<Phase> phase = std::nullopt) {
  return std::count_if(schedule.ops.begin(), schedule.ops.end(), [&](const Op& op) {
    const auto* c = std::get_if<Communicate>(&op.action);
    return c && c->kind == kind && (!phase || op.phase == *phase);
  });
}

/// test_fully_shard_communication_count: blocks and the root; given to fully_shard, reshard_after_forward holds for the root too.
TEST(Fsdp2Counts, CollectivesOfEachPhase) {
  struct Mode {
    const char* reshard;
    bool root;
    std::int64_t gathers_in_backward;
  };
  const std::int64_t blocks = 3;
  for (const Mode& mode :
       {Mode{"true", false, blocks}, Mode{"true", true, blocks + 1}, Mode{"2", true, blocks + 1}, Mode{"false", false, 0}}) {
    const Schedule s = valid_schedule(make_job(
        toy({.blocks = blocks}), "fsdp2",
        {.ranks = 4, .options = {{"reshard_after_forward", std::string(mode.reshard)}, {"reshard_root_after_forward", mode.root}}}));
    EXPECT_EQ(count(s, Collective::all_gather, Phase::forward), blocks + 1) << mode.reshard;
    EXPECT_EQ(count(s, Collective::all_gather, Phase::backward), mode.gathers_in_backward) << mode.reshard;
    EXPECT_EQ(count(s, Collective::reduce_scatter, Phase::backward), blocks + 1) << mode.reshard;
    EXPECT_EQ(count(s, Collective::reduce_scatter), blocks + 1) << mode.reshard;
  }
}

/// test_gradient_accumulation: three micro-batches of two blocks and a root.
TEST(Fsdp2Counts, AccumulationKnobs) {
  struct Mode {
    Given options;
    std::int64_t gathers, scatters, reductions;
  };
  const std::int64_t blocks = 2, groups = blocks + 1, g = 3;
  const std::string keep = "false";
  const std::vector<Mode> modes{
      {{}, g * (groups + blocks), g * groups, 0},
      {{{"requires_gradient_sync", false}}, g * (groups + blocks), groups, 0},
      {{{"reshard_after_forward", keep}}, g * groups, g * groups, 0},
      {{{"reshard_after_forward", keep}, {"reshard_after_backward", false}}, groups, g * groups, 0},
      {{{"reshard_after_forward", keep}, {"reshard_after_backward", false}, {"requires_gradient_sync", false}}, groups, groups, 0},
      {{{"replicate", std::int64_t{2}}}, g * (groups + blocks), g * groups, g * groups},
      {{{"replicate", std::int64_t{2}}, {"requires_all_reduce", false}}, g * (groups + blocks), g * groups, groups},
      {{{"replicate", std::int64_t{2}}, {"requires_gradient_sync", false}}, g * (groups + blocks), groups, groups}};
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const Schedule s =
        valid_schedule(make_job(toy(), "fsdp2", {.ranks = 4, .micro_batches = 3, .reduce = DType::fp32, .options = modes[i].options}));
    EXPECT_EQ(count(s, Collective::all_gather), modes[i].gathers) << i;
    EXPECT_EQ(count(s, Collective::reduce_scatter), modes[i].scatters) << i;
    EXPECT_EQ(count(s, Collective::all_reduce), modes[i].reductions) << i;
  }
}

// Order ----------------------------------------------------------------------------------------------------------------------------------

/// unshard when its all-gather is issued, reshard when the full parameters are freed, post_backward when gradients are reduced.
Events events(const Schedule& schedule, Phase phase, bool reshards = true) {
  Events found;
  const auto add = [&](const char* verb, UnitId unit) {
    found.push_back(std::string(verb) + " " + schedule.units[static_cast<std::size_t>(unit.index)]);
  };
  for (const Op& op : schedule.ops) {
    if (op.phase != phase) continue;
    const std::string verb = op.label.verb;
    if (verb == "FSDP::all_gather") add("unshard", op.label.unit);
    if (verb == "FSDP::reduce_scatter") add("post_backward", op.label.unit);
    const auto* freed = std::get_if<Free>(&op.action);
    if (reshards && freed && schedule.at(freed->buffer).label.verb == std::string("unsharded parameters"))
      add("reshard", schedule.at(freed->buffer).label.unit);
  }
  return found;
}

Schedule of_blocks(std::int64_t blocks, Given options, Checkpointing checkpointing = Checkpointing::none) {
  return valid_schedule(
      make_job(toy({.blocks = blocks}), "fsdp2", {.ranks = 4, .checkpointing = checkpointing, .options = std::move(options)}));
}

/// test_fully_shard_backward_prefetch: activation checkpointing does not change the events.
TEST(Fsdp2Order, ImplicitPrefetchIsOneGroupAhead) {
  const Events forward{"unshard root", "unshard block.0", "unshard block.1", "unshard block.2"};
  Events backward{"unshard root",    "unshard block.2",       "unshard block.1",       "post_backward block.2",
                  "unshard block.0", "post_backward block.1", "post_backward block.0", "post_backward root"};
  for (Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full})
    for (const char* reshard : {"true", "2", "false"}) {
      const bool root = std::string(reshard) != "false";
      const Schedule s =
          of_blocks(3, {{"reshard_after_forward", std::string(reshard)}, {"reshard_root_after_forward", root}}, checkpointing);
      EXPECT_THAT(events(s, Phase::forward, false), ElementsAreArray(forward));
      Events expected = backward;
      if (!root) std::erase_if(expected, [](const std::string& e) { return e.starts_with("unshard"); });
      EXPECT_THAT(events(s, Phase::backward, false), ElementsAreArray(expected)) << reshard;
    }
  backward.erase(backward.begin());  // by default the root is not resharded
  EXPECT_THAT(events(of_blocks(3, {}), Phase::backward, false), ElementsAreArray(backward));
}

const Events backward_of_four{"unshard root",          "unshard block.3", "unshard block.2",       "reshard block.3",
                              "post_backward block.3", "unshard block.1", "reshard block.2",       "post_backward block.2",
                              "unshard block.0",       "reshard block.1", "post_backward block.1", "reshard block.0",
                              "post_backward block.0", "reshard root",    "post_backward root"};

/// test_set_modules_to_forward_prefetch.
TEST(Fsdp2Order, ExplicitForwardPrefetch) {
  const Given root{{"reshard_root_after_forward", true}};
  Given one = root, two = root;
  one.emplace_back("forward_prefetch", std::int64_t{1});
  two.emplace_back("forward_prefetch", std::int64_t{2});
  EXPECT_THAT(events(of_blocks(4, one), Phase::forward),
              ElementsAreArray({"unshard root", "unshard block.0", "unshard block.1", "reshard block.0", "unshard block.2",
                                "reshard block.1", "unshard block.3", "reshard block.2", "reshard block.3", "reshard root"}));
  EXPECT_THAT(events(of_blocks(4, two), Phase::forward),
              ElementsAreArray({"unshard root", "unshard block.0", "unshard block.1", "unshard block.2", "reshard block.0",
                                "unshard block.3", "reshard block.1", "reshard block.2", "reshard block.3", "reshard root"}));
  EXPECT_THAT(events(of_blocks(4, one), Phase::backward), ElementsAreArray(backward_of_four));
  EXPECT_THAT(events(of_blocks(4, two), Phase::backward), ElementsAreArray(backward_of_four));
}

/// test_set_modules_to_backward_prefetch: the root's own prefetch stays one group.
TEST(Fsdp2Order, ExplicitBackwardPrefetch) {
  const Given root{{"reshard_root_after_forward", true}};
  EXPECT_THAT(events(of_blocks(4, root), Phase::forward),
              ElementsAreArray({"unshard root", "unshard block.0", "reshard block.0", "unshard block.1", "reshard block.1",
                                "unshard block.2", "reshard block.2", "unshard block.3", "reshard block.3", "reshard root"}));
  Given one = root, two = root;
  one.emplace_back("backward_prefetch", std::int64_t{1});
  two.emplace_back("backward_prefetch", std::int64_t{2});
  EXPECT_THAT(events(of_blocks(4, one), Phase::backward), ElementsAreArray(backward_of_four));
  EXPECT_THAT(
      events(of_blocks(4, two), Phase::backward),
      ElementsAreArray({"unshard root", "unshard block.3", "unshard block.2", "unshard block.1", "reshard block.3", "post_backward block.3",
                        "unshard block.0", "reshard block.2", "post_backward block.2", "reshard block.1", "post_backward block.1",
                        "reshard block.0", "post_backward block.0", "reshard root", "post_backward root"}));
}

/// torchtitan: embedding, blocks, and norm with head; the last are needed by backward at once and stay gathered unless all are resharded.
TEST(Fsdp2Order, TorchtitanKeepsTheHead) {
  Given options{{"wrap", std::string("torchtitan")}};
  EXPECT_THAT(events(of_blocks(2, options), Phase::backward, false),
              ElementsAreArray({"unshard block.1", "post_backward norm and head", "unshard block.0", "post_backward block.1",
                                "unshard embedding", "post_backward block.0", "post_backward embedding"}));
  options.emplace_back("reshard_root_after_forward", true);
  EXPECT_EQ(events(of_blocks(2, options), Phase::backward, false).front(), "unshard norm and head");
  options.emplace_back("unshard_in_backward", false);
  EXPECT_EQ(count(of_blocks(2, options), Collective::all_gather, Phase::backward), 3);
}

/// Routed experts under checkpointing: gathered once in backward, before they are recomputed, and not resharded in between.
TEST(Fsdp2Order, RecomputedExpertsAreGatheredOnce) {
  const OwnedJob owned =
      make_job(preset_named("mixtral-8x7b"), "fsdp2",
               {.ranks = 16, .checkpointing = Checkpointing::full, .sequence = 16, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  const Schedule s = valid_schedule(owned);
  const Events all = events(s, Phase::backward);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const std::string& e) { return e.starts_with("unshard") && e.ends_with("experts"); }),
            32);
  std::map<std::string, bool> full;  // by group: are its parameters unsharded now?
  int computed = 0;
  for (const Op& op : s.ops) {
    const auto note = [&](BufferId id, bool alive) {
      const Buffer& b = s.at(id);
      if (b.label.verb == std::string("unsharded parameters")) full[s.units[static_cast<std::size_t>(b.label.unit.index)]] = alive;
    };
    if (const auto* allocated = std::get_if<Allocate>(&op.action)) note(allocated->buffer, true);
    if (const auto* freed = std::get_if<Free>(&op.action)) note(freed->buffer, false);
    const auto* c = std::get_if<Compute>(&op.action);
    if (!c || c->modules.layer < 0) continue;
    const Layer& layer = (*owned.model->layers)[static_cast<std::size_t>(c->modules.layer)];
    if (!owned.model->type_of(layer).modules[static_cast<std::size_t>(c->modules.first)].routed_experts) continue;
    EXPECT_TRUE(full[layer.name + ".experts"]) << layer.name;
    ++computed;
  }
  EXPECT_EQ(computed, 3 * 32);  // forward, recomputation, backward
}

}  // namespace
}  // namespace shardsim::testing
