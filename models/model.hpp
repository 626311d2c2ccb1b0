// SPDX-License-Identifier: Apache-2.0
// What is trained: parameters by name, shape and trainability; layers as sequences of leaf modules; the work and the tensors of each.
//
// An Architecture is what config.json says: it depends on nothing else. A Model is an Architecture at one batch shape and precision.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/training.hpp"
#include "sim/base/ids.hpp"
#include "sim/base/units.hpp"
#include "sim/schedule/work.hpp"

namespace shardsim {

struct Parameter {
  std::string name{};  ///< as PyTorch names it: "model.layers.3.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape{};
  Elements elements{};
  bool trainable = true;
  std::optional<DType> dtype{};  ///< where it is stored in another dtype than the model: adapters that PEFT keeps in fp32
  bool routed_expert = false;    ///< lives on one rank of an expert-parallel group
  bool matrix() const { return shape.size() >= 2; }
};

/// A tensor that a layer's forward makes. Its life follows autograd: allocated when its producer runs; freed after its last consumer's
/// forward unless a module saved it, then after that module's backward. Its gradient is allocated in the backward of its last
/// consumer and freed after the backward of its producer.
struct Tensor {
  std::string name{};   ///< "norm output", "gate"
  Elements elements{};  ///< of one micro-batch
  DType dtype = DType::bf16;
  std::int32_t producer = -1;       ///< module index; -1: the layer's input, made by the layer before
  std::int32_t last_consumer = -1;  ///< last module that reads it in forward; the number of modules: it is the layer's output
  std::int32_t saved_by = -1;       ///< first module (in forward order) that keeps it for its backward; -1: nobody keeps it
  bool has_gradient = true;         ///< autograd makes a gradient of the same size for it
  DType gradient_dtype = DType::bf16;
  bool core_attention = false;      ///< recomputed under checkpointing core_attention
  bool kept_by_selective = false;   ///< kept under checkpointing selective_ops
  bool fused_away = false;          ///< not materialised under compile: true
  bool held = false;                ///< a variable of the training loop holds it to the end of backward
  bool parameter_gradient = false;  ///< made in forward; becomes .grad of the module's parameter when backward gets there
  bool logits = false;              ///< counted as logits, not as activations
};

/// Whether forward leaves the tensor for backward in a layer that is checkpointed so.
[[nodiscard]] constexpr bool is_kept(Checkpointing kind, const Tensor& tensor) {
  const bool saved = tensor.saved_by >= 0, input = tensor.producer < 0;
  switch (kind) {
    case Checkpointing::none:
      return saved;
    case Checkpointing::core_attention:
      return saved && !tensor.core_attention;
    case Checkpointing::selective_ops:
      return input || tensor.kept_by_selective;
    case Checkpointing::full:
      return input;
  }
  return false;
}

/// A leaf module: what runs between two places where a library can hook in.
struct Module {
  std::string name{};                      ///< "self_attn.q_proj"
  std::vector<std::int32_t> parameters{};  ///< indices into LayerType::parameters, in registration order
  std::vector<std::int32_t> reads{};       ///< indices into LayerType::tensors: what its forward reads, in the order of its arguments
  Work forward{};
  Work backward_input{};      ///< gradient with respect to inputs (needed if anything before it trains)
  Work backward_weight{};     ///< gradient with respect to own parameters (needed if they train)
  Bytes forward_temporary{};  ///< scratch alive only while it runs
  Bytes backward_temporary{};
  bool core_attention = false;     ///< recomputed under core_attention
  bool kept_by_selective = false;  ///< its outputs are kept under selective_ops: not recomputed
  bool routed_experts = false;     ///< runs on tokens dispatched to experts
};

/// Layers of one type share everything but the identity of their parameters.
struct LayerType {
  std::string name{};             ///< "llama block"
  bool block = false;             ///< a repeated block: the unit of wrapping and of activation checkpointing
  std::vector<Module> modules{};  ///< in forward order
  std::vector<Tensor> tensors{};
  std::vector<std::int32_t> arrival{};  ///< indices into a layer's parameters, in the order their gradients become final in backward
};

struct Layer {
  std::string name{};                     ///< "model.layers.3", "embed_tokens", "lm_head"
  std::int32_t type = 0;                  ///< index into Model::types
  std::vector<ParameterId> parameters{};  ///< in registration order
};

/// Tensors that modules hold beside their parameters and nobody trains, by dtype: running statistics, rotary frequencies.
struct ModuleBuffers {
  DType dtype = DType::fp32;
  bool constant = false;  ///< every rank has the same anyway (frequencies), unlike statistics
  Elements elements{};
};

struct Model {
  std::string name{};
  std::string family{};  ///< "llama"
  std::vector<std::string> warnings{};
  std::shared_ptr<const std::vector<Parameter>>
      parameters{};  ///< registration order; a tied tensor stands once, where it is registered first
  std::vector<LayerType> types{};
  std::shared_ptr<const std::vector<Layer>> layers{};  ///< forward order; blocks and what is around them
  std::vector<ModuleBuffers> buffers{};
  std::vector<ParameterId> tied{};  ///< parameters used by two layers (embedding and head): their gradient is final at the earlier one
  Tokens tokens_per_micro_batch{};
  Flops model_flops_per_micro_batch{};  ///< forward and backward, without recomputation
  Flops fp8_flops_per_micro_batch{};    ///< the part of them that products in fp8 are
  std::string flop_convention{};        ///< one sentence

  [[nodiscard]] const Parameter& at(ParameterId id) const { return (*parameters)[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const LayerType& type_of(const Layer& layer) const { return types[static_cast<std::size_t>(layer.type)]; }
  [[nodiscard]] Elements total() const;  ///< Ψ
  [[nodiscard]] Elements trainable() const;
};

}  // namespace shardsim
