// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/import_fsdp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace shardsim {
namespace {

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return text;
}

/// torch's ShardingStrategy by name or by the number that accelerate also accepts.
std::string sharding_strategy(std::string_view text) {
  constexpr std::array<std::string_view, 5> by_number{"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"};
  if (text.size() == 1 && text[0] >= '1' && text[0] <= '5') return std::string(by_number[static_cast<std::size_t>(text[0] - '1')]);
  const std::string name = upper(std::string(text));
  return name == "HYBRID_SHARD_ZERO2" ? "_HYBRID_SHARD_ZERO2" : name;
}

/// The key with and without the prefix fsdp_.
Keys both(const std::string& prefixed) { return Keys{std::string_view(prefixed), std::string_view(prefixed).substr(5)}; }

void wrapping(ForeignMap& block, ScenarioDraft& draft) {
  const ConfigNode* node = block.take(Keys{"fsdp_auto_wrap_policy", "auto_wrap_policy"});
  const auto policy =
      block.choice(Keys{"fsdp_auto_wrap_policy", "auto_wrap_policy"}, {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"});
  const auto least = block.whole(Keys{"fsdp_min_num_params", "min_num_params"}, 0);
  block.without_effect({"fsdp_transformer_layer_cls_to_wrap", "transformer_layer_cls_to_wrap"}, "the model's repeated block is the unit");
  if (policy == "NO_WRAP") {
    draft.ignore(block.source(Keys{"fsdp_auto_wrap_policy", "auto_wrap_policy"}), node->where,
                 "the whole model is one unit, gathered at once: a unit a block is assumed instead, with less memory and more overlap",
                 Effect::changes);
  } else if (policy == "SIZE_BASED_WRAP" || least.value_or(0) > 0) {
    draft.note(
        fmt::format("each block of the model is one unit (units by size, from {} parameters, in the file)", least.value_or(100'000'000)));
  }
}

void fsdp1(ForeignMap& block, ScenarioDraft& draft, const FsdpContext& context) {
  draft.strategy("fsdp1", "FSDP version 1");
  const ConfigNode* node = block.take(Keys{"fsdp_sharding_strategy", "sharding_strategy"});
  // Version 1 of newer accelerate takes the sharding strategy under reshard_after_forward, too.
  const auto reshard = block.word(Keys{"fsdp_reshard_after_forward", "reshard_after_forward"});
  std::string word = node != nullptr ? node->text : reshard && !boolean_word(*reshard) ? *reshard : context.sharding;
  if (word.empty()) word = "FULL_SHARD";
  const std::string sharding = sharding_strategy(word);
  ConfigNode value;
  value.kind = ConfigNode::Kind::scalar;
  value.text = sharding;
  if (const ConfigNode* at = node != nullptr ? node : block.node()) value.where = at->where;
  draft.option("sharding_strategy", value,
               node != nullptr ? block.source(Keys{"fsdp_sharding_strategy", "sharding_strategy"}) : "the default");
  // Without process groups of its own, FSDP shards inside a node and replicates across nodes (_init_utils.py).
  if (sharding.find("HYBRID") != std::string::npos && context.nodes > 1)
    draft.option("replicate", std::to_string(context.nodes), "one replica a node");
  for (const char* key : {"fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_use_orig_params", "fsdp_limit_all_gathers"}) {
    const ConfigNode* given = block.take(both(key));
    if (given != nullptr) draft.option(std::string_view(key).substr(5), *given, block.source(both(key)));
  }
}

void fsdp2(ForeignMap& block, ScenarioDraft& draft) {
  draft.strategy("fsdp2", "FSDP version 2");
  const Keys key{"fsdp_reshard_after_forward", "reshard_after_forward"};
  if (const auto word = block.word(key)) {
    const std::string lowered = lower(*word);
    const auto flag = boolean_word(lowered);
    const bool keep = flag == false || lowered == "shard_grad_op" || lowered == "no_shard";
    if (!flag && !keep && lowered != "full_shard" && lowered != "hybrid_shard") {
      draft.problem(block.take(key)->where, fmt::format("expected true or false, got {}", in_quotes(*word)));
      return;
    }
    draft.option("reshard_after_forward", keep ? "false" : "true", block.source(key));
  }
  block.without_effect(
      {"fsdp_sharding_strategy", "fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_use_orig_params", "fsdp_limit_all_gathers"},
      "an option of FSDP1");
}

}  // namespace

std::string autocast_precision(std::string_view dtype) {
  if (dtype == "no" || dtype == "fp32") return "fp32";
  return fmt::format("{{parameters: fp32, compute: {}, gradients: fp32, reduce: fp32, master: none}}", dtype);
}

void draft_fsdp(ForeignMap& block, ScenarioDraft& draft, const FsdpContext& context) {
  // accelerate keeps the parameters in fp32 and lets FSDP cast for compute and reduction alike (utils/dataclasses.py).
  if (context.dtype == "no" || context.dtype == "fp32") {
    draft.training("precision", "fp32", "no mixed precision");
  } else {
    draft.training("precision", precision_map(context.dtype, context.dtype, context.dtype, "fp32"),
                   "mixed precision: FSDP casts for compute and reduction");
  }
  if (block.on(Keys{"fsdp_activation_checkpointing", "activation_checkpointing"}))
    draft.training("activation_checkpointing", "full", block.source(Keys{"fsdp_activation_checkpointing", "activation_checkpointing"}));
  if (block.on(Keys{"fsdp_offload_params", "offload_params"}) || context.offload)
    draft.training("offload", "{parameters: cpu, optimizer: cpu}", block.source(Keys{"fsdp_offload_params", "offload_params"}));
  if (block.whole(Keys{"fsdp_version", "version"}, 1, 2).value_or(context.version) == 2) {
    fsdp2(block, draft);
  } else {
    fsdp1(block, draft, context);
  }
  wrapping(block, draft);
  block.without_effect({"fsdp_state_dict_type", "state_dict_type", "fsdp_sync_module_states", "sync_module_states",
                        "fsdp_cpu_ram_efficient_loading", "cpu_ram_efficient_loading", "fsdp_ignored_modules", "ignored_modules",
                        "fsdp_backward_prefetch_policy", "final_state_dict_type", "xla", "xla_fsdp_settings", "xla_fsdp_grad_ckpt",
                        "fsdp_final_state_dict_type", "limit_all_gathers", "forward_prefetch", "backward_prefetch", "use_orig_params",
                        "sharding_strategy"});
  block.finish();
}

}  // namespace shardsim
