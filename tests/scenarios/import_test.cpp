// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/import.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

Imported take(Result<Imported> result) {
  if (!result) ADD_FAILURE() << result.error().text();
  return result ? std::move(*result) : Imported{};
}

/// The scenario that an import wrote, read as a user's would be.
Scenario read_back(const Imported& imported) {
  const auto root = read_yaml({"imported.yaml", imported.yaml});
  if (!root) {
    ADD_FAILURE() << root.error().text() << imported.yaml;
    return {};
  }
  auto scenario = read_scenario(*root, "imported.yaml", "");
  if (!scenario) ADD_FAILURE() << scenario.error().text() << imported.yaml;
  return scenario ? std::move(*scenario) : Scenario{};
}

bool ignored(const Imported& imported, const std::string& key) {
  return std::any_of(imported.ignored.begin(), imported.ignored.end(), [&](const IgnoredKey& i) { return i.key == key; });
}

std::string refused(const Result<Imported>& result) { return result ? "accepted:\n" + result->yaml : result.error().text(); }

ImportOptions llama() {
  ImportOptions options;
  options.model = "llama-3-8b";
  return options;
}

constexpr const char* zero3_auto = R"({
  "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
  "zero_optimization": {
    "stage": 3, "overlap_comm": true, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto", "sub_group_size": 1e9, "stage3_gather_16bit_weights_on_model_save": true,
    "offload_optimizer": {"device": "cpu", "pin_memory": true}
  },
  "gradient_clipping": "auto", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
  "steps_per_print": 100
})";

// hidden = 4096: 4096^2 = 16,777,216; 0.9 of it = 15,099,494.4; 10 * 4096 = 40,960.
TEST(ImportDeepSpeed, AutoFollowsHuggingFacesRule) {
  const Imported imported = take(import_deepspeed({"ds.json", zero3_auto}, llama()));
  const Scenario s = read_back(imported);
  EXPECT_EQ(s.strategy.name, "zero3");
  EXPECT_EQ(s.strategy.options.integer("reduce_bucket_size", 0), 16'777'216);
  EXPECT_EQ(s.strategy.options.integer("stage3_prefetch_bucket_size", 0), 15'099'494);
  EXPECT_EQ(s.strategy.options.integer("stage3_param_persistence_threshold", 0), 40'960);
  EXPECT_EQ(s.training.micro_batch_size, 8);
  EXPECT_EQ(s.training.gradient_accumulation_steps, 1);
  EXPECT_EQ(s.training.optimizer.clip_grad_norm, 1.0);
  EXPECT_EQ(s.training.precision.parameters, DType::bf16);
  EXPECT_EQ(s.training.offload.optimizer, OffloadTarget::cpu);
  EXPECT_EQ(s.training.offload.parameters, OffloadTarget::none);
  EXPECT_TRUE(ignored(imported, "steps_per_print"));
  EXPECT_TRUE(ignored(imported, "zero_optimization.stage3_gather_16bit_weights_on_model_save"));
  EXPECT_NE(imported.yaml.find("hidden^2"), std::string::npos);
  EXPECT_NE(imported.yaml.find("#   steps_per_print"), std::string::npos);
}

TEST(ImportDeepSpeed, TheBatchDecidesTheWorldWhereItMust) {
  const auto shape = [](const std::string& text) {
    const Scenario s = read_back(take(import_deepspeed({"ds.json", text}, llama())));
    return std::vector<std::int64_t>{s.cluster.world_size(), s.training.micro_batch_size, s.training.gradient_accumulation_steps};
  };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape(R"({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 16})"), (Shape{8, 16, 2}));
  EXPECT_EQ(shape(R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 16})"), (Shape{1, 16, 1}));
  EXPECT_EQ(shape(R"({"train_batch_size": 4, "gradient_accumulation_steps": 1})"), (Shape{4, 1, 1}));
  EXPECT_EQ(shape(R"({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4})"),
            (Shape{32, 2, 4}));
  EXPECT_EQ(shape(R"({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 3})"), (Shape{8, 8, 3}));
  EXPECT_NE(refused(import_deepspeed({"ds.json", R"({"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2})"}, llama()))
                .find("no number of GPUs"),
            std::string::npos);
}

TEST(ImportDeepSpeed, PrecisionComesFromItsBlocks) {
  const auto precision = [](const std::string& text) {
    return read_back(take(import_deepspeed({"ds.json", text}, llama()))).training.precision;
  };
  EXPECT_EQ(precision("{}").parameters, DType::fp32);
  const Precision half = precision(R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 2}})");
  EXPECT_EQ(half.parameters, DType::fp16);
  EXPECT_EQ(half.master, DType::fp32);
  const Precision accumulated =
      precision(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}, "data_types": {"grad_accum_dtype": "fp32"}})");
  EXPECT_EQ(accumulated.gradients, DType::fp32);
  const Precision amp = precision(R"({"amp": {"enabled": true, "opt_level": "O1"}})");
  EXPECT_EQ(amp.parameters, DType::fp32);
  EXPECT_EQ(amp.compute, DType::fp16);
}

