// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>

#include "models/families/families.hpp"

namespace shardsim {

std::string_view ConfigReader::present(Keys keys) {
  asked_.insert(keys.begin(), keys.end());
  for (const std::string_view key : keys)
    if (map_.has(key)) return key;
  return *keys.begin();
}

const ConfigNode* ConfigReader::default_of(Keys keys) {
  if (defaults_ == nullptr) return nullptr;
  for (const std::string_view key : keys)
    if (node_.find(key) != nullptr) return nullptr;  // null is a value: the class keeps it
  for (const std::string_view key : keys)
    if (const ConfigNode* value = defaults_->find(key)) {
      defaulted_.push_back(std::string(key) + " " + value->text);
      return value;
    }
  return nullptr;
}

std::int64_t ConfigReader::size(Keys keys, std::int64_t max) {
  const std::string_view key = present(keys);
  if (const ConfigNode* value = default_of(keys)) return as_integer(*value, problems_, 1, max).value_or(1);
  if (map_.require(key) == nullptr) return 1;
  return map_.integer(key, 1, 1, max);
}

std::int64_t ConfigReader::size_or(Keys keys, std::int64_t fallback, std::int64_t max, std::int64_t min) {
  const std::string_view key = present(keys);
  if (const ConfigNode* value = default_of(keys)) return as_integer(*value, problems_, min, max).value_or(fallback);
  return map_.integer(key, fallback, min, max);
}

std::int64_t ConfigReader::kv_heads(std::int64_t heads) {
  const ConfigNode* written = node_.find("num_key_value_heads");
  if (written != nullptr) return map_.integer("num_key_value_heads", heads, 1, 1 << 14);
  const ConfigNode* value = defaults_ == nullptr ? nullptr : defaults_->find("num_key_value_heads");
  const std::int64_t usual = value == nullptr ? heads : as_integer(*value, problems_, 1, 1 << 14).value_or(heads);
  if (value == nullptr || usual > heads || heads % usual != 0) return heads;
  defaulted_.push_back("num_key_value_heads " + value->text);
  return usual;
}

std::string ConfigReader::architecture() const {
  const ConfigNode* list = node_.find("architectures");
  if (list == nullptr || list->kind != ConfigNode::Kind::list || list->items.empty()) return {};
  return list->items.front().kind == ConfigNode::Kind::scalar ? list->items.front().text : std::string();
}

bool ConfigReader::flag(Keys keys, bool fallback) {
  const std::string_view key = present(keys);
  if (const ConfigNode* value = default_of(keys)) return value->text == "true";
  return map_.boolean(key, fallback);
}

double ConfigReader::real(std::string_view key, double fallback) {
  asked_.emplace(key);
  const ConfigNode* written = node_.find(key);
  return written != nullptr && written->kind == ConfigNode::Kind::null ? 0 : map_.number(key, fallback, 0, 1e9);
}

std::string ConfigReader::text(Keys keys, std::string fallback) { return map_.text(present(keys), std::move(fallback)); }

std::vector<std::int64_t> ConfigReader::integers(std::string_view key) {
  asked_.emplace(key);
  std::vector<std::int64_t> values;
  const ConfigNode* list = map_.find(key);
  if (list == nullptr) return values;
  if (list->kind != ConfigNode::Kind::list) {
    problems_.add(list->where, "'" + std::string(key) + "' must be a list of integers");
    return values;
  }
  for (const ConfigNode& item : list->items)
    if (const auto value = as_integer(item, problems_, 0, 1 << 20)) values.push_back(*value);
  return values;
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  asked_.emplace(key);
  std::vector<std::string> values;
  const ConfigNode* list = map_.find(key);
  if (list == nullptr) return values;
  if (list->kind != ConfigNode::Kind::list) {
    problems_.add(list->where, "'" + std::string(key) + "' must be a list of words");
    return values;
  }
  for (const ConfigNode& item : list->items)
    if (auto value = as_text(item, problems_)) values.push_back(std::move(*value));
  return values;
}

std::int64_t ConfigReader::entries(std::string_view key) {
  asked_.emplace(key);
  const ConfigNode* node = map_.find(key);
  return node == nullptr ? 0 : static_cast<std::int64_t>(std::max(node->items.size(), node->entries.size()));
}

const ConfigNode* ConfigReader::section(std::string_view key) {
  asked_.emplace(key);
  const ConfigNode* node = map_.find(key);
  if (node != nullptr && node->kind != ConfigNode::Kind::map) {
    problems_.add(node->where, "'" + std::string(key) + "' must be a map");
    return nullptr;
  }
  return node;
}

Activation ConfigReader::activation(Keys keys, std::string fallback, std::vector<std::string>& warnings) {
  const std::string name = text(keys, std::move(fallback));
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu" || name == "gelu_pytorch_tanh" || name == "gelu_python") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_fast") return Activation::gelu_composite;
  if (name == "relu") return Activation::relu;
  if (name == "tanh" || name == "sigmoid") return Activation::tanh;
  warnings.push_back("activation '" + name + "' is taken as one kernel that keeps its input");
  return Activation::other;
}

