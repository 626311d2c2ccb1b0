// SPDX-License-Identifier: Apache-2.0
// From an Architecture to a Model: every layer description at one batch shape, once for each way its parameters train.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
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
          .logits = training.logits,
          .compile = training.compile,
          .stored_bytes = architecture.quantization && !architecture.quantization->trainable ? architecture.quantization->bytes : 0,
          .fused = training.fused,
          .fp8_products = training.precision.fp8_products};
}

/// Norms and convolutions return the weight's gradient before the bias'; of a linear layer (addmm) autograd asks for the bias' first.
bool weight_first(const BuiltLayer& built, const Module& module) {
  return std::any_of(module.parameters.begin(), module.parameters.end(), [&](std::int32_t p) {
    const DeclaredParameter& declared = built.parameters[static_cast<std::size_t>(p)];
    return declared.name.ends_with("weight") && declared.shape.size() != 2;
  });
}

/// Parameters by registration index, and the order in which their gradients become final: modules in reverse order of use, each module's
/// parameters in the order in which its backward returns their gradients. A tied weight is final in the layer that uses it first.
void number_parameters(BuiltLayer& built, const std::vector<std::int32_t>& local) {
  std::vector<bool> in_order;
  for (Module& m : built.type.modules) {
    in_order.push_back(weight_first(built, m));
    for (std::int32_t& p : m.parameters) p = local[static_cast<std::size_t>(p)];
  }
  std::vector<bool> tied(local.size());
  for (std::size_t i = 0; i < local.size(); ++i) tied[static_cast<std::size_t>(local[i])] = !built.parameters[i].tied_to.empty();
  for (std::size_t m = built.type.modules.size(); m-- > 0;) {
    std::vector<std::int32_t>& own = built.type.modules[m].parameters;
    std::sort(own.begin(), own.end());
    std::vector<std::int32_t> order = own;
    if (!in_order[m]) std::reverse(order.begin(), order.end());
    std::copy_if(order.begin(), order.end(), std::back_inserter(built.type.arrival),
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

struct ModelWork {
  Flops all, fp8;
};

ModelWork work_of(const LayerType& type) {
  ModelWork sum;
  for (const Module& m : type.modules)
    for (const Work* work : {&m.forward, &m.backward_input, &m.backward_weight}) {
      sum.all += work->flops();
      if (work->dtype == DType::fp8) sum.fp8 += work->flops();
    }
  return sum;
}

/// Fills types, layers and FLOPs.
void build_layers(Model& model, const Architecture& architecture, const Tables& tables, const BatchShape& shape,
                  const Adaptation* adaptation) {
  std::map<Flow, std::int32_t> known;
  std::vector<std::int32_t> types;
  std::vector<ModelWork> work;
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
    model.model_flops_per_micro_batch += work[static_cast<std::size_t>(at->second)].all;
    model.fp8_flops_per_micro_batch += work[static_cast<std::size_t>(at->second)].fp8;
  }
  model.layers = tables.layers;
  if (same) return;
  std::vector<Layer> layers = *tables.layers;
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i].type = types[i];
  model.layers = std::make_shared<const std::vector<Layer>>(std::move(layers));
}

/// transformers keeps the rotary frequencies twice in one module of the model (inv_freq, original_inv_freq), in fp32; a norm between
/// convolutions is a batch norm: two running statistics, and an int64 that counts batches.
std::vector<ModuleBuffers> buffers_of(const Architecture& architecture) {
  std::int64_t frequencies = 0, statistics = 0, counters = 0;
  bool convolves = false;
  for (const LayerInstance& instance : architecture.instances) {
    const LayerSpec& spec = architecture.specs[static_cast<std::size_t>(instance.spec)];
    if (const auto* block = std::get_if<BlockSpec>(&spec.what); block && block->attention.rotary) {
      const AttentionSpec& a = block->attention;
      frequencies = a.projection == AttentionSpec::Projection::latent ? a.rope_dim : a.head_dim;  // half of it, twice
    }
    const auto* modules = std::get_if<InlineSpec>(&spec.what);
    if (!modules) continue;
    for (const InlineModule& m : modules->modules) {
      convolves = convolves || m.kind == InlineModule::Kind::conv2d;
      if (m.kind != InlineModule::Kind::norm) continue;
      statistics += 2 * m.out;
      ++counters;
    }
  }
  if (!convolves) statistics = counters = 0;
  std::vector<ModuleBuffers> buffers;
  if (frequencies + statistics > 0) buffers.push_back({DType::fp32, statistics == 0, Elements{frequencies + statistics}});
  if (counters > 0) buffers.push_back({DType::int64, false, Elements{counters}});
  return buffers;
}

Problems check_sequence(const Architecture& architecture, const Training& training) {
  Problems problems;
  if (architecture.learned_positions > 0 && training.sequence_length > architecture.learned_positions)
    problems.add({}, "a sequence of " + std::to_string(training.sequence_length) + " tokens is longer than the " +
                         std::to_string(architecture.learned_positions) + " positions that " + architecture.name + " has learned");
  const BatchShape shape = shape_of(architecture, training);
  const double tokens = static_cast<double>(shape.batch) * static_cast<double>(shape.sequence);
  const double scores = training.attention == AttentionKind::plain || architecture.dense_scores
                            ? static_cast<double>(shape.sequence) * static_cast<double>(architecture.heads)
                            : 1;
  if (tokens * std::max(architecture.widest, scores) > max_tensor)
    problems.add({}, "a micro-batch of " + std::to_string(shape.batch) + " sequences of " + std::to_string(shape.sequence) +
                         " tokens needs tensors of more than 10^15 elements");
  return problems;
}

}  // namespace

