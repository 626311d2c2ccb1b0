// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/training/reference.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>

#include "calibrate/execute/training/element.hpp"
#include "calibrate/execute/training/host_math.hpp"
#include "calibrate/execute/training/optimizer.hpp"
#include "calibrate/execute/training/trainer.hpp"

namespace shardsim::execute {
namespace {

/// Everything in fp32 vectors that hold only what their dtype can.
class PlainWorkspace final : public Workspace {
 public:
  PlainWorkspace(const Model& model, const Training& training) : model_(model), training_(training) {
    const DType stored = training.precision.master.value_or(training.precision.parameters);
    const auto& parameters = *model.parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      weights_.push_back(start_values(static_cast<std::int64_t>(p), parameters[p].name, parameters[p].shape));
      for (float& v : weights_.back()) v = rounded(v, stored);
      const std::size_t count = parameters[p].trainable ? weights_.back().size() : 0;
      first_.emplace_back(count);
      second_.emplace_back(count);
    }
    zero_gradients();
  }

  Numbers parameter(ParameterId p) override {
    std::vector<float> values = weights_[static_cast<std::size_t>(p.index)];
    for (float& v : values) v = rounded(v, training_.precision.parameters);
    return host_math().numbers(values);
  }

  void add_gradient(ParameterId p, const Numbers& values) override {
    auto& sums = gradients_[static_cast<std::size_t>(p.index)];
    std::transform(sums.begin(), sums.end(), values.begin(), sums.begin(), std::plus<>());
  }

  bool holds(TensorRef) override { return true; }

  Numbers load(TensorRef ref) override {
    const auto found = tensors_.find(key(ref));
    if (found != tensors_.end()) return host_math().numbers(found->second);
    if (!ref.gradient) throw std::logic_error("a tensor is read before it is made");
    return host_math().zeros(static_cast<std::size_t>(tensor(ref).elements.value()));
  }

  void store(TensorRef ref, const Numbers& values) override {
    auto& kept = tensors_[key(ref)];
    kept.assign(values.begin(), values.end());
    const DType dtype = ref.gradient ? tensor(ref).gradient_dtype : tensor(ref).dtype;
    for (float& v : kept) v = rounded(v, dtype);
  }

  void forget_tensors() { tensors_.clear(); }
  void zero_gradients() {
    gradients_.clear();
    for (const Parameter& p : *model_.parameters) gradients_.emplace_back(static_cast<std::size_t>(p.trainable ? p.elements.value() : 0));
  }
  /// The batch is made of `parts` micro-batches, each of which gave the gradient of its own mean.
  void average_gradients(std::int64_t parts) {
    for (auto& gradient : gradients_)
      for (float& v : gradient) v /= static_cast<float>(parts);
  }
  [[nodiscard]] const std::vector<std::vector<float>>& gradients() const { return gradients_; }

  void optimizer_step(std::int64_t step) {
    const Precision& precision = training_.precision;
    const DType stored = precision.master.value_or(precision.parameters);
    const UpdateRule rule = rule_of(training_.optimizer.kind, {}, step);
    for (std::size_t p = 0; p < weights_.size(); ++p) {
      if (gradients_[p].empty()) continue;
      update(rule, weights_[p], gradients_[p], first_[p], second_[p]);
      for (float& v : weights_[p]) v = rounded(v, stored);
      for (auto* moments : {&first_[p], &second_[p]})
        for (float& v : *moments) v = rounded(v, precision.moments);
    }
  }

 private:
  using Key = std::array<std::int32_t, 3>;
  [[nodiscard]] const Tensor& tensor(TensorRef ref) const {
    return model_.type_of((*model_.layers)[static_cast<std::size_t>(ref.layer)]).tensors[static_cast<std::size_t>(ref.tensor)];
  }
  [[nodiscard]] Key key(TensorRef ref) const {
    const TensorRef where = producer_of(model_, ref);
    return {where.layer, where.tensor, where.gradient ? 1 : 0};
  }

  const Model& model_;
  const Training& training_;
  std::vector<std::vector<float>> weights_, gradients_, first_, second_;  // by parameter
  std::map<Key, std::vector<float>> tensors_;
};

}  // namespace

std::int64_t vocabulary_of(const Model& model) {
  for (ParameterId p : model.layers->front().parameters)
    if (model.at(p).matrix()) return model.at(p).shape.front();
  throw std::logic_error("the model's first layer has no table of tokens");
}

std::vector<std::vector<std::int32_t>> micro_batch_tokens(const Model& model, const Training& training, const BatchShares& shares,
                                                          std::int64_t step, std::int64_t rank, std::int64_t micro_batch) {
  std::vector<std::vector<std::int32_t>> tokens;
  for (std::int64_t s = 0; s < shares.sequences; ++s)
    tokens.push_back(sequence_tokens(step, shares.index(rank, micro_batch, s), training.sequence_length, vocabulary_of(model)));
  return tokens;
}

Reference train_alone(const Model& model, const Training& training, const BatchShares& shares, int steps) {
  Training alone = training;
  alone.gradient_accumulation_steps = 1;  // averaged here, over all micro-batches of all ranks
  PlainWorkspace workspace(model, training);
  Trainer trainer(model, alone, host_math());
  Reference reference;
  const auto layers = static_cast<std::int32_t>(model.layers->size());
  const auto modules = [&](std::int32_t l) {
    return static_cast<std::int32_t>(model.type_of((*model.layers)[static_cast<std::size_t>(l)]).modules.size());
  };
  const std::int64_t parts = shares.ranks * shares.micro_batches;
  for (int step = 0; step < steps; ++step) {
    double loss = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      trainer.begin(micro_batch_tokens(model, training, shares, step, part % shares.ranks, part / shares.ranks));
      for (std::int32_t l = 0; l < layers; ++l)
        for (std::int32_t m = 0; m < modules(l); ++m) trainer.forward(workspace, l, m, Pass::forward);
      for (std::int32_t l = layers - 1; l >= 0; --l)
        for (std::int32_t m = modules(l) - 1; m >= 0; --m) trainer.backward(workspace, l, m);
      loss += trainer.loss();
      workspace.forget_tensors();
    }
    workspace.average_gradients(parts);
    reference.losses.push_back(loss / static_cast<double>(parts));
    reference.gradients.push_back(workspace.gradients());
    workspace.optimizer_step(step + 1);
    workspace.zero_gradients();
  }
  return reference;
}

}  // namespace shardsim::execute
