// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "strategies/checkpointing.hpp"
#include "strategies/hooks.hpp"

namespace shardsim {
namespace {

/// The first and the last layer (in forward order) that use each parameter.
struct Uses {
  std::vector<std::int32_t> first, last;
  explicit Uses(const Model& model) : first(model.parameters->size(), -1), last(model.parameters->size(), -1) {
    const auto& layers = *model.layers;
    for (std::size_t l = 0; l < layers.size(); ++l)
      for (ParameterId p : layers[l].parameters) {
        auto& f = first[static_cast<std::size_t>(p.index)];
        if (f < 0) f = static_cast<std::int32_t>(l);
        last[static_cast<std::size_t>(p.index)] = static_cast<std::int32_t>(l);
      }
  }
};

/// What happens to the tensors and parameters of a layer around one of its modules: indices, looked up once for each layer type.
struct ModulePlan {
  std::vector<std::size_t> made;       ///< tensors it produces
  std::vector<std::size_t> last_read;  ///< tensors it is the last to read in forward, so the first in backward
  std::vector<std::size_t> saved;      ///< tensors whose backward life it ends
  std::vector<std::int32_t> arrival;   ///< its own parameters, in the order their gradients become final
};

std::vector<ModulePlan> plan_modules(const LayerType& type) {
  std::vector<ModulePlan> plans(type.modules.size());
  const auto valid = [&](std::int32_t m) { return m >= 0 && m < static_cast<std::int32_t>(plans.size()); };
  for (std::size_t t = 0; t < type.tensors.size(); ++t) {
    const Tensor& tensor = type.tensors[t];
    if (valid(tensor.producer)) plans[static_cast<std::size_t>(tensor.producer)].made.push_back(t);
    if (valid(tensor.last_consumer)) plans[static_cast<std::size_t>(tensor.last_consumer)].last_read.push_back(t);
    if (valid(tensor.saved_by)) plans[static_cast<std::size_t>(tensor.saved_by)].saved.push_back(t);
  }
  for (std::size_t m = 0; m < plans.size(); ++m) {
    const std::vector<std::int32_t>& own = type.modules[m].parameters;
    for (std::int32_t index : type.arrival)
      if (std::find(own.begin(), own.end(), index) != own.end()) plans[m].arrival.push_back(index);
  }
  return plans;
}

class TrainingLoop {
 public:
  TrainingLoop(Program& program, Hooks& hooks)
      : program_(program),
        build_(program.build),
        hooks_(hooks),
        model_(program.model()),
        uses_(model_),
        compile_(program.training().compile) {
    const auto& layers = *model_.layers;
    buffers_.resize(layers.size());
    gradients_.resize(layers.size());
    units_.reserve(layers.size());
    for (const Layer& layer : layers) units_.push_back(build_.unit(layer.name));
    for (const LayerType& type : model_.types) {
      works_.push_back(register_works(type));
      plans_.push_back(plan_modules(type));
    }
    find_backward_needs();
    reserve();
  }

  void run() {
    for (std::int32_t g = 0; g < program_.micro_batches(); ++g) {
      build_.micro_batch(g);
      build_.phase(Phase::forward);
      forward();
      build_.phase(Phase::backward);
      backward();
    }
    build_.phase(Phase::step);
    hooks_.step();
  }

 private:
  struct ModuleWorks {
    WorkId forward, backward, backward_frozen_input, backward_frozen_weight;
  };  // as module_works() has them

  /// A schedule fills a megabyte: growing it step by step would copy it twice over. Per module: forward, backward and perhaps
  /// recomputation, each with a few tensors made and freed.
  void reserve() {
    constexpr std::size_t ops_per_module = 18, buffers_per_module = 7;
    std::size_t modules = 0;
    for (const Layer& layer : *model_.layers) modules += model_.type_of(layer).modules.size();
    modules *= static_cast<std::size_t>(program_.micro_batches());
    Schedule& schedule = build_.schedule();
    schedule.ops.reserve(schedule.ops.size() + modules * ops_per_module);
    schedule.buffers.reserve(schedule.buffers.size() + modules * buffers_per_module);
  }

