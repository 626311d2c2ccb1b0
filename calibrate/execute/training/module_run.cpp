// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/training/module_run.hpp"

#include <stdexcept>

namespace shardsim::execute {
ModuleRun::ModuleRun(Trainer& trainer, Workspace& workspace, std::int32_t layer, std::int32_t module, Pass pass)
    : trainer_(trainer),
      math_(trainer.math_),
      workspace_(workspace),
      layer_(layer),
      index_(module),
      pass_(pass),
      layer_of_((*trainer.model_.layers)[static_cast<std::size_t>(layer)]),
      type_(trainer.model_.type_of(layer_of_)),
      module_(type_.modules[static_cast<std::size_t>(module)]),
      sequence_(trainer.training_.sequence_length),
      sequences_(trainer.tokens_.size()) {}

// Tensors ------------------------------------------------------------------------------------------------------------------------

std::int32_t ModuleRun::made(std::string_view name) const {
  for (std::size_t t = 0; t < type_.tensors.size(); ++t)
    if (type_.tensors[t].producer == index_ && type_.tensors[t].name == name) return static_cast<std::int32_t>(t);
  return -1;
}

/// `rows` of each sequence; 0: one a token.
ModuleRun::Parts ModuleRun::split(Numbers values, std::int64_t rows) const {
  const std::size_t each = values.size() / sequences_;
  if (rows == 0) rows = sequence_;
  const std::int64_t columns = static_cast<std::int64_t>(each) / rows;
  Parts parts;
  if (sequences_ == 1)
    parts.emplace_back(rows, columns, std::move(values));
  else
    for (std::size_t s = 0; s < sequences_; ++s) parts.emplace_back(rows, columns, math_.slice(values, s * each, each));
  return parts;
}

Numbers ModuleRun::join(const Parts& parts) const {
  std::size_t count = 0;
  for (const Matrix& part : parts) count += part.values.size();
  Numbers values = math_.zeros(count);
  std::size_t begin = 0;
  for (const Matrix& part : parts) {
    math_.put(values, begin, part.values);
    begin += part.values.size();
  }
  return values;
}

ModuleRun::Parts ModuleRun::load(std::int32_t t, std::int64_t rows) const { return split(workspace_.load({layer_, t, false}), rows); }

void ModuleRun::store_values(std::int32_t t, const Numbers& values) {
  if (t < 0) return;
  // What nobody reads again is not made again.
  if (pass_ == Pass::recompute && !workspace_.holds({layer_, t, false})) return;
  workspace_.store({layer_, t, false}, values);
}

void ModuleRun::store(std::int32_t t, const Parts& values) { store_values(t, join(values)); }

// Gradients ----------------------------------------------------------------------------------------------------------------------

ModuleRun::Parts ModuleRun::gradient(std::int32_t t, std::int64_t rows) {
  if (tensor(t).has_gradient) return split(workspace_.load({layer_, t, true}), rows);
  const auto found = trainer_.aliased_.find({layer_, t});
  if (found == trainer_.aliased_.end()) throw std::logic_error("no gradient has reached '" + tensor(t).name + "' of " + layer_of_.name);
  Numbers values = std::move(found->second);
  trainer_.aliased_.erase(found);
  return split(std::move(values), rows);
}

/// A layer's input needs a gradient only if something before it trains.
bool ModuleRun::wanted(std::int32_t t) const {
  return !tensor(t).has_gradient || tensor(t).producer >= 0 || workspace_.holds({layer_, t, true});
}

void ModuleRun::contribute(std::int32_t t, const Parts& parts) {
  if (!wanted(t)) return;
  Numbers values = join(parts);
  math_.round(values, tensor(t).gradient_dtype);
  if (!tensor(t).has_gradient) {
    Numbers& sum = trainer_.aliased_[{layer_, t}];
    if (sum.empty())
      sum = std::move(values);
    else
      math_.add(sum, values);
    return;
  }
  math_.add(values, workspace_.load({layer_, t, true}));
  workspace_.store({layer_, t, true}, values);
}

// Parameters ---------------------------------------------------------------------------------------------------------------------

ParameterId ModuleRun::parameter(std::size_t i) const { return layer_of_.parameters[static_cast<std::size_t>(module_.parameters.at(i))]; }

Numbers ModuleRun::zeros_if_trained(std::size_t i) const {
  return trains(i) ? math_.zeros(static_cast<std::size_t>(trainer_.model_.at(parameter(i)).elements.value())) : Numbers();
}

void ModuleRun::add_gradient(std::size_t i, const Numbers& values) {
  if (!values.empty()) workspace_.add_gradient(parameter(i), values);
}

// Dispatch -----------------------------------------------------------------------------------------------------------------------

void ModuleRun::forward() {
  switch (const Operation operation = operation_of(type_, index_)) {
    case Operation::lookup:
      return lookup_forward();
    case Operation::linear:
      return linear_forward();
    case Operation::rms_norm:
      return rms_norm_forward();
    case Operation::rotary:
    case Operation::repeat_kv:
    case Operation::flash:
    case Operation::scores:
    case Operation::softmax:
    case Operation::context:
      return attention_forward(operation);
    case Operation::copy:
    case Operation::activation:
    case Operation::multiply:
    case Operation::add:
    case Operation::upcast:
    case Operation::log_softmax:
      return element_wise_forward(operation);
    case Operation::nll_loss:
    case Operation::cross_entropy:
      return loss_forward(operation);
    case Operation::unknown:
      break;
  }
  throw std::logic_error("the trainer does not know module " + module_.name);
}

void ModuleRun::backward() {
  switch (const Operation operation = operation_of(type_, index_)) {
    case Operation::lookup:
      return lookup_backward();
    case Operation::linear:
      return linear_backward();
    case Operation::rms_norm:
      return rms_norm_backward();
    case Operation::rotary:
    case Operation::repeat_kv:
    case Operation::flash:
    case Operation::scores:
    case Operation::softmax:
    case Operation::context:
      return attention_backward(operation);
    case Operation::copy:
    case Operation::activation:
    case Operation::multiply:
    case Operation::add:
    case Operation::upcast:
    case Operation::log_softmax:
      return element_wise_backward(operation);
    case Operation::nll_loss:
    case Operation::cross_entropy:
      return loss_backward(operation);
    case Operation::unknown:
      break;
  }
  throw std::logic_error("the trainer does not know module " + module_.name);
}

// Parameters' modules ------------------------------------------------------------------------------------------------------------

std::span<const std::int32_t> ModuleRun::inputs(std::size_t sequence) const {
  return std::span(trainer_.tokens_[sequence]).first(static_cast<std::size_t>(sequence_));
}

std::span<const std::int32_t> ModuleRun::targets(std::size_t sequence) const {
  return std::span(trainer_.tokens_[sequence]).subspan(1, static_cast<std::size_t>(sequence_));
}

void ModuleRun::lookup_forward() {
  const Numbers table = weights(0);
  const std::int64_t width = trainer_.model_.at(parameter(0)).shape.back();
  store(made("embeddings"), each([&](std::size_t s) { return math_.lookup(table, width, inputs(s)); }));
}

void ModuleRun::lookup_backward() {
  Numbers sums = zeros_if_trained(0);
  if (sums.empty()) return;
  const Parts dy = gradient(made("embeddings"));
  for (std::size_t s = 0; s < sequences_; ++s) math_.lookup_backward(dy[s], inputs(s), sums);
  add_gradient(0, sums);
}

void ModuleRun::linear_forward() {
  const std::int32_t cast_input = made("input in compute dtype"), cast_weight = made("weight in compute dtype"), output = made("output");
  Parts x = load(argument(0));
  Numbers weight = weights(0);
  if (cast_input >= 0) {
    for (Matrix& part : x) math_.round(part.values, tensor(cast_input).dtype);
    store(cast_input, x);
  }
  if (cast_weight >= 0) {
    math_.round(weight, tensor(cast_weight).dtype);
    store_values(cast_weight, weight);
  }
  const Numbers bias = has_parameter(1) ? weights(1) : Numbers();
  const std::int64_t out = trainer_.model_.at(parameter(0)).shape.front();
  store(output, each([&](std::size_t s) { return math_.linear(x[s], weight, bias, out); }));
}

void ModuleRun::linear_backward() {
  const std::int32_t cast_input = made("input in compute dtype"), cast_weight = made("weight in compute dtype");
  const Parts dy = gradient(made("output"));
  const std::int64_t in = trainer_.model_.at(parameter(0)).shape.back();
  if (wanted(argument(0))) {
    const Numbers weight = cast_weight >= 0 ? workspace_.load({layer_, cast_weight, false}) : weights(0);
    contribute(argument(0), each([&](std::size_t s) { return math_.linear_backward_input(dy[s], weight, in); }));
  }
  Numbers weight_sums = zeros_if_trained(0), bias_sums = zeros_if_trained(1);
  if (weight_sums.empty() && bias_sums.empty()) return;
  const Parts x = weight_sums.empty() ? Parts(sequences_) : load(cast_input >= 0 ? cast_input : argument(0));
  for (std::size_t s = 0; s < sequences_; ++s) math_.linear_backward_weight(x[s], dy[s], weight_sums, bias_sums);
  if (cast_weight >= 0) math_.round(weight_sums, tensor(cast_weight).dtype);  // the product's dtype; autograd casts it back
  add_gradient(0, weight_sums);
  add_gradient(1, bias_sums);
}

void ModuleRun::rms_norm_forward() {
  const Numbers weight = weights(0);
  const auto size = static_cast<std::int64_t>(weight.size());
  const Parts x = load(argument(0));
  const Parts inverse = each([&](std::size_t s) { return math_.inverse_rms(x[s], size); });
  Parts normalised = each([&](std::size_t s) { return math_.normalise(x[s], inverse[s], size); });
  const std::int32_t kept = made("normalised");
  const DType dtype = kept >= 0 ? tensor(kept).dtype : tensor(argument(0)).dtype;
  for (Matrix& part : normalised) math_.round(part.values, dtype);
  store(made("input in fp32"), x);
  store(made("1/rms"), inverse);
  store(kept, normalised);
  store(made("norm output"), each([&](std::size_t s) { return math_.scale_columns(normalised[s], weight); }));
}

void ModuleRun::rms_norm_backward() {
  const std::int32_t wide = made("input in fp32");
  const Numbers weight = weights(0);
  const Parts dy = gradient(made("norm output"));
  const Parts x = load(wide >= 0 ? wide : argument(0));
  const Parts inverse = load(made("1/rms"));
  Numbers sums = zeros_if_trained(0);
  contribute(argument(0), each([&](std::size_t s) { return math_.rms_norm_backward(x[s], inverse[s], dy[s], weight, sums); }));
  add_gradient(0, sums);
}

}  // namespace shardsim::execute
