// SPDX-License-Identifier: Apache-2.0
// The head that `architectures` names on a decoder (transformers, modeling_layers.py: Generic...): classes of sequences or tokens, spans,
// none.
#include "models/families/families.hpp"

namespace shardsim {

std::int64_t labels_of(ConfigReader& config, std::int64_t fallback) {
  const std::int64_t listed = config.entries("id2label");
  return config.size_or({"num_labels"}, listed > 0 ? listed : fallback, 1 << 24);
}

void set_decoder_head(ConfigReader& config, Transformer& t) {
  const std::string name = config.architecture();
  HeadSpec& h = t.head;
  const auto classes = [&](std::string_view module, std::int64_t outputs, bool bias, bool over_tokens) {
    h.name = module;
    h.tied_to.clear();
    h.softcap = false;
    h.bias = bias;
    h.outputs = t.loss.width = outputs;
    t.loss.over_tokens = over_tokens;
  };
  if (name.ends_with("ForSequenceClassification") || name.ends_with("ForRewardModeling") || name.ends_with("RewardModel")) {
    classes("score", labels_of(config), false, false);
  } else if (name.ends_with("ForTokenClassification")) {
    classes("score", labels_of(config), true, true);
  } else if (name.ends_with("ForQuestionAnswering")) {
    classes("qa_outputs", 2, true, true);
  } else if (name.ends_with("Model") && !name.ends_with("LMHeadModel")) {
    h.tied_to.clear();
    h.outputs = 0;
    h.bias = false;
    t.loss.width = h.width > 0 ? h.width : h.hidden;
    t.loss.classes = false;
  } else if (!name.empty() && !name.ends_with("ForCausalLM") && !name.ends_with("LMHeadModel") &&
             !name.ends_with("ForConditionalGeneration")) {
    t.warnings.push_back("'" + name + "' is not a head that is known: the family's language model is counted");
  }
}

}  // namespace shardsim
