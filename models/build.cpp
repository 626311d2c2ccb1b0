// SPDX-License-Identifier: Apache-2.0
// From an Architecture to a Model: every layer description at one batch shape, once for each way its parameters train.
#include <algorithm>
#include <map>
#include <utility>

#include "models/families/hf_config.hpp"
#include "models/layers/layers.hpp"
#include "models/trainable.hpp"

namespace shardsim {
namespace {

/// Keeps every product of sizes within 64 bits.
constexpr double max_tensor = 1e15;

BatchShape shape_of(const Architecture& architecture, const Training& training) {
  return {.batch = training.micro_batch_size,
          .sequence = architecture.fixed_sequence > 0 ? architecture.fixed_sequence : training.sequence_length,
          .compute = training.precision.compute,
          .parameters = training.precision.parameters,
          .dropout = training.dropout,
          .attention = training.attention,
          .loss = training.loss,
          .compile = training.compile};
}

/// Parameters by registration index, and the order in which their gradients become final: modules in reverse order of use, each module's
/// parameters in reverse registration order. A tied weight is final in the layer that uses it first.
void number_parameters(BuiltLayer& built, const std::vector<std::int32_t>& local) {
  for (Module& m : built.type.modules)
    for (std::int32_t& p : m.parameters) p = local[static_cast<std::size_t>(p)];
  std::vector<bool> tied(local.size());
  for (std::size_t i = 0; i < local.size(); ++i) tied[static_cast<std::size_t>(local[i])] = !built.parameters[i].tied_to.empty();
  for (auto m = built.type.modules.rbegin(); m != built.type.modules.rend(); ++m) {
    std::sort(m->parameters.begin(), m->parameters.end());
    std::copy_if(m->parameters.rbegin(), m->parameters.rend(), std::back_inserter(built.type.arrival),
                 [&](std::int32_t p) { return !tied[static_cast<std::size_t>(p)]; });
  }
}

/// How the parameters of one layer train, in order of use, and whether a gradient leaves the layer at its input.
struct Flow {
  std::int32_t spec = 0;
  bool input_needs_gradient = false;
  std::vector<bool> trainable;
  auto operator<=>(const Flow&) const = default;
};

Flow flow_of(const Layer& layer, bool input_needs_gradient, const std::vector<Parameter>& parameters,
             const std::vector<std::int32_t>& local) {
  Flow flow{layer.type, input_needs_gradient, std::vector<bool>(local.size())};
  for (std::size_t i = 0; i < local.size(); ++i) {
    const ParameterId id = layer.parameters[static_cast<std::size_t>(local[i])];
    flow.trainable[i] = parameters[static_cast<std::size_t>(id.index)].trainable;
  }
  return flow;
}

Flops work_of(const LayerType& type) {
  Flops sum;
  for (const Module& m : type.modules) sum += m.forward.flops() + m.backward_input.flops() + m.backward_weight.flops();
  return sum;
}

/// Fills types, layers and FLOPs.
void build_layers(Model& model, const Architecture& architecture, const Tables& tables, const BatchShape& shape,
                  const Adaptation* adaptation) {
  std::map<Flow, std::int32_t> known;
  std::vector<std::int32_t> types;
  std::vector<Flops> work;
  bool gradient_flows = false, same = true;
  for (const Layer& layer : *tables.layers) {
    const auto& local = tables.local[static_cast<std::size_t>(layer.type)];
    Flow flow = flow_of(layer, gradient_flows, *tables.parameters, local);
    gradient_flows = gradient_flows || std::find(flow.trainable.begin(), flow.trainable.end(), true) != flow.trainable.end();
    const auto [at, fresh] = known.try_emplace(std::move(flow), static_cast<std::int32_t>(model.types.size()));
    if (fresh) {
      BuiltLayer built = build_layer(
          architecture.specs[static_cast<std::size_t>(layer.type)], shape,
          {.input_needs_gradient = at->first.input_needs_gradient, .trainable = &at->first.trainable, .adaptation = adaptation});
      number_parameters(built, local);
      work.push_back(work_of(built.type));
      model.types.push_back(std::move(built.type));
    }
    types.push_back(at->second);
    same = same && at->second == layer.type;
    model.model_flops_per_micro_batch += work[static_cast<std::size_t>(at->second)];
  }
  model.layers = tables.layers;
  if (same) return;
  std::vector<Layer> layers = *tables.layers;
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].type = types[i];
  model.layers = std::make_shared<const std::vector<Layer>>(std::move(layers));
}

Problems check_sequence(const Architecture& architecture, const Training& training) {
  Problems problems;
  if (architecture.learned_positions > 0 && training.sequence_length > architecture.learned_positions)
    problems.add({}, "a sequence of " + std::to_string(training.sequence_length) + " tokens is longer than the " +
                         std::to_string(architecture.learned_positions) + " positions that " + architecture.name + " has learned");
  const BatchShape shape = shape_of(architecture, training);
  const double tokens = static_cast<double>(shape.batch) * static_cast<double>(shape.sequence);
  const double scores =
      training.attention == AttentionKind::plain ? static_cast<double>(shape.sequence) * static_cast<double>(architecture.heads) : 1;
  if (tokens * std::max(architecture.widest, scores) > max_tensor)
    problems.add({}, "a micro-batch of " + std::to_string(shape.batch) + " sequences of " + std::to_string(shape.sequence) +
                         " tokens needs tensors of more than 10^15 elements");
  return problems;
}

}  // namespace

Result<std::shared_ptr<const Model>> build_model(std::shared_ptr<const Architecture> architecture, const Training& training,
                                                 const Trainable& trainable) {
  Problems problems = check_sequence(*architecture, training);
  const Adaptation adaptation{trainable.lora_rank, trainable.targets, trainable.lora_dropout, trainable.lora_dtype};
  const bool adapted = trainable.lora_rank > 0;
  const Tables tables = tables_for(*architecture, trainable, adaptation, problems);
  if (!problems.empty()) return tl::unexpected(std::move(problems));

  auto model = std::make_shared<Model>();
  model->name = architecture->name;
  model->family = architecture->family;
  model->warnings = architecture->warnings;
  model->parameters = tables.parameters;
  model->tied = tables.tied;
  const BatchShape shape = shape_of(*architecture, training);
  if (architecture->fixed_sequence > 0 && training.sequence_length != architecture->fixed_sequence)
    model->warnings.push_back("a sequence of " + architecture->name + " has " + std::to_string(architecture->fixed_sequence) +
                              " tokens (patches and the class token); training.sequence_length is not used");
  model->tokens_per_micro_batch = Tokens{shape.tokens()};
  model->flop_convention =
      "matrix products and attention, forward and backward, without recomputation: 6 N T + 12 L H Q T for a model that trains all of N "
      "(no embedding lookup, no causal discount, active experts only)";
  build_layers(*model, *architecture, tables, shape, adapted ? &adaptation : nullptr);
  return model;
}

Elements Model::total() const {
  Elements sum;
  for (const Parameter& p : *parameters) sum += p.elements;
  return sum;
}

Elements Model::trainable() const {
  Elements sum;
  for (const Parameter& p : *parameters)
    if (p.trainable) sum += p.elements;
  return sum;
}

}  // namespace shardsim