  // Works are registered once for each layer type: alike layers share them.
  std::vector<ModuleWorks> register_works(const LayerType& type) {
    std::vector<ModuleWorks> all;
    for (const Module& m : type.modules) {
      std::array<WorkId, module_work_count> ids;
      std::ranges::transform(module_works(m), ids.begin(), [&](Work& work) { return build_.work(std::move(work)); });
      all.push_back({ids[0], ids[1], ids[2], ids[3]});
    }
    return all;
  }

  /// A layer needs a backward if it, or a layer before it, trains. PEFT with checkpointing makes the embedding's output require a
  /// gradient (enable_input_require_grads), which is why frozen layers after the first still run theirs.
  void find_backward_needs() {
    needs_backward_ = layers_that_need_backward(model_);
    input_needs_gradient_ = needs_backward_;
    input_needs_gradient_.pop_back();
    input_needs_gradient_.insert(input_needs_gradient_.begin(), false);
  }

  [[nodiscard]] const Layer& layer(std::int32_t l) const { return (*model_.layers)[static_cast<std::size_t>(l)]; }
  [[nodiscard]] const LayerType& type(std::int32_t l) const { return model_.type_of(layer(l)); }
  [[nodiscard]] const ModulePlan& plan_of(std::int32_t l, std::int32_t m) const {
    return plans_[static_cast<std::size_t>(layer(l).type)][static_cast<std::size_t>(m)];
  }
  [[nodiscard]] std::int32_t layer_count() const { return static_cast<std::int32_t>(model_.layers->size()); }
  /// The loss, the last layer, without parameters, stands outside the wrapped module unless the model computes it itself.
  [[nodiscard]] bool outside(std::int32_t l) const {
    return !program_.training().loss_in_model && l == layer_count() - 1 && layer(l).parameters.empty() && l > 0;
  }

  [[nodiscard]] Checkpointing checkpointing(std::int32_t l) const { return checkpointing_of(program_.job, l); }

  // Tensors ------------------------------------------------------------------------------------------------------------------------

  [[nodiscard]] bool materialised(const Tensor& t) const { return !(compile_ && t.fused_away) && t.elements > Elements{}; }

  BufferId allocate_tensor(std::int32_t l, const Tensor& t, const char* verb, DType dtype, bool gradient = false) {
    const auto index = static_cast<std::int32_t>(&t - type(l).tensors.data());
    return build_.allocate({.label = {verb, units_[static_cast<std::size_t>(l)]},
                            .category = t.logits ? Category::logits : Category::activations,
                            .dtype = dtype,
                            .pool = ScheduleBuilder::compute_stream(),
                            .elements = t.elements,
                            .tensor = {l, index, gradient}});
  }

  void release(BufferId& buffer) {
    if (!buffer.valid()) return;
    build_.free(buffer);
    buffer = {};
  }

  /// Is the tensor kept from forward to backward?
  [[nodiscard]] bool kept(std::int32_t l, const Tensor& t, Pass pass) const {
    if (!needs_backward_[static_cast<std::size_t>(l)]) return false;
    // checkpoint() itself keeps its arguments until the layer's backward is through
    if (pass == Pass::recompute) return t.saved_by >= 0 || t.producer < 0;
    return is_kept(checkpointing(l), t);
  }

  // Forward ------------------------------------------------------------------------------------------------------------------------

  void forward() {
    build_.call(HostCall::data_loading);
    hooks_.begin_forward(micro_batch_);
    for (std::int32_t l = 0; l < layer_count(); ++l) {
      if (outside(l)) hooks_.end_forward();
      hand_over_input(l);
      hooks_.pre_forward(l);
      forward_modules(l, 0, static_cast<std::int32_t>(type(l).modules.size()), Pass::forward);
      hooks_.post_forward(l);
    }
    if (!outside(layer_count() - 1)) hooks_.end_forward();
    ++micro_batch_;
  }

