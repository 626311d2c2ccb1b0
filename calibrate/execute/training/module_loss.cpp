// SPDX-License-Identifier: Apache-2.0
// Element-wise modules and the loss.
#include "calibrate/execute/training/module_run.hpp"

namespace shardsim::execute {

void ModuleRun::element_wise_forward(Operation operation) {
  const Parts x = load(argument(0));
  switch (operation) {
    case Operation::copy:
      return store(made("context by token"), x);
    case Operation::upcast:
      return store(made("logits in fp32"), x);
    case Operation::activation:
      return store(made("activation"), each([&](std::size_t s) { return math_.silu(x[s]); }));
    case Operation::log_softmax:
      return store(made("log-probabilities"), each([&](std::size_t s) { return math_.log_softmax(x[s]); }));
    default:
      break;
  }
  const Parts y = load(argument(1));
  if (operation == Operation::multiply) return store(made("product"), each([&](std::size_t s) { return math_.multiply(x[s], y[s]); }));
  store(made("sum"), each([&](std::size_t s) { return math_.sum(x[s], y[s]); }));
}

void ModuleRun::element_wise_backward(Operation operation) {
  switch (operation) {
    case Operation::copy:
      return contribute(argument(0), gradient(made("context by token")));
    case Operation::upcast:
      return contribute(argument(0), gradient(made("logits in fp32")));
    case Operation::activation: {
      const Parts x = load(argument(0)), d = gradient(made("activation"));
      return contribute(argument(0), each([&](std::size_t s) { return math_.silu_backward(x[s], d[s]); }));
    }
    case Operation::log_softmax: {
      const Parts y = load(made("log-probabilities")), d = gradient(made("log-probabilities"));
      return contribute(argument(0), each([&](std::size_t s) { return math_.log_softmax_backward(y[s], d[s]); }));
    }
    case Operation::multiply: {
      const Parts x = load(argument(0)), y = load(argument(1)), d = gradient(made("product"));
      contribute(argument(0), each([&](std::size_t s) { return math_.multiply(d[s], y[s]); }));
      return contribute(argument(1), each([&](std::size_t s) { return math_.multiply(d[s], x[s]); }));
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
    const bool logarithms = operation == Operation::nll_loss;
    total -= logarithms ? math_.sum_of_targets(x[s], targets(s)) : math_.sum_of_targets(math_.log_softmax(x[s]), targets(s));
  }
  trainer_.loss_ = total / static_cast<double>(sequence_ * static_cast<std::int64_t>(sequences_));
}

/// Of the log-probabilities: -1 / (tokens of the micro-batch * micro-batches) at each target.
Matrix ModuleRun::loss_gradient(std::size_t sequence, std::int64_t vocabulary) const {
  const std::int64_t tokens = sequence_ * static_cast<std::int64_t>(sequences_) * trainer_.training_.gradient_accumulation_steps;
  return math_.at_targets(vocabulary, targets(sequence), -1.0F / static_cast<float>(tokens));
}

void ModuleRun::loss_backward(Operation operation) {
  const Parts x = load(argument(0));
  contribute(argument(0), each([&](std::size_t s) {
               Matrix d = loss_gradient(s, x[s].columns);
               if (operation == Operation::cross_entropy) d = math_.log_softmax_backward(math_.log_softmax(x[s]), d);
               return d;
             }));
}

}  // namespace shardsim::execute
