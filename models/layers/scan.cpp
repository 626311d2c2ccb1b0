// SPDX-License-Identifier: Apache-2.0
// Token mixers with a state: projections, a short causal convolution, a scan in chunks, a gated norm.
//
// The scan follows arXiv 2405.21060 (Mamba-2, section 6): within a chunk of Q tokens products of Q x Q, between chunks products with the
// state; with chunk 0 (Mamba 1, arXiv 2312.00752) one kernel that goes token by token and keeps its inputs.
#include <algorithm>
#include <utility>

#include "models/layers/layers.hpp"
#include "models/layers/ops.hpp"

namespace shardsim {
namespace {

std::string part(const ScanSpec& scan, std::string_view name) { return std::string(scan.name) + '.' + std::string(name); }

/// Depthwise, then SiLU: keeps its input and what SiLU reads.
TensorIndex convolve(LayerBuilder& b, const ScanSpec& scan, TensorIndex x) {
  if (scan.channels == 0) return x;
  const std::int64_t n = b.tokens() * scan.channels, c = size_of(b.batch().compute);
  b.begin(part(scan, "conv1d"));
  b.declare("weight", {scan.channels, 1, scan.kernel});
  if (scan.convolution_bias) b.declare("bias", {scan.channels});
  b.read(x);
  b.keep(x);
  b.forward({3, 6 * n * c}, {1, 2 * n * c});
  b.backward_input({3, 8 * n * c}, {1, 3 * n * c});
  b.backward_weight({1, 2 * n * c});
  const TensorIndex raw = b.make("convolved", n, b.batch().compute);
  b.at(raw).fused_away = true;
  b.alias_gradient(raw);
  b.keep(raw);
  return b.make("activated", n, b.batch().compute);
}

void scan_work(LayerBuilder& b, const ScanSpec& scan) {
  const std::int64_t tokens = b.tokens(), c = size_of(b.batch().compute),
                     moved = tokens * (2 * scan.width + 2 * scan.groups * scan.state) * c;
  if (scan.chunk == 0) {
    b.forward({1, moved});
    b.backward_input({2, 3 * moved});
    return;
  }
  const std::int64_t chunk = std::min(scan.chunk, b.batch().sequence), chunks = ceil_div(tokens, chunk);
  b.product({chunk, chunk, scan.state, chunks * scan.groups}, Factor::tensor);         // C B^T within a chunk
  b.product({chunk, scan.head_dim, chunk, chunks * scan.heads}, Factor::tensor);       // times the values
  b.product({scan.state, scan.head_dim, chunk, chunks * scan.heads}, Factor::tensor);  // the state that a chunk leaves
  b.product({chunk, scan.head_dim, scan.state, chunks * scan.heads}, Factor::tensor);  // what the state before gives
  b.forward({8, 2 * moved}, {4, moved});
  b.backward_input({12, 4 * moved}, {6, 2 * moved});
}

}  // namespace

TensorIndex scan(LayerBuilder& b, const BlockSpec& block, const ScanSpec& spec, TensorIndex x) {
  std::vector<TensorIndex> projected;
  for (const auto& p : spec.in) projected.push_back(linear(b, part(spec, p.name), x, {.in = block.hidden, .out = p.out, .bias = p.bias}));
  const TensorIndex stream = convolve(b, spec, projected.front());
  std::vector<TensorIndex> inner;
  for (const auto& p : spec.inner) {
    TensorIndex source = stream;
    if (b.elements(stream) != b.tokens() * p.in) {  // a slice of the projection before
      b.begin(part(spec, p.name) + ".slice");
      b.read(inner.empty() ? stream : inner.back());
      source = b.make("slice", b.tokens() * p.in, b.batch().compute);
    }
    inner.push_back(linear(b, part(spec, p.name), source, {.in = p.in, .out = p.out, .bias = p.bias}));
  }
  for (const auto& [name, size] : spec.inner_norms) norm(b, part(spec, name), stream, NormKind::rms, size, b.tokens() * size);

  b.begin(std::string(spec.name));
  for (const auto& [name, shape] : spec.parameters) b.declare(name, shape);
  b.read(stream);
  b.keep(stream);
  for (const TensorIndex t : inner) {
    b.read(t);
    b.keep(t);
  }
  for (const TensorIndex t : projected) {
    b.read(t);
    b.keep(t);
  }
  scan_work(b, spec);
  TensorIndex y = b.make("scanned", b.tokens() * spec.width, b.batch().compute);
  b.keep(y);
  if (!spec.norm.empty()) y = norm(b, part(spec, spec.norm), y, NormKind::rms, spec.norm_size);
  return linear(b, part(spec, spec.out.name), y, {.in = spec.width, .out = block.hidden, .bias = spec.out.bias});
}

}  // namespace shardsim
