// SPDX-License-Identifier: Apache-2.0
// One module of one layer, once: which tensors it reads, makes, kept, and the arithmetic between them, sequence by sequence, so that a
// sequence's values do not depend on those beside it. Private to the trainer.
#pragma once

#include <string_view>

#include "calibrate/execute/training/trainer.hpp"

namespace shardsim::execute {

class ModuleRun {
 public:
  ModuleRun(Trainer& trainer, Workspace& workspace, std::int32_t layer, std::int32_t module, Pass pass);
  void forward();
  void backward();

 private:
  using Parts = std::vector<Matrix>;  // one matrix a sequence

  // Tensors. An index is into the layer type's tensors; -1: the module has no such tensor.
  [[nodiscard]] std::int32_t made(std::string_view name) const;
  [[nodiscard]] const Tensor& tensor(std::int32_t t) const { return type_.tensors[static_cast<std::size_t>(t)]; }
  [[nodiscard]] std::int32_t argument(std::size_t i) const { return module_.reads.at(i); }
  [[nodiscard]] Parts split(Numbers values, std::int64_t rows) const;
  [[nodiscard]] Numbers join(const Parts& parts) const;
  [[nodiscard]] Parts load(std::int32_t t, std::int64_t rows = 0) const;
  void store(std::int32_t t, const Parts& values);
  void store_values(std::int32_t t, const Numbers& values);

  // Gradients of tensors.
  [[nodiscard]] Parts gradient(std::int32_t t, std::int64_t rows = 0);
  [[nodiscard]] bool wanted(std::int32_t t) const;
  void contribute(std::int32_t t, const Parts& gradient);

  // Parameters.
  [[nodiscard]] ParameterId parameter(std::size_t i) const;
  [[nodiscard]] bool has_parameter(std::size_t i) const { return i < module_.parameters.size(); }
  [[nodiscard]] bool trains(std::size_t i) const { return has_parameter(i) && trainer_.model_.at(parameter(i)).trainable; }
  [[nodiscard]] Numbers weights(std::size_t i) const { return workspace_.parameter(parameter(i)); }
  [[nodiscard]] Numbers zeros_if_trained(std::size_t i) const;
  void add_gradient(std::size_t i, const Numbers& values);

  [[nodiscard]] Heads heads() const;
  [[nodiscard]] std::int64_t head_dim() const;

  template <class F>
  [[nodiscard]] Parts each(F&& f) const {
    Parts parts;
    for (std::size_t s = 0; s < sequences_; ++s) parts.push_back(f(s));
    return parts;
  }

  void lookup_forward();
  void lookup_backward();
  void linear_forward();
  void linear_backward();
  void rms_norm_forward();
  void rms_norm_backward();
  void attention_forward(Operation operation);
  void attention_backward(Operation operation);
  void flash_forward();
  void flash_backward();
  void plain_attention_forward(Operation operation);
  void plain_attention_backward(Operation operation);
  void element_wise_forward(Operation operation);
  void element_wise_backward(Operation operation);
  void loss_forward(Operation operation);
  void loss_backward(Operation operation);
  [[nodiscard]] Matrix loss_gradient(std::size_t sequence, std::int64_t vocabulary) const;
  [[nodiscard]] std::span<const std::int32_t> inputs(std::size_t sequence) const;
  [[nodiscard]] std::span<const std::int32_t> targets(std::size_t sequence) const;

  Trainer& trainer_;
  Math& math_;
  Workspace& workspace_;
  std::int32_t layer_;
  std::int32_t index_;
  Pass pass_;
  const Layer& layer_of_;
  const LayerType& type_;
  const Module& module_;
  std::int64_t sequence_;  // tokens
  std::size_t sequences_;
};

}  // namespace shardsim::execute
