// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/module_run.hpp"

#include <algorithm>
#include <stdexcept>

#include "calibrate/execute/element.hpp"

namespace shardsim::execute {
namespace {

void round_all(std::vector<float>& values, DType type) {
  for (float& v : values) v = rounded(v, type);
}

}  // namespace

ModuleRun::ModuleRun(Trainer& trainer, Workspace& workspace, std::int32_t layer, std::int32_t module, Pass pass)
    : trainer_(trainer), workspace_(workspace), layer_(layer), index_(module), pass_(pass),
      layer_of_((*trainer.model_.layers)[static_cast<std::size_t>(layer)]), type_(trainer.model_.type_of(layer_of_)),
      module_(type_.modules[static_cast<std::size_t>(module)]), sequence_(trainer.training_.sequence_length), sequences_(trainer.tokens_.size()) {}

// Tensors ------------------------------------------------------------------------------------------------------------------------

std::int32_t ModuleRun::made(std::string_view name) const {
  for (std::size_t t = 0; t < type_.tensors.size(); ++t)
    if (type_.tensors[t].producer == index_ && type_.tensors[t].name == name) return static_cast<std::int32_t>(t);
  return -1;
}

/// `rows` of each sequence; 0: one a token.
ModuleRun::Parts ModuleRun::split(std::vector<float> values, std::int64_t rows) const {
  const std::size_t each = values.size() / sequences_;
  if (rows == 0) rows = sequence_;
  Parts parts;
  for (std::size_t s = 0; s < sequences_; ++s) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(s * each);
    parts.emplace_back(rows, static_cast<std::int64_t>(each) / rows, std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(each)));
  }
  return parts;
}

std::vector<float> ModuleRun::join(const Parts& parts) const {
  std::vector<float> values;
  for (const Matrix& part : parts) values.insert(values.end(), part.values.begin(), part.values.end());
  return values;
}

ModuleRun::Parts ModuleRun::load(std::int32_t t, std::int64_t rows) const { return split(workspace_.load({layer_, t, false}), rows); }

void ModuleRun::store_values(std::int32_t t, std::span<const float> values) {
  if (t < 0) return;
  // What nobody reads again is not made again.
  if (pass_ == Pass::recompute && !workspace_.holds({layer_, t, false})) return;
  workspace_.store({layer_, t, false}, values);
}

void ModuleRun::store(std::int32_t t, const Parts& values) { store_values(t, join(values)); }

template <class F>
ModuleRun::Parts ModuleRun::each(F&& f) const {
  Parts parts;
  for (std::size_t s = 0; s < sequences_; ++s) parts.push_back(f(s));
  return parts;
}

// Gradients ----------------------------------------------------------------------------------------------------------------------

ModuleRun::Parts ModuleRun::gradient(std::int32_t t, std::int64_t rows) {
  if (tensor(t).has_gradient) return split(workspace_.load({layer_, t, true}), rows);
  const auto found = trainer_.aliased_.find({layer_, t});
  if (found == trainer_.aliased_.end()) throw std::logic_error("no gradient has reached '" + tensor(t).name + "' of " + layer_of_.name);
  std::vector<float> values = std::move(found->second);
  trainer_.aliased_.erase(found);
  return split(std::move(values), rows);
}

/// A layer's input needs a gradient only if something before it trains.
bool ModuleRun::wanted(std::int32_t t) const { return !tensor(t).has_gradient || tensor(t).producer >= 0 || workspace_.holds({layer_, t, true}); }

void ModuleRun::contribute(std::int32_t t, const Parts& parts) {
  if (!wanted(t)) return;
  std::vector<float> values = join(parts);
  if (!tensor(t).has_gradient) {
    round_all(values, tensor(t).gradient_dtype);
    auto& sum = trainer_.aliased_[{layer_, t}];
    if (sum.empty()) sum = std::move(values);
    else std::transform(sum.begin(), sum.end(), values.begin(), sum.begin(), std::plus<>());
    return;
  }
  round_all(values, tensor(t).gradient_dtype);
  const std::vector<float> before = workspace_.load({layer_, t, true});
  std::transform(values.begin(), values.end(), before.begin(), values.begin(), std::plus<>());
  workspace_.store({layer_, t, true}, values);
}

// Parameters ---------------------------------------------------------------------------------------------------------------------

