// SPDX-License-Identifier: Apache-2.0
// Toy T: a model small enough to count by hand. An embedding, blocks of two matrices with biases, a norm and a head; with the default
// sizes psi = 1980 and {embedding, norm, head} = 1624. Shared by the tests of strategies.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/model.hpp"

namespace shardsim::testing {

struct ToySizes {
  std::int64_t vocabulary = 101, width = 8, hidden = 10;
  std::int32_t blocks = 2;
  std::int64_t tokens = 4;
};

class ToyBuilder {
 public:
  explicit ToyBuilder(const ToySizes& sizes) : sizes_(sizes) {
    const std::int64_t d = sizes_.width;
    add_type("embedding", false, {1}, 1, d);
    add_type("block", true, {2, 2}, d, d);
    add_type("norm", false, {1}, d, d);
    add_type("head", false, {1}, d, sizes_.vocabulary);
    add_layer("embed", 0, {{"weight", {sizes_.vocabulary, d}}});
    for (std::int32_t b = 0; b < sizes_.blocks; ++b)
      add_layer("blocks." + std::to_string(b), 1, {{"w1", {sizes_.hidden, d}}, {"b1", {sizes_.hidden}}, {"w2", {d, sizes_.hidden}}, {"b2", {d}}});
    add_layer("norm", 2, {{"weight", {d}}});
    add_layer("head", 3, {{"weight", {sizes_.vocabulary, d}}});
  }

  [[nodiscard]] std::shared_ptr<const Model> build() && {
    model_.name = "toy";
    model_.parameters = std::make_shared<const std::vector<Parameter>>(std::move(parameters_));
    model_.layers = std::make_shared<const std::vector<Layer>>(std::move(layers_));
    model_.tokens_per_micro_batch = Tokens{sizes_.tokens};
    return std::make_shared<const Model>(std::move(model_));
  }

 private:
  /// A chain of modules, each with so many of the layer's parameters, each reading and keeping the tensor before it.
  void add_type(const char* name, bool block, const std::vector<std::int32_t>& parameters, std::int64_t in, std::int64_t out) {
    LayerType type{.name = name, .block = block};
    const auto modules = static_cast<std::int32_t>(parameters.size());
    std::int32_t index = 0;
    for (std::int32_t m = 0; m <= modules; ++m)
      type.tensors.push_back({.name = m == 0 ? "input" : "output", .elements = Elements{sizes_.tokens * (m == modules ? out : m == 0 ? in : sizes_.hidden)},
                              .producer = m - 1, .last_consumer = m, .saved_by = m == modules ? -1 : m, .has_gradient = in != 1 || m > 0});
    for (std::int32_t m = 0; m < modules; ++m) {
      Module module{.name = name + std::to_string(m), .reads = {m}};
      for (std::int32_t p = 0; p < parameters[static_cast<std::size_t>(m)]; ++p) module.parameters.push_back(index++);
      module.forward.kernels = module.backward_input.kernels = module.backward_weight.kernels = 1;
      type.modules.push_back(std::move(module));
    }
    while (index > 0) type.arrival.push_back(--index);
    model_.types.push_back(std::move(type));
  }

  void add_layer(const std::string& name, std::int32_t type, const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& parameters) {
    Layer layer{.name = name, .type = type};
    for (const auto& [parameter, shape] : parameters) {
      std::int64_t elements = 1;
      for (std::int64_t d : shape) elements *= d;
      layer.parameters.push_back({static_cast<std::int32_t>(parameters_.size())});
      parameters_.push_back({.name = name + "." + parameter, .shape = shape, .elements = Elements{elements}});
    }
    layers_.push_back(std::move(layer));
  }

  ToySizes sizes_;
  Model model_;
  std::vector<Parameter> parameters_;
  std::vector<Layer> layers_;
};

[[nodiscard]] inline std::shared_ptr<const Model> toy_model(const ToySizes& sizes = {}) { return ToyBuilder(sizes).build(); }

}  // namespace shardsim::testing
