// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/training/trainer.hpp"

#include <algorithm>
#include <array>

#include "calibrate/execute/training/element.hpp"
#include "calibrate/execute/training/module_run.hpp"

namespace shardsim::execute {
namespace {

bool makes(const LayerType& type, std::int32_t module, std::string_view name) {
  return std::any_of(type.tensors.begin(), type.tensors.end(), [&](const Tensor& t) { return t.producer == module && t.name == name; });
}

}  // namespace

Operation operation_of(const LayerType& type, std::int32_t module) {
  struct Sign {
    std::string_view tensor;
    Operation operation;
  };
  // The first that fits: a flash kernel makes a context too.
  static constexpr std::array<Sign, 15> signs{{{"embeddings", Operation::lookup},
                                               {"1/rms", Operation::rms_norm},
                                               {"rotated queries", Operation::rotary},
                                               {"keys of all heads", Operation::repeat_kv},
                                               {"log-sum-exp", Operation::flash},
                                               {"context by token", Operation::copy},
                                               {"scores", Operation::scores},
                                               {"softmax", Operation::softmax},
                                               {"context", Operation::context},
                                               {"activation", Operation::activation},
                                               {"product", Operation::multiply},
                                               {"sum", Operation::add},
                                               {"logits in fp32", Operation::upcast},
                                               {"log-probabilities", Operation::log_softmax},
                                               {"output", Operation::linear}}};
  for (const Sign& sign : signs)
    if (makes(type, module, sign.tensor)) return sign.operation;
  const std::string& name = type.modules[static_cast<std::size_t>(module)].name;
  if (name.ends_with("nll_loss")) return Operation::nll_loss;
  if (name.ends_with("cross_entropy")) return Operation::cross_entropy;
  return Operation::unknown;
}

std::vector<std::string> cannot_train(const Model& model, const Training& training) {
  std::vector<std::string> reasons;
  // Others differ in what the trainer cannot see in modules (activation functions, scaled embeddings, norms with 1 + weight).
  static constexpr std::array<std::string_view, 4> families{"llama", "mistral", "qwen2", "qwen3"};
  if (std::find(families.begin(), families.end(), model.family) == families.end())
    reasons.push_back("models of family '" + model.family + "' are not executed, only llama, mistral, qwen2 and qwen3");
  if (training.dropout > 0) reasons.push_back("dropout is not executed: set training.dropout to 0");
  if (training.compile) reasons.push_back("compiled kernels are not executed: set training.compile to false");
  if (training.logits != LogitsLife::dropped) reasons.push_back("logits that the loop holds are not executed: leave training.logits out");
  if (training.loss.fuses_head())
    reasons.push_back("a loss fused with the head is not executed: set training.loss to cross_entropy or fused");
  if (training.loss.kind == Loss::Kind::chunked)
    reasons.push_back("a chunked loss is not executed: set training.loss to cross_entropy or fused");
  for (DType dtype : {training.precision.parameters, training.precision.compute, training.precision.gradients, training.precision.moments})
    if (!is_real(dtype)) reasons.push_back(std::string(name_of(dtype)) + " is not executed, only bf16 and fp32");
  if (!reasons.empty()) return reasons;
  for (const LayerType& type : model.types)
    for (std::size_t m = 0; m < type.modules.size(); ++m)
      if (operation_of(type, static_cast<std::int32_t>(m)) == Operation::unknown)
        reasons.push_back("module " + type.modules[m].name + " is not executed");
  return reasons;
}

TensorRef producer_of(const Model& model, TensorRef ref) {
  const auto type_at = [&](std::int32_t layer) -> const LayerType& {
    return model.type_of((*model.layers)[static_cast<std::size_t>(layer)]);
  };
  if (ref.layer == 0 || type_at(ref.layer).tensors[static_cast<std::size_t>(ref.tensor)].producer >= 0) return ref;
  const LayerType& before = type_at(ref.layer - 1);
  const auto modules = static_cast<std::int32_t>(before.modules.size());
  for (std::size_t t = 0; t < before.tensors.size(); ++t)
    if (before.tensors[t].producer >= 0 && before.tensors[t].last_consumer == modules)
      return {ref.layer - 1, static_cast<std::int32_t>(t), ref.gradient};
  return ref;
}

void Trainer::begin(std::vector<std::vector<std::int32_t>> tokens) {
  tokens_ = std::move(tokens);
  aliased_.clear();
}

void Trainer::forward(Workspace& workspace, std::int32_t layer, std::int32_t module, Pass pass) {
  ModuleRun(*this, workspace, layer, module, pass).forward();
}

void Trainer::backward(Workspace& workspace, std::int32_t layer, std::int32_t module) {
  ModuleRun(*this, workspace, layer, module, Pass::backward).backward();
}

}  // namespace shardsim::execute
