// SPDX-License-Identifier: Apache-2.0
#include "models/layers/ops.hpp"

#include <utility>

namespace shardsim {
namespace {

std::int64_t width(DType type) { return size_of(type); }

/// x in the dtype of the product (autocast), made and kept by the module itself.
TensorIndex cast_input(LayerBuilder& b, TensorIndex x, DType to) {
  const DType from = b.at(x).dtype;
  if (from == to) return x;
  const std::int64_t n = b.elements(x);
  b.forward({1, n * (width(from) + width(to))});
  b.backward_input({1, n * (width(from) + width(to))});
  const TensorIndex cast = b.make("input in compute dtype", n, to);
  b.at(cast).fused_away = false;
  return cast;
}

/// x.to(lora_A.weight.dtype): a copy for each adapter.
TensorIndex cast_for_adapter(LayerBuilder& b, const std::string& name, TensorIndex x, DType to) {
  if (b.at(x).dtype == to) return x;
  b.begin(name + ".lora_cast");
  b.read(x);
  return cast_input(b, x, to);
}

/// LoRA: y + scale * B(A(dropout(x))) beside the frozen module, in the adapters' dtype, then cast back (PEFT, lora/layer.py).
TensorIndex adapted(LayerBuilder& b, const std::string& name, TensorIndex x, TensorIndex y, const Linear& shape, std::int64_t rank) {
  const DType own = b.adapter_dtype();
  const TensorIndex cast = cast_for_adapter(b, name, x, own);
  const TensorIndex dropped = dropout(b, name + ".lora_dropout", cast, b.adapter_dropout());
  const TensorIndex low = linear(b, name + ".lora_A.default", dropped, {.in = shape.in, .out = rank, .dtype = own});
  const TensorIndex high = linear(b, name + ".lora_B.default", low, {.in = rank, .out = shape.out, .dtype = own});
  const std::int64_t n = b.elements(y), c = width(own);
  b.begin(name + ".lora_add");
  b.read(y);
  b.read(high);
  b.forward({2, 5 * n * c}, {1, 3 * n * c});
  b.backward_input({1, 2 * n * c});
  b.module().forward_temporary = Bytes{own == b.at(y).dtype ? n * c : 2 * n * c};  // scaled; and the sum before it is cast back
  b.alias_gradient(y);
  return b.make("adapted output", n, b.at(y).dtype);
}

}  // namespace

void cast_weight(LayerBuilder& b, std::int64_t elements) {
  if (!b.batch().autocast()) return;
  const std::int64_t moved = elements * (width(b.batch().parameters) + width(b.batch().compute));
  b.forward({1, moved});
  b.backward_weight({1, moved});
  const TensorIndex cast = b.make("weight in compute dtype", elements, b.batch().compute);
  b.at(cast).has_gradient = b.trains();
  b.keep(cast);
}

namespace {

/// A frozen quantised weight becomes one in the compute dtype for the product and for its gradient, and is thrown away each time.
void dequantise(LayerBuilder& b, std::int64_t elements) {
  const std::int64_t made = elements * width(b.batch().compute),
                     moved = made + static_cast<std::int64_t>(b.batch().stored_bytes * static_cast<double>(elements));
  b.forward({1, moved});
  b.backward_input({1, moved});
  b.module().forward_temporary += Bytes{made};
  b.module().backward_temporary += Bytes{made};
}

}  // namespace

/// Products in fp8 with scales for whole tensors: each operand is read for its largest value, then read and written as fp8. Where the
/// module's backward uses one again, it is cast again, in the other order of its elements. SOURCE: torchao/float8/float8_linear.py (dynamic
/// scaling); heads and adapters stay as they are, and so do shapes that are no multiples of 16.
void quantize(LayerBuilder& b, std::int64_t rows, const Linear& shape) {
  const std::int64_t in = rows * shape.in, out = rows * shape.out, weight = shape.in * shape.out, c = width(b.batch().compute);
  const std::int64_t each = 2 * c + 1;  // bytes an element: read, read and write
  Module& m = b.module();
  m.forward.dtype = m.backward_input.dtype = m.backward_weight.dtype = DType::fp8;
  b.forward({6, (in + weight) * each}, {4, (in + weight) * each});
  b.backward_input({6, (out + weight) * each}, {4, (out + weight) * each});
  b.backward_weight({4, (in + out) * each}, {2, (in + out) * (c + 1)});
}

TensorIndex linear(LayerBuilder& b, std::string name, TensorIndex x, const Linear& shape) {
  const std::int64_t rows = b.elements(x) / shape.in;
  const DType dtype = shape.dtype.value_or(b.batch().compute);
  const std::int64_t c = width(dtype);
  const bool low_rank = name.ends_with(".lora_A.default") || name.ends_with(".lora_B.default");
  const std::int64_t rank = low_rank ? 0 : b.adapter_rank(name);
  b.begin(name);
  b.declare("weight", shape.transposed ? std::vector{shape.in, shape.out} : std::vector{shape.out, shape.in}, shape.tied_to);
  if (shape.bias) b.declare("bias", {shape.out});
  b.read(x);
  const TensorIndex input = cast_input(b, x, dtype);
  if (b.trains()) b.keep(input);
  cast_weight(b, shape.in * shape.out);
  if (b.batch().stored_bytes > 0 && b.is_block() && !low_rank && !b.weights_train()) dequantise(b, shape.in * shape.out);
  b.product({rows, shape.out, shape.in, 1}, Factor::weight);
  if (b.batch().fp8_products && b.is_block() && !low_rank && rows % 16 == 0 && shape.in % 16 == 0 && shape.out % 16 == 0)
    quantize(b, rows, shape);
  if (shape.bias) b.backward_weight({1, rows * shape.out * c});
  const TensorIndex y = b.make("output", rows * shape.out, dtype);
  if (!low_rank && b.next_projection_is_kept()) {
    b.module().kept_by_selective = true;
    b.at(y).kept_by_selective = true;
  }
  return rank > 0 ? adapted(b, name, x, y, shape, rank) : y;
}

TensorIndex conv2d(LayerBuilder& b, std::string name, TensorIndex x, const Conv2d& shape) {
  const std::int64_t pixels = shape.output_height * shape.output_width;
  const std::int64_t rows = b.tokens() * pixels;
  const std::int64_t patch = shape.in / shape.groups * shape.kernel_height * shape.kernel_width;
  b.begin(std::move(name));
  b.declare("weight", {shape.out, shape.in / shape.groups, shape.kernel_height, shape.kernel_width});
  if (shape.bias) b.declare("bias", {shape.out});
  b.read(x);
  const TensorIndex input = cast_input(b, x, b.batch().compute);
  if (b.trains()) b.keep(input);
  cast_weight(b, shape.out * patch);
  b.product({rows, shape.out / shape.groups, patch, shape.groups}, Factor::weight);
  if (shape.bias) b.backward_weight({1, rows * shape.out * width(b.batch().compute)});
  return b.make("output", rows * shape.out, b.batch().compute);
}

namespace {

/// torch.nn.LayerNorm: one kernel that keeps x, the mean and 1/std of each row.
TensorIndex layer_norm(LayerBuilder& b, TensorIndex x, std::int64_t size, std::int64_t n) {
  const DType dtype = b.at(x).dtype;
  const std::int64_t c = width(dtype);
  b.keep(x);
  const TensorIndex statistics = b.make("mean and 1/std", 2 * (n / size), DType::fp32);
  b.alias_gradient(statistics);
  b.keep(statistics);
  b.forward({1, 2 * n * c});
  b.backward_input({1, 3 * n * c});
  if (b.trains()) b.backward_weight({2, 2 * n * c});
  return b.make("norm output", n, dtype);
}

/// As transformers writes it: x in fp32 (kept), x^2, mean, 1/sqrt, product, cast back (kept if the weight trains), times the weight.
/// Fused, or compiled, it is one kernel that keeps x itself.
TensorIndex rms_norm(LayerBuilder& b, TensorIndex x, NormKind kind, std::int64_t size, std::int64_t n) {
  const DType dtype = b.at(x).dtype;
  const std::int64_t c = width(dtype);
  const bool upcast = dtype != DType::fp32, fused = b.batch().fuses_norms();
  if (upcast && !fused) {
    const TensorIndex wide = b.make("input in fp32", n, DType::fp32);
    b.at(wide).fused_away = true;
    b.alias_gradient(wide);
    b.keep(wide);
  } else {
    b.keep(x);
  }
  const TensorIndex statistics = b.make("1/rms", n / size, DType::fp32);
  b.alias_gradient(statistics);
  b.keep(statistics);
  if (b.trains() && !fused) {
    const TensorIndex normalised = b.make("normalised", n, kind == NormKind::rms_fp32_weight ? DType::fp32 : dtype);
    b.at(normalised).fused_away = true;
    b.alias_gradient(normalised);
    b.keep(normalised);
  }
  // Eager, bytes an element: cast 2+4, square 4+4, mean 4, scale 4+4, cast 4+2, weight 2+2 (for a bf16 x).
  b.forward(fused ? Kernels{1, 2 * n * c} : Kernels{8, n * (20 + 4 + (upcast ? 3 * c + 4 : 0) + 2 * c)});
  b.backward_input(fused ? Kernels{1, 3 * n * c} : Kernels{14, n * (60 + 5 * c)});
  if (b.trains()) b.backward_weight(fused ? Kernels{1, 2 * n * c} : Kernels{2, 4 * n * c});
  if (!fused) {
    b.module().forward_temporary = Bytes{8 * n};
    b.module().backward_temporary = Bytes{12 * n};
  }
  return b.make("norm output", n, dtype);
}

/// OLMo: LayerNorm without parameters on an fp32 copy of x.
TensorIndex plain_layer_norm(LayerBuilder& b, TensorIndex x, std::int64_t size, std::int64_t n) {
  const DType dtype = b.at(x).dtype;
  const std::int64_t c = width(dtype);
  TensorIndex wide = x;
  if (dtype != DType::fp32 && !b.batch().compile) {
    wide = b.make("input in fp32", n, DType::fp32);
    b.at(wide).fused_away = true;
    b.alias_gradient(wide);
    b.module().forward_temporary = Bytes{4 * n};
    b.module().backward_temporary = Bytes{8 * n};
  }
  b.keep(wide);
  const TensorIndex statistics = b.make("mean and 1/std", 2 * (n / size), DType::fp32);
  b.alias_gradient(statistics);
  b.keep(statistics);
  b.forward({3, n * (16 + 2 * c)}, {1, 2 * n * c});
  b.backward_input({3, n * (20 + 2 * c)}, {1, 3 * n * c});
  return b.make("norm output", n, dtype);
}

}  // namespace

TensorIndex norm(LayerBuilder& b, std::string name, TensorIndex x, NormKind kind, std::int64_t size, std::int64_t count) {
  const std::int64_t n = count > 0 ? count : b.elements(x);
  b.begin(std::move(name));
  if (kind != NormKind::layer_plain) b.declare("weight", {size});
  if (kind == NormKind::layer) b.declare("bias", {size});
  b.read(x);
  switch (kind) {
    case NormKind::none:
      return x;
    case NormKind::layer:
    case NormKind::layer_without_bias:
      return layer_norm(b, x, size, n);
    case NormKind::layer_plain:
      return plain_layer_norm(b, x, size, n);
    case NormKind::rms:
    case NormKind::rms_fp32_weight:
      return rms_norm(b, x, kind, size, n);
  }
  return x;
}

TensorIndex lookup(LayerBuilder& b, std::string name, std::int64_t rows, std::int64_t table_width, std::string_view tied_to) {
  const std::int64_t n = b.tokens() * table_width;
  const DType dtype = b.batch().stream();
  const std::int64_t c = width(dtype);
  b.begin(std::move(name));
  b.declare("weight", {rows, table_width}, tied_to);
  b.forward({1, 2 * n * c});
  b.backward_weight({4, rows * table_width * c + 3 * n * c});  // fill, sort the tokens, scatter
  return b.make("embeddings", n, dtype);
}

TensorIndex activation(LayerBuilder& b, std::string name, TensorIndex x, Activation kind) {
  const DType dtype = b.at(x).dtype;
  const std::int64_t n = b.elements(x), c = width(dtype);
  const bool chain = kind == Activation::gelu_composite && !b.batch().fuses_activation();
  const bool keeps_output = kind == Activation::relu || kind == Activation::tanh;
  b.begin(std::move(name));
  b.read(x);
  if (!keeps_output) b.keep(x);
  if (chain) {
    // 0.5 x (1 + tanh(c (x + 0.044715 x^3))): besides x, products keep 0.5 x and 1 + tanh, and tanh keeps its result.
    const TensorIndex kept = b.make("0.5 x, tanh, 1 + tanh", 3 * n, dtype);
    b.at(kept).fused_away = true;
    b.alias_gradient(kept);
    b.keep(kept);
    b.module().forward_temporary = Bytes{n * c};
    b.module().backward_temporary = Bytes{2 * n * c};
  }
  b.forward(chain ? Kernels{8, 18 * n * c} : Kernels{1, 2 * n * c});
  b.backward_input(chain ? Kernels{12, 30 * n * c} : Kernels{1, 3 * n * c});
  const TensorIndex y = b.make("activation", n, dtype);
  if (keeps_output) b.keep(y);
  return y;
}

TensorIndex multiply(LayerBuilder& b, std::string name, TensorIndex x, TensorIndex y) {
  const DType dtype = b.at(x).dtype;
  const std::int64_t n = b.elements(x), c = width(dtype);
  b.begin(std::move(name));
  b.read(x);
  b.read(y);
  b.keep(x);
  b.keep(y);
  b.forward({1, 3 * n * c});
  b.backward_input({2, 6 * n * c});
  return b.make("product", n, dtype);
}

TensorIndex add(LayerBuilder& b, std::string name, TensorIndex residual, TensorIndex branch) {
  const DType dtype = b.at(residual).dtype;
  const std::int64_t n = b.elements(residual), c = width(dtype);
  b.begin(std::move(name));
  b.read(residual);
  b.read(branch);
  b.forward({1, 3 * n * c});
  // Compiled, the selective policy keeps only what backward reads; eager it keeps a projection's output even if only a sum reads it.
  if (b.batch().compile) b.at(branch).kept_by_selective = false;
  if (b.at(branch).dtype == dtype) {
    b.alias_gradient(branch);
  } else {
    b.backward_input({1, n * (c + width(b.at(branch).dtype))});
  }
  return b.make("sum", n, dtype);
}

TensorIndex dropout(LayerBuilder& b, std::string name, TensorIndex x) { return dropout(b, std::move(name), x, b.batch().dropout); }

TensorIndex dropout(LayerBuilder& b, std::string name, TensorIndex x, double probability) {
  if (probability <= 0) return x;
  const DType dtype = b.at(x).dtype;
  const std::int64_t n = b.elements(x), c = width(dtype);
  b.begin(std::move(name));
  b.read(x);
  b.forward({1, n * (2 * c + 1)});
  b.backward_input({1, n * (2 * c + 1)});
  const TensorIndex mask = b.make("dropout mask", n, DType::int8);
  b.alias_gradient(mask);
  b.keep(mask);
  return b.make("dropped", n, dtype);
}

}  // namespace shardsim
