// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of models/: configs from text, one layer's activations under autograd's rules.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "models/families/hf_config.hpp"

namespace shardsim::testing {

inline ConfigNode tree(const std::string& text) {
  auto node = read_yaml({"config.json", text});
  if (!node) throw std::runtime_error(node.error().text());
  return *node;
}

inline std::shared_ptr<const Architecture> config(const std::string& text) {
  auto architecture = read_hf_config(tree(text));
  if (!architecture) throw std::runtime_error(architecture.error().text());
  return *architecture;
}

inline std::shared_ptr<const Model> model_of(std::shared_ptr<const Architecture> architecture, const Training& training = {},
                                             const Trainable& trainable = {}) {
  auto model = build_model(std::move(architecture), training, trainable);
  if (!model) throw std::runtime_error(model.error().text());
  return *model;
}

/// What the problems of a refused config say.
inline std::string refusal(const std::string& text) {
  const auto architecture = read_hf_config(tree(text));
  return architecture ? "accepted" : architecture.error().text();
}

inline const LayerType& first_block(const Model& model) {
  for (const LayerType& type : model.types)
    if (type.block) return type;
  throw std::runtime_error("no block");
}

/// Bytes that a block keeps for backward: tensors that some module saved.
inline Bytes kept(const LayerType& type, bool compile = false) {
  Bytes sum;
  for (const Tensor& t : type.tensors)
    if (t.saved_by >= 0 && !(compile && t.fused_away)) sum += bytes(t.elements, t.dtype);
  return sum;
}

}  // namespace shardsim::testing
