// SPDX-License-Identifier: Apache-2.0
// Presets: the keys of config.json that fix each model's shape, and layer lists for models that are no transformer.
#include "models/architecture.hpp"
#include "models/families/hf_config.hpp"

namespace shardsim {
namespace {

struct Preset {
  const char* name;
  const char* text;  ///< a config.json, or a list of layers
};

constexpr Preset presets[] = {
    // clang-format off
    {"gpt2",
     R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12})"},
    {"gpt2-medium",
     R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 1024, "n_layer": 24, "n_head": 16})"},
    {"gpt2-large",
     R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 1280, "n_layer": 36, "n_head": 20})"},
    {"gpt2-xl",
     R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 1600, "n_layer": 48, "n_head": 25})"},
    {"tinyllama-1.1b",
     R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 5632,
        "max_position_embeddings": 2048})"},
    {"llama-2-7b",
     R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008,
        "max_position_embeddings": 4096})"},
    {"llama-2-13b",
     R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 5120, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 40, "intermediate_size": 13824,
        "max_position_embeddings": 4096})"},
    {"llama-2-70b",
     R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
        "max_position_embeddings": 4096})"},
    {"llama-3-8b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "max_position_embeddings": 8192})"},
    {"llama-3-70b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
        "max_position_embeddings": 8192})"},
    {"llama-3.1-8b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "max_position_embeddings": 131072})"},
    {"llama-3.1-70b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
        "max_position_embeddings": 131072})"},
    {"llama-3.1-405b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 16384, "num_hidden_layers": 126,
        "num_attention_heads": 128, "num_key_value_heads": 8, "intermediate_size": 53248,
        "max_position_embeddings": 131072})"},
    {"llama-3.2-1b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "head_dim": 64, "tie_word_embeddings": true})"},
    {"llama-3.2-3b",
     R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 24, "num_key_value_heads": 8, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "head_dim": 128, "tie_word_embeddings": true})"},
    {"mistral-7b",
     R"({"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "sliding_window": 4096})"},
    {"mixtral-8x7b",
     R"({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "num_local_experts": 8, "num_experts_per_tok": 2})"},
    {"mixtral-8x22b",
     R"({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 6144, "num_hidden_layers": 56,
        "num_attention_heads": 48, "num_key_value_heads": 8, "intermediate_size": 16384,
        "max_position_embeddings": 65536, "num_local_experts": 8, "num_experts_per_tok": 2})"},
    {"qwen2.5-0.5b",
     R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
        "max_position_embeddings": 32768, "tie_word_embeddings": true})"},
    {"qwen2.5-7b",
     R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944,
        "max_position_embeddings": 131072})"},
    {"qwen2.5-32b",
     R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 5120, "num_hidden_layers": 64,
        "num_attention_heads": 40, "num_key_value_heads": 8, "intermediate_size": 27648,
        "max_position_embeddings": 131072})"},
    {"qwen2.5-72b",
     R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 8192, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 29568,
        "max_position_embeddings": 131072})"},
    {"qwen3-0.6b",
     R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "head_dim": 128, "tie_word_embeddings": true})"},
    {"qwen3-8b",
     R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 12288,
        "max_position_embeddings": 40960, "head_dim": 128})"},
    {"qwen3-32b",
     R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 5120, "num_hidden_layers": 64,
        "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 25600,
        "max_position_embeddings": 40960, "head_dim": 128})"},
    {"qwen3-30b-a3b",
     R"({"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 6144,
        "max_position_embeddings": 40960, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 768})"},
    {"qwen3-235b-a22b",
     R"({"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 4096, "num_hidden_layers": 94,
        "num_attention_heads": 64, "num_key_value_heads": 4, "intermediate_size": 12288,
        "max_position_embeddings": 40960, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1536})"},
    {"gemma-2b",
     R"({"model_type": "gemma", "vocab_size": 256000, "hidden_size": 2048, "num_hidden_layers": 18,
        "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 16384, "head_dim": 256})"},
    {"gemma-7b",
     R"({"model_type": "gemma", "vocab_size": 256000, "hidden_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 24576, "head_dim": 256})"},
    {"gemma-2-2b",
     R"({"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 2304, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 9216, "head_dim": 256,
        "sliding_window": 4096})"},
    {"gemma-2-9b",
     R"({"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 3584, "num_hidden_layers": 42,
        "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 14336, "head_dim": 256,
        "sliding_window": 4096})"},
    {"gemma-2-27b",
     R"({"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 4608, "num_hidden_layers": 46,
        "num_attention_heads": 32, "num_key_value_heads": 16, "intermediate_size": 36864, "head_dim": 128,
        "sliding_window": 4096})"},
    {"gemma-3-1b",
     R"({"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152, "num_hidden_layers": 26,
        "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 6912, "head_dim": 256,
        "sliding_window": 512})"},
    {"opt-125m",
     R"({"model_type": "opt", "vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "ffn_dim": 3072, "max_position_embeddings": 2048})"},
    {"opt-1.3b",
     R"({"model_type": "opt", "vocab_size": 50272, "hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 32, "ffn_dim": 8192, "max_position_embeddings": 2048})"},
    {"opt-6.7b",
     R"({"model_type": "opt", "vocab_size": 50272, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "ffn_dim": 16384, "max_position_embeddings": 2048})"},
    {"opt-13b",
     R"({"model_type": "opt", "vocab_size": 50272, "hidden_size": 5120, "num_hidden_layers": 40,
        "num_attention_heads": 40, "ffn_dim": 20480, "max_position_embeddings": 2048})"},
    {"pythia-160m",
     R"({"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 2048})"},
    {"pythia-1.4b",
     R"({"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 16, "intermediate_size": 8192, "max_position_embeddings": 2048})"},
    {"pythia-6.9b",
     R"({"model_type": "gpt_neox", "vocab_size": 50432, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 16384, "max_position_embeddings": 2048})"},
    {"gpt-neox-20b",
     R"({"model_type": "gpt_neox", "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44,
        "num_attention_heads": 64, "intermediate_size": 24576, "max_position_embeddings": 2048})"},
    {"gpt-j-6b",
     R"({"model_type": "gptj", "vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16})"},
    {"bloom-7b1",
     R"({"model_type": "bloom", "vocab_size": 250880, "hidden_size": 4096, "n_layer": 30, "n_head": 32})"},
    {"bloom-176b",
     R"({"model_type": "bloom", "vocab_size": 250880, "hidden_size": 14336, "n_layer": 70, "n_head": 112})"},
    {"falcon-7b",
     R"({"model_type": "falcon", "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32,
        "num_attention_heads": 71, "multi_query": true, "parallel_attn": true})"},
    {"falcon-40b",
     R"({"model_type": "falcon", "vocab_size": 65024, "hidden_size": 8192, "num_hidden_layers": 60,
        "num_attention_heads": 128, "num_kv_heads": 8, "new_decoder_architecture": true})"},
    {"mpt-7b",
     R"({"model_type": "mpt", "vocab_size": 50432, "d_model": 4096, "n_layers": 32, "n_heads": 32,
        "expansion_ratio": 4, "max_seq_len": 2048})"},
    {"phi-2",
     R"({"model_type": "phi", "vocab_size": 51200, "hidden_size": 2560, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 10240, "max_position_embeddings": 2048})"},
    {"phi-3-mini",
     R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 8192,
        "max_position_embeddings": 4096, "sliding_window": 2047})"},
    {"phi-4",
     R"({"model_type": "phi3", "vocab_size": 100352, "hidden_size": 5120, "num_hidden_layers": 40,
        "num_attention_heads": 40, "num_key_value_heads": 10, "intermediate_size": 17920,
        "max_position_embeddings": 16384})"},
    {"olmo-7b",
     R"({"model_type": "olmo", "vocab_size": 50304, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008,
        "max_position_embeddings": 2048})"},
    {"olmo-2-7b",
     R"({"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 11008,
        "max_position_embeddings": 4096})"},
    {"deepseek-v2-lite",
     R"({"model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 2048, "num_hidden_layers": 27,
        "num_attention_heads": 16, "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "q_lora_rank": null,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})"},
    {"deepseek-v3",
     R"({"model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168, "num_hidden_layers": 61,
        "num_attention_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128})"},
    {"bert-base",
     R"({"model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512, "type_vocab_size": 2})"},
    {"bert-large",
     R"({"model_type": "bert", "vocab_size": 30522, "hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 16, "intermediate_size": 4096, "max_position_embeddings": 512, "type_vocab_size": 2})"},
    {"vit-base",
     R"({"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "image_size": 224, "patch_size": 16})"},
    {"vit-large",
     R"({"model_type": "vit", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096, "image_size": 224, "patch_size": 16})"},
    {"resnet-18",
     R"(- {name: conv1, type: conv2d, in: 3, out: 64, kernel: 7, output: 112, bias: false}
- {name: bn1, type: norm, size: 64}
- name: layer1.0
  block: true
  layers:
    - {name: conv1, type: conv2d, in: 64, out: 64, kernel: 3, output: 56, bias: false}
    - {name: bn1, type: norm, size: 64}
    - {name: relu, type: activation}
    - {name: conv2, type: conv2d, in: 64, out: 64, kernel: 3, output: 56, bias: false}
    - {name: bn2, type: norm, size: 64}
- name: layer1.1
  block: true
  layers:
    - {name: conv1, type: conv2d, in: 64, out: 64, kernel: 3, output: 56, bias: false}
    - {name: bn1, type: norm, size: 64}
    - {name: relu, type: activation}
    - {name: conv2, type: conv2d, in: 64, out: 64, kernel: 3, output: 56, bias: false}
    - {name: bn2, type: norm, size: 64}
- name: layer2.0
  block: true
  layers:
    - {name: conv1, type: conv2d, in: 64, out: 128, kernel: 3, output: 28, bias: false}
    - {name: bn1, type: norm, size: 128}
    - {name: relu, type: activation}
    - {name: conv2, type: conv2d, in: 128, out: 128, kernel: 3, output: 28, bias: false}
    - {name: bn2, type: norm, size: 128}
    - {name: downsample.0, type: conv2d, in: 64, out: 128, kernel: 1, output: 28, bias: false}
    - {name: downsample.1, type: norm, size: 128}
- name: layer2.1
  block: true
  layers:
    - {name: conv1, type: conv2d, in: 128, out: 128, kernel: 3, output: 28, bias: false}
    - {name: bn1, type: norm, size: 128}
    - {name: relu, type: activation}
    - {name: conv2, type: conv2d, in: 128, out: 128, kernel: 3, output: 28, bias: false}
    - {name: bn2, type: norm, size: 128}
- name: layer3.0
  block: true
  layers:
    - {name: conv1, type: conv2d, in: 128, out: 256, kernel: 3, output: 14, bias: false}
    - {name: bn1, type: norm, size: 256}
    - {name: relu, type: activation}
    - {name: conv2, type: conv2d, in: 256, out: 256, kernel: 3, output: 14, bias: false}
    - {name: bn2, type: norm, size: 256}
    - {name: downsample.0, type: conv2d, in: 128, out: 256, kernel: 1, output: 14, bias: false}
    - {name: downsample.1, type: norm, size: 256}
- name: layer3.1
  block: true
  layers:
    - {name: conv1, type: conv2d, in: 256, out: 256, kernel: 3, output: 14, bias: false}
    - {name: bn1, type: norm, size: 256}
    - {name: relu, type: activation}
    - {name: conv2, type: conv2d, in: 256, out: 256, kernel: 3, output: 14, bias: false}
    - {name: bn2, type: norm, size: 256}
- name: layer4.0
  block: true
  layers:
    - {name: conv1, type: conv2d, in: 256, out: 512, kernel: 3, output: 7, bias: false}
    - {name: bn1, type: norm, size: 512}
    - {name: relu, type: activation}
    - {name: conv2, type: conv2d, in: 512, out: 512, kernel: 3, output: 7, bias: false}
    - {name: bn2, type: norm, size: 512}
    - {name: downsample.0, type: conv2d, in: 256, out: 512, kernel: 1, output: 7, bias: false}
    - {name: downsample.1, type: norm, size: 512}
- name: layer4.1
  block: true
  layers:
    - {name: conv1, type: conv2d, in: 512, out: 512, kernel: 3, output: 7, bias: false}
    - {name: bn1, type: norm, size: 512}
    - {name: relu, type: activation}
    - {name: conv2, type: conv2d, in: 512, out: 512, kernel: 3, output: 7, bias: false}
    - {name: bn2, type: norm, size: 512}
- {name: fc, type: linear, in: 512, out: 1000})"},
    // clang-format on
};

Result<std::shared_ptr<const Architecture>> read_preset(const Preset& preset) {
  const auto node = read_yaml({std::string("preset ") + preset.name, preset.text});
  if (!node) return tl::unexpected(node.error());
  return node->kind == ConfigNode::Kind::list ? read_layers(*node) : read_hf_config(*node);
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets) names.emplace_back(preset.name);
  return names;
}

Result<std::shared_ptr<const Architecture>> preset(const std::string& name) {
  for (const Preset& known : presets) {
    if (name != known.name) continue;
    auto architecture = read_preset(known);
    if (!architecture) return architecture;
    auto renamed = std::make_shared<Architecture>(**architecture);
    renamed->name = name;
    return renamed;
  }
  Problems problems;
  problems.add({}, "no model preset is named '" + name + "'", notes_for_unknown(name, preset_names()));
  return tl::unexpected(std::move(problems));
}

}  // namespace shardsim
