// SPDX-License-Identifier: Apache-2.0
// Real forward and backward of a model's modules, as a Schedule's Compute ops name them, on whatever memory a Workspace offers.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "calibrate/execute/training/batch.hpp"
#include "calibrate/execute/training/workspace.hpp"
#include "models/model.hpp"

namespace shardsim::execute {

/// What a module computes, told from the tensors it makes.
enum class Operation : std::uint8_t {
  unknown,
  lookup,
  linear,
  rms_norm,
  rotary,
  repeat_kv,
  flash,
  copy,
  scores,
  softmax,
  context,
  activation,
  multiply,
  add,
  upcast,
  log_softmax,
  nll_loss,
  cross_entropy,
};
[[nodiscard]] Operation operation_of(const LayerType& type, std::int32_t module);

/// What of a job the trainer cannot compute (other families, dropout, adapters, compilation, ...), as sentences; empty if it can.
[[nodiscard]] std::vector<std::string> cannot_train(const Model& model, const Training& training);

class Trainer {
 public:
  /// `model` and `math` outlive the trainer.
  Trainer(const Model& model, const Training& training, Math& math) : model_(model), training_(training), math_(math) {}

  /// The micro-batch that following calls are about: the tokens of each of its sequences (see sequence_tokens).
  void begin(std::vector<std::vector<std::int32_t>> tokens);

  /// Forward of one module; again, when recomputing.
  void forward(Workspace& workspace, std::int32_t layer, std::int32_t module, Pass pass);
  /// Backward of one module. The loss is the mean over the tokens of the micro-batch, divided by the number of micro-batches.
  void backward(Workspace& workspace, std::int32_t layer, std::int32_t module);

  /// Mean loss of the micro-batch, after its forward.
  [[nodiscard]] double loss() const { return loss_; }

 private:
  friend class ModuleRun;
  const Model& model_;
  Training training_;
  Math& math_;
  std::vector<std::vector<std::int32_t>> tokens_;
  /// Gradients of tensors that share the memory of another's (a residual branch): from the module that makes them to the one that reads
  /// them, by layer and tensor.
  std::map<std::pair<std::int32_t, std::int32_t>, Numbers> aliased_;
  double loss_ = 0;
};

}  // namespace shardsim::execute