ParameterId ModuleRun::parameter(std::size_t i) const { return layer_of_.parameters[static_cast<std::size_t>(module_.parameters.at(i))]; }

std::vector<float> ModuleRun::zeros_if_trained(std::size_t i) const {
  return trains(i) ? std::vector<float>(static_cast<std::size_t>(trainer_.model_.at(parameter(i)).elements.value())) : std::vector<float>();
}

void ModuleRun::add_gradient(std::size_t i, std::span<const float> values) {
  if (!values.empty()) workspace_.add_gradient(parameter(i), values);
}

// Dispatch -----------------------------------------------------------------------------------------------------------------------

void ModuleRun::forward() {
  switch (const Operation operation = operation_of(type_, index_)) {
    case Operation::lookup: return lookup_forward();
    case Operation::linear: return linear_forward();
    case Operation::rms_norm: return rms_norm_forward();
    case Operation::rotary:
    case Operation::repeat_kv:
    case Operation::flash:
    case Operation::scores:
    case Operation::softmax:
    case Operation::context: return attention_forward(operation);
    case Operation::copy:
    case Operation::activation:
    case Operation::multiply:
    case Operation::add:
    case Operation::upcast:
    case Operation::log_softmax: return element_wise_forward(operation);
    case Operation::nll_loss:
    case Operation::cross_entropy: return loss_forward(operation);
    case Operation::unknown: break;
  }
  throw std::logic_error("the trainer does not know module " + module_.name);
}

void ModuleRun::backward() {
  switch (const Operation operation = operation_of(type_, index_)) {
    case Operation::lookup: return lookup_backward();
    case Operation::linear: return linear_backward();
    case Operation::rms_norm: return rms_norm_backward();
    case Operation::rotary:
    case Operation::repeat_kv:
    case Operation::flash:
    case Operation::scores:
    case Operation::softmax:
    case Operation::context: return attention_backward(operation);
    case Operation::copy:
    case Operation::activation:
    case Operation::multiply:
    case Operation::add:
    case Operation::upcast:
    case Operation::log_softmax: return element_wise_backward(operation);
    case Operation::nll_loss:
    case Operation::cross_entropy: return loss_backward(operation);
    case Operation::unknown: break;
  }
  throw std::logic_error("the trainer does not know module " + module_.name);
}

// Parameters' modules ------------------------------------------------------------------------------------------------------------

void ModuleRun::lookup_forward() {
  const std::vector<float> table = weights(0);
  const std::int64_t width = trainer_.model_.at(parameter(0)).shape.back();
  store(made("embeddings"), each([&](std::size_t s) {
    Matrix rows(sequence_, width);
    for (std::int64_t t = 0; t < sequence_; ++t) {
      const auto begin = table.begin() + trainer_.tokens_[s][static_cast<std::size_t>(t)] * width;
      std::copy(begin, begin + width, rows.row(t).begin());
    }
    return rows;
  }));
}

void ModuleRun::lookup_backward() {
  std::vector<float> sums = zeros_if_trained(0);
  if (sums.empty()) return;
  const Parts dy = gradient(made("embeddings"));
  for (std::size_t s = 0; s < sequences_; ++s)
    for (std::int64_t t = 0; t < sequence_; ++t) {
      const auto row = dy[s].row(t);
      const auto begin = sums.begin() + trainer_.tokens_[s][static_cast<std::size_t>(t)] * dy[s].columns;
      std::transform(row.begin(), row.end(), begin, begin, std::plus<>());
    }
  add_gradient(0, sums);
}

void ModuleRun::linear_forward() {
  const std::int32_t cast_input = made("input in compute dtype"), cast_weight = made("weight in compute dtype"), output = made("output");
  Parts x = load(argument(0));
  std::vector<float> weight = weights(0);
  if (cast_input >= 0) {
    for (Matrix& part : x) round_all(part.values, tensor(cast_input).dtype);
    store(cast_input, x);
  }
  if (cast_weight >= 0) {
    round_all(weight, tensor(cast_weight).dtype);
    store_values(cast_weight, weight);
  }
  const std::vector<float> bias = has_parameter(1) ? weights(1) : std::vector<float>();
  const std::int64_t out = trainer_.model_.at(parameter(0)).shape.front();
  store(output, each([&](std::size_t s) { return linear(x[s], weight, bias, out); }));
}

