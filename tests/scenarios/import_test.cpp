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

bool listed(const Imported& imported, const std::string& key, Effect effect) {
  return std::any_of(imported.ignored.begin(), imported.ignored.end(),
                     [&](const IgnoredKey& i) { return i.key == key && i.effect == effect; });
}
bool ignored(const Imported& imported, const std::string& key) { return listed(imported, key, Effect::none); }

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
  EXPECT_NE(imported.yaml.find("# Without effect on a step:"), std::string::npos) << imported.yaml;
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

Source fixture(const std::string& name) {
  const auto source = read_source(std::string(SHARDSIM_SOURCE_DIR) + "/tests/fixtures/failing/" + name);
  return source ? *source : Source{};
}

// F28: grouped attention, gates, RMSNorm and an untied head of a public LLM Foundry configuration; its loss is fused by default.
TEST(ImportFailing, LlmFoundryKeysThatChangeTheLayersCount) {
  const Imported imported = take(import_llm_foundry(fixture("foundry_gqa.yaml"), {}));
  const Scenario s = read_back(imported);
  EXPECT_EQ(s.model->total().value(), 7'801'671'680);
  EXPECT_EQ(s.training.loss.kind, Loss::Kind::fused);
  EXPECT_EQ(s.training.optimizer.kind, OptimizerKind::lion);
  const std::string experts = "model: {name: mpt_causal_lm, ffn_config: {ffn_type: mb_moe}}\n";
  EXPECT_NE(refused(import_llm_foundry({"m.yaml", experts}, {})).find("mb_moe"), std::string::npos);
}

// F30 and F31: master weights and states in 16 bits.
TEST(ImportFailing, DeepSpeedMasterWeightsAndStates) {
  const Scenario bf16 = read_back(take(import_deepspeed(fixture("ds_bf16_states.json"), llama())));
  EXPECT_EQ(bf16.training.precision.name, "pure-bf16");
  const Scenario fp16 = read_back(take(import_deepspeed(fixture("ds_fp16_master.json"), llama())));
  EXPECT_EQ(fp16.training.precision.master, DType::fp16);
}

// F32: -1 switches MiCS off.
TEST(ImportFailing, AShardSizeOfMinusOneIsZero3) {
  const Imported imported = take(import_deepspeed(fixture("ds_mics_off.json"), llama()));
  EXPECT_EQ(read_back(imported).strategy.name, "zero3");
  EXPECT_EQ(imported.summary.find("mics_shard_size"), std::string::npos) << imported.summary;
}

// F34: dimensions beside data parallelism make another job.
TEST(ImportFailing, TensorParallelismIsRefusedByName) {
  ImportOptions four;
  four.nodes = 4;
  EXPECT_NE(refused(import_torchtitan(fixture("titan_tp8.toml"), four)).find("tensor_parallel_degree = 8"), std::string::npos);
}

// F36: replicas under [training] in the layout of 2024; float8 recipes of both layouts change the step.
TEST(ImportFailing, TorchtitansOldLayoutAndFloat8) {
  ImportOptions four;
  four.nodes = 4;
  const Imported old = take(import_torchtitan(fixture("titan_old.toml"), four));
  const Scenario s = read_back(old);
  EXPECT_EQ(s.strategy.options.integer("replicate", 1), 4);
  EXPECT_EQ(s.training.offload.parameters, OffloadTarget::cpu);
  EXPECT_EQ(s.training.checkpointing.every, 2);
  EXPECT_TRUE(s.training.precision.fp8_products);
  EXPECT_TRUE(listed(old, "float8.enable_fsdp_float8_all_gather", Effect::changes));
  const Imported fresh = take(import_torchtitan(fixture("titan_new.toml"), four));
  EXPECT_TRUE(read_back(fresh).training.precision.fp8_products);
  EXPECT_EQ(read_back(fresh).training.loss.kind, Loss::Kind::fused);
}

// F45: DeepSpeed reads hjson.
TEST(ImportFailing, DeepSpeedFilesMayHaveComments) {
  const std::string text =
      "{\n  // micro batch\n  \"train_micro_batch_size_per_gpu\": 2, # hash \"quoted\"\n /* block\n */ \"zero_optimization\": "
      "{\"stage\": 2,},\n}\n";
  const Scenario s = read_back(take(import_deepspeed({"c.json", text}, llama())));
  EXPECT_EQ(s.strategy.name, "zero2");
  EXPECT_EQ(s.training.micro_batch_size, 2);
  const std::string wrong = refused(import_deepspeed({"c.json", "{\n  // x\n  \"train_batch_size\": \"many\"\n}\n"}, llama()));
  EXPECT_NE(wrong.find("c.json:3:23"), std::string::npos) << wrong;
}

// One door: what cannot be read is an error at its place, never a default.
TEST(ImportForeignText, ValuesOfTheWrongTypeAreErrorsAtTheirPlace) {
  const auto titan_value = [](const std::string& value) {
    return refused(import_torchtitan({"j.toml", "[training]\nlocal_batch_size = " + value + "\n"}, {}));
  };
  for (const char* value : {"2.5", "\"two\"", "true", "0", "1979-05-27"})
    EXPECT_NE(titan_value(value).find("j.toml:2:20: error: expected a whole number"), std::string::npos) << titan_value(value);
  EXPECT_NE(refused(import_torchtitan({"j.toml", "[training]\nseq_len = \"4k\"\n"}, {})).find("j.toml:2:11"), std::string::npos);
  EXPECT_NE(refused(import_torchtitan({"j.toml", "[training]\ncompile = \"perhaps\"\n"}, {})).find("j.toml:2:11"), std::string::npos);
  const auto zero = [](const std::string& key, const std::string& value) {
    return refused(import_deepspeed({"z.json", "{\"zero_optimization\": {\"stage\": 2, \"" + key + "\": " + value + "}}"}, llama()));
  };
  EXPECT_NE(zero("reduce_bucket_size", "\"big\"").find("expected a"), std::string::npos);
  EXPECT_NE(zero("overlap_comm", "\"perhaps\"").find("expected true or false, got 'perhaps'"), std::string::npos);
  EXPECT_NE(refused(import_llm_foundry({"m.yaml", "max_seq_len: 4k\nmodel: {name: mpt_causal_lm}\n"}, {})).find("m.yaml:1:14"),
            std::string::npos);
  EXPECT_NE(refused(import_accelerate({"a.yaml", "distributed_type: FSDP\nnum_processes: many\n"}, llama())).find("a.yaml:2:16"),
            std::string::npos);
}

// Every key is used, known to be without effect, not modelled, or unknown.
TEST(ImportForeignText, KeysAreAccountedFor) {
  const Imported imported =
      take(import_deepspeed({"k.json", R"({"unheard_of": 3, "sparse_attention": {"mode": "fixed"}, "wall_clock_breakdown": true,
          "zero_optimization": {"stage": 3, "unheard_of_option": true, "offload_optimizer": {"device": "cpu", "ratio": 0.3}}})"},
                            llama()));
  EXPECT_TRUE(listed(imported, "unheard_of", Effect::unknown));
  EXPECT_TRUE(listed(imported, "zero_optimization.unheard_of_option", Effect::unknown));
  EXPECT_TRUE(listed(imported, "sparse_attention", Effect::changes));
  EXPECT_TRUE(listed(imported, "zero_optimization.offload_optimizer.ratio", Effect::changes));
  EXPECT_TRUE(listed(imported, "wall_clock_breakdown", Effect::none));
  for (const char* said : {"llama-3-8b", "ranks", "global batch", "precision", "zero3", "assumed", "Not modelled: sparse_attention",
                           "Unknown: unheard_of", "Without effect on a step: wall_clock_breakdown"})
    EXPECT_NE(imported.summary.find(said), std::string::npos) << said << "\n" << imported.summary;
}

