// SPDX-License-Identifier: Apache-2.0
#include "models/layers/layer_builder.hpp"

#include <algorithm>
#include <utility>

namespace shardsim {
namespace {

bool ends_in(std::string_view module, std::string_view target) {
  return module == target ||
         (module.size() > target.size() && module.ends_with(target) && module[module.size() - target.size() - 1] == '.');
}

void add(Work& work, Kernels kernels) {
  work.kernels += kernels.count;
  work.memory += Bytes{kernels.bytes};
}

}  // namespace

LayerBuilder::LayerBuilder(std::string name, bool block, const BatchShape& batch, const GradientFlow& flow) : batch_(batch), flow_(flow) {
  type_.name = std::move(name);
  type_.block = block;
}

bool LayerBuilder::trainable(std::int32_t parameter) const {
  const auto i = static_cast<std::size_t>(parameter);
  if (parameters_[i].by_rule) return false;
  return flow_.trainable == nullptr || (*flow_.trainable)[i];
}

TensorIndex LayerBuilder::input(std::string name, std::int64_t elements, DType dtype) {
  Tensor tensor{.name = std::move(name), .elements = Elements{elements}, .dtype = dtype};
  tensor.has_gradient = flow_.input_needs_gradient;
  tensor.gradient_dtype = dtype;
  type_.tensors.push_back(std::move(tensor));
  tensor_needs_gradient_.push_back(flow_.input_needs_gradient);
  return static_cast<TensorIndex>(type_.tensors.size() - 1);
}

void LayerBuilder::begin(std::string name) {
  close();
  Module module;
  module.name = std::move(name);
  for (Work* work : {&module.forward, &module.backward_input, &module.backward_weight}) {
    work->dtype = batch_.compute;
    work->compiled = batch_.compile;
  }
  type_.modules.push_back(std::move(module));
  reads_gradient_ = false;
}

/// Backward work that nothing needs does not happen.
void LayerBuilder::close() {
  if (type_.modules.empty()) return;
  Module& last = module();
  if (!reads_gradient_) last.backward_input = {};
  if (!trains()) last.backward_weight = {};
  if (!reads_gradient_ && !trains()) last.backward_temporary = {};
}

void LayerBuilder::declare(DeclaredParameter parameter) {
  module().parameters.push_back(static_cast<std::int32_t>(parameters_.size()));
  parameters_.push_back(std::move(parameter));
}

void LayerBuilder::declare(std::string_view suffix, std::vector<std::int64_t> shape, std::string_view tied_to) {
  std::string name = module().name;
  if (!name.empty()) name += '.';
  name += suffix;
  declare({.name = std::move(name), .shape = std::move(shape), .routed_expert = false, .by_rule = false, .tied_to = std::string(tied_to)});
}

bool LayerBuilder::trains() const {
  const auto& own = type_.modules.back().parameters;
  return std::any_of(own.begin(), own.end(), [this](std::int32_t p) { return trainable(p); });
}

bool LayerBuilder::weights_train() const {
  const auto& own = type_.modules.back().parameters;
  return std::any_of(own.begin(), own.end(), [this](std::int32_t p) {
    return trainable(p) && parameters_[static_cast<std::size_t>(p)].name.find(".lora_") == std::string::npos;
  });
}

void LayerBuilder::read(TensorIndex tensor) {
  const auto module_index = static_cast<std::int32_t>(type_.modules.size() - 1);
  at(tensor).last_consumer = std::max(at(tensor).last_consumer, module_index);
  reads_.push_back({module_index, tensor});
  module().reads.push_back(tensor);
  reads_gradient_ = reads_gradient_ || tensor_needs_gradient_[static_cast<std::size_t>(tensor)];
}

void LayerBuilder::keep(TensorIndex tensor) {
  if (!reads_gradient_ && !trains()) return;
  if (at(tensor).saved_by < 0) at(tensor).saved_by = static_cast<std::int32_t>(type_.modules.size() - 1);
}

TensorIndex LayerBuilder::make(std::string name, std::int64_t elements, DType dtype) {
  const auto module_index = static_cast<std::int32_t>(type_.modules.size() - 1);
  const bool gradient = reads_gradient_ || trains();
  Tensor tensor{.name = std::move(name), .elements = Elements{elements}, .dtype = dtype};
  tensor.producer = module_index;
  tensor.last_consumer = module_index;
  tensor.has_gradient = gradient;
  tensor.gradient_dtype = dtype;
  type_.tensors.push_back(std::move(tensor));
  tensor_needs_gradient_.push_back(gradient);
  return static_cast<TensorIndex>(type_.tensors.size() - 1);
}

void LayerBuilder::forward(Kernels eager, Kernels compiled) { add(module().forward, batch_.compile ? compiled : eager); }
void LayerBuilder::backward_input(Kernels eager, Kernels compiled) { add(module().backward_input, batch_.compile ? compiled : eager); }
void LayerBuilder::backward_weight(Kernels eager, Kernels compiled) { add(module().backward_weight, batch_.compile ? compiled : eager); }

void LayerBuilder::product(MatrixProduct forward, Factor factor) {
  const auto [m, n, k, count] = forward;
  Module& last = module();
  last.forward.products.push_back(forward);
  last.forward.kernels += 1;
  last.backward_input.products.push_back({m, k, n, count});
  last.backward_input.kernels += 1;
  if (factor == Factor::frozen_weight) return;
  Work& second = factor == Factor::weight ? last.backward_weight : last.backward_input;
  second.products.push_back({k, n, m, count});
  second.kernels += 1;
}

std::int64_t LayerBuilder::adapter_rank(std::string_view module_name) const {
  if (flow_.adaptation == nullptr) return 0;
  const auto& targets = flow_.adaptation->targets;
  const bool adapted = std::any_of(targets.begin(), targets.end(), [&](const std::string& t) { return ends_in(module_name, t); });
  return adapted ? flow_.adaptation->rank : 0;
}

/// A tensor that several modules read gets its gradient in parts: the later parts are made beside it and added in place.
void LayerBuilder::accumulate_gradients() {
  for (const Read& read : reads_) {
    const Tensor& tensor = at(read.tensor);
    if (!tensor.has_gradient || tensor.last_consumer == read.module) continue;
    const Bytes part = bytes(tensor.elements, tensor.gradient_dtype);
    Module& reader = type_.modules[static_cast<std::size_t>(read.module)];
    reader.backward_temporary += part;
    reader.backward_input.memory += 3 * part;
    reader.backward_input.kernels += 1;
  }
}

BuiltLayer LayerBuilder::finish(TensorIndex output) && {
  close();
  if (output >= 0) at(output).last_consumer = static_cast<std::int32_t>(type_.modules.size());
  accumulate_gradients();
  return {std::move(type_), std::move(parameters_)};
}

}  // namespace shardsim
