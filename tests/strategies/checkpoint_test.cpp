// SPDX-License-Identifier: Apache-2.0
// Checkpoints counted by hand, from the shards that schedules hold.
#include "strategies/checkpoint.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "jobs.hpp"

namespace shardsim::testing {
namespace {

constexpr std::int64_t toy_elements = 1980;
constexpr CheckpointMachine machine{
    .gpus_per_node = 4, .write_per_node = ByteRate{1e6}, .read_per_node = ByteRate{2e6}, .host_link = ByteRate{1e9}};

std::int64_t sum(const ByRank& by_rank) { return std::accumulate(by_rank.begin(), by_rank.end(), Bytes{}).value(); }

CheckpointReport report(const OwnedJob& owned, const CheckpointRequest& request = {}) {
  const Problems problems = check_checkpoint(owned.job, request);
  EXPECT_TRUE(problems.empty()) << problems.text();
  const Job loading = loading_job(owned.job, request);
  return checkpoint_report(owned.job, emit(owned.job), loading, emit(loading), request, machine);
}

CheckpointReport report(std::shared_ptr<const Architecture> architecture, const std::string& strategy, std::int64_t ranks,
                        const CheckpointRequest& request = {}, std::vector<std::pair<std::string, Options::Value>> options = {}) {
  return report(make_job(std::move(architecture), strategy, {.ranks = ranks, .options = std::move(options)}), request);
}

// Rows of rank 0 of 8: 13 of 101, 2 of 10, 1 of 8; rank 7 has 10 of 101, none of 10, 1 of 8. fp32 shard and two moments: 12 bytes.
TEST(Checkpoint, Fsdp2WritesItsOwnRows) {
  const CheckpointReport r = report(toy(), "fsdp2", 8);
  EXPECT_EQ(r.format, CheckpointFormat::dcp);
  EXPECT_EQ(r.files, 9);
  EXPECT_EQ(r.total.value(), 12 * toy_elements);
  EXPECT_EQ(r.held, r.total);
  EXPECT_EQ(r.written_max.value(), 12 * (13 * 8 + 2 * (2 * 8 + 2 + 10 + 1) + 1 + 13 * 8));
  EXPECT_EQ(r.written_min.value(), 12 * (10 * 8 + 2 * (10 + 1) + 1 + 10 * 8));
}

// FSDP1 saves SHARDED_STATE_DICT, cut along dimension 0 as FSDP2's, whatever its flat parameters' padding.
TEST(Checkpoint, Fsdp1WritesTheSameRows) {
  const CheckpointReport one = report(toy(), "fsdp1", 8), two = report(toy(), "fsdp2", 8);
  EXPECT_EQ(one.total, two.total);
  EXPECT_EQ(one.written_max, two.written_max);
  EXPECT_EQ(one.written_min, two.written_min);
}

// Two replicas of four shards hold everything twice and write it once, about half each.
TEST(Checkpoint, ReplicasShareTheWriting) {
  const CheckpointReport r = report(toy(), "fsdp2", 8, {}, {{"replicate", std::int64_t{2}}});
  EXPECT_EQ(r.total.value(), 12 * toy_elements);
  EXPECT_EQ(r.held.value(), 2 * 12 * toy_elements);
  EXPECT_LT(r.written_max.value(), 12 * toy_elements / 4);
  EXPECT_GT(r.written_min.value(), 0);
}

// Tensors of 5, 4, 3, 3 elements on two ranks: each goes to the rank with less so far: 5 | 4, 4 + 3 | 5 + 3.
TEST(Checkpoint, EachReplicatedTensorGoesToTheRankWithLeast) {
  std::vector<SavedTensor> state;
  for (const std::int64_t n : {5, 4, 3, 3}) state.push_back({.state = "parameters", .dtype = DType::int8, .elements = n});
  EXPECT_EQ(dcp_written(state, 2), (ByRank{Bytes{8}, Bytes{7}}));
  EXPECT_EQ(held_bytes(state, 2), (ByRank{Bytes{15}, Bytes{15}}));
}

// bf16 parameters, fp32 master and moments: 14 bytes, on every rank; written once, and read by everybody, whole.
TEST(Checkpoint, DdpWritesOneCopyAndReadsItEverywhere) {
  const CheckpointReport r = report(toy(), "ddp", 4);
  EXPECT_EQ(r.total.value(), 14 * toy_elements);
  EXPECT_EQ(r.held.value(), 4 * 14 * toy_elements);
  EXPECT_LE((r.written_max - r.written_min).value(), 4 * 808);  // the largest tensor
  EXPECT_EQ(r.load_read.value(), 4 * 14 * toy_elements);
}

// 64 rows on 8 ranks: chunks of 8. 16 ranks want 4 rows each and read 8; 4 ranks want 16 and read 16; 3 ranks want rows 0-21, 22-43, 44-63
// and read chunks 0-2, 2-5, 5-7: 24 + 32 + 24 rows.
TEST(Checkpoint, AnotherWorldReadsWholeChunks) {
  const auto read_share = [](std::int64_t ranks) {
    const CheckpointReport r = report(equal_blocks(3), "fsdp2", 8, {.load_world_size = ranks});
    EXPECT_EQ(r.load_wanted.value(), 12 * 3 * 64 * 64);
    EXPECT_TRUE(r.cannot_load.empty());
    return static_cast<double>(r.load_read.value()) / static_cast<double>(r.load_wanted.value());
  };
  EXPECT_EQ(read_share(16), 2);
  EXPECT_EQ(read_share(8), 1);
  EXPECT_EQ(read_share(4), 1);
  EXPECT_EQ(read_share(3), 80.0 / 64);
}

TEST(Checkpoint, FullGathersTensorByTensorAndRankZeroWrites) {
  const std::int64_t tensor = 4 * 64 * 64;
  const CheckpointReport r = report(equal_blocks(3), "fsdp2", 8, {.format = CheckpointFormat::full});
  EXPECT_EQ(r.files, 1);
  EXPECT_EQ(r.total.value(), 9 * tensor);
  EXPECT_EQ(r.written_max, r.total);
  EXPECT_EQ(r.written_min, Bytes{});
  EXPECT_EQ(r.gathered_per_rank.value(), 9 * tensor * 7 / 8);
  EXPECT_EQ(r.gpu_extra.value(), tensor);
  EXPECT_EQ(r.host_per_node, r.total);
}

TEST(Checkpoint, ZeroRedundancyConsolidatesItsStates) {
  const CheckpointReport r = report(toy(), "zero_redundancy", 4);
  EXPECT_EQ(r.format, CheckpointFormat::full);
  EXPECT_EQ(r.total.value(), 14 * toy_elements);
}

// DeepSpeed: an optimizer file from every rank (12 bytes), and the 16-bit model from rank 0 below stage 3; in stage 3 the parameters are
// rebuilt from the fp32 partitions. Every rank reads the model file.
TEST(Checkpoint, DeepSpeedsOwnFiles) {
  const std::int64_t elements = 3 * 64 * 64;
  for (const char* strategy : {"zero1", "zero2"}) {
    const CheckpointReport r = report(equal_blocks(3), strategy, 4);
    EXPECT_EQ(r.format, CheckpointFormat::deepspeed);
    EXPECT_EQ(r.files, 5) << strategy;
    EXPECT_EQ(r.total.value(), 14 * elements) << strategy;
    EXPECT_EQ(r.written_max.value(), 12 * elements / 4 + 2 * elements) << strategy;
    EXPECT_EQ(r.load_read.value(), 12 * elements + 4 * 2 * elements) << strategy;
  }
  const CheckpointReport three = report(equal_blocks(3), "zero3", 4);
  EXPECT_EQ(three.files, 8);
  EXPECT_EQ(three.total.value(), 12 * elements);
  EXPECT_EQ(three.load_read, three.total);
  const CheckpointReport elsewhere = report(equal_blocks(3), "zero3", 4, {.load_world_size = 8});
  EXPECT_NE(elsewhere.cannot_load.find("same number of ranks"), std::string::npos);
  EXPECT_EQ(elsewhere.load_read, Bytes{});
  const CheckpointReport weights = report(equal_blocks(3), "zero3", 4, {.format = CheckpointFormat::full});
  EXPECT_EQ(weights.total.value(), 2 * elements);
}

// DeepSpeed#6598: Llama-3.1-8B with ZeRO-2 and CPU offload on one GPU: optim_states 90G, model_states 15G (du -h, GiB). 12 and 2 bytes.
TEST(Checkpoint, U126TwelveAndTwoBytesAParameter) {
  OwnedJob owned = make_job(preset_named("llama-3.1-8b"), "zero2", {.ranks = 1});
  owned.job.training.offload.optimizer = OffloadTarget::cpu;
  const CheckpointReport r = report(owned);
  EXPECT_EQ(r.total.value(), 14 * std::int64_t{8'030'261'248});
  EXPECT_EQ(r.files, 2);
  const double optimizer = static_cast<double>(r.total.value() - 2 * std::int64_t{8'030'261'248}) / (1 << 30);
  EXPECT_NEAR(optimizer, 89.75, 0.005);
}

// 36,864 elements of 12 bytes on 8 ranks, 4 a node, 1 MB/s a node: 221,184 bytes each; copies of 55,296 bytes a GPU hide behind it.
TEST(Checkpoint, TimeIsThatOfTheSlowestNode) {
  const std::int64_t total = 12 * 3 * 64 * 64;
  const CheckpointReport plain = report(equal_blocks(3), "fsdp2", 8);
  EXPECT_DOUBLE_EQ(plain.save.base(), static_cast<double>(total) / 2 / 1e6);
  EXPECT_EQ(plain.stall, plain.save);
  EXPECT_DOUBLE_EQ(plain.load.base(), static_cast<double>(total) / 2 / 2e6);
  const CheckpointReport async = report(equal_blocks(3), "fsdp2", 8, {.async = true});
  EXPECT_DOUBLE_EQ(async.stall.base(), static_cast<double>(total) / 8 / 1e9);
  EXPECT_DOUBLE_EQ(async.save.base(), async.stall.base() + plain.save.base());
  EXPECT_EQ(async.host_per_node.value(), total / 2);
}

// async_save stages what the state dict holds, before replicas are dropped.
TEST(Checkpoint, AsyncStagesReplicasToo) {
  const CheckpointReport r = report(toy(), "ddp", 8, {.async = true});
  EXPECT_EQ(r.host_per_node.value(), 4 * 14 * toy_elements);
}

TEST(Checkpoint, FormatsBelongToLibraries) {
  const auto refuses = [](const char* strategy, const CheckpointRequest& request) {
    return !check_checkpoint(make_job(toy(), strategy, {.ranks = 4}).job, request).empty();
  };
  EXPECT_TRUE(refuses("fsdp2", {.format = CheckpointFormat::deepspeed}));
  EXPECT_TRUE(refuses("zero3", {.format = CheckpointFormat::dcp}));
  EXPECT_TRUE(refuses("zero3", {.async = true}));
  EXPECT_TRUE(refuses("fsdp2", {.load_world_size = (1 << 16) + 1}));
  EXPECT_FALSE(refuses("fsdp2", {.format = CheckpointFormat::full}));
}

// Whatever the cut, parts put together are the tensor, and ranks together read at least what they want.
TEST(Checkpoint, PartsMakeTheWhole) {
  for (const StrategyInfo& info : strategies())
    for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::adafactor}) {
      const OwnedJob owned = make_job(toy(), info.name, {.ranks = 4, .optimizer = optimizer});
      const auto state = state_dict(owned.job, emit(owned.job));
      ASSERT_FALSE(state.empty());
      for (const SavedTensor& t : state) {
        std::int64_t elements = 0;
        for (std::int64_t part = 0; part < t.parts; ++part) elements += range_of(t, part).count;
        EXPECT_EQ(elements, t.elements) << info.name << " " << t.state;
      }
      EXPECT_LE(sum(dcp_written(state, 4)), sum(held_bytes(state, 4))) << info.name;
      EXPECT_GE(sum(dcp_read(state, state, 4)), sum(dcp_written(state, 4))) << info.name;
    }
}

}  // namespace
}  // namespace shardsim::testing
