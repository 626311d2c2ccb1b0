// SPDX-License-Identifier: Apache-2.0
// The places of the training loop where a data-parallel library acts. A strategy overrides those that its library hooks into.
#pragma once

#include <array>
#include <cstdint>

#include "models/model.hpp"
#include "sim/schedule/schedule_builder.hpp"
#include "strategies/strategy.hpp"

namespace shardsim {

class Hooks {
 public:
  Hooks() = default;
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;
  virtual ~Hooks() = default;

  virtual void begin_forward(std::int32_t micro_batch) = 0;  ///< pre-forward of the outermost module
  virtual void pre_forward(std::int32_t /*layer*/) {}
  virtual void pre_module_forward(std::int32_t /*layer*/, std::int32_t /*module*/, Pass /*pass*/) {}
  virtual void post_module_forward(std::int32_t /*layer*/, std::int32_t /*module*/, Pass /*pass*/) {}
  virtual void post_forward(std::int32_t /*layer*/) {}
  virtual void end_forward() {}                         ///< post-forward of the outermost module, before the loss
  virtual void begin_backward() {}                      ///< pre-backward of the outermost module, after the loss' backward
  virtual void pre_backward(std::int32_t /*layer*/) {}  ///< before recomputation, if the layer is checkpointed
  // Under reentrant checkpointing the layer's forward hooks run again around the recomputation, and only then its pre_backward.
  virtual void pre_recompute(std::int32_t /*layer*/) {}
  virtual void post_recompute(std::int32_t /*layer*/) {}
  /// The library's hooks keep the input of the layer, and its gradient, alive to the end of this backward.
  [[nodiscard]] virtual bool holds_input(std::int32_t /*layer*/) const { return false; }
  virtual void pre_module_backward(std::int32_t /*layer*/, std::int32_t /*module*/) {}
  /// Autograd is about to write the gradient of `parameter` for the first time in this backward: it needs memory.
  virtual void produce_gradient(ParameterId parameter) = 0;
  /// The gradient of `parameter` is final in this backward (AccumulateGrad's post-hook).
  virtual void gradient_ready(ParameterId /*parameter*/) {}
  virtual void post_module_backward(std::int32_t /*layer*/, std::int32_t /*module*/) {}
  virtual void post_backward(std::int32_t /*layer*/) {}  ///< after the gradient of the layer's input is there
  virtual void end_backward() {}                         ///< autograd's final callbacks
  virtual void step() = 0;                               ///< clipping, optimizer, what follows it, zero_grad
};

/// The stream that computes, as the libraries call it: the stream that is current while modules run, FSDP's and ZeRO-3's default stream.
inline constexpr StreamId current_stream = ScheduleBuilder::compute_stream();
inline constexpr StreamId default_stream = current_stream;

/// What a strategy is built on: the job and the program it writes.
struct Program {
  const Job& job;
  ScheduleBuilder build;

  explicit Program(const Job& j) : job(j), unit_of_parameter_(j.model->parameters->size()) {}
  [[nodiscard]] const Model& model() const { return *job.model; }
  [[nodiscard]] const Training& training() const { return job.training; }
  [[nodiscard]] const Options& options() const { return job.strategy.options; }
  [[nodiscard]] std::int32_t micro_batches() const { return job.training.gradient_accumulation_steps; }
  /// Named after the parameter; its name is looked up once.
  [[nodiscard]] UnitId unit(ParameterId parameter) {
    UnitId& known = unit_of_parameter_[static_cast<std::size_t>(parameter.index)];
    if (!known.valid()) known = build.unit(model().at(parameter).name);
    return known;
  }

 private:
  std::vector<UnitId> unit_of_parameter_;
};

/// What the loop registers for a module of each layer type, one module after another: forward, backward, backward of which only the
/// weights' or only the inputs' gradients are wanted.
inline constexpr std::size_t module_work_count = 4;
[[nodiscard]] std::array<Work, module_work_count> module_works(const Module& module);

/// Writes one optimizer step: micro-batches of forward and backward under `job.training.checkpointing`, activations with autograd's life
/// times, then the step. Calls `hooks` where a library would be called.
void run_training_loop(Program& program, Hooks& hooks);

/// By layer: it trains, or a layer before it does, so that its output needs a gradient.
[[nodiscard]] std::vector<bool> layers_that_need_backward(const Model& model);

/// Trainable parameters in the order in which their gradients become final in one backward: layers from last to first; a tied parameter
/// at the earliest of its layers.
[[nodiscard]] std::vector<ParameterId> arrival_order(const Model& model);

}  // namespace shardsim