TEST(ImportForeignText, LegacySpellingsOfDeepSpeed) {
  const auto zero = [](const char* text) { return read_back(take(import_deepspeed({"z.json", text}, llama()))); };
  EXPECT_EQ(zero(R"({"bf16": {"enabled": true}, "zero_optimization": true})").strategy.name, "zero1");
  EXPECT_EQ(zero(R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 2, "cpu_offload": true}})").training.offload.optimizer,
            OffloadTarget::cpu);
  const Scenario autocast = zero(R"({"torch_autocast": {"enabled": true, "dtype": "bfloat16"}, "zero_optimization": {"stage": 1}})");
  EXPECT_EQ(autocast.training.precision.compute, DType::bf16);
  EXPECT_EQ(autocast.training.precision.parameters, DType::fp32);
}

TEST(ImportTransformers, JsonAndCommandLinesSayTheSame) {
  const char* json = R"({"model_name_or_path": "meta-llama/Llama-3.2-1B", "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2, "bf16": true, "gradient_checkpointing": true, "max_seq_length": 1024,
    "fsdp": "full_shard auto_wrap", "fsdp_config": {"backward_prefetch": "backward_pre"}, "learning_rate": 1e-5, "optim": "adamw_torch"})";
  const char* line =
      "#!/bin/bash\nBATCH=4\nexport WANDB_PROJECT=x\ntorchrun --nproc_per_node 8 --nnodes=1 run_clm.py \\\n    --model_name_or_path "
      "meta-llama/Llama-3.2-1B \\\n    --per_device_train_batch_size $BATCH --gradient_accumulation_steps=2 --bf16 True \\\n  "
      "--gradient_checkpointing --max_seq_length 1024 --fsdp \"full_shard auto_wrap\" \\\n --fsdp_config '{\"backward_prefetch\": "
      "\"backward_pre\"}' --learning_rate 1e-5 --optim adamw_torch\n";
  for (const auto& [name, text] : {std::pair{"args.json", json}, std::pair{"run.sh", line}}) {
    const Scenario s = read_back(take(import_transformers({name, text}, {})));
    EXPECT_EQ(s.model->total().value(), 1'235'814'400) << name;
    EXPECT_EQ(s.strategy.name, "fsdp1") << name;
    EXPECT_EQ(s.training.micro_batch_size, 4) << name;
    EXPECT_EQ(s.training.gradient_accumulation_steps, 2) << name;
    EXPECT_EQ(s.training.sequence_length, 1024) << name;
    EXPECT_EQ(s.training.checkpointing.kind, Checkpointing::full) << name;
    EXPECT_EQ(s.training.precision.reduce, DType::bf16) << name;
    EXPECT_EQ(s.training.optimizer.implementation, Optimizer::Implementation::foreach) << name;
    EXPECT_EQ(s.cluster.world_size(), 8) << name;
  }
  const Scenario plain =
      read_back(take(import_transformers({"a.yaml", "model_name_or_path: gpt2\nbf16: true\nuse_peft: false\nblock_size: 512\n"}, {})));
  EXPECT_EQ(plain.strategy.name, "ddp");
  EXPECT_EQ(plain.training.micro_batch_size, 8);
  EXPECT_EQ(plain.training.precision.compute, DType::bf16);
  EXPECT_EQ(plain.training.precision.parameters, DType::fp32);
  const auto wrong = [](const std::string& text) { return refused(import_transformers({"a.yaml", text}, {})); };
  EXPECT_NE(wrong("model_name_or_path: gpt2\nper_device_train_batch_size: some\n").find("a.yaml:2:30"), std::string::npos);
  EXPECT_NE(wrong("model_name_or_path: someone/unheard-of\n").find("a.yaml:1:21"), std::string::npos);
}

