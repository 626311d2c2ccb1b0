// SPDX-License-Identifier: Apache-2.0
// Public reports with known answers (issues of PyTorch, DeepSpeed, OLMo, xtuner, LlamaFactory, fms-acceleration, torchtitan, llm.c):
// the question that was asked, the arithmetic of the right answer, and what a simulation says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

using ::testing::UnorderedElementsAre;

struct Case {
  std::string model = "preset: llama-3-8b", profile = "a100-sxm-80";
  std::int64_t nodes = 1, gpus = 8, sequence = 2048, micro_batch = 1, accumulation = 1;
  std::string precision = "mixed", checkpointing = "full", strategy = "fsdp2", options{}, training{}, cluster{};
};

SimulationResult run(const Case& c, Detail detail = {}) {
  const std::string text =
      "model: {" + c.model + "}\ncluster:\n  profile: clusters/" + c.profile + ".yaml\n  nodes: " + std::to_string(c.nodes) +
      "\n  gpus_per_node: " + std::to_string(c.gpus) + "\n" + c.cluster + "training:\n  sequence_length: " + std::to_string(c.sequence) +
      "\n  micro_batch_size: " + std::to_string(c.micro_batch) + "\n  gradient_accumulation_steps: " + std::to_string(c.accumulation) +
      "\n  precision: " + c.precision + "\n  activation_checkpointing: " + c.checkpointing + "\n" + c.training +
      "strategy:\n  name: " + c.strategy + "\n" + c.options;
  return simulate_scenario(value_or_throw(read_scenario(value_or_throw(read_yaml({"case.yaml", text})), "case.yaml", shipped_folder())),
                           detail);
}

/// The most that a category ever holds in the step.
double most(const SimulationResult& r, Category c) {
  Bytes most = r.memory.before[static_cast<std::size_t>(c)];
  visit_states(r.memory,
               [&](SimTime, OpId, const ByCategory& allocated) { most = std::max(most, allocated[static_cast<std::size_t>(c)]); });
  return static_cast<double>(most.value());
}
double persistent(const SimulationResult& r) { return static_cast<double>(sum(r.memory.persistent).value()); }

constexpr double GiB = 1073741824.0;
const std::string blocks_of_a_billion = "layers: [{name: block, repeat: 26, block: true, parameters: {w: [31250, 32000]}}]";

/// Bytes of each collective of a kind that is traffic, call by call.
std::vector<std::int64_t> payloads(const SimulationResult& r, Collective kind) {
  std::vector<std::int64_t> found;
  for (const TrafficRow& row : r.traffic.by_group)
    if (row.collective == kind && !row.control) found.insert(found.end(), static_cast<std::size_t>(row.calls), row.payload.value());
  return found;
}

// pytorch#48880: ResNet-18 in fp32 on four GPUs. A bucket closes when it has reached its cap, and may exceed it: the user took it for a
// limit.
TEST(Cases, U001BucketsCloseWhenTheyHaveReachedTheirCap) {
  Case c{.model = "preset: resnet-18", .gpus = 4, .precision = "fp32", .checkpointing = "none", .strategy = "ddp"};
  const SimulationResult r = run(c);
  EXPECT_THAT(payloads(r, Collective::all_reduce), UnorderedElementsAre(2052000, 28852224, 15853824));
  EXPECT_EQ(r.traffic.total.value(), 70137072);
  c.options = "  bucket_cap_mb: 35\n  first_bucket_mb: 1\n";
  EXPECT_THAT(payloads(run(c), Collective::all_reduce), UnorderedElementsAre(2052000, 38297600, 6408448));
}

// A public DeepSpeed ZeRO-1 run of OPT-1.3B on eight GPUs (release 0.12: no contiguous gradients at stage 1, no overflow check in bf16):
// three bf16 all-reduces and two all-gathers, 5.25 bytes a parameter where the paper counts 3.5.
TEST(Cases, U009ZeroOneAllReduces) {
  Case c{.model =
             "hf_config: {model_type: opt, vocab_size: 50272, hidden_size: 2048, word_embed_proj_dim: 2048, num_hidden_layers: 24, "
             "num_attention_heads: 32, ffn_dim: 8192, "
             "max_position_embeddings: 2048, do_layer_norm_before: true, activation_function: relu}",
         .sequence = 512,
         .checkpointing = "none",
         .strategy = "zero1"};
  c.training = "  optimizer: {name: adamw, weight_decay_groups: split}\n";
  c.options = "  contiguous_gradients: false\n  check_grad_overflow: false\n";
  const SimulationResult r = run(c);
  EXPECT_THAT(payloads(r, Collective::all_reduce), UnorderedElementsAre(2 * 493031424, 2 * 486539264, 2 * 336187392));
  EXPECT_THAT(payloads(r, Collective::all_gather), UnorderedElementsAre(8 * 2 * 164389376L, 8 * 2 * 80384));
  EXPECT_EQ(r.traffic.total.value(), 6 * 1315758080L * 7 / 8);
  EXPECT_NE(r.traffic.textbook_differs_because.find("all-reduces"), std::string::npos);
}

