// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "jobs.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim::testing {
namespace {

struct Gathered {
  std::int64_t elements = 0, calls = 0;
};

Gathered gathered(const Schedule& schedule) {
  Gathered sum;
  for (const Op& op : schedule.ops) {
    const auto* c = std::get_if<Communicate>(&op.action);
    if (!c || c->kind != Collective::all_gather || op.phase == Phase::step) continue;
    sum.elements += c->payload.value();
    ++sum.calls;
  }
  return sum;
}

Gathered llama(JobOptions options) { return gathered(valid_schedule(make_job(preset_named("llama-2-7b"), "zero3", options))); }

// Prefetching keeps about the last 1e9 elements of forward alive: 985,661,440 of Llama-2-7B are not gathered again.
TEST(Zero3Gathers, Llama2_7BRetainsTheEndOfForward) {
  const Gathered g = llama({.ranks = 8});
  EXPECT_EQ(g.elements, 12'490'637'312);
  EXPECT_EQ(g.calls, 395);
}

TEST(Zero3Gathers, CheckpointingGathersNoBlockTwiceInBackward) {
  const Gathered g = llama({.ranks = 8, .checkpointing = Checkpointing::full});
  EXPECT_EQ(g.elements, 12'490'637'312);
  EXPECT_EQ(g.calls, 314);
}

TEST(Zero3Gathers, WithoutPrefetchOnlyTheReuseDistanceRetains) {
  JobOptions options{.ranks = 8};
  options.options = {{"stage3_prefetch_bucket_size", std::int64_t{0}}};
  EXPECT_EQ(llama(options).elements, 12'974'030'848);
}

// Persistent parameters (64 norms of blocks and the last one, 4,096 elements each) are released too while the trace is recorded.
TEST(Zero3Gathers, FirstMicroBatchRecordsAndGathersEverything) {
  const std::int64_t block_norms = 64 * 4096, last_norm = 4096;
  const std::int64_t kept = 32 * 4096 * 11008;  // down_proj, gathered before its block is recomputed, stays for its backward
  EXPECT_EQ(llama({.ranks = 8, .warm = false}).elements, 13'476'298'752 + 2 * block_norms + 2 * last_norm);
  EXPECT_EQ(llama({.ranks = 8, .checkpointing = Checkpointing::full, .warm = false}).elements,
            19'952'304'128 - kept + 3 * block_norms + 2 * last_norm);
}

// Llama-3-8B: the head alone has 525 million parameters, so less is retained; checkpointing changes nothing.
TEST(Zero3Gathers, Llama3_8B) {
  for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full})
    EXPECT_EQ(
        gathered(valid_schedule(make_job(preset_named("llama-3-8b"), "zero3", {.ranks = 8, .checkpointing = checkpointing}))).elements,
        15'098'445'824);
}

// The overflow flag of fp16 is one byte more than the norm's eight, which bf16 sends too.
TEST(Zero3Step, ChecksOverflowInFp16Only) {
  const auto control = [](DType dtype) {
    return traffic_of(make_job(equal_blocks(3), "zero3", {.ranks = 4, .parameters = dtype, .gradients = dtype})).control.value();
  };
  EXPECT_EQ(control(DType::bf16), 2 * 3 * 8 / 4);
  EXPECT_EQ(control(DType::fp16), (2 * 3 * 9 + 3) / 4);
}

TEST(Zero3Bytes, Llama2_7B) {
  const auto gigabytes = [](std::int64_t n, std::int32_t g) {
    return static_cast<double>(sent(preset_named("llama-2-7b"), "zero3", {.ranks = n, .micro_batches = g})) / 1e9;
  };
  EXPECT_NEAR(gigabytes(8, 1), 33.651, 5e-4);
  EXPECT_NEAR(gigabytes(8, 4), 134.604, 5e-4);
  EXPECT_NEAR(gigabytes(64, 1), 37.858, 5e-4);
}

/// Reductions of a micro-batch: how many of each kind and size.
std::map<std::pair<Collective, std::int64_t>, int> reductions(const std::shared_ptr<const Architecture>& model, const JobOptions& options) {
  std::map<std::pair<Collective, std::int64_t>, int> found;
  for (const Op& op : valid_schedule(make_job(model, "zero3", options)).ops)
    if (const auto* c = std::get_if<Communicate>(&op.action); c && op.phase == Phase::backward && c->kind != Collective::all_gather)
      ++found[{c->kind, c->payload.value()}];
  return found;
}

/// Matrices of 3 x 11 and 5 x 11 on two ranks: a bucket of 40 elements holds either, one of 50 the smaller only.
TEST(Zero3Reduces, OnlyContiguousBucketsAreAllReduced) {
  using Found = std::map<std::pair<Collective, std::int64_t>, int>;
  const auto model = inline_layers(
      "- {name: a, repeat: 2, block: true, parameters: {w: [3, 11]}}\n- {name: b, repeat: 1, block: true, parameters: {w: [5, 11]}}\n");
  JobOptions options{.ranks = 2};
  options.options = {{"reduce_bucket_size", std::int64_t{50}}, {"reduce_scatter", false}};
  EXPECT_EQ(reductions(model, options), (Found{{{Collective::all_reduce, 33}, 2}, {{Collective::reduce_scatter, 56}, 1}}));
  options.options.push_back({"contiguous_gradients", false});
  EXPECT_EQ(reductions(model, options), (Found{{{Collective::reduce_scatter, 34}, 2}, {{Collective::reduce_scatter, 56}, 1}}));
}

/// A sub-group is closed when it has reached its size. Three partitions of 1,024: 1,500 takes two of them; each has its norm.
TEST(Zero3Step, SubGroupsCloseWhenTheyAreFull) {
  const auto norms = [](std::int64_t size) {
    JobOptions options{.ranks = 4};
    options.options = {{"sub_group_size", size}};
    int count = 0;
    for (const Op& op : valid_schedule(make_job(equal_blocks(3), "zero3", options)).ops)
      if (const auto* c = std::get_if<Communicate>(&op.action); c && c->control) ++count;
    return count;
  };
  EXPECT_EQ(norms(1024), 3);
  EXPECT_EQ(norms(1500), 2);
  EXPECT_EQ(norms(3072), 1);
}

/// The step: gradient partitions flattened in 16 bit, and their fp32 copy beside that; under bf16 states the flat copy is the gradient.
TEST(Zero3Memory, TheStepHoldsAFlatCopyBeforeTheCast) {
  const auto temporaries = [](DType master) {
    OwnedJob owned = make_job(equal_blocks(3), "zero3", {.ranks = 4, .master = master});
    owned.job.training.optimizer.implementation = Optimizer::Implementation::fused;
    const Schedule schedule = valid_schedule(owned);
    std::int64_t now = 0, most = 0;
    for (const Op& op : schedule.ops) {
      if (op.phase != Phase::step) continue;
      const auto size = [&](BufferId b) { return schedule.at(b).category == Category::temporaries ? schedule.at(b).size().value() : 0; };
      if (const auto* a = std::get_if<Allocate>(&op.action)) most = std::max(most, now += size(a->buffer));
      if (const auto* f = std::get_if<Free>(&op.action)) now -= size(f->buffer);
    }
    return most;
  };
  const std::int64_t psi = 3 * 64 * 64 / 4;
  EXPECT_EQ(temporaries(DType::fp32), (2 + 4) * psi);
  EXPECT_EQ(temporaries(DType::bf16), 8 * psi / 3 + 8);  // the norm's: one partition in fp64, and their sum
}

TEST(Zero3Memory, NoBucketWithoutContiguousGradients) {
  const auto buffers = [](bool contiguous) {
    JobOptions options{.ranks = 4};
    options.options = {{"contiguous_gradients", contiguous}, {"reduce_bucket_size", std::int64_t{10000}}};
    const Memory memory = fold_memory(valid_schedule(make_job(equal_blocks(3), "zero3", options)), 1);
    return memory.before[static_cast<std::size_t>(Category::communication_buffers)].value();
  };
  EXPECT_EQ(buffers(true), 20000);
  EXPECT_EQ(buffers(false), 0);
}

/// F.linear saves weight.t(), which holds what was gathered; DeepSpeed's own function saves the parameter.
TEST(Zero3Memory, WithoutItsLinearFunctionGatheredWeightsStay) {
  const auto gathered = [](bool efficient) {
    JobOptions options{.ranks = 8};
    options.options = {{"memory_efficient_linear", efficient}};
    const Memory memory = fold_memory(valid_schedule(make_job(preset_named("llama-2-7b"), "zero3", options)), 1);
    return memory.at_peak[static_cast<std::size_t>(Category::unsharded_parameters)].value();
  };
  EXPECT_LT(gathered(true), 4'000'000'000);
  EXPECT_GT(gathered(false), 12'000'000'000);
}

// (2 + 12 + e_acc) bytes of the padded parameters over n; the bucket and what persists come on top.
TEST(Zero3Memory, StatesAreSharded) {
  const std::int64_t n = 4, psi = 3 * 64 * 64;
  JobOptions options{.ranks = n};
  options.options = {{"stage3_param_persistence_threshold", std::int64_t{0}}, {"reduce_bucket_size", std::int64_t{10000}}};
  const Memory memory = fold_memory(valid_schedule(make_job(equal_blocks(3), "zero3", options)), 1);
  EXPECT_EQ(sum(memory.persistent).value(), 16 * psi / n);
}

TEST(Zero3Hpz, OnlyTheFirstForwardLeavesTheSmallGroup) {
  JobOptions options{.ranks = 8, .micro_batches = 2};
  options.options = {{"zero_hpz_partition_size", std::int64_t{2}},
                     {"stage3_param_persistence_threshold", std::int64_t{0}},
                     {"stage3_prefetch_bucket_size", std::int64_t{0}},
                     {"stage3_max_reuse_distance", std::int64_t{0}}};
  const std::int64_t psi = 4 * 64 * 64;
  // 2 bytes: one gather over 8 ranks, three over 2; two reduce-scatters over 8.
  EXPECT_EQ(sent(equal_blocks(4), "zero3", options), 2 * psi * 7 / 8 + 3 * 2 * psi / 2 + 2 * 2 * psi * 7 / 8);
}

/// _aligned_size: a secondary partition is a part of what is padded for all ranks.
TEST(Zero3Hpz, PadsForAllRanks) {
  JobOptions options{.ranks = 8};
  options.options = {{"zero_hpz_partition_size", std::int64_t{2}},
                     {"stage3_param_persistence_threshold", std::int64_t{0}},
                     {"stage3_prefetch_bucket_size", std::int64_t{0}},
                     {"stage3_max_reuse_distance", std::int64_t{0}}};
  const auto odd = inline_layers("- {name: block, repeat: 2, block: true, parameters: {w: [3, 11]}}\n");
  const Schedule schedule = valid_schedule(make_job(odd, "zero3", options));
  for (const Op& op : schedule.ops)
    if (const auto* c = std::get_if<Communicate>(&op.action); c && c->kind == Collective::all_gather) { EXPECT_EQ(c->payload.value(), 40); }
}

// qgZ on two nodes of four: int4 within the node, then a quarter of it between nodes, plus scales of 4 bytes (64 a matrix, 16 at the second
// hop).
TEST(Zero3Qgz, TwoHopsOfInt4) {
  JobOptions options{.ranks = 8};
  options.options = {{"zero_quantized_gradients", true}};
  OwnedJob owned = make_job(equal_blocks(4), "zero3", options);
  owned.job.gpus_per_node = 4;
  const std::int64_t n = 64 * 64;
  EXPECT_EQ(traffic_of(owned).sent_per_rank[static_cast<std::size_t>(Collective::all_to_all)].value(),
            4 * ((n / 2 + 64 * 4) * 3 / 4 + (n / 8 + 16 * 4) / 2));
}

TEST(Zero3Qwz, GathersAboutHalf) {
  JobOptions options{.ranks = 8};
  options.options = {{"zero_quantized_weights", true}, {"stage3_param_persistence_threshold", std::int64_t{0}}};
  const OwnedJob owned = make_job(equal_blocks(2, 512), "zero3", options);
  const std::int64_t gathered = traffic_of(owned).sent_per_rank[static_cast<std::size_t>(Collective::all_gather)].value();
  const std::int64_t values = 2 * 512 * 512 * 7 / 8;  // gathered once: all of it stays live
  EXPECT_GT(gathered, values);
  EXPECT_LT(gathered, values * 101 / 100);
  // Both in one call: 65,536 values a rank, in 16 groups of 4,096: nine groups of at most 8,000 would not be multiples of eight.
  EXPECT_EQ(gathered, 8 * (65536 + 16 * 4) * 7 / 8);
}

/// CUDAQuantizer.quantize as DeepSpeed 0.19.6 ran on a partition of 131,968: 17 groups do not divide it into multiples of 8, nor do more
/// of them up to 1,031.
TEST(Zero3Qwz, GroupsAreMultiplesOfEight) {
  JobOptions options{.ranks = 2};
  options.options = {{"zero_quantized_weights", true}, {"stage3_param_persistence_threshold", std::int64_t{0}}};
  const OwnedJob owned =
      make_job(inline_layers("- {name: block, repeat: 1, block: true, parameters: {w: [1031, 256]}}\n"), "zero3", options);
  EXPECT_EQ(traffic_of(owned).sent_per_rank[static_cast<std::size_t>(Collective::all_gather)].value(), 131968 + 1031 * 4);
}

// All of ZeRO++ at once: weights quantised over the whole world in the first forward only, later gathers quantised too, inside pairs,
// matrices reduced in int4 over two hops. Vectors and matrices that do not divide are reduce-scattered.
TEST(Zero3PlusPlus, TogetherEachKeepsToItsPart) {
  JobOptions options{.ranks = 8, .micro_batches = 2};
  options.options = {{"zero_quantized_weights", true},
                     {"zero_hpz_partition_size", std::int64_t{2}},
                     {"zero_quantized_gradients", true},
                     {"stage3_param_persistence_threshold", std::int64_t{0}},
                     {"stage3_prefetch_bucket_size", std::int64_t{0}},
                     {"stage3_max_reuse_distance", std::int64_t{0}}};
  OwnedJob owned =
      make_job(inline_layers("- {name: block, repeat: 3, block: true, parameters: {w: [64, 64], b: [64]}}\n"), "zero3", options);
  owned.job.gpus_per_node = 4;
  const Traffic traffic = traffic_of(owned);
  const auto sent_by = [&](Collective c) { return traffic.sent_per_rank[static_cast<std::size_t>(c)].value(); };
  const std::int64_t matrix = 64 * 64, psi = matrix + 64;
  // 520 values a rank over all, 2,080 in a pair: one group, one scale.
  EXPECT_EQ(sent_by(Collective::all_gather), 3 * (psi + 8 * 4) * 7 / 8 + 3 * 3 * (psi + 2 * 4) / 2);
  EXPECT_EQ(sent_by(Collective::reduce_scatter), 2 * 3 * 2 * 64 * 7 / 8);
  EXPECT_EQ(sent_by(Collective::all_to_all), 2 * 3 * ((matrix / 2 + 64 * 4) * 3 / 4 + (matrix / 8 + 16 * 4) / 2));
}

/// Shard groups of two nodes: gathered between the nodes on a quarter, then inside them; as many bytes in all as in one gather.
TEST(Mics, GathersBetweenNodesFirst) {
  JobOptions options{.ranks = 16};
  options.options = {{"mics_shard_size", std::int64_t{8}},
                     {"mics_hierarchical_params_gather", true},
                     {"stage3_param_persistence_threshold", std::int64_t{0}},
                     {"stage3_prefetch_bucket_size", std::int64_t{0}},
                     {"stage3_max_reuse_distance", std::int64_t{0}}};
  OwnedJob owned = make_job(equal_blocks(4), "mics", options);
  owned.job.gpus_per_node = 4;
  const std::int64_t matrix = 64 * 64;
  std::int64_t between = 0, inside = 0;
  const Schedule schedule = valid_schedule(owned);
  for (const Op& op : schedule.ops) {
    const auto* c = std::get_if<Communicate>(&op.action);
    if (!c || c->kind != Collective::all_gather) continue;
    const Group& group = schedule.group_of(c->communicator);
    EXPECT_EQ(c->payload.value(), group.stride == 4 ? matrix / 4 : matrix);
    ++(group.stride == 4 ? between : inside);
    EXPECT_EQ(group.size, group.stride == 4 ? 2 : 4);
  }
  EXPECT_EQ(between, 2 * 4);
  EXPECT_EQ(inside, 2 * 4);
  EXPECT_EQ(traffic_of(owned).sent_per_rank[static_cast<std::size_t>(Collective::all_gather)].value(), 2 * 4 * 2 * matrix * 7 / 8);
  owned.job.gpus_per_node = 8;
  EXPECT_NE(emit(owned.job).warnings.front().find("lies inside one node"), std::string::npos);
  owned.job.gpus_per_node = 3;
  EXPECT_NE(check(owned.job).text().find("a whole number of nodes of 3 GPUs"), std::string::npos);
}

/// The partitions' all-reduce follows each bucket's reduce-scatter in the last micro-batch, before backward has ended.
TEST(Mics, AllReducesShardsBucketByBucket) {
  JobOptions options{.ranks = 8, .micro_batches = 2};
  options.options = {{"mics_shard_size", std::int64_t{4}}, {"reduce_bucket_size", std::int64_t{64 * 64}}};
  std::vector<std::pair<std::int32_t, std::int64_t>> calls;  // micro-batch, where
  const Schedule schedule = valid_schedule(make_job(equal_blocks(3), "mics", options));
  for (const Op& op : schedule.ops)
    if (const auto* c = std::get_if<Communicate>(&op.action); c && c->kind == Collective::all_reduce && !c->control)
      calls.emplace_back(op.micro_batch, c->offset.value());
  const std::int64_t part = 64 * 64 / 4;
  EXPECT_EQ(calls, (std::vector<std::pair<std::int32_t, std::int64_t>>{{1, 2 * part}, {1, part}, {1, 0}}));
}

TEST(Mics, GathersInGroupsAndReducesAcrossThem) {
  JobOptions options{.ranks = 8};
  options.options = {{"mics_shard_size", std::int64_t{4}},
                     {"stage3_param_persistence_threshold", std::int64_t{0}},
                     {"stage3_prefetch_bucket_size", std::int64_t{0}},
                     {"stage3_max_reuse_distance", std::int64_t{0}}};
  const std::int64_t psi = 4 * 64 * 64;
  EXPECT_EQ(sent(equal_blocks(4), "mics", options), 3 * 2 * psi * 3 / 4 + 2 * 2 * (psi / 4) / 2);
}

}  // namespace
}  // namespace shardsim::testing
