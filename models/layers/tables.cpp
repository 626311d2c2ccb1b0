// SPDX-License-Identifier: Apache-2.0
// From layer descriptions to the tables of parameters and layers: names, registration order, ties.
#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "models/layers/layers.hpp"

namespace shardsim {
namespace {

/// Position of the first prefix (in whole path components) of `name`; the number of prefixes if none fits.
std::size_t rank_of(std::string_view name, const std::vector<std::string_view>& prefixes) {
  const auto fits = [name](std::string_view prefix) {
    return name.starts_with(prefix) && (name.size() == prefix.size() || name[prefix.size()] == '.');
  };
  return static_cast<std::size_t>(std::find_if(prefixes.begin(), prefixes.end(), fits) - prefixes.begin());
}

/// Indices of `names` in registration order: by prefix, else as they stand.
template <class NameOf>
std::vector<std::int32_t> sorted(std::size_t count, const std::vector<std::string_view>& prefixes, const NameOf& name_of) {
  std::vector<std::int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  if (prefixes.empty()) return order;
  std::vector<std::size_t> ranks(count);
  for (std::size_t i = 0; i < count; ++i) ranks[i] = rank_of(name_of(i), prefixes);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return ranks[static_cast<std::size_t>(a)] < ranks[static_cast<std::size_t>(b)]; });
  return order;
}

struct Declared {
  std::vector<DeclaredParameter> parameters;  // of one layer description, in registration order
  std::vector<std::int32_t> local;            // registration index of the i-th in order of use
};

Declared declare(const LayerSpec& spec, const Adaptation* adaptation) {
  BuiltLayer built = build_layer(spec, BatchShape{}, {.input_needs_gradient = true, .trainable = nullptr, .adaptation = adaptation});
  const auto order =
      sorted(built.parameters.size(), spec.registration, [&](std::size_t i) -> std::string_view { return built.parameters[i].name; });
  Declared declared;
  declared.local.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    declared.local[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
    declared.parameters.push_back(std::move(built.parameters[static_cast<std::size_t>(order[i])]));
  }
  return declared;
}

Parameter named(const LayerInstance& layer, const DeclaredParameter& declared) {
  Parameter p;
  p.name = layer.prefixed ? layer.name + '.' + declared.name : declared.name;
  p.shape = declared.shape;
  p.elements = Elements{std::accumulate(p.shape.begin(), p.shape.end(), std::int64_t{1}, std::multiplies<>())};
  p.trainable = !declared.by_rule;
  p.routed_expert = declared.routed_expert;
  return p;
}

/// Puts parameters into registration order and renumbers what refers to them.
void reorder(std::vector<Parameter>& parameters, std::vector<Layer>& layers, const std::vector<std::string_view>& registration) {
  if (registration.empty()) return;
  const auto order = sorted(parameters.size(), registration, [&](std::size_t i) -> std::string_view { return parameters[i].name; });
  std::vector<Parameter> moved;
  std::vector<std::int32_t> position(order.size());
  moved.reserve(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    moved.push_back(std::move(parameters[static_cast<std::size_t>(order[i])]));
    position[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  }
  parameters = std::move(moved);
  for (Layer& layer : layers)
    for (ParameterId& id : layer.parameters) id.index = position[static_cast<std::size_t>(id.index)];
}

}  // namespace

Tables tabulate(const Architecture& architecture, const Adaptation* adaptation) {
  std::vector<Declared> declared;
  for (const LayerSpec& spec : architecture.specs) declared.push_back(declare(spec, adaptation));

  std::vector<Parameter> parameters;
  std::vector<Layer> layers;
  std::map<std::string, std::int32_t, std::less<>> first_layer;  // parameters of the layers around the blocks, which others may tie to
  std::vector<std::string> tied;
  for (const LayerInstance& instance : architecture.instances) {
    Layer layer{instance.name, instance.spec, {}};
    for (const DeclaredParameter& p : declared[static_cast<std::size_t>(instance.spec)].parameters) {
      if (!p.tied_to.empty()) {
        const auto found = first_layer.find(p.tied_to);
        if (found == first_layer.end()) throw std::logic_error("tied to a parameter that is not there: " + p.tied_to);
        layer.parameters.push_back({found->second});
        tied.push_back(p.tied_to);
        continue;
      }
      layer.parameters.push_back({static_cast<std::int32_t>(parameters.size())});
      parameters.push_back(named(instance, p));
      if (!instance.prefixed || architecture.family == "layers") first_layer.emplace(parameters.back().name, layer.parameters.back().index);
    }
    layers.push_back(std::move(layer));
  }
  reorder(parameters, layers, architecture.registration);

  Tables tables;
  for (const std::string& name : tied) {
    const auto at = std::find_if(parameters.begin(), parameters.end(), [&](const Parameter& p) { return p.name == name; });
    const ParameterId id{static_cast<std::int32_t>(at - parameters.begin())};
    if (std::none_of(tables.tied.begin(), tables.tied.end(), [&](ParameterId known) { return known.index == id.index; }))
      tables.tied.push_back(id);
  }
  for (Declared& d : declared) tables.local.push_back(std::move(d.local));
  tables.parameters = std::make_shared<const std::vector<Parameter>>(std::move(parameters));
  tables.layers = std::make_shared<const std::vector<Layer>>(std::move(layers));
  return tables;
}

}  // namespace shardsim