TEST(ImportDeepSpeed, ATemplateIsRefusedWhereItIsNoJson) {
  const std::string text = refused(import_deepspeed({"t.json", "{\n  \"train_batch_size\" : CONFIG_BATCH_SIZE,\n}"}, llama()));
  EXPECT_NE(text.find("t.json:2:"), std::string::npos) << text;
  EXPECT_NE(refused(import_deepspeed({"t.json", R"({"zero_optimization": {"stage": 7}})"}, llama())).find("0, 1, 2 or 3"),
            std::string::npos);
  EXPECT_NE(refused(import_deepspeed({"t.json", R"({"optimizer": {"type": "Nonsense"}})"}, llama())).find("unknown optimizer 'Nonsense'"),
            std::string::npos);
  ImportOptions nobody;
  nobody.model = "no-such-model";
  EXPECT_NE(refused(import_deepspeed({"t.json", "{}"}, nobody)).find("neither a preset nor a file"), std::string::npos);
}

TEST(ImportAccelerate, Fsdp1KeepsItsOptions) {
  const Scenario s = read_back(
      take(import_accelerate({"a.yaml",
                              "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: 2\n  fsdp_backward_prefetch: BACKWARD_POST\n"
                              "  fsdp_forward_prefetch: true\n  fsdp_use_orig_params: true\n  fsdp_activation_checkpointing: true\n"
                              "mixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"},
                             llama())));
  EXPECT_EQ(s.strategy.name, "fsdp1");
  EXPECT_EQ(s.strategy.options.word("sharding_strategy", ""), "SHARD_GRAD_OP");
  EXPECT_EQ(s.strategy.options.word("backward_prefetch", ""), "BACKWARD_POST");
  EXPECT_TRUE(s.strategy.options.boolean("forward_prefetch", false));
  EXPECT_TRUE(s.strategy.options.boolean("use_orig_params", false));
  EXPECT_EQ(s.training.checkpointing.kind, Checkpointing::full);
  EXPECT_EQ(s.training.precision.reduce, DType::bf16);
  EXPECT_EQ(s.training.precision.master, DType::fp32);
  EXPECT_EQ(s.cluster.nodes, 2);
  EXPECT_EQ(s.cluster.gpus_per_node, 8);
}

TEST(ImportAccelerate, HybridShardingReplicatesAcrossMachines) {
  const Scenario s = read_back(take(import_accelerate({"a.yaml",
                                                       "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: "
                                                       "HYBRID_SHARD}\nmixed_precision: bf16\nnum_machines: 4\nnum_processes: 32\n"},
                                                      llama())));
  EXPECT_EQ(s.strategy.options.integer("replicate", 1), 4);
}