void ModuleRun::linear_backward() {
  const std::int32_t cast_input = made("input in compute dtype"), cast_weight = made("weight in compute dtype");
  const Parts dy = gradient(made("output"));
  const std::int64_t in = trainer_.model_.at(parameter(0)).shape.back();
  if (wanted(argument(0))) {
    const std::vector<float> weight = cast_weight >= 0 ? workspace_.load({layer_, cast_weight, false}) : weights(0);
    contribute(argument(0), each([&](std::size_t s) { return linear_backward_input(dy[s], weight, in); }));
  }
  std::vector<float> weight_sums = zeros_if_trained(0), bias_sums = zeros_if_trained(1);
  if (weight_sums.empty() && bias_sums.empty()) return;
  const Parts x = weight_sums.empty() ? Parts(sequences_) : load(cast_input >= 0 ? cast_input : argument(0));
  for (std::size_t s = 0; s < sequences_; ++s) linear_backward_weight(x[s], dy[s], weight_sums, bias_sums);
  if (cast_weight >= 0) round_all(weight_sums, tensor(cast_weight).dtype);  // the product's dtype; autograd casts it back
  add_gradient(0, weight_sums);
  add_gradient(1, bias_sums);
}

void ModuleRun::rms_norm_forward() {
  const std::vector<float> weight = weights(0);
  const auto size = static_cast<std::int64_t>(weight.size());
  const Parts x = load(argument(0));
  const Parts inverse = each([&](std::size_t s) { return inverse_rms(x[s], size); });
  Parts normalised = each([&](std::size_t s) { return normalise(x[s], inverse[s], size); });
  const std::int32_t kept = made("normalised");
  const DType dtype = kept >= 0 ? tensor(kept).dtype : tensor(argument(0)).dtype;
  for (Matrix& part : normalised) round_all(part.values, dtype);
  store(made("input in fp32"), x);
  store(made("1/rms"), inverse);
  store(kept, normalised);
  store(made("norm output"), each([&](std::size_t s) { return scale_columns(normalised[s], weight); }));
}

void ModuleRun::rms_norm_backward() {
  const std::int32_t wide = made("input in fp32");
  const std::vector<float> weight = weights(0);
  const Parts dy = gradient(made("norm output"));
  const Parts x = load(wide >= 0 ? wide : argument(0));
  const Parts inverse = load(made("1/rms"));
  std::vector<float> sums = zeros_if_trained(0);
  contribute(argument(0), each([&](std::size_t s) { return execute::rms_norm_backward(x[s], inverse[s], dy[s], weight, sums); }));
  add_gradient(0, sums);
}

// Attention ----------------------------------------------------------------------------------------------------------------------

/// Heads and their sizes, from the tensors of the layer's attention kernel.
Heads ModuleRun::heads() const {
  const std::int64_t tokens = sequence_ * static_cast<std::int64_t>(sequences_);
  const auto columns = [&](std::int32_t t) { return tensor(t).elements.value() / tokens; };
  Heads h;
  for (std::size_t m = 0; m < type_.modules.size(); ++m) {
    const auto index = static_cast<std::int32_t>(m);
    const Operation operation = operation_of(type_, index);
    if (operation != Operation::flash && operation != Operation::scores && operation != Operation::context) continue;
    const auto& reads = type_.modules[m].reads;
    for (const Tensor& t : type_.tensors) {
      if (t.producer == index && t.name == "log-sum-exp") h.heads = t.elements.value() / tokens;
      if (t.producer == index && t.name == "scores") h.heads = t.elements.value() / tokens / sequence_;
    }
    if (operation != Operation::context) {
      h.head_dim = columns(reads.at(0)) / h.heads;
      h.kv_heads = columns(reads.at(1)) / h.head_dim;
    }
    if (operation != Operation::scores) h.value_dim = columns(reads.at(operation == Operation::flash ? 2 : 1)) / h.kv_heads;
  }
  return h;
}

void ModuleRun::attention_forward(Operation operation) {
  const Heads h = heads();
  if (operation == Operation::rotary) {
    const Parts q = load(argument(0)), k = load(argument(1));
    store(made("rotated queries"), each([&](std::size_t s) { return rotate(q[s], h.head_dim, 1.0F); }));
    store(made("rotated keys"), each([&](std::size_t s) { return rotate(k[s], h.head_dim, 1.0F); }));
  } else if (operation == Operation::repeat_kv) {
    const Parts k = load(argument(0)), v = load(argument(1));
    const std::int64_t times = h.heads * h.head_dim / k.front().columns;
    store(made("keys of all heads"), each([&](std::size_t s) { return repeat_heads(k[s], h.head_dim, times); }));
    store(made("values of all heads"), each([&](std::size_t s) { return repeat_heads(v[s], h.value_dim, times); }));
  } else if (operation == Operation::flash) {
    flash_forward();
  } else {
    plain_attention_forward(operation);
  }
}

