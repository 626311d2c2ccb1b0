// SPDX-License-Identifier: Apache-2.0
// Whole layers: blocks, embeddings, heads and losses.
#include "models/layers/layers.hpp"

#include <utility>

#include "models/layers/ops.hpp"

namespace shardsim {
namespace {

TensorIndex block_norm(LayerBuilder& b, const BlockSpec& block, std::string_view name, TensorIndex x) {
  return name.empty() || block.norm == NormKind::none ? x : norm(b, std::string(name), x, block.norm, block.hidden);
}

TensorIndex block_mlp(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  if (const auto* moe = std::get_if<MoeSpec>(&block.mlp)) return mixture_of_experts(b, block, *moe, x);
  return feed_forward(b, block, std::get<MlpSpec>(block.mlp), x);
}

TensorIndex parallel(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  const TensorIndex first = block_norm(b, block, block.names.attention_norm, x);
  const TensorIndex second = block.one_norm ? first : block_norm(b, block, block.names.mlp_norm, x);
  const TensorIndex a = dropout(b, "attention_dropout", attention(b, block, first));
  const TensorIndex m = dropout(b, "mlp_dropout", block_mlp(b, block, second));
  const TensorIndex both = add(b, "add_branches", a, m);
  b.alias_gradient(a);
  return add(b, "add_residual", x, both);
}

/// norm(x + f(x)): the stream itself passes through the norms.
TensorIndex post_norm(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  x = add(b, "add_attention", x, dropout(b, "attention_dropout", attention(b, block, x)));
  x = block_norm(b, block, block.names.attention_norm, x);
  const TensorIndex m = dropout(b, "mlp_dropout", block_mlp(b, block, x));
  return block_norm(b, block, block.names.mlp_norm, add(b, "add_mlp", x, m));
}

/// x + after(f(before(x))), for attention and for the feed-forward part.
TensorIndex sequential(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  const BlockNames& names = block.names;
  const bool before = block.residual != Residual::branch;
  TensorIndex branch = attention(b, block, before ? block_norm(b, block, names.attention_norm, x) : x);
  branch = dropout(b, "attention_dropout", block_norm(b, block, names.after_attention_norm, branch));
  x = add(b, "add_attention", x, branch);
  branch = block_mlp(b, block, before ? block_norm(b, block, names.mlp_norm, x) : x);
  branch = dropout(b, "mlp_dropout", block_norm(b, block, names.after_mlp_norm, branch));
  return add(b, "add_mlp", x, branch);
}

}  // namespace

TensorIndex emit(LayerBuilder& b, const BlockSpec& block) {
  const TensorIndex x = b.input("block input", b.tokens() * block.hidden, b.batch().stream());
  switch (block.residual) {
    case Residual::parallel:
      return parallel(b, block, x);
    case Residual::post:
      return post_norm(b, block, x);
    case Residual::pre:
    case Residual::sandwich:
    case Residual::branch:
      return sequential(b, block, x);
  }
  return x;
}

TensorIndex emit(LayerBuilder& b, const EmbeddingSpec& e) {
  const std::int64_t table_width = e.width > 0 ? e.width : e.hidden;
  TensorIndex x = lookup(b, std::string(e.tokens), e.vocabulary, table_width);
  if (!e.project_in.empty()) x = linear(b, std::string(e.project_in), x, {.in = e.width, .out = e.hidden});
  if (e.scaled) {
    const std::int64_t n = b.elements(x), c = size_of(b.at(x).dtype);
    b.begin("scale_embeddings");
    b.read(x);
    b.forward({1, 2 * n * c});
    b.backward_input({1, 2 * n * c});
    x = b.make("scaled embeddings", n, b.at(x).dtype);
  }
  if (e.types > 0) x = add(b, "add_types", x, lookup(b, std::string(e.type_table), e.types, e.hidden));
  if (e.positions > 0) x = add(b, "add_positions", x, lookup(b, std::string(e.position_table), e.positions, e.hidden));
  if (e.norm != NormKind::none) x = norm(b, std::string(e.norm_name), x, e.norm, e.hidden);
  return e.dropout ? dropout(b, "embedding_dropout", x) : x;
}

TensorIndex emit(LayerBuilder& b, const PatchSpec& p) {
  const std::int64_t images = b.batch().batch, patches = p.patches(), rows = images * patches;
  const std::string prefix(p.prefix);
  const std::int64_t pixels = p.channels * p.patch * p.patch, c = size_of(b.batch().compute);
  b.begin(prefix);
  b.declare("cls_token", {1, 1, p.hidden});
  b.declare("position_embeddings", {1, patches + 1, p.hidden});
  b.begin(prefix + ".patch_embeddings.projection");
  b.declare("weight", {p.hidden, p.channels, p.patch, p.patch});
  b.declare("bias", {p.hidden});
  const TensorIndex image = b.make("pixels in compute dtype", rows * pixels, b.batch().compute);
  b.alias_gradient(image);
  if (b.trains()) b.keep(image);
  b.product({rows, p.hidden, pixels, 1}, Factor::weight);
  b.backward_weight({1, rows * p.hidden * c});
  const TensorIndex embedded = b.make("patch embeddings", rows * p.hidden, b.batch().stream());
  const std::int64_t n = images * (patches + 1) * p.hidden;
  b.begin(prefix + ".add");  // class token in front, positions added
  b.read(embedded);
  b.forward({2, 4 * n * c});
  b.backward_input({2, 3 * n * c});
  b.module().forward_temporary = Bytes{n * c};
  return dropout(b, prefix + ".dropout", b.make("tokens", n, b.batch().stream()));
}

namespace {

/// cap * tanh(logits / cap): tanh keeps its output, the two products keep nothing.
TensorIndex softcap(LayerBuilder& b, TensorIndex logits) {
  const DType dtype = b.at(logits).dtype;
  const std::int64_t n = b.elements(logits), c = size_of(dtype);
  b.at(logits).logits = true;
  b.begin("softcap");
  b.read(logits);
  b.forward({3, 6 * n * c}, {1, 2 * n * c});
  b.backward_input({3, 7 * n * c}, {1, 3 * n * c});
  if (b.batch().compile) {
    b.keep(logits);
  } else {
    const TensorIndex tanh = b.make("tanh", n, dtype);
    b.at(tanh).logits = true;
    b.alias_gradient(tanh);
    b.keep(tanh);
    b.module().forward_temporary = b.module().backward_temporary = Bytes{n * c};
  }
  return b.make("capped logits", n, dtype);
}

}  // namespace

TensorIndex emit(LayerBuilder& b, const HeadSpec& h) {
  TensorIndex x = b.input("head input", b.tokens() * h.hidden, b.batch().stream());
  if (h.norm != NormKind::none) x = norm(b, std::string(h.norm_name), x, h.norm, h.hidden);
  if (!h.project_out.empty()) x = linear(b, std::string(h.project_out), x, {.in = h.hidden, .out = h.width});
  const std::int64_t in = h.width > 0 ? h.width : h.hidden;
  if (h.over == HeadSpec::Over::first_token) {
    const std::int64_t n = b.batch().batch * in, c = size_of(b.at(x).dtype);
    b.begin("first_token");
    b.read(x);
    b.forward({1, 2 * n * c});
    b.backward_input({2, b.elements(x) * c});
    x = b.make("first token", n, b.at(x).dtype);
  }
  x = linear(b, std::string(h.name), x, {.in = in, .out = h.outputs, .bias = h.bias, .tied_to = h.tied_to});
  if (h.tanh) return activation(b, "pooler.activation", x, Activation::tanh);
  if (h.softcap) x = softcap(b, x);
  b.at(x).logits = true;
  return x;
}

namespace {

void mark(LayerBuilder& b, TensorIndex t) {
  b.at(t).logits = true;
  b.at(t).fused_away = false;
}

/// No fp32 copy: one kernel reads the logits, keeps them, and writes their gradient in their own dtype.
void fused_loss(LayerBuilder& b, TensorIndex logits, std::int64_t n) {
  const std::int64_t c = size_of(b.at(logits).dtype);
  b.begin("loss.cross_entropy");
  b.read(logits);
  b.keep(logits);
  b.forward({2, 2 * n * c});
  b.backward_input({1, 2 * n * c});
}

/// logits.float(), log_softmax (keeps its result), nll_loss. The caller keeps the 16-bit logits in the model's output until backward is
/// through; `chunked` upcasts chunk by chunk, so that only the 16-bit logits are ever whole (torchtitan's chunked cross-entropy).
/// `compile: true` compiles the model, not the loss, as torchtitan does; `loss: fused` is for that. Backward makes a gradient of the
/// log-probabilities, of the fp32 and of the 16-bit logits.
void cross_entropy(LayerBuilder& b, TensorIndex logits, std::int64_t n, std::int64_t held) {
  const DType dtype = b.at(logits).dtype;
  const std::int64_t c = size_of(dtype);
  TensorIndex wide = logits;
  if (dtype != DType::fp32) {
    b.begin("loss.upcast");
    b.read(logits);
    b.keep(logits);
    b.forward({1, n * (c + 4)});
    b.backward_input({1, n * (c + 4)});
    wide = b.make("logits in fp32", held, DType::fp32);
    mark(b, wide);
  }
  b.begin("loss.log_softmax");
  b.read(wide);
  if (wide == logits) b.keep(logits);
  b.forward({1, 8 * n});
  b.backward_input({1, 12 * n});
  const TensorIndex logarithms = b.make("log-probabilities", held, DType::fp32);
  mark(b, logarithms);
  b.keep(logarithms);
  b.begin("loss.nll_loss");
  b.read(logarithms);
  b.forward({1, b.tokens() * 4});
  b.backward_input({2, 4 * n});
}

}  // namespace

TensorIndex emit(LayerBuilder& b, const LossSpec& l) {
  const std::int64_t rows = l.over_tokens ? b.tokens() : b.batch().batch;
  const bool chunked = b.batch().loss.kind == Loss::Kind::chunked && l.over_tokens;
  const std::int64_t chunks = chunked ? b.batch().loss.chunks : 1;
  const std::int64_t n = rows * l.width, held = ceil_div(rows, chunks) * l.width;
  const TensorIndex input = b.input(l.classes ? "logits" : "features", n, b.batch().compute);
  b.at(input).logits = l.classes;
  if (!l.classes) {
    b.begin("loss");
    b.read(input);
    b.keep(input);
    b.forward({1, n * size_of(b.batch().compute)});
    b.backward_input({1, 2 * n * size_of(b.batch().compute)});
  } else if (b.batch().loss.kind == Loss::Kind::fused) {
    fused_loss(b, input, n);
  } else {
    cross_entropy(b, input, n, held);
  }
  return -1;
}

BuiltLayer build_layer(const LayerSpec& spec, const BatchShape& batch, const GradientFlow& flow) {
  LayerBuilder builder(spec.name, spec.block, batch, flow);
  const TensorIndex output = std::visit([&](const auto& what) { return emit(builder, what); }, spec.what);
  return std::move(builder).finish(output);
}

}  // namespace shardsim
