// SPDX-License-Identifier: Apache-2.0
// From a layer description to a layer type at one batch shape. Private to models/.
#pragma once

#include "models/layers/layer_builder.hpp"

namespace shardsim {

/// Parameters, modules, work and tensors of one layer type.
[[nodiscard]] BuiltLayer build_layer(const LayerSpec& spec, const BatchShape& batch, const GradientFlow& flow);

// The parts of a block; each takes the branch's input and gives its output.
TensorIndex attention(LayerBuilder& b, const BlockSpec& block, TensorIndex x);
/// Queries from x, keys and values from the encoder's output (as many tokens as here).
TensorIndex cross_attention(LayerBuilder& b, const BlockSpec& block, TensorIndex x);
TensorIndex scan(LayerBuilder& b, const BlockSpec& block, const ScanSpec& spec, TensorIndex x);
TensorIndex feed_forward(LayerBuilder& b, const BlockSpec& block, const MlpSpec& mlp, TensorIndex x);
TensorIndex mixture_of_experts(LayerBuilder& b, const BlockSpec& block, const MoeSpec& moe, TensorIndex x);

// Whole layers. Each gives its output, or -1.
TensorIndex emit(LayerBuilder& b, const BlockSpec& block);
TensorIndex emit(LayerBuilder& b, const EmbeddingSpec& embedding);
TensorIndex emit(LayerBuilder& b, const PatchSpec& patches);
TensorIndex emit(LayerBuilder& b, const HeadSpec& head);
TensorIndex emit(LayerBuilder& b, const LossSpec& loss);
TensorIndex emit(LayerBuilder& b, const InlineSpec& layers);

// Beyond these a model that is read from a file is nonsense, and its tables would not fit in memory or in 64 bits.
inline constexpr std::int64_t max_tensors = 1 << 20;
inline constexpr double max_elements = 1e16;

/// Share of the s * s attention scores that a causal kernel with a window computes (0: no window).
[[nodiscard]] double attention_density(bool causal, std::int64_t window, std::int64_t sequence);

}  // namespace shardsim