TEST(ImportAccelerate, Fsdp2AndDeepSpeedAndDdp) {
  const Imported second = take(import_accelerate({"a.yaml",
                                                  "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: "
                                                  "false, fsdp_state_dict_type: FULL_STATE_DICT}\nnum_processes: 4\n"},
                                                 llama()));
  const Scenario fsdp2 = read_back(second);
  EXPECT_EQ(fsdp2.strategy.name, "fsdp2");
  EXPECT_EQ(fsdp2.strategy.options.word("reshard_after_forward", ""), "false");
  EXPECT_EQ(fsdp2.training.precision.parameters, DType::fp32);
  EXPECT_TRUE(ignored(second, "fsdp_config.fsdp_state_dict_type"));

  const Scenario zero =
      read_back(take(import_accelerate({"a.yaml",
                                        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, gradient_accumulation_steps: 2, "
                                        "gradient_clipping: 10.0, offload_param_device: none}\n"
                                        "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n"},
                                       llama())));
  EXPECT_EQ(zero.strategy.name, "zero3");
  EXPECT_FALSE(zero.strategy.options.given("reduce_bucket_size"));  // accelerate's own keys leave DeepSpeed's defaults
  EXPECT_EQ(zero.training.gradient_accumulation_steps, 2);
  EXPECT_EQ(zero.training.optimizer.clip_grad_norm, 10.0);

  EXPECT_EQ(
      read_back(take(import_accelerate({"a.yaml", "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n"}, llama())))
          .strategy.name,
      "ddp");
  EXPECT_NE(refused(import_accelerate({"a.yaml", "distributed_type: TPU\n"}, llama())).find("a.yaml:1:19"), std::string::npos);
  EXPECT_NE(refused(import_accelerate({"a.yaml", "hello: world\n"}, llama())).find("not an accelerate configuration"), std::string::npos);
  // LLM Foundry's files have a map of that name, too.
  EXPECT_NE(refused(import_accelerate({"a.yaml", "model: {}\nfsdp_config: {sharding_strategy: FULL_SHARD}\n"}, llama()))
                .find("not an accelerate configuration"),
            std::string::npos);
}

TEST(ImportAccelerate, ADeepSpeedFileIsFollowedOrMissed) {
  const fs::path folder = fs::temp_directory_path() / "shardsim-import-test";
  fs::create_directories(folder);
  std::ofstream(folder / "ds.json") << zero3_auto;
  const std::string text =
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\nnum_machines: 2\nnum_processes: 8\n";
  const Scenario s = read_back(take(import_accelerate({(folder / "a.yaml").string(), text}, llama())));
  EXPECT_EQ(s.strategy.name, "zero3");
  EXPECT_EQ(s.cluster.nodes, 2);
  EXPECT_EQ(s.cluster.gpus_per_node, 4);
  fs::remove_all(folder);
  EXPECT_NE(
      refused(import_accelerate({"a.yaml", text}, llama())).find("a.yaml:3:26: error: the DeepSpeed configuration 'ds.json' is not there"),
      std::string::npos);
}

constexpr const char* mpt = R"(variables: {length: 1024}
max_seq_len: ${variables.length}
model: {name: mpt_causal_lm, d_model: 768, n_heads: 12, n_layers: 12, vocab_size: 50368, 
        max_seq_len: "${variables.length}", attn_config: {attn_impl: flash}}
optimizer: {name: decoupled_lionw, lr: 1.0e-4}
algorithms: {gradient_clipping: {clipping_type: norm, clipping_threshold: 1.0}}
global_train_batch_size: 256
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config: {sharding_strategy: SHARD_GRAD_OP, mixed_precision: DEFAULT, activation_checkpointing: true,
              limit_all_gathers: true, state_dict_type: sharded}
)";

TEST(ImportLlmFoundry, BuildsTheModelAndTheBatch) {
  const Imported imported = take(import_llm_foundry({"mpt.yaml", mpt}, {}));
  const Scenario s = read_back(imported);
  ASSERT_NE(s.model, nullptr);
  EXPECT_EQ(s.model->family, "mpt");
  EXPECT_EQ(s.training.sequence_length, 1024);
  EXPECT_EQ(s.training.gradient_accumulation_steps, 4);  // 256 / (8 * 8)
  EXPECT_EQ(s.training.optimizer.kind, OptimizerKind::lion);
  EXPECT_EQ(s.training.precision.reduce, DType::fp32);
  EXPECT_EQ(s.strategy.options.word("sharding_strategy", ""), "SHARD_GRAD_OP");
  EXPECT_TRUE(ignored(imported, "fsdp_config.state_dict_type"));
  EXPECT_NE(refused(import_llm_foundry({"x.yaml", "scenarios: [1]\n"}, {})).find("not an LLM Foundry training configuration"),
            std::string::npos);
}

