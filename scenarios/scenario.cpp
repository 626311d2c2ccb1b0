// SPDX-License-Identifier: Apache-2.0
#include "scenarios/scenario.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "scenarios/reading.hpp"

namespace shardsim {
namespace {

/// Ops of a schedule grow with this product: beyond it a simulation takes minutes and more than 4 GB.
constexpr std::int64_t most_layer_passes = std::int64_t{1} << 16;

/// Dtypes in which the GPU computes are those that its profile has a peak for.
void check_compute(const Scenario& scenario, const Where& where, Problems& problems) {
  const DType compute = scenario.training.precision.compute;
  const Gpu& gpu = scenario.cluster.profile.gpu;
  if (gpu.peak.contains(compute)) return;
  std::vector<std::string> known;
  for (const auto& [type, rate] : gpu.peak) known.emplace_back(name_of(type));
  problems.add(where, fmt::format("the profile of {} has no peak for {}", gpu.name, name_of(compute)), notes_for_unknown("", known));
}

Where place_of(const Node& root, std::string_view block, std::string_view key) {
  const Node* map = root.find(block);
  const Node* value = map ? map->find(key) : nullptr;
  return value ? value->where : map ? map->where : root.where;
}

/// What needs more than one block: the model at its batch shape, the strategy on its world.
void complete(Scenario& scenario, const Trainable& trainable, Problems& problems) {
  check_compute(scenario, place_of(scenario.root, "training", "precision"), problems);
  const auto model = build_model(scenario.architecture, scenario.training, trainable);
  if (!model) return append_at(problems, model.error(), place_of(scenario.root, "model", ""));
  scenario.model = *model;
  scenario.warnings.insert(scenario.warnings.end(), scenario.model->warnings.begin(), scenario.model->warnings.end());
  const auto layers = static_cast<std::int64_t>(scenario.model->layers->size());
  if (layers * scenario.training.gradient_accumulation_steps > most_layer_passes) {
    problems.add(
        place_of(scenario.root, "training", "gradient_accumulation_steps"),
        fmt::format("{} layers in {} micro-batches are more than are simulated", layers, scenario.training.gradient_accumulation_steps),
        {fmt::format("at most {} micro-batches of this model", most_layer_passes / layers)});
  }
  if (problems.empty()) append_at(problems, check(scenario.job()), place_of(scenario.root, "strategy", "name"));
}

}  // namespace

Job Scenario::job() const {
  Job job;
  job.model = model.get();
  job.training = training;
  job.strategy = strategy;
  job.world_size = cluster.world_size();
  job.gpus_per_node = cluster.gpus_per_node;
  return job;
}

Result<Scenario> read_scenario(Node root, const std::string& file, const std::string& folder) {
  Problems problems;
  Scenario scenario;
  scenario.file = file;
  scenario.root = std::move(root);
  ModelChoice model;
  MapReader reader(scenario.root, problems, "the scenario");
  if (const Node* block = reader.require("model")) model = read_model(*block, folder, problems);
  if (const Node* block = reader.require("cluster")) scenario.cluster = read_cluster(*block, folder, problems, scenario.warnings);
  if (const Node* block = reader.find("training")) scenario.training = read_training(*block, problems);
  if (const Node* block = reader.find("strategy")) scenario.strategy = read_strategy(*block, problems);
  if (const Node* list = reader.find("expect")) scenario.expect = read_expectations(*list, problems);
  reader.ignore("plan");  // the planner reads it from the tree
  reader.finish();
  scenario.architecture = model.architecture;
  if (problems.empty()) complete(scenario, model.trainable, problems);
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  return scenario;
}

Result<Scenario> load_scenario(const std::string& path, const std::vector<std::string>& assignments) {
  const auto source = read_source(path);
  if (!source) return tl::make_unexpected(source.error());
  Result<Node> root = read_yaml(*source);
  if (!root) return tl::make_unexpected(root.error());
  Problems problems;
  for (const std::string& assignment : assignments) {
    Result<Node> changed = with_override(*root, assignment);
    if (changed)
      root = std::move(changed);
    else
      problems.append(changed.error());
  }
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  return read_scenario(std::move(*root), path, std::filesystem::path(path).parent_path().string());
}

}  // namespace shardsim