void ModuleRun::attention_backward(Operation operation) {
  const Heads h = heads();
  if (operation == Operation::rotary) {
    const Parts dq = gradient(made("rotated queries")), dk = gradient(made("rotated keys"));
    contribute(argument(0), each([&](std::size_t s) { return rotate(dq[s], h.head_dim, -1.0F); }));
    contribute(argument(1), each([&](std::size_t s) { return rotate(dk[s], h.head_dim, -1.0F); }));
  } else if (operation == Operation::repeat_kv) {
    const Parts dk = gradient(made("keys of all heads")), dv = gradient(made("values of all heads"));
    const std::int64_t times = tensor(made("keys of all heads")).elements / tensor(argument(0)).elements;
    contribute(argument(0), each([&](std::size_t s) { return sum_heads(dk[s], h.head_dim, times); }));
    contribute(argument(1), each([&](std::size_t s) { return sum_heads(dv[s], h.value_dim, times); }));
  } else if (operation == Operation::flash) {
    flash_backward();
  } else {
    plain_attention_backward(operation);
  }
}

void ModuleRun::flash_forward() {
  const Heads h = heads();
  const Parts q = load(argument(0)), k = load(argument(1)), v = load(argument(2));
  Parts context, log_sum_exp;
  for (std::size_t s = 0; s < sequences_; ++s) {
    Attended out = attend(q[s], k[s], v[s], h);
    context.push_back(std::move(out.context));
    log_sum_exp.push_back(std::move(out.log_sum_exp));
  }
  store(made("context"), context);
  store(made("log-sum-exp"), log_sum_exp);
}

void ModuleRun::flash_backward() {
  const Heads h = heads();
  const Parts q = load(argument(0)), k = load(argument(1)), v = load(argument(2));
  const Parts log_sum_exp = load(made("log-sum-exp")), dcontext = gradient(made("context"));
  Parts dq, dk, dv;
  for (std::size_t s = 0; s < sequences_; ++s) {
    AttentionGradients d = attend_backward(q[s], k[s], v[s], {{}, log_sum_exp[s]}, dcontext[s], h);
    dq.push_back(std::move(d.q));
    dk.push_back(std::move(d.k));
    dv.push_back(std::move(d.v));
  }
  contribute(argument(0), dq);
  contribute(argument(1), dk);
  contribute(argument(2), dv);
}

void ModuleRun::plain_attention_forward(Operation operation) {
  const Heads h = heads();
  const std::int64_t maps = h.heads * sequence_;  // rows of a sequence's score maps
  if (operation == Operation::scores) {
    const Parts q = load(argument(0)), k = load(argument(1));
    store(made("scores"), each([&](std::size_t s) { return attention_scores(q[s], k[s], h); }));
  } else if (operation == Operation::softmax) {
    const Parts scores = load(argument(0), maps);
    const Parts p = each([&](std::size_t s) { return causal_softmax(scores[s], h.head_dim); });
    store(made("softmax"), p);
    store(made("probabilities"), p);
  } else {
    const Parts p = load(argument(0), maps), v = load(argument(1));
    store(made("context"), each([&](std::size_t s) { return attention_context(p[s], v[s], h); }));
  }
}

void ModuleRun::plain_attention_backward(Operation operation) {
  const Heads h = heads();
  const std::int64_t maps = h.heads * sequence_;
  if (operation == Operation::scores) {
    const Parts q = load(argument(0)), k = load(argument(1)), d = gradient(made("scores"), maps);
    Parts dq, dk;
    for (std::size_t s = 0; s < sequences_; ++s) {
      AttentionGradients g = attention_scores_backward(q[s], k[s], d[s], h);
      dq.push_back(std::move(g.q));
      dk.push_back(std::move(g.k));
    }
    contribute(argument(0), dq);
    contribute(argument(1), dk);
  } else if (operation == Operation::softmax) {
    const std::int32_t cast = made("probabilities");
    const Parts p = load(made("softmax"), maps), d = gradient(cast >= 0 ? cast : made("softmax"), maps);
    contribute(argument(0), each([&](std::size_t s) { return causal_softmax_backward(p[s], d[s], h.head_dim); }));
  } else {
    const Parts p = load(argument(0), maps), v = load(argument(1)), d = gradient(made("context"));
    Parts dp, dv;
    for (std::size_t s = 0; s < sequences_; ++s) {
      ContextGradients g = attention_context_backward(p[s], v[s], d[s], h);
      dp.push_back(std::move(g.probabilities));
      dv.push_back(std::move(g.v));
    }
    contribute(argument(0), dp);
    contribute(argument(1), dv);
  }
}