  /// The output of the layer before is this layer's input; the first layer's input (token ids) is allocated here.
  void hand_over_input(std::int32_t l) {
    const auto& tensors = type(l).tensors;
    auto& buffers = buffers_[static_cast<std::size_t>(l)];
    buffers.assign(tensors.size(), BufferId{});
    gradients_[static_cast<std::size_t>(l)].assign(tensors.size(), BufferId{});
    BufferId output = l > 0 ? take_output(l - 1) : BufferId{};
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].producer >= 0 || !materialised(tensors[t])) continue;
      if (output.valid()) {
        buffers[t] = output;
        output = {};
      } else {
        buffers[t] = allocate_tensor(l, tensors[t], "input", tensors[t].dtype);
      }
    }
    if (output.valid()) build_.free(output);
  }

  BufferId take_output(std::int32_t l) {
    const auto& tensors = type(l).tensors;
    const auto modules = static_cast<std::int32_t>(type(l).modules.size());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].producer < 0 || tensors[t].last_consumer != modules) continue;
      // A layer that saves its own output (softmax, a norm) shares it with the next one: the reader frees it.
      BufferId output = buffers_[static_cast<std::size_t>(l)][t];
      buffers_[static_cast<std::size_t>(l)][t] = {};
      return output;
    }
    return {};
  }

  void forward_modules(std::int32_t l, std::int32_t first, std::int32_t last, Pass pass) {
    const LayerType& kind = type(l);
    auto& buffers = buffers_[static_cast<std::size_t>(l)];
    for (std::int32_t m = first; m < last; ++m) {
      const Module& module = kind.modules[static_cast<std::size_t>(m)];
      if (pass == Pass::recompute && checkpointing(l) == Checkpointing::selective_ops && module.kept_by_selective) continue;
      hooks_.pre_module_forward(l, m, pass);
      if (is_called(l, m)) build_.call(HostCall::module);
      const ModulePlan& plan = plan_of(l, m);
      for (std::size_t t : plan.made) {
        const Tensor& tensor = kind.tensors[t];
        const bool output = pass == Pass::recompute && tensor.last_consumer == static_cast<std::int32_t>(kind.modules.size());
        if (!buffers[t].valid() && materialised(tensor) && !(output && tensor.saved_by < 0))
          buffers[t] = allocate_tensor(l, tensor, "activation", tensor.dtype);
      }
      run(l, m, "forward", works_[static_cast<std::size_t>(layer(l).type)][static_cast<std::size_t>(m)].forward, pass,
          module.forward_temporary);
      for (std::size_t t : plan.last_read)
        if (!kept(l, kind.tensors[t], pass)) release(buffers[t]);
      hooks_.post_module_forward(l, m, pass);
    }
  }

  /// Whether it is a module of its own to Python: those with parameters and activations are, sums and reshapes are not. Compiled code calls
  /// no modules but the block itself.
  [[nodiscard]] bool is_called(std::int32_t l, std::int32_t m) const {
    const LayerType& kind = type(l);
    return m == 0 || (!compile_ && !kind.modules[static_cast<std::size_t>(m)].parameters.empty());
  }

  void run(std::int32_t l, std::int32_t m, const char* verb, WorkId work, Pass pass, Bytes temporary) {
    const UnitId unit = units_[static_cast<std::size_t>(l)];
    BufferId scratch;
    if (temporary > Bytes{})
      scratch = build_.allocate({.label = {"workspace", unit},
                                 .category = Category::temporaries,
                                 .dtype = DType::int8,
                                 .pool = ScheduleBuilder::compute_stream(),
                                 .elements = Elements{temporary.value()}});
    build_.compute({verb, unit}, work, pass, {l, m, m + 1});
    if (scratch.valid()) build_.free(scratch);
  }

  // Backward -----------------------------------------------------------------------------------------------------------------------

  void backward() {
    produced_.assign(model_.parameters->size(), false);
    bool begun = false;
    for (std::int32_t l = layer_count() - 1; l >= 0; --l) {
      if (!outside(l) && !begun) {
        hooks_.begin_backward();
        begun = true;
      }
      if (needs_backward_[static_cast<std::size_t>(l)]) backward_layer(l);
      drop_rest(l);
    }
    hooks_.end_backward();
    for (BufferId& buffer : held_) release(buffer);
    held_.clear();
  }

  void backward_layer(std::int32_t l) {
    const Checkpointing kind = checkpointing(l);
    const bool recomputes = kind == Checkpointing::full || kind == Checkpointing::selective_ops;
    const bool reentrant = kind == Checkpointing::full && program_.training().checkpointing.use_reentrant;
    const auto modules = static_cast<std::int32_t>(type(l).modules.size());
    reentrant ? hooks_.pre_recompute(l) : hooks_.pre_backward(l);
    if (recomputes) build_.call(HostCall::checkpoint);
    if (recomputes) forward_modules(l, 0, modules, Pass::recompute);
    if (reentrant) {
      hooks_.post_recompute(l);
      hooks_.pre_backward(l);
    }
    for (std::int32_t m = modules - 1; m >= 0; --m) {
      if (kind == Checkpointing::core_attention) recompute_core(l, m);
      backward_module(l, m);
    }
    hooks_.post_backward(l);
  }

  /// Megatron's selective checkpointing: the core modules run again just before the backward of the last of them.
  void recompute_core(std::int32_t l, std::int32_t m) {
    const auto& modules = type(l).modules;
    const auto is_core = [&](std::int32_t i) {
      return i >= 0 && i < static_cast<std::int32_t>(modules.size()) && modules[static_cast<std::size_t>(i)].core_attention;
    };
    if (!is_core(m) || is_core(m + 1)) return;
    std::int32_t first = m;
    while (is_core(first - 1)) --first;
    forward_modules(l, first, m + 1, Pass::recompute);
  }

  void backward_module(std::int32_t l, std::int32_t m) {
    const LayerType& kind = type(l);
    const Module& module = kind.modules[static_cast<std::size_t>(m)];
    auto& gradients = gradients_[static_cast<std::size_t>(l)];
    hooks_.pre_module_backward(l, m);
    const ModulePlan& plan = plan_of(l, m);
    for (std::size_t t : plan.last_read) {
      const Tensor& tensor = kind.tensors[t];
      const bool wanted =
          tensor.has_gradient && materialised(tensor) && (tensor.producer >= 0 || input_needs_gradient_[static_cast<std::size_t>(l)]);
      if (wanted && !gradients[t].valid()) gradients[t] = allocate_tensor(l, tensor, "gradient", tensor.gradient_dtype, true);
    }
    for (std::size_t t : plan.saved)
      if (kind.tensors[t].parameter_gradient) release_saved(l, t);
    const bool trains = produce_gradients(l, module);
    run(l, m, "backward", backward_work(l, m, trains), Pass::backward, module.backward_temporary);
    for (std::size_t t : plan.made) release_gradient(l, t);
    for (std::size_t t : plan.saved) release_saved(l, t);
    report_ready(l, plan);
    hooks_.post_module_backward(l, m);
  }

  [[nodiscard]] WorkId backward_work(std::int32_t l, std::int32_t m, bool trains) const {
    const ModuleWorks& works = works_[static_cast<std::size_t>(layer(l).type)][static_cast<std::size_t>(m)];
    const bool input = input_needs_gradient_[static_cast<std::size_t>(l)] || m > 0;
    const bool has_parameters = !type(l).modules[static_cast<std::size_t>(m)].parameters.empty();
    if (!input) return works.backward_frozen_input;
    return trains || !has_parameters ? works.backward : works.backward_frozen_weight;
  }

  /// Asks the strategy for memory of the gradients this module writes first; true if any of its parameters trains.
  bool produce_gradients(std::int32_t l, const Module& module) {
    bool trains = false;
    for (std::int32_t index : module.parameters) {
      const ParameterId p = layer(l).parameters[static_cast<std::size_t>(index)];
      if (!model_.at(p).trainable) continue;
      trains = true;
      if (produced_[static_cast<std::size_t>(p.index)]) continue;
      produced_[static_cast<std::size_t>(p.index)] = true;
      hooks_.produce_gradient(p);
    }
    return trains;
  }

  void report_ready(std::int32_t l, const ModulePlan& plan) {
    for (std::int32_t index : plan.arrival) {
      const ParameterId p = layer(l).parameters[static_cast<std::size_t>(index)];
      if (model_.at(p).trainable && uses_.first[static_cast<std::size_t>(p.index)] == l) hooks_.gradient_ready(p);
    }
  }

  /// A tensor that backward has used; a held input lives on.
  void release_saved(std::int32_t l, std::size_t t) {
    BufferId& buffer = buffers_[static_cast<std::size_t>(l)][t];
    const Tensor& tensor = type(l).tensors[t];
    if (buffer.valid() && (tensor.held || (tensor.producer < 0 && hooks_.holds_input(l))))
      held_.push_back(std::exchange(buffer, {}));
    else
      release(buffer);
  }

  /// The gradient of a layer's output is that of the next layer's input: held with it.
  void release_gradient(std::int32_t l, std::size_t t) {
    BufferId& gradient = gradients_[static_cast<std::size_t>(l)][t];
    const bool output = type(l).tensors[t].last_consumer == static_cast<std::int32_t>(type(l).modules.size());
    if (gradient.valid() && output && l + 1 < layer_count() && hooks_.holds_input(l + 1))
      held_.push_back(std::exchange(gradient, {}));
    else
      release(gradient);
  }

  /// Hands the gradient of the layer's input to the layer before, as the gradient of its output, and drops what nobody asked for.
  void drop_rest(std::int32_t l) {
    const auto& tensors = type(l).tensors;
    auto& gradients = gradients_[static_cast<std::size_t>(l)];
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      release_saved(l, t);
      if (!gradients[t].valid()) continue;
      if (tensors[t].producer < 0 && l > 0 && needs_backward_[static_cast<std::size_t>(l - 1)] && give_output_gradient(l - 1, gradients[t]))
        continue;
      release(gradients[t]);
    }
  }

  bool give_output_gradient(std::int32_t l, BufferId gradient) {
    const auto& tensors = type(l).tensors;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (tensors[t].producer < 0 || tensors[t].last_consumer != static_cast<std::int32_t>(type(l).modules.size())) continue;
      gradients_[static_cast<std::size_t>(l)][t] = gradient;
      return true;
    }
    return false;
  }

  Program& program_;
  ScheduleBuilder& build_;
  Hooks& hooks_;
  const Model& model_;
  Uses uses_;
  bool compile_;
  std::int32_t micro_batch_ = 0;
  std::vector<UnitId> units_;
  std::vector<std::vector<ModuleWorks>> works_;             // by layer type, module
  std::vector<std::vector<ModulePlan>> plans_;              // by layer type, module
  std::vector<std::vector<BufferId>> buffers_, gradients_;  // by layer, tensor
  std::vector<BufferId> held_;                              // inputs and their gradients that hooks keep alive
  std::vector<bool> input_needs_gradient_, needs_backward_;
  std::vector<bool> produced_;  // by parameter, in this backward
};

}  // namespace