TEST(ImportTransformers, QloraOfTrl) {
  const Scenario s = read_back(take(import_transformers(
      {"sft.yaml",
       "model_name_or_path: meta-llama/Meta-Llama-3-8B\ntorch_dtype: bfloat16\nload_in_4bit: true\nuse_peft: true\nlora_r: 32\n"
       "lora_target_modules: all-linear\nmax_length: 2048\nper_device_train_batch_size: 1\nbf16: true\n"},
      {})));
  // 32 x 32 layers x (q, o: 2 x 8192; k, v: 2 x 5120; gate, up, down: 3 x 18432)
  EXPECT_EQ(s.model->trainable().value(), 83'886'080);
  EXPECT_EQ(s.strategy.name, "ddp");
}

TEST(ImportAxolotl, FullAndQlora) {
  const Scenario full =
      read_back(take(import_axolotl({"a.yml",
                                     "base_model: NousResearch/Llama-3.2-1B\nsequence_len: 4096\nsample_packing: true\nmicro_batch_size: "
                                     "2\ngradient_accumulation_steps: 4\n"
                                     "optimizer: adamw_torch_fused\nbf16: auto\ngradient_checkpointing: true\nflash_attention: "
                                     "true\nfsdp:\n  - full_shard\n  - auto_wrap\n"
                                     "fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: false\n  fsdp_reshard_after_forward: true\n"},
                                    {})));
  EXPECT_EQ(full.strategy.name, "fsdp2");
  EXPECT_EQ(full.training.sequence_length, 4096);
  EXPECT_EQ(full.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(full.training.precision.parameters, DType::bf16);
  const Imported qlora = take(import_axolotl({"q.yml",
                                              "base_model: meta-llama/Llama-2-7b-hf\nload_in_4bit: true\nadapter: qlora\nlora_r: "
                                              "32\nlora_target_linear: true\nsequence_len: 2048\n"
                                              "micro_batch_size: 2\nbf16: auto\noptimizer: paged_adamw_8bit\nwhat_is_this: 1\n"},
                                             {}));
  const Scenario s = read_back(qlora);
  EXPECT_LT(s.model->trainable().value(), s.model->total().value() / 50);
  EXPECT_TRUE(listed(qlora, "what_is_this", Effect::unknown));
  EXPECT_NE(refused(import_axolotl({"x.yml", "hello: 1\n"}, {})).find("base_model"), std::string::npos);
}

TEST(ImportLlamaFactory, LoraByDefault) {
  const Scenario s = read_back(take(import_llama_factory(
      {"l.yaml",
       "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: "
       "8\nlora_target: all\n"
       "cutoff_len: 2048\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nbf16: true\nlearning_rate: 1.0e-4\n"},
      {})));
  EXPECT_EQ(s.model->trainable().value(), 20'971'520);
  EXPECT_EQ(s.training.checkpointing.kind, Checkpointing::full);
  EXPECT_EQ(s.training.gradient_accumulation_steps, 8);
}

TEST(ImportTorchtune, ComponentsNameTheModel) {
  const Scenario s = read_back(take(import_torchtune(
      {"t.yaml",
       "tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 4096}\nmodel: {_component_: "
       "torchtune.models.llama3_1.lora_llama3_1_8b, lora_attn_modules: [q_proj, v_proj, output_proj], lora_rank: 8, apply_lora_to_mlp: "
       "true}\nbatch_size: 2\ngradient_accumulation_steps: 8\noptimizer: {_component_: torch.optim.AdamW, fused: true, lr: 3e-4}\nloss: "
       "{_component_: torchtune.modules.loss.LinearCrossEntropyLoss}\nenable_activation_checkpointing: true\ndtype: bf16\ncompile: "
       "false\n"},
      {})));
  EXPECT_EQ(s.strategy.name, "fsdp2");
  EXPECT_EQ(s.training.sequence_length, 4096);
  EXPECT_EQ(s.training.loss.kind, Loss::Kind::chunked);
  EXPECT_EQ(s.model->total().value() - s.model->trainable().value(), 8'030'261'248);
}

constexpr const char* megatron_line =
    "GPT_ARGS=(\n    --num-layers 32\n    --hidden-size 4096\n    --num-attention-heads 32\n    --group-query-attention\n    "
    "--num-query-groups "
    "8\n    --ffn-hidden-size 14336\n    --seq-length 8192\n    --max-position-embeddings 8192\n    --swiglu\n    --normalization "
    "RMSNorm\n    "
    "--position-embedding-type rope\n    --untie-embeddings-and-output-weights\n    --disable-bias-linear\n    --vocab-size "
    "128256\n)\nTRAIN=\"\n "
    "--micro-batch-size 1 \\\n --global-batch-size 128 \\\n --bf16 --use-distributed-optimizer --overlap-grad-reduce \\\n "
    "--recompute-granularity selective\"\ntorchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py ${GPT_ARGS[@]} $TRAIN "
    "--tensor-model-parallel-size 1\n";

TEST(ImportMegatron, ArgumentsOfAScript) {
  const Scenario s = read_back(take(import_megatron({"run.sh", megatron_line}, {})));
  EXPECT_EQ(s.model->total().value(), 8'030'261'248);
  EXPECT_EQ(s.strategy.name, "megatron");
  EXPECT_EQ(s.cluster.world_size(), 32);
  EXPECT_EQ(s.training.gradient_accumulation_steps, 4);
  EXPECT_EQ(s.training.sequence_length, 8192);
  EXPECT_EQ(s.training.checkpointing.kind, Checkpointing::core_attention);
  EXPECT_TRUE(s.strategy.options.boolean("overlap_grad_reduce", false));
  std::string wide = megatron_line;
  wide.replace(wide.find("parallel-size 1"), 15, "parallel-size 2");
  EXPECT_NE(refused(import_megatron({"run.sh", wide}, {})).find("tensor_model_parallel_size"), std::string::npos);
}

TEST(ImportMegatron, NemoYamlAndGpt) {
  const Scenario s = read_back(take(import_megatron({"n.yaml",
                                                     "trainer: {devices: 8, num_nodes: 2, precision: bf16}\nmodel:\n  micro_batch_size: "
                                                     "2\n  global_batch_size: 64\n  encoder_seq_length: 2048\n"
                                                     "  num_layers: 12\n  hidden_size: 768\n  num_attention_heads: 12\n  "
                                                     "tensor_model_parallel_size: 1\n  optim: {name: distributed_fused_adam, "
                                                     "lr: 1e-4}\n  vocab_size: 50257\n"},
                                                    {})));
  EXPECT_EQ(s.cluster.world_size(), 16);
  EXPECT_EQ(s.training.gradient_accumulation_steps, 2);
  EXPECT_EQ(s.strategy.name, "megatron");
}

TEST(ImportLightning, StrategiesByNameAndByClass) {
  const Scenario fsdp = read_back(take(
      import_lightning({"l.yaml",
                        "trainer:\n  devices: 8\n  num_nodes: 2\n  precision: bf16-mixed\n  accumulate_grad_batches: 4\n  "
                        "gradient_clip_val: 1.0\n  strategy:\n    "
                        "class_path: lightning.pytorch.strategies.FSDPStrategy\n    init_args:\n      sharding_strategy: HYBRID_SHARD\n    "
                        "  limit_all_gathers: "
                        "true\nmodel: {class_path: my.Model}\ndata: {class_path: my.Data, init_args: {batch_size: 2, max_length: 1024}}\n"},
                       llama())));
  EXPECT_EQ(fsdp.strategy.name, "fsdp1");
  EXPECT_EQ(fsdp.strategy.options.integer("replicate", 1), 2);
  EXPECT_EQ(fsdp.training.micro_batch_size, 2);
  EXPECT_EQ(fsdp.training.sequence_length, 1024);
  const std::string deepspeed = "trainer: {devices: 4, precision: bf16-true, strategy: deepspeed_stage_2_offload}\n";
  const Scenario zero = read_back(take(import_lightning({"l.yaml", deepspeed}, llama())));
  EXPECT_EQ(zero.strategy.name, "zero2");
  EXPECT_EQ(zero.training.offload.optimizer, OffloadTarget::cpu);
  EXPECT_EQ(zero.cluster.world_size(), 4);
}

TEST(ImportOlmoCore, BatchesInTokens) {
  const Scenario s = read_back(take(import_olmo_core(
      {"config.json",
       R"({"run_name": "x", "model": {"d_model": 4096, "n_layers": 32, "vocab_size": 100352, "block": {"name": "reordered_norm",
        "attention": {"n_heads": 32, "qk_norm": {"name": "rms"}}, "feed_forward": {"hidden_size": 11008}}},
        "dataset": {"sequence_length": 4096}, "data_loader": {"global_batch_size": 4194304},
        "train_module": {"rank_microbatch_size": 8192, "max_sequence_length": 4096,
        "optim": {"_CLASS_": "olmo_core.optim.AdamWConfig", "lr": 3e-4, "fused": true}, "compile_model": true,
        "dp_config": {"name": "hsdp", "param_dtype": "bfloat16", "reduce_dtype": "float32", "num_replicas": 2, "shard_degree": 32},
        "max_grad_norm": 1.0}})"},
      {})));
  EXPECT_EQ(s.model->total().value(), 7'298'617'344);
  EXPECT_EQ(s.cluster.world_size(), 64);
  EXPECT_EQ(s.training.micro_batch_size, 2);
  EXPECT_EQ(s.training.gradient_accumulation_steps, 8);
  EXPECT_EQ(s.strategy.options.integer("replicate", 1), 2);
}

TEST(ImportComposer, TheTrainersKeysWithoutAModel) {
  const Scenario s = read_back(take(import_composer(
      {"c.yaml",
       "max_seq_len: 1024\ntrain_batch_size: 64\ndevice_train_microbatch_size: 4\nprecision: amp_bf16\nparallelism_config: {fsdp: "
       "{sharding_strategy: FULL_SHARD, mixed_precision: PURE}}\n"},
      llama())));
  EXPECT_EQ(s.strategy.name, "fsdp1");
  EXPECT_EQ(s.training.gradient_accumulation_steps, 2);
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