constexpr const char* titan = R"(
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
local_batch_size = 2
seq_len = 8192
compile = true
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 16
tensor_parallel_degree = 1
[activation_checkpoint]
mode = "selective"
selective_ac_option = "2"
)";

TEST(ImportTorchtitan, ReadsItsTables) {
  const Imported imported = take(import_torchtitan({"job.toml", titan}, {}));
  const Scenario s = read_back(imported);
  EXPECT_EQ(s.model->total().value(), 8'030'261'248);
  EXPECT_EQ(s.strategy.name, "fsdp2");
  EXPECT_EQ(s.strategy.options.integer("replicate", 1), 2);
  EXPECT_EQ(s.cluster.world_size(), 32);
  EXPECT_EQ(s.training.precision.reduce, DType::fp32);
  EXPECT_EQ(s.training.checkpointing.kind, Checkpointing::full);
  EXPECT_EQ(s.training.checkpointing.every, 2);
  EXPECT_TRUE(s.training.compile);
  EXPECT_TRUE(ignored(imported, "parallelism.tensor_parallel_degree"));
  const std::string python = refused(import_torchtitan({"registry.py", "# comment\nfrom typing import cast\n"}, {}));
  EXPECT_NE(python.find("registry.py:2:6"), std::string::npos) << python;
  EXPECT_NE(python.find("code, not data"), std::string::npos);
}

// Two thirds of 4 d, times 1.3, up to a multiple of 256: 8 * 4096 / 3 = 10922; 14198.6 -> 14336.
TEST(ImportTorchtitan, ReadsALlamaByItsOwnNames) {
  const Scenario s =
      read_back(take(import_torchtitan({"job.toml",
                                        "[model]\ndim = 4096\nn_layers = 32\nn_heads = 32\nn_kv_heads = 8\nvocab_size = "
                                        "128256\nffn_dim_multiplier = 1.3\nmax_seq_len = 4096\ntie_embeddings = false\n"
                                        "[train]\nbatch_size = 4\nseq_len = 4096\ngrad_accum_steps = 4\n[distributed]\ndp_shard = -1\n"},
                                       {})));
  EXPECT_EQ(s.model->total().value(), 8'030'261'248);
  EXPECT_EQ(s.training.gradient_accumulation_steps, 4);
}

/// Public configurations, where they are at hand.
class ImportPublicFiles : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(ImportPublicFiles, AllThatAreDataBecomeScenarios) {
  const auto& [format, folder] = GetParam();
  const fs::path files = fs::path(SHARDSIM_SOURCE_DIR) / "../shared/data/inputs" / folder;
  if (!fs::exists(files)) GTEST_SKIP() << "public " << folder << " files are not here";
  int imported = 0;
  for (const auto& entry : fs::directory_iterator(files)) {
    const auto result = import_file(format, entry.path().string(), llama());
    if (entry.path().filename() == "megads_moe_zero2_TEMPLATE.json") {
      EXPECT_NE(refused(result).find("megads_moe_zero2_TEMPLATE.json:2:"), std::string::npos) << refused(result);
      continue;
    }
    SCOPED_TRACE(entry.path().filename().string());
    EXPECT_NE(read_back(take(result)).model, nullptr);
    ++imported;
  }
  EXPECT_EQ(imported, format == "deepspeed" ? 29 : 17);
}

INSTANTIATE_TEST_SUITE_P(Inputs, ImportPublicFiles,
                         testing::Values(std::pair<std::string, std::string>("deepspeed", "ds_config"),
                                         std::pair<std::string, std::string>("accelerate", "accelerate_yaml")),
                         [](const testing::TestParamInfo<std::pair<std::string, std::string>>& tool) { return tool.param.first; });

}  // namespace
}  // namespace shardsim