// Element-wise modules and the loss ----------------------------------------------------------------------------------------------

void ModuleRun::element_wise_forward(Operation operation) {
  const Parts x = load(argument(0));
  switch (operation) {
    case Operation::copy: return store(made("context by token"), x);
    case Operation::upcast: return store(made("logits in fp32"), x);
    case Operation::activation: return store(made("activation"), each([&](std::size_t s) { return silu(x[s]); }));
    case Operation::log_softmax: return store(made("log-probabilities"), each([&](std::size_t s) { return log_softmax(x[s]); }));
    default: break;
  }
  const Parts y = load(argument(1));
  if (operation == Operation::multiply) return store(made("product"), each([&](std::size_t s) { return multiply(x[s], y[s]); }));
  store(made("sum"), each([&](std::size_t s) { return sum(x[s], y[s]); }));
}

void ModuleRun::element_wise_backward(Operation operation) {
  switch (operation) {
    case Operation::copy: return contribute(argument(0), gradient(made("context by token")));
    case Operation::upcast: return contribute(argument(0), gradient(made("logits in fp32")));
    case Operation::activation: {
      const Parts x = load(argument(0)), d = gradient(made("activation"));
      return contribute(argument(0), each([&](std::size_t s) { return silu_backward(x[s], d[s]); }));
    }
    case Operation::log_softmax: {
      const Parts y = load(made("log-probabilities")), d = gradient(made("log-probabilities"));
      return contribute(argument(0), each([&](std::size_t s) { return log_softmax_backward(y[s], d[s]); }));
    }
    case Operation::multiply: {
      const Parts x = load(argument(0)), y = load(argument(1)), d = gradient(made("product"));
      contribute(argument(0), each([&](std::size_t s) { return multiply(d[s], y[s]); }));
      return contribute(argument(1), each([&](std::size_t s) { return multiply(d[s], x[s]); }));
    }
    default: {
      const Parts d = gradient(made("sum"));
      contribute(argument(0), d);
      return contribute(argument(1), d);
    }
  }
}

void ModuleRun::loss_forward(Operation operation) {
  const Parts x = load(argument(0));
  double total = 0;
  for (std::size_t s = 0; s < sequences_; ++s) {
    const Matrix logarithms = operation == Operation::nll_loss ? x[s] : log_softmax(x[s]);
    for (std::int64_t t = 0; t < sequence_; ++t)
      total -= static_cast<double>(logarithms.row(t)[static_cast<std::size_t>(trainer_.tokens_[s][static_cast<std::size_t>(t + 1)])]);
  }
  trainer_.loss_ = total / static_cast<double>(sequence_ * static_cast<std::int64_t>(sequences_));
}

/// Of the log-probabilities: -1 / (tokens of the micro-batch * micro-batches) at each target.
Matrix ModuleRun::loss_gradient(std::size_t sequence, std::int64_t vocabulary) const {
  Matrix d(sequence_, vocabulary);
  const std::int64_t tokens = sequence_ * static_cast<std::int64_t>(sequences_) * trainer_.training_.gradient_accumulation_steps;
  for (std::int64_t t = 0; t < sequence_; ++t)
    d.row(t)[static_cast<std::size_t>(trainer_.tokens_[sequence][static_cast<std::size_t>(t + 1)])] = -1.0F / static_cast<float>(tokens);
  return d;
}

void ModuleRun::loss_backward(Operation operation) {
  const Parts x = load(argument(0));
  contribute(argument(0), each([&](std::size_t s) {
    const Matrix d = loss_gradient(s, x[s].columns);
    return operation == Operation::nll_loss ? d : log_softmax_backward(log_softmax(x[s]), d);
  }));
}

}  // namespace shardsim::execute
