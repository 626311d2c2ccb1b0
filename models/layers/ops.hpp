// SPDX-License-Identifier: Apache-2.0
// The operations that layers are made of, each one module: its parameters, work, and the tensors that autograd keeps. Private to models/.
//
// Costs count reads and writes of memory-bound kernels. What is kept follows PyTorch's derivatives (tools/autograd/derivatives.yaml) and
// the modeling files of transformers 4.5x. Frozen weights keep no input, and what needs no gradient keeps nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/layers/layer_builder.hpp"

namespace shardsim {

struct Linear {
  std::int64_t in = 0, out = 0;
  bool bias = false;
  bool transposed = false;  ///< weight (in, out)
  std::string_view tied_to = "";
  std::optional<DType> dtype = {};  ///< of the product; empty: the batch's
};

/// y = x W^T + b over rows of `in`. Keeps x if the weight trains; under autocast casts x (one copy a reader) and the weight, and keeps
/// the casts. Followed by its LoRA adapters if it has any.
TensorIndex linear(LayerBuilder& b, std::string name, TensorIndex x, const Linear& shape);

/// Autocast: a weight of the module in the compute dtype lives until backward used it; its gradient is cast back.
void cast_weight(LayerBuilder& b, std::int64_t elements);

struct Conv2d {
  std::int64_t in = 0, out = 0, kernel_height = 1, kernel_width = 1, groups = 1, output_height = 1, output_width = 1;
  bool bias = false;
};
/// A convolution as the product it lowers to: (batch * output pixels, in * kernel) by (in * kernel, out).
TensorIndex conv2d(LayerBuilder& b, std::string name, TensorIndex x, const Conv2d& shape);

/// A norm over the last `size` elements of `count` elements of x (all of x if 0).
TensorIndex norm(LayerBuilder& b, std::string name, TensorIndex x, NormKind kind, std::int64_t size, std::int64_t count = 0);

/// Rows of a table, one a token. The gradient is a full table, zeroed and scattered into.
TensorIndex lookup(LayerBuilder& b, std::string name, std::int64_t rows, std::int64_t width, std::string_view tied_to = "");

TensorIndex activation(LayerBuilder& b, std::string name, TensorIndex x, Activation kind);
TensorIndex multiply(LayerBuilder& b, std::string name, TensorIndex x, TensorIndex y);
/// residual + branch; the gradient of both is the gradient of the sum, in place where the dtypes agree.
TensorIndex add(LayerBuilder& b, std::string name, TensorIndex residual, TensorIndex branch);
/// Nothing without dropout; else keeps a mask of one byte an element.
TensorIndex dropout(LayerBuilder& b, std::string name, TensorIndex x);
/// The same with a probability of its own (LoRA's).
TensorIndex dropout(LayerBuilder& b, std::string name, TensorIndex x, double probability);

}  // namespace shardsim