std::array<Work, module_work_count> module_works(const Module& module) {
  Work both = module.backward_input;
  both += module.backward_weight;
  return {module.forward, std::move(both), module.backward_weight, module.backward_input};
}

void run_training_loop(Program& program, Hooks& hooks) { TrainingLoop(program, hooks).run(); }

std::vector<bool> layers_that_need_backward(const Model& model) {
  std::vector<bool> needs;
  bool before = false;
  for (const Layer& layer : *model.layers) {
    before = before || std::ranges::any_of(layer.parameters, [&](ParameterId p) { return model.at(p).trainable; });
    needs.push_back(before);
  }
  return needs;
}

std::vector<ParameterId> arrival_order(const Model& model) {
  const Uses uses(model);
  std::vector<std::vector<ModulePlan>> plans_of;  // by layer type
  for (const LayerType& type : model.types) plans_of.push_back(plan_modules(type));
  std::vector<ParameterId> order;
  const auto& layers = *model.layers;
  for (auto l = static_cast<std::int32_t>(layers.size()) - 1; l >= 0; --l) {
    const Layer& layer = layers[static_cast<std::size_t>(l)];
    const std::vector<ModulePlan>& plans = plans_of[static_cast<std::size_t>(layer.type)];
    for (auto plan = plans.rbegin(); plan != plans.rend(); ++plan)
      for (std::int32_t index : plan->arrival) {
        const ParameterId p = layer.parameters[static_cast<std::size_t>(index)];
        if (model.at(p).trainable && uses.first[static_cast<std::size_t>(p.index)] == l) order.push_back(p);
      }
  }
  return order;
}

}  // namespace shardsim