std::vector<std::string> ConfigReader::unread() const {
  // Keys that change neither the layers nor their work: generation, initialisation, tokens, numerics, bookkeeping.
  static const std::set<std::string, std::less<>> known{"_name_or_path",
                                                        "architectures",
                                                        "model_type",
                                                        "torch_dtype",
                                                        "dtype",
                                                        "transformers_version",
                                                        "use_cache",
                                                        "bos_token_id",
                                                        "eos_token_id",
                                                        "pad_token_id",
                                                        "sep_token_id",
                                                        "cls_token_id",
                                                        "unk_token_id",
                                                        "mask_token_id",
                                                        "decoder_start_token_id",
                                                        "initializer_range",
                                                        "initializer_factor",
                                                        "init_std",
                                                        "init_method_std",
                                                        "attention_dropout",
                                                        "hidden_dropout",
                                                        "hidden_dropout_prob",
                                                        "attention_probs_dropout_prob",
                                                        "attn_pdrop",
                                                        "embd_pdrop",
                                                        "resid_pdrop",
                                                        "embed_dropout",
                                                        "dropout",
                                                        "dropout_rate",
                                                        "activation_dropout",
                                                        "classifier_dropout",
                                                        "layerdrop",
                                                        "rms_norm_eps",
                                                        "layer_norm_eps",
                                                        "layer_norm_epsilon",
                                                        "norm_eps",
                                                        "norm_epsilon",
                                                        "rope_theta",
                                                        "rope_scaling",
                                                        "rope_parameters",
                                                        "rope_pct",
                                                        "rotary_pct",
                                                        "rotary_dim",
                                                        "rotary_emb_base",
                                                        "partial_rotary_factor",
                                                        "rope_local_base_freq",
                                                        "rope_ratio",
                                                        "rope_interleave",
                                                        "original_max_position_embeddings",
                                                        "max_position_embeddings",
                                                        "n_positions",
                                                        "n_ctx",
                                                        "max_seq_len",
                                                        "seq_length",
                                                        "pretraining_tp",
                                                        "auto_map",
                                                        "id2label",
                                                        "label2id",
                                                        "num_labels",
                                                        "problem_type",
                                                        "task_specific_params",
                                                        "finetuning_task",
                                                        "output_attentions",
                                                        "output_hidden_states",
                                                        "return_dict",
                                                        "is_encoder_decoder",
                                                        "is_decoder",
                                                        "gradient_checkpointing",
                                                        "attn_implementation",
                                                        "_attn_implementation",
                                                        "_commit_hash",
                                                        "router_aux_loss_coef",
                                                        "output_router_logits",
                                                        "router_jitter_noise",
                                                        "norm_topk_prob",
                                                        "routed_scaling_factor",
                                                        "scoring_func",
                                                        "topk_method",
                                                        "topk_group",
                                                        "n_group",
                                                        "seq_aux",
                                                        "aux_loss_alpha",
                                                        "ep_size",
                                                        "moe_router_activation_func",
                                                        "logits_scaling",
                                                        "embedding_multiplier",
                                                        "residual_multiplier",
                                                        "attention_multiplier",
                                                        "query_pre_attn_scalar",
                                                        "attn_logit_softcapping",
                                                        "final_logit_softcapping",
                                                        "cache_implementation",
                                                        "scale_attn_weights",
                                                        "scale_attn_by_inverse_layer_idx",
                                                        "reorder_and_upcast_attn",
                                                        "summary_activation",
                                                        "summary_first_dropout",
                                                        "summary_proj_to_labels",
                                                        "summary_type",
                                                        "summary_use_proj",
                                                        "tokenizer_class",
                                                        "position_embedding_type",
                                                        "directionality",
                                                        "pooler_fc_size",
                                                        "pooler_num_attention_heads",
                                                        "pooler_num_fc_layers",
                                                        "pooler_size_per_head",
                                                        "pooler_type",
                                                        "apply_residual_connection_post_layernorm",
                                                        "masked_softmax_fusion",
                                                        "slow_but_exact",
                                                        "skip_bias_add",
                                                        "skip_bias_add_qkv",
                                                        "offset_alibi",
                                                        "use_bfloat16",
                                                        "unk_token_id",
                                                        "hidden_activation",
                                                        "mlp_only_layers",
                                                        "max_window_layers",
                                                        "use_sliding_window",
                                                        "sliding_window",
                                                        "layer_types",
                                                        "qk_layernorm",
                                                        "encoder_stride",
                                                        "clip_qkv",
                                                        "prefix",
                                                        "bad_words_ids",
                                                        "begin_suppress_tokens",
                                                        "suppress_tokens",
                                                        "forced_decoder_ids",
                                                        "language",
                                                        "quantization_config",
                                                        "num_nextn_predict_layers",
                                                        "mrope_section",
                                                        "use_mrope",
                                                        "vision_start_token_id",
                                                        "vision_end_token_id",
                                                        "vision_token_id",
                                                        "image_token_id",
                                                        "video_token_id",
                                                        "attention_chunk_size",
                                                        "unsloth_version",
                                                        "unsloth_fixed",
                                                        "bias",
                                                        "logit_scale",
                                                        "embedding_fraction",
                                                        "verbose",
                                                        "init_device",
                                                        "init_config",
                                                        "torchscript",
                                                        "attention_bias",
                                                        "mlp_bias",
                                                        "tie_word_embeddings",
                                                        "head_dim",
                                                        "num_key_value_heads",
                                                        "hidden_act",
                                                        "mamba_ssm_dtype",
                                                        "use_mamba_kernels",
                                                        "swiglu_limit",
                                                        "experts_per_token",
                                                        "initial_context_length",
                                                        "output_past",
                                                        "rotary",
                                                        "n_inner",
                                                        "gpt_j_residual",
                                                        "use_parallel_residual",
                                                        "residual_in_fp32",
                                                        "rescale_prenorm_residual",
                                                        "time_step_floor",
                                                        "time_step_max",
                                                        "time_step_min",
                                                        "time_step_limit",
                                                        "time_step_rank",
                                                        "no_rope_layer_interval",
                                                        "no_rope_layers",
                                                        "mamba_d_head",
                                                        "num_experts_per_tok",
                                                        "moe_intermediate_size",
                                                        "router_scale",
                                                        "moe_intermediate_size",
                                                        "rms_norm",
                                                        "fuse_norm",
                                                        "fuse_cross_entropy",
                                                        "keys_to_ignore_at_inference",
                                                        "hidden_size_per_layer_input",
                                                        "vision_config",
                                                        "audio_config",
                                                        "image_token_index",
                                                        "projector_hidden_act",
                                                        "vision_feature_layer",
                                                        "vision_feature_select_strategy",
                                                        "ignore_index",
                                                        "vocab_size",
                                                        "text_config",
                                                        "moe_layer_freq",
                                                        "use_kernels",
                                                        "chunk_size_feed_forward",
                                                        "tie_encoder_decoder",
                                                        "add_cross_attention",
                                                        "cross_attention_hidden_size",
                                                        "pruned_heads",
                                                        "type_vocab_size",
                                                        "use_return_dict",
                                                        "zero_init_layer_norm",
                                                        "layer_norm_elementwise_affine",
                                                        "relative_attention_max_distance",
                                                        "n_special",
                                                        "predict_special_tokens",
                                                        "afn"};
  std::vector<std::string> keys;
  for (const auto& entry : node_.entries)
    if (!known.contains(entry.key) && !asked_.contains(entry.key)) keys.push_back(entry.key);
  return keys;
}

void ConfigReader::problem(std::string_view key, std::string message) {
  const ConfigNode* node = map_.find(key);
  problems_.add(node != nullptr ? node->where : node_.where, std::move(message));
}

}  // namespace shardsim