namespace {

/// Frozen linear weights of the blocks at their stored size: as many elements of the parameters' dtype as hold it (bitsandbytes packs
/// them so for FSDP, bnb_4bit_quant_storage). Training them is refused where their format has no gradients.
void pack_weights(const Architecture& architecture, const Precision& precision, Tables& tables, Problems& problems,
                  std::vector<std::string>& warnings) {
  const Quantization& q = *architecture.quantization;
  std::vector<bool> in_block(tables.parameters->size());
  for (std::size_t i = 0; i < architecture.instances.size(); ++i) {
    const LayerSpec& spec = architecture.specs[static_cast<std::size_t>(architecture.instances[i].spec)];
    if (!spec.block) continue;
    for (const ParameterId id : (*tables.layers)[i].parameters) in_block[static_cast<std::size_t>(id.index)] = true;
  }
  std::vector<Parameter> parameters = *tables.parameters;
  bool whole = false;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Parameter& p = parameters[i];
    if (!in_block[i] || p.shape.size() != 2 || !p.name.ends_with(".weight") || p.name.find(".lora_") != std::string::npos) continue;
    whole = whole || p.trainable;
    if (p.trainable) continue;
    const double stored = q.bytes * static_cast<double>(p.elements.value()), each = static_cast<double>(size_of(precision.parameters));
    if (stored / each < static_cast<double>(p.elements.value()))
      p.elements = Elements{std::max<std::int64_t>(1, std::llround(stored / each))};
  }
  if (whole && !q.trainable) {
    problems.add({},
                 "quantization_config: the weights of '" + architecture.name + "' are stored in " + q.method + " and cannot train whole",
                 {"train adapters (trainable: {lora: ...}), or take quantization_config out of the config.json"});
    return;
  }
  if (whole)
    warnings.push_back("quantization_config: the checkpoint's " + q.method + " weights are converted to the precision of the training");
  tables.parameters = std::make_shared<const std::vector<Parameter>>(std::move(parameters));
}

}  // namespace

Result<std::shared_ptr<const Model>> build_model(std::shared_ptr<const Architecture> architecture, const Training& training,
                                                 const Trainable& trainable) {
  Problems problems = check_sequence(*architecture, training);
  const Adaptation adaptation{trainable.lora_rank, trainable.targets, trainable.lora_dropout, trainable.lora_dtype};
  const bool adapted = trainable.lora_rank > 0;
  Tables tables = tables_for(*architecture, trainable, adaptation, problems);
  std::vector<std::string> warnings;
  if (architecture->quantization && problems.empty()) pack_weights(*architecture, training.precision, tables, problems, warnings);
  if (!problems.empty()) return tl::unexpected(std::move(problems));

  auto model = std::make_shared<Model>();
  model->name = architecture->name;
  model->family = architecture->family;
  model->warnings = architecture->warnings;
  model->warnings.insert(model->warnings.end(), warnings.begin(), warnings.end());
  model->parameters = tables.parameters;
  model->tied = tables.tied;
  const BatchShape shape = shape_of(*architecture, training);
  if (architecture->fixed_sequence > 0 && training.sequence_length != architecture->fixed_sequence)
    model->warnings.push_back("a sequence of " + architecture->name + " has " + std::to_string(architecture->fixed_sequence) +
                              " tokens (patches and the class token); training.sequence_length is not used");
  model->tokens_per_micro_batch = Tokens{shape.tokens()};
  model->flop_convention =
      "matrix products and attention, forward and backward, without recomputation: 6 N T + 12 L H Q s T for a model that trains all of N "
      "(no embedding lookup, no causal discount, active experts only)";
  model->buffers = buffers_of(*architecture);
  build_layers(*model, *architecture, tables, shape, adapted ? &adaptation : nullptr);
  return model;
}

/// By their shapes: the elements of packed weights are those of their storage.
Elements Model::total() const {
  std::int64_t sum = 0;
  for (const Parameter& p : *parameters) sum += std::accumulate(p.shape.begin(), p.shape.end(), std::int64_t{1}, std::multiplies<>());
  return Elements{sum};
}

Elements Model::trainable() const {
  Elements sum;
  for (const Parameter& p : *parameters)
    if (p.trainable) sum += p.elements;
  return sum;
}

}  // namespace shardsim