// tnt#1057: FSDP2 with gradient sync off keeps unsharded gradients, 2 bytes x 26e9 = 52 GB, instead of 3.25 GB of shards.
TEST(Cases, U017NoSyncKeepsWholeGradients) {
  Case c{.model = blocks_of_a_billion, .nodes = 2, .sequence = 16, .accumulation = 2, .precision = "pure-bf16", .checkpointing = "none"};
  c.options = "  requires_gradient_sync: false\n";
  EXPECT_NEAR(most(run(c, {.timeline = true}), Category::unsharded_gradients), 52e9, 0.01 * 52e9);
  c.options.clear();
  EXPECT_NEAR(static_cast<double>(run(c).memory.persistent[static_cast<std::size_t>(Category::gradients)].value()), 3.25e9, 0.01 * 3.25e9);
}

// OLMo#762: with 32 micro-batches FSDP sends (2 + 2 + 4) bytes a parameter in each, DDP once a step; on a slow link DDP wins.
TEST(Cases, U008AccumulationMultipliesFsdpsTraffic) {
  const std::string slow = "  ring_bandwidth: 4 GB/s\n  collectives: []\n";
  const Case fsdp{.model = "preset: olmo-7b",
                  .gpus = 4,
                  .accumulation = 32,
                  .precision = "{parameters: bf16, gradients: bf16, reduce: fp32, master: fp32}",
                  .cluster = slow};
  Case ddp = fsdp;
  ddp.precision = "autocast";
  ddp.strategy = "ddp";
  const SimulationResult a = run(fsdp), b = run(ddp);
  const double psi = static_cast<double>(a.parameters.value());
  EXPECT_NEAR(static_cast<double>(a.traffic.total.value()) / 32, 8 * psi * 3 / 4, 0.05 * 8 * psi * 3 / 4);
  EXPECT_EQ(b.traffic.total.value(), 8 * a.parameters.value() * 3 / 4);
  EXPECT_GT(a.step.time, b.step.time);
}

// xtuner#842: 16 bytes of Llama-3-70B over 16 GPUs are 70.6 GB; with fp32 gradients 18 bytes, 79.4 GB: neither leaves room. 32 GPUs do.
TEST(Cases, U044SeventyBillionNeed32Gpus) {
  Case c{.model = "preset: llama-3-70b", .nodes = 2, .strategy = "zero3"};
  EXPECT_NEAR(persistent(run(c)), 70.6e9, 0.01 * 70.6e9);
  c.precision = "{parameters: bf16, gradients: fp32, reduce: bf16, master: fp32}";
  const SimulationResult sixteen = run(c);
  EXPECT_NEAR(persistent(sixteen), 79.4e9, 0.01 * 79.4e9);
  EXPECT_FALSE(sixteen.memory.fits);
  c.nodes = 4;
  const SimulationResult thirty_two = run(c);
  EXPECT_NEAR(persistent(thirty_two), 39.7e9, 0.01 * 39.7e9);
  EXPECT_TRUE(thirty_two.memory.fits);
}

// LlamaFactory#2379: LoRA of Mixtral-8x7B under DDP holds 93.4 GB of frozen parameters on every GPU; sharded, an eighth of it.
TEST(Cases, U046FrozenExpertsMustBeSharded) {
  Case c{.model = "preset: mixtral-8x7b, trainable: {lora: {rank: 16, targets: [q_proj, v_proj]}}",
         .micro_batch = 2,
         .precision = "pure-bf16",
         .strategy = "ddp"};
  const SimulationResult ddp = run(c);
  EXPECT_FALSE(ddp.memory.fits);
  EXPECT_NEAR(static_cast<double>(ddp.memory.persistent[0].value()), 93.4e9, 0.01 * 93.4e9);
  for (const char* strategy : {"zero3", "fsdp1", "fsdp2"}) {
    c.strategy = strategy;
    const SimulationResult sharded = run(c);
    EXPECT_TRUE(sharded.memory.fits) << strategy;
    EXPECT_NEAR(static_cast<double>(sharded.memory.persistent[0].value()), 11.7e9, 0.02 * 11.7e9) << strategy;
  }
}

// fms-acceleration: Mistral-7B in pure bf16 on one GPU: 6 bytes after the step, 10 at its peak, for both batch sizes.
TEST(Cases, U052PureBf16PeaksInTheOptimizer) {
  for (std::int64_t batch : {4, 8}) {
    const SimulationResult r = run({.model = "preset: mistral-7b",
                                    .gpus = 1,
                                    .sequence = 4096,
                                    .micro_batch = batch,
                                    .precision = "pure-bf16",
                                    .strategy = "naive_dp"});
    EXPECT_NEAR(static_cast<double>(r.memory.resident.value()) / GiB, 40.48, 0.01 * 40.48);
    EXPECT_NEAR(static_cast<double>(r.memory.peak.value()) / GiB, 67.46, 0.01 * 67.46);
    EXPECT_EQ(r.memory.peak_phase, Phase::step);
  }
}

