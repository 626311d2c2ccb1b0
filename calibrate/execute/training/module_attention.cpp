// SPDX-License-Identifier: Apache-2.0
// Modules of attention: rotary embedding, repeated heads, the flash kernel, and the pieces of eager code.
#include "calibrate/execute/training/module_run.hpp"

namespace shardsim::execute {

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
    store(made("rotated queries"), each([&](std::size_t s) { return math_.rotate(q[s], h.head_dim, 1.0F); }));
    store(made("rotated keys"), each([&](std::size_t s) { return math_.rotate(k[s], h.head_dim, 1.0F); }));
  } else if (operation == Operation::repeat_kv) {
    const Parts k = load(argument(0)), v = load(argument(1));
    const std::int64_t times = h.heads * h.head_dim / k.front().columns;
    store(made("keys of all heads"), each([&](std::size_t s) { return math_.repeat_heads(k[s], h.head_dim, times); }));
    store(made("values of all heads"), each([&](std::size_t s) { return math_.repeat_heads(v[s], h.value_dim, times); }));
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
    contribute(argument(0), each([&](std::size_t s) { return math_.rotate(dq[s], h.head_dim, -1.0F); }));
    contribute(argument(1), each([&](std::size_t s) { return math_.rotate(dk[s], h.head_dim, -1.0F); }));
  } else if (operation == Operation::repeat_kv) {
    const Parts dk = gradient(made("keys of all heads")), dv = gradient(made("values of all heads"));
    const std::int64_t times = tensor(made("keys of all heads")).elements / tensor(argument(0)).elements;
    contribute(argument(0), each([&](std::size_t s) { return math_.sum_heads(dk[s], h.head_dim, times); }));
    contribute(argument(1), each([&](std::size_t s) { return math_.sum_heads(dv[s], h.value_dim, times); }));
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
    Attended out = math_.attend(q[s], k[s], v[s], h);
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
    AttentionGradients d = math_.attend_backward(q[s], k[s], v[s], log_sum_exp[s], dcontext[s], h);
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
    store(made("scores"), each([&](std::size_t s) { return math_.attention_scores(q[s], k[s], h); }));
  } else if (operation == Operation::softmax) {
    const Parts scores = load(argument(0), maps);
    const Parts p = each([&](std::size_t s) { return math_.causal_softmax(scores[s], h.head_dim); });
    store(made("softmax"), p);
    store(made("probabilities"), p);
  } else {
    const Parts p = load(argument(0), maps), v = load(argument(1));
    store(made("context"), each([&](std::size_t s) { return math_.attention_context(p[s], v[s], h); }));
  }
}

void ModuleRun::plain_attention_backward(Operation operation) {
  const Heads h = heads();
  const std::int64_t maps = h.heads * sequence_;
  if (operation == Operation::scores) {
    const Parts q = load(argument(0)), k = load(argument(1)), d = gradient(made("scores"), maps);
    Parts dq, dk;
    for (std::size_t s = 0; s < sequences_; ++s) {
      AttentionGradients g = math_.attention_scores_backward(q[s], k[s], d[s], h);
      dq.push_back(std::move(g.q));
      dk.push_back(std::move(g.k));
    }
    contribute(argument(0), dq);
    contribute(argument(1), dk);
  } else if (operation == Operation::softmax) {
    const std::int32_t cast = made("probabilities");
    const Parts p = load(made("softmax"), maps), d = gradient(cast >= 0 ? cast : made("softmax"), maps);
    contribute(argument(0), each([&](std::size_t s) { return math_.causal_softmax_backward(p[s], d[s], h.head_dim); }));
  } else {
    const Parts p = load(argument(0), maps), v = load(argument(1)), d = gradient(made("context"));
    Parts dp, dv;
    for (std::size_t s = 0; s < sequences_; ++s) {
      ContextGradients g = math_.attention_context_backward(p[s], v[s], d[s], h);
      dp.push_back(std::move(g.probabilities));
      dv.push_back(std::move(g.v));
    }
    contribute(argument(0), dp);
    contribute(argument(1), dv);
  }
}

}  // namespace shardsim::execute
