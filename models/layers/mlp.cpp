// SPDX-License-Identifier: Apache-2.0
// The feed-forward part of a block: plain, gated, or a mixture of experts.
#include <array>
#include <utility>

#include "models/layers/layers.hpp"
#include "models/layers/ops.hpp"

namespace shardsim {
namespace {

std::string under(std::string_view prefix, std::string_view name) { return std::string(prefix) + '.' + std::string(name); }

struct GatedNames {
  std::string gate, act, up, multiply, down;
};

/// One kernel for act(gate) * up, which keeps both: Megatron's and Liger's SwiGLU.
TensorIndex activated_product(LayerBuilder& b, const std::string& name, TensorIndex gate, TensorIndex up) {
  const DType dtype = b.at(gate).dtype;
  const std::int64_t n = b.elements(up), c = size_of(dtype);
  b.begin(name);
  for (const TensorIndex t : {gate, up}) {
    b.read(t);
    b.keep(t);
  }
  b.forward({1, 3 * n * c});
  b.backward_input({1, 5 * n * c});
  return b.make("product", n, dtype);
}

/// down(act(gate(x)) * up(x)): autograd keeps x, gate(x), act, up(x) and the product.
TensorIndex gated(LayerBuilder& b, const GatedNames& names, TensorIndex x, std::int64_t in, const MlpSpec& mlp) {
  const TensorIndex gate = linear(b, names.gate, x, {.in = in, .out = mlp.width, .bias = mlp.bias});
  if (b.batch().fused.activation) {
    const TensorIndex up = linear(b, names.up, x, {.in = in, .out = mlp.width, .bias = mlp.bias});
    return linear(b, names.down, activated_product(b, names.multiply, gate, up), {.in = mlp.width, .out = in, .bias = mlp.bias});
  }
  const TensorIndex act = activation(b, names.act, gate, mlp.activation);
  b.at(act).fused_away = true;
  const TensorIndex up = linear(b, names.up, x, {.in = in, .out = mlp.width, .bias = mlp.bias});
  const TensorIndex product = multiply(b, names.multiply, act, up);
  return linear(b, names.down, product, {.in = mlp.width, .out = in, .bias = mlp.bias});
}

/// Phi-3: gate and up in one product; its halves are views.
TensorIndex fused_gated(LayerBuilder& b, const BlockNames& names, TensorIndex x, std::int64_t in, const MlpSpec& mlp) {
  const TensorIndex both = linear(b, std::string(names.gate_up), x, {.in = in, .out = 2 * mlp.width, .bias = mlp.bias});
  const std::int64_t n = b.tokens() * mlp.width, c = size_of(b.batch().compute);
  b.begin(under(names.mlp, "act_fn"));
  b.read(both);
  b.keep(both);
  b.forward({1, 2 * n * c}, {});
  b.backward_input({1, 3 * n * c}, {});
  const TensorIndex act = b.make("activation", n, b.batch().compute);
  b.at(act).fused_away = true;
  const TensorIndex product = [&] {
    b.begin(under(names.mlp, "multiply"));
    b.read(both);
    b.read(act);
    b.keep(both);
    b.keep(act);
    b.forward({1, 3 * n * c});
    b.backward_input({2, 6 * n * c}, {1, 5 * n * c});
    return b.make("product", n, b.batch().compute);
  }();
  return linear(b, std::string(names.down), product, {.in = mlp.width, .out = in, .bias = mlp.bias});
}

}  // namespace

TensorIndex feed_forward(LayerBuilder& b, const BlockSpec& block, const MlpSpec& mlp, TensorIndex x) {
  const BlockNames& names = block.names;
  if (mlp.gated && mlp.fused_gate_up) return fused_gated(b, names, x, block.hidden, mlp);
  if (mlp.gated) {
    const GatedNames of{std::string(names.gate), under(names.mlp, "act_fn"), std::string(names.up), under(names.mlp, "multiply"),
                        std::string(names.down)};
    return gated(b, of, x, block.hidden, mlp);
  }
  const TensorIndex up =
      linear(b, std::string(names.up), x, {.in = block.hidden, .out = mlp.width, .bias = mlp.bias, .transposed = mlp.transposed});
  const TensorIndex act = activation(b, under(names.mlp, "act"), up, mlp.activation);
  return linear(b, std::string(names.down), act, {.in = mlp.width, .out = block.hidden, .bias = mlp.bias, .transposed = mlp.transposed});
}

namespace {

/// One product of all experts on `rows` dispatched tokens, spread evenly: r + 1 tokens for the first experts, r for the others.
void expert_products(LayerBuilder& b, std::int64_t rows, std::int64_t experts, std::int64_t out, std::int64_t in, Factor factor) {
  const std::int64_t each = rows / experts, more = rows % experts;
  if (more > 0) b.product({each + 1, out, in, more}, factor);
  if (each > 0) b.product({each, out, in, experts - more}, factor);
}

/// The three matrices of one expert, in registration order.
struct ExpertMatrix {
  std::string_view name;
  std::int64_t out, in;
};
std::array<ExpertMatrix, 3> expert_matrices(const BlockNames& names, const MoeSpec& moe, std::int64_t hidden) {
  const ExpertMatrix gate{names.expert_gate, moe.width, hidden}, up{names.expert_up, moe.width, hidden},
      down{names.expert_down, hidden, moe.width};
  if (moe.down_before_up) return {gate, down, up};
  return {gate, up, down};
}

void declare_experts(LayerBuilder& b, const BlockSpec& block, const MoeSpec& moe) {
  const auto matrices = expert_matrices(block.names, moe, block.hidden);
  for (std::int64_t e = 0; e < moe.experts; ++e) {
    const std::string prefix = under(block.names.experts, std::to_string(e)) + '.';
    for (const ExpertMatrix& m : matrices) {
      const auto declare = [&](std::string_view suffix, std::int64_t out, std::int64_t in) {
        std::string name = prefix;
        name.append(m.name).append(suffix);
        b.declare({.name = std::move(name), .shape = {out, in}, .routed_expert = true, .by_rule = false, .tied_to = {}});
      };
      declare(".weight", m.out, m.in);
      if (moe.bias)
        b.declare(
            {.name = prefix + std::string(m.name) + ".bias", .shape = {m.out}, .routed_expert = true, .by_rule = false, .tied_to = {}});
      const std::int64_t rank = b.adapter_rank(m.name);
      if (rank == 0) continue;
      declare(".lora_A.default.weight", rank, m.in);
      declare(".lora_B.default.weight", m.out, rank);
    }
  }
}

/// Adapters of the experts run as grouped products, too; each keeps its low-rank result.
void adapt_experts(LayerBuilder& b, const BlockSpec& block, const MoeSpec& moe) {
  const std::int64_t rows = b.tokens() * moe.top_k, c = size_of(b.batch().compute);
  for (const ExpertMatrix& m : expert_matrices(block.names, moe, block.hidden)) {
    const std::int64_t rank = b.adapter_rank(m.name);
    if (rank == 0) continue;
    expert_products(b, rows, moe.experts, rank, m.in, Factor::weight);
    expert_products(b, rows, moe.experts, m.out, rank, Factor::weight);
    b.forward({2, 5 * rows * m.out * c}, {1, 3 * rows * m.out * c});
    b.keep(b.make("low-rank result", rows * rank, b.batch().compute));
  }
}

/// The experts of one layer on top_k copies of each token, as grouped products (one launch for all experts). Keeps the dispatched tokens,
/// gate, activation, up and product, as the plain gated branch does.
TensorIndex experts(LayerBuilder& b, const BlockSpec& block, const MoeSpec& moe, TensorIndex dispatched) {
  const std::int64_t rows = b.tokens() * moe.top_k, wide = rows * moe.width, c = size_of(b.batch().compute);
  const DType dtype = b.batch().compute;
  b.begin(std::string(block.names.experts));
  b.module().routed_experts = true;
  declare_experts(b, block, moe);
  b.read(dispatched);
  if (b.trains()) b.keep(dispatched);
  cast_weight(b, 3 * moe.experts * moe.width * block.hidden);
  const Factor weight = b.weights_train() ? Factor::weight : Factor::frozen_weight;
  expert_products(b, rows, moe.experts, moe.width, block.hidden, weight);
  expert_products(b, rows, moe.experts, moe.width, block.hidden, weight);
  expert_products(b, rows, moe.experts, block.hidden, moe.width, weight);
  adapt_experts(b, block, moe);
  b.forward({2, 5 * wide * c}, {1, 3 * wide * c});
  b.backward_input({3, 9 * wide * c}, {1, 5 * wide * c});
  for (const char* name : {"gate", "activation", "up", "product"}) {
    const TensorIndex inner = b.make(name, wide, dtype);
    b.keep(inner);
    b.at(inner).fused_away = name == std::string_view("activation");
  }
  return b.make("expert output", rows * block.hidden, dtype);
}

TensorIndex route(LayerBuilder& b, const BlockSpec& block, const MoeSpec& moe, TensorIndex x) {
  const std::int64_t rows = b.tokens() * moe.top_k, n = rows * block.hidden, c = size_of(b.batch().compute);
  const std::int64_t scores = b.tokens() * moe.experts;
  const TensorIndex logits = linear(b, std::string(block.names.router), x, {.in = block.hidden, .out = moe.experts, .bias = moe.bias});
  if (moe.correction_bias)
    b.declare({.name = under(block.names.router, "e_score_correction_bias"),
               .shape = {moe.experts},
               .routed_expert = false,
               .by_rule = true,
               .tied_to = {}});
  b.begin(under(block.names.router, "top_k"));
  b.read(logits);
  b.forward({6, scores * 16});
  b.backward_input({6, scores * 16});
  const TensorIndex probabilities = b.make("router probabilities", scores, DType::fp32);
  b.keep(probabilities);
  const TensorIndex chosen = b.make("chosen experts", rows, DType::int64);
  b.alias_gradient(chosen);
  b.keep(chosen);

  b.begin(under(block.names.mlp, "dispatch"));
  b.read(x);
  b.read(probabilities);
  b.forward({3, 2 * n * c});
  b.backward_input({2, 2 * n * c});
  const TensorIndex dispatched = b.make("dispatched tokens", n, b.batch().compute);
  const TensorIndex output = experts(b, block, moe, dispatched);

  b.begin(under(block.names.mlp, "combine"));  // weights times outputs, added back to their tokens
  b.read(output);
  b.keep(output);
  b.forward({3, 5 * n * c});
  b.backward_input({3, 5 * n * c});
  b.module().forward_temporary = Bytes{n * c};
  return b.make("combined output", b.tokens() * block.hidden, b.batch().compute);
}

}  // namespace

TensorIndex mixture_of_experts(LayerBuilder& b, const BlockSpec& block, const MoeSpec& moe, TensorIndex x) {
  const TensorIndex routed = route(b, block, moe, x);
  if (moe.shared_width == 0) return routed;
  const std::string shared(block.names.shared);
  const MlpSpec mlp{.width = moe.shared_width, .activation = moe.activation};
  const GatedNames of{under(shared, block.names.expert_gate), shared + ".act_fn", under(shared, block.names.expert_up),
                      shared + ".multiply", under(shared, block.names.expert_down)};
  TensorIndex output = gated(b, of, x, block.hidden, mlp);
  if (moe.shared_gate) {
    const TensorIndex gate = linear(b, std::string(block.names.shared_gate), x, {.in = block.hidden, .out = 1});
    const std::int64_t n = b.elements(output), c = size_of(b.batch().compute);
    b.begin(shared + ".scale");
    b.read(output);
    b.read(gate);
    b.keep(output);
    b.keep(gate);
    b.forward({2, 2 * n * c});
    b.backward_input({4, 5 * n * c});
    output = b.make("scaled shared output", n, b.batch().compute);
  }
  return add(b, under(block.names.mlp, "add_shared"), routed, output);
}

}  // namespace shardsim