// The same with LoRA of rank 16: 13.66 GiB resident; the peak grows by 11.2 GiB for four more sequences.
TEST(Cases, U054LoraPeaksInActivations) {
  Case c{.model = "preset: mistral-7b, trainable: {lora: {rank: 16, targets: [q_proj, k_proj, v_proj, o_proj]}}",
         .gpus = 1,
         .sequence = 4096,
         .micro_batch = 4,
         .precision = "pure-bf16",
         .strategy = "naive_dp"};
  const SimulationResult four = run(c);
  EXPECT_NEAR(static_cast<double>(four.memory.resident.value()) / GiB, 13.66, 0.01 * 13.66);
  c.micro_batch = 8;
  const SimulationResult eight = run(c);
  EXPECT_NEAR(static_cast<double>((eight.memory.peak - four.memory.peak).value()) / GiB, 11.2, 0.02 * 11.2);
  EXPECT_EQ(eight.memory.peak_phase, Phase::backward);
  c.gpus = 2;
  c.strategy = "fsdp1";
  EXPECT_NEAR(static_cast<double>(run(c).memory.resident.value()) / GiB, 6.86, 0.02 * 6.86);
}

// torchtitan: from 8 to 128 GPUs only the 16 bytes of state a parameter shrink: 14.02 GiB.
TEST(Cases, U068OnlyStatesShrinkWithTheWorld) {
  Case c{.model = "preset: llama-3.1-8b",
         .profile = "h100-sxm",
         .sequence = 8192,
         .micro_batch = 2,
         .precision = "{parameters: bf16, gradients: bf16, reduce: fp32, master: fp32}",
         .checkpointing = "selective_ops"};
  const double eight = persistent(run(c));
  c.nodes = 16;
  EXPECT_NEAR((eight - persistent(run(c))) / GiB, 14.02, 0.01 * 14.02);
}

// oumi#213: between nodes HSDP sends the shards' all-reduce only, FULL_SHARD everything; on four nodes with a slow network HSDP is faster.
TEST(Cases, U076HybridShardingScalesFurther) {
  Case c{
      .model = "preset: llama-3.2-1b", .nodes = 4, .checkpointing = "none", .strategy = "fsdp1", .cluster = "  nic_bandwidth: 25 Gbit/s\n"};
  const SimulationResult full = run(c);
  c.options = "  sharding_strategy: HYBRID_SHARD\n";
  const SimulationResult hybrid = run(c);
  EXPECT_LT(hybrid.step.time, full.step.time);
  EXPECT_GT(persistent(hybrid), 3.9 * persistent(full));  // shards of 8 instead of 32
}

// Megatron-LM#132: fp32 logits of 8,192 tokens x 151,936 words are 4.638 GiB, 0.580 GiB in eight chunks.
TEST(Cases, U086ChunkedLossKeepsOneChunkInFp32) {
  Case c{.model = "preset: qwen3-0.6b", .gpus = 1, .sequence = 8192, .strategy = "naive_dp"};
  const auto largest_fp32 = [](const SimulationResult& r) {
    std::int64_t largest = 0;
    for (const Buffer& b : r.schedule->buffers)
      if (b.category == Category::logits && b.dtype == DType::fp32) largest = std::max(largest, b.size().value());
    return static_cast<double>(largest) / GiB;
  };
  EXPECT_NEAR(largest_fp32(run(c)), 4.637, 0.001);
  c.training = "  loss: {chunked: 8}\n";
  EXPECT_NEAR(largest_fp32(run(c)), 0.580, 0.001);
}

// llm.c#309: ZeRO-1 of GPT-2 (124,475,904 padded): master and moments 474.8 MiB each on one GPU, 237.4 on two, 59.4 on eight; parameters
// 237.4.
TEST(Cases, U133ZeroOneShardsTheOptimizerOnly) {
  for (std::int64_t n : {1, 2, 8}) {
    const SimulationResult r = run({.model = "layers: [{name: w, parameters: {w: [124475904]}}]",
                                    .gpus = n,
                                    .sequence = 16,
                                    .checkpointing = "none",
                                    .strategy = "zero1"});
    EXPECT_NEAR(static_cast<double>(r.memory.persistent[static_cast<std::size_t>(Category::optimizer_states)].value()) / 1048576.0,
                3 * 474.8 / static_cast<double>(n), 0.01 * 474.8);
    EXPECT_NEAR(static_cast<double>(r.memory.persistent[static_cast<std::size_t>(Category::parameters)].value()) / 1048576.0, 237.4, 0.1);
  }
}

// The same as scenarios: what `shardsim check scenarios/cases` holds them to.
TEST(Cases, ScenariosMeetTheirExpectations) {
  setenv("SHARDSIM_DATA", SHARDSIM_SOURCE_DIR "/scenarios", 1);
  EXPECT_EQ(std::system(SHARDSIM_EXECUTABLE " check " SHARDSIM_SOURCE_DIR "/scenarios/cases > /dev/null"), 0);
}

}  // namespace
}  // namespace shardsim
