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

/// Attention, a scan, or both on the same input.
TensorIndex token_mixer(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  if (!block.scan) return attention(b, block, x);
  const TensorIndex y = scan(b, block, *block.scan, x);
  if (!block.scan_beside_attention) return y;
  const TensorIndex a = attention(b, block, x);
  b.alias_gradient(y);
  return add(b, "add_mixers", a, y);
}

/// Parts that are counted and not modelled one by one: matrices multiply each token.
void extras(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  for (const auto& [name, shape] : block.extras) {
    b.begin(std::string(name));
    b.declare({.name = std::string(name), .shape = shape, .routed_expert = false, .by_rule = false, .tied_to = {}});
    b.read(x);
    if (shape.size() < 2) continue;
    b.product({b.tokens(), shape[0], shape[1], 1}, Factor::weight);
    b.keep(b.make("output", b.tokens() * shape[0], b.batch().compute));
  }
}

TensorIndex parallel(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  const TensorIndex first = block_norm(b, block, block.names.attention_norm, x);
  const auto norm_of_mlp = [&] { return block.one_norm ? first : block_norm(b, block, block.names.mlp_norm, x); };
  TensorIndex second = block.norms_first ? norm_of_mlp() : -1;
  const TensorIndex a = dropout(b, "attention_dropout", attention(b, block, first));
  if (!block.norms_first) second = norm_of_mlp();
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
  TensorIndex branch = token_mixer(b, block, before ? block_norm(b, block, names.attention_norm, x) : x);
  branch = dropout(b, "attention_dropout", block_norm(b, block, names.after_attention_norm, branch));
  x = add(b, "add_attention", x, branch);
  if (block.cross)
    x = add(b, "add_cross", x, dropout(b, "cross_dropout", cross_attention(b, block, block_norm(b, block, names.cross_norm, x))));
  extras(b, block, x);
  if (!block.feed_forward) return x;
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

namespace {

/// The output of an encoder or a vision tower reaches the text model: image features replace some of the embeddings.
TensorIndex merge_input(LayerBuilder& b, const EmbeddingSpec& e, TensorIndex x) {
  const TensorIndex features = b.input("features", b.batch().batch * e.input, b.batch().stream());
  const std::int64_t n = b.elements(x), c = size_of(b.at(x).dtype);
  b.begin("merge_features");
  b.read(x);
  b.read(features);
  b.forward({2, 2 * n * c});
  b.backward_input({2, 2 * n * c});
  return b.make("merged embeddings", n, b.at(x).dtype);
}

void embedding_extras(LayerBuilder& b, const EmbeddingSpec& e) {
  for (const auto& [name, shape] : e.extras) {
    b.begin(std::string(name));
    b.declare({.name = std::string(name), .shape = shape, .routed_expert = false, .by_rule = false, .tied_to = {}});
    if (shape.size() < 2) continue;
    const bool table = shape[0] > (std::int64_t{1} << 16);
    const std::int64_t n = b.tokens() * (table ? shape[1] : shape[0]), c = size_of(b.batch().compute);
    if (!table) b.product({b.tokens(), shape[0], shape[1], 1}, Factor::weight);
    b.forward({1, 2 * n * c});
    if (table) b.backward_weight({4, shape[0] * shape[1] * c});
    b.keep(b.make("output", n, b.batch().compute));
  }
}

}  // namespace

TensorIndex emit(LayerBuilder& b, const EmbeddingSpec& e) {
  const std::int64_t table_width = e.width > 0 ? e.width : e.hidden;
  TensorIndex x = lookup(b, std::string(e.tokens), e.vocabulary, table_width, e.tied_to);
  embedding_extras(b, e);
  if (e.input > 0) x = merge_input(b, e, x);
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
  const std::string prefix(p.prefix), stem = prefix.empty() ? prefix : prefix + '.';
  const std::int64_t pixels = p.channels * p.temporal * p.patch * p.patch, c = size_of(b.batch().compute);
  const std::int64_t table = p.positions < 0 ? p.tokens() : p.positions;
  const auto own = [&](std::string_view name, std::vector<std::int64_t> shape) {
    b.declare({.name = stem + std::string(name), .shape = std::move(shape), .routed_expert = false, .by_rule = false, .tied_to = {}});
  };
  b.begin(prefix.empty() ? "embeddings" : prefix);
  if (p.class_token && p.flat_positions) own(p.class_name, {p.hidden});
  if (p.class_token && !p.flat_positions) own(p.class_name, {1, 1, p.hidden});
  if (table > 0 && p.flat_positions) own(p.position_name, {table, p.hidden});
  if (table > 0 && !p.flat_positions) own(p.position_name, {1, table, p.hidden});
  b.begin(stem + std::string(p.projection));
  b.declare("weight", p.temporal > 1 ? std::vector{p.hidden, p.channels, p.temporal, p.patch, p.patch}
                                     : std::vector{p.hidden, p.channels, p.patch, p.patch});
  if (p.bias) b.declare("bias", {p.hidden});
  const TensorIndex image = b.make("pixels in compute dtype", rows * pixels, b.batch().compute);
  b.alias_gradient(image);
  if (b.trains()) b.keep(image);
  b.product({rows, p.hidden, pixels, 1}, Factor::weight);
  b.backward_weight({1, rows * p.hidden * c});
  const TensorIndex embedded = b.make("patch embeddings", rows * p.hidden, b.batch().stream());
  const std::int64_t n = images * p.tokens() * p.hidden;
  b.begin(stem + "add");  // class token in front, positions added
  b.read(embedded);
  b.forward({2, 4 * n * c});
  b.backward_input({2, 3 * n * c});
  b.module().forward_temporary = Bytes{n * c};
  TensorIndex x = b.make("tokens", n, b.batch().stream());
  if (p.norm != NormKind::none) x = norm(b, std::string(p.norm_name), x, p.norm, p.hidden);
  return dropout(b, stem + "dropout", x);
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

/// Head and loss as one operator, chunk by chunk: forward makes the logits of a chunk, turns them into their gradient in place, and already
/// multiplies that into the gradients of the head's input and weight, which are all that backward needs.
/// SOURCE: Liger-Kernel, ops/fused_linear_cross_entropy.py (chunks of about as many logits as the input has elements).
TensorIndex fused_linear_loss(LayerBuilder& b, const HeadSpec& h, TensorIndex x, std::int64_t in) {
  const std::int64_t rows = b.elements(x) / in, c = size_of(b.batch().compute);
  std::int64_t chunk = 1;
  while (chunk < ceil_div(rows, ceil_div(h.outputs, in))) chunk *= 2;
  chunk = std::min(chunk, rows);
  b.begin(std::string(h.name));
  b.declare("weight", {h.outputs, in}, h.tied_to);
  if (h.bias) b.declare("bias", {h.outputs});
  b.read(x);
  b.alias_gradient(x);
  const auto launches = static_cast<std::int32_t>(ceil_div(rows, chunk));
  Module& m = b.module();
  m.forward.products = {{rows, h.outputs, in, 1}, {rows, in, h.outputs, 1}};
  if (b.trains()) m.forward.products.push_back({h.outputs, in, rows, 1});
  m.forward.memory += Bytes{2 * rows * h.outputs * c};
  m.forward.kernels += launches * (static_cast<std::int32_t>(m.forward.products.size()) + 1);
  m.forward_temporary = Bytes{chunk * h.outputs * c};
  const TensorIndex input_gradient = b.make("gradient of the head's input", rows * in, b.batch().compute);
  b.keep(input_gradient);
  b.alias_gradient(input_gradient);
  if (b.trains()) {
    const TensorIndex weight_gradient = b.make("gradient of the head's weight", h.outputs * in, b.batch().compute);
    b.keep(weight_gradient);
    b.alias_gradient(weight_gradient);
    b.at(weight_gradient).parameter_gradient = true;
    b.backward_weight({1, 2 * h.outputs * in * c});
  }
  b.backward_input({1, 2 * rows * in * c});
  return b.make("losses", rows, DType::fp32);
}

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
  if (!h.pooler.empty()) linear(b, std::string(h.pooler), x, {.in = in, .out = in, .bias = true});
  if (!h.dense.empty()) {
    x = linear(b, std::string(h.dense), x, {.in = in, .out = in, .bias = h.dense_bias});
    x = activation(b, std::string(h.dense) + ".activation", x, h.dense_activation);
    if (h.dense_norm != NormKind::none) x = norm(b, std::string(h.dense_norm_name), x, h.dense_norm, in);
  }
  if (h.beside_outputs > 0) linear(b, std::string(h.beside), x, {.in = in, .out = h.beside_outputs, .bias = true});
  if (h.outputs == 0) return x;
  if (b.batch().loss.fuses_head() && h.over == HeadSpec::Over::tokens && h.outputs > 0) return fused_linear_loss(b, h, x, in);
  x = linear(b, std::string(h.name), x, {.in = in, .out = h.outputs, .bias = h.bias && h.bias_name.empty(), .tied_to = h.tied_to});
  if (h.bias && !h.bias_name.empty())
    b.declare({.name = std::string(h.bias_name), .shape = {h.outputs}, .routed_expert = false, .by_rule = false, .tied_to = {}});
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

/// A variable of the loop holds the tensor if it holds the logits so.
void hold(LayerBuilder& b, TensorIndex logits, LogitsLife as) {
  if (b.batch().logits != as) return;
  b.keep(logits);
  b.at(logits).held = true;
}

/// logits.float(), log_softmax (keeps its result), nll_loss. What else lives, `training.logits` says; `chunked` upcasts chunk by chunk, so
/// that only the 16-bit logits are ever whole (torchtitan's chunked cross-entropy). `compile: true` compiles the model, not the loss, as
/// torchtitan does; `loss: fused` is for that. Backward makes a gradient of the log-probabilities, of the fp32 and of the 16-bit logits.
void cross_entropy(LayerBuilder& b, TensorIndex logits, std::int64_t n, std::int64_t held) {
  const DType dtype = b.at(logits).dtype;
  const std::int64_t c = size_of(dtype);
  TensorIndex wide = logits;
  if (dtype != DType::fp32) {
    b.begin("loss.upcast");
    b.read(logits);
    hold(b, logits, LogitsLife::held);
    b.forward({1, n * (c + 4)});
    b.backward_input({1, n * (c + 4)});
    wide = b.make("logits in fp32", held, DType::fp32);
    mark(b, wide);
  }
  b.begin("loss.log_softmax");
  b.read(wide);
  if (wide == logits) hold(b, logits, LogitsLife::held);
  hold(b, wide, LogitsLife::replaced);
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
  const bool row_losses = b.batch().loss.fuses_head() && l.classes && l.over_tokens;  // the head has made them
  const TensorIndex input =
      row_losses ? b.input("losses", rows, DType::fp32) : b.input(l.classes ? "logits" : "features", n, b.batch().compute);
  b.at(input).logits = l.classes;
  if (!l.classes) {
    b.begin("loss");
    b.read(input);
    b.keep(input);
    b.forward({1, n * size_of(b.batch().compute)});
    b.backward_input({1, 2 * n * size_of(b.batch().compute)});
  } else if (b.batch().loss.fuses_head() && l.over_tokens) {
    b.begin("loss.mean");
    b.read(input);
    b.forward({1, 4 * rows});
    b.backward_input({1, 4 * rows});
  } else if (b.batch().loss.kind == Loss::Kind::fused) {
    fused_loss(b, input, n);
  } else {
    cross_entropy(b, input, n, held);
  }
  return -1;
}

BuiltLayer build_layer(const LayerSpec& spec, const BatchShape& batch, const GradientFlow& flow) {
  BatchShape own = batch;
  if (spec.sequence > 0) own.sequence = spec.sequence;
  own.batch *= spec.pieces;
  LayerBuilder builder(spec.name, spec.block, own, flow);
  const TensorIndex output = std::visit([&](const auto& what) { return emit(builder, what); }, spec.what);
  return std::move(builder).finish(output);
}

}  // namespace shardsim
