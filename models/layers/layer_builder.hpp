// SPDX-License-Identifier: Apache-2.0
// Writes one layer type, module by module in forward order, and follows autograd: which tensors need gradients, which are kept.
// Private to models/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/architecture.hpp"

namespace shardsim {

/// What a layer type depends on besides its description.
struct BatchShape {
  std::int64_t batch = 1;          ///< sequences
  std::int64_t sequence = 1;       ///< tokens each
  DType compute = DType::bf16;     ///< of matrix products and their outputs
  DType parameters = DType::bf16;  ///< differs from `compute` under autocast
  double dropout = 0;
  AttentionKind attention = AttentionKind::flash;
  Loss loss;
  LogitsLife logits = LogitsLife::dropped;
  bool compile = false;
  double stored_bytes = 0;  ///< of a quantised weight, which is converted for each product; 0: weights are not quantised
  FusedKernels fused{};     ///< without compile
  bool fp8_products = false;

  [[nodiscard]] std::int64_t tokens() const { return batch * sequence; }
  [[nodiscard]] bool fuses_norms() const { return compile || fused.norms; }
  [[nodiscard]] bool fuses_rotary() const { return compile || fused.rotary; }
  [[nodiscard]] bool fuses_activation() const { return compile || fused.activation; }
  [[nodiscard]] bool autocast() const { return parameters != compute; }
  /// Of the residual stream: autocast leaves embeddings and norms in the parameters' dtype, and sums promote to it.
  [[nodiscard]] DType stream() const { return autocast() ? parameters : compute; }
};

/// Which parameters of a layer train, and whether anything before the layer does.
struct GradientFlow {
  bool input_needs_gradient = true;
  const std::vector<bool>* trainable = nullptr;  ///< by order of use; null: all
  const Adaptation* adaptation = nullptr;
};

struct DeclaredParameter {
  std::string name;  ///< within the layer: "self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;
  bool routed_expert = false;
  bool by_rule = false;  ///< moved by a rule, never by a gradient
  std::string tied_to;   ///< full name of the parameter that this one is
};

struct BuiltLayer {
  LayerType type;
  std::vector<DeclaredParameter> parameters;  ///< in order of use
};

/// A run of memory-bound kernels.
struct Kernels {
  std::int32_t count = 0;
  std::int64_t bytes = 0;
};

using TensorIndex = std::int32_t;

/// What the second factor of a product is.
enum class Factor : std::uint8_t { tensor, weight, frozen_weight };

class LayerBuilder {
 public:
  LayerBuilder(std::string name, bool block, const BatchShape& batch, const GradientFlow& flow);

  [[nodiscard]] const BatchShape& batch() const { return batch_; }
  [[nodiscard]] std::int64_t tokens() const { return batch_.tokens(); }
  [[nodiscard]] bool is_block() const { return type_.block; }

  /// The tensor that the layer before made.
  TensorIndex input(std::string name, std::int64_t elements, DType dtype);

  // One module at a time: begin, then what it declares, reads, keeps and makes.
  void begin(std::string name);
  void declare(DeclaredParameter parameter);
  /// "<module>.<suffix>", or the suffix alone in a module without a name.
  void declare(std::string_view suffix, std::vector<std::int64_t> shape, std::string_view tied_to = "");
  void read(TensorIndex tensor);
  /// Kept for backward, if the module takes part in backward at all.
  void keep(TensorIndex tensor);
  TensorIndex make(std::string name, std::int64_t elements, DType dtype);
  [[nodiscard]] Module& module() { return type_.modules.back(); }
  [[nodiscard]] bool trains() const;         ///< a parameter of the module trains
  [[nodiscard]] bool weights_train() const;  ///< one that is no adapter

  // Cost of the module. Under compile the second figure counts.
  void forward(Kernels eager, Kernels compiled);
  void backward_input(Kernels eager, Kernels compiled);
  void backward_weight(Kernels eager, Kernels compiled);
  void forward(Kernels kernels) { forward(kernels, kernels); }
  void backward_input(Kernels kernels) { backward_input(kernels, kernels); }
  void backward_weight(Kernels kernels) { backward_weight(kernels, kernels); }
  /// A product of the forward pass, (m, k) by (k, n), with its two gradients: that of the second factor is work of backward_weight
  /// if the factor is a weight, of backward_input if it is a tensor, and none if it is frozen.
  void product(MatrixProduct forward, Factor second);
  /// A linear projection: every second one is kept by the selective policy. Counts it and tells.
  bool next_projection_is_kept() { return ++projections_ % 2 == 1; }

  [[nodiscard]] Tensor& at(TensorIndex tensor) { return type_.tensors[static_cast<std::size_t>(tensor)]; }
  [[nodiscard]] std::int64_t elements(TensorIndex tensor) { return at(tensor).elements.value(); }
  [[nodiscard]] std::int64_t size(TensorIndex tensor) { return bytes(at(tensor).elements, at(tensor).dtype).value(); }
  /// Its gradient is the same memory as that of what it is added to.
  void alias_gradient(TensorIndex tensor) { at(tensor).has_gradient = false; }
  /// LoRA's rank for a linear module of this name; 0: none.
  [[nodiscard]] std::int64_t adapter_rank(std::string_view module) const;
  [[nodiscard]] double adapter_dropout() const { return flow_.adaptation == nullptr ? 0 : flow_.adaptation->dropout; }
  /// What adapters compute in: their own dtype, unless autocast casts for them as for everybody.
  [[nodiscard]] DType adapter_dtype() const {
    const bool own = flow_.adaptation != nullptr && flow_.adaptation->dtype && !batch_.autocast();
    return own ? *flow_.adaptation->dtype : batch_.compute;
  }

  /// `output` is what the next layer reads; -1: nothing.
  [[nodiscard]] BuiltLayer finish(TensorIndex output) &&;

 private:
  struct Read {
    std::int32_t module;
    TensorIndex tensor;
  };
  void close();
  void accumulate_gradients();
  [[nodiscard]] bool trainable(std::int32_t parameter) const;

  BatchShape batch_;
  GradientFlow flow_;
  LayerType type_;
  std::vector<DeclaredParameter> parameters_;
  std::vector<bool> tensor_needs_gradient_;
  std::vector<Read> reads_;
  std::int32_t projections_ = 0;
  bool reads_gradient_ = false;
};

}  // namespace shardsim
