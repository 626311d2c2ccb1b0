// SPDX-License-Identifier: Apache-2.0
#include "scenarios/reader/scenario_cache.hpp"

#include <fmt/format.h>

#include <tuple>

#include "scenarios/reader/reading.hpp"
#include "sim/config/node_cache.hpp"

namespace shardsim {
namespace {

/// Ops of a schedule grow with this product: beyond it a simulation takes minutes and more than 4 GB.
constexpr std::int64_t most_layer_passes = std::int64_t{1} << 16;

/// Dtypes in which the GPU computes are those that its profile has a peak for.
void check_compute(const Scenario& scenario, const Where& where, Problems& problems) {
  const DType compute = scenario.training.precision.fp8_products ? DType::fp8 : scenario.training.precision.compute;
  const Gpu& gpu = scenario.cluster.profile.gpu;
  if (gpu.peak.contains(compute)) return;
  std::vector<std::string> known;
  for (const auto& [type, rate] : gpu.peak) known.emplace_back(name_of(type));
  problems.add(where, fmt::format("the profile of {} has no peak for {}", gpu.name, name_of(compute)), notes_for_unknown("", known));
}

Where place_of(const ConfigNode& root, std::string_view block, std::string_view key) {
  const ConfigNode* map = root.find(block);
  const ConfigNode* value = map ? map->find(key) : nullptr;
  return value ? value->where : map ? map->where : root.where;
}

/// The checkpoint's format must be one that the strategy's library writes, and the strategy must run on the ranks that load it.
void check_loading(const Scenario& scenario, Problems& problems) {
  append_at(problems, check_checkpoint(scenario.job(), *scenario.checkpoint), place_of(scenario.root, "checkpoint", "format"));
  if (!scenario.checkpoint->load_world_size) return;
  append_at(problems, check(loading_job(scenario.job(), *scenario.checkpoint)), place_of(scenario.root, "checkpoint", "load_world_size"));
}

/// What needs more than one block: the model at its batch shape, the strategy on its world.
void complete(Scenario& scenario, const Result<std::shared_ptr<const Model>>& model, Problems& problems) {
  check_compute(scenario, place_of(scenario.root, "training", "precision"), problems);
  if (!model) return append_at(problems, model.error(), place_of(scenario.root, "model", ""));
  scenario.model = *model;
  const Offload& offload = scenario.training.offload;
  if (offload.parameters == OffloadTarget::nvme || offload.optimizer == OffloadTarget::nvme)
    scenario.warnings.push_back("offload to nvme is simulated as offload to host memory: the time of the drives is not counted");
  scenario.warnings.insert(scenario.warnings.end(), scenario.model->warnings.begin(), scenario.model->warnings.end());
  const auto layers = static_cast<std::int64_t>(scenario.model->layers->size());
  if (layers * scenario.training.gradient_accumulation_steps > most_layer_passes) {
    problems.add(
        place_of(scenario.root, "training", "gradient_accumulation_steps"),
        fmt::format("{} layers in {} micro-batches are more than are simulated", layers, scenario.training.gradient_accumulation_steps),
        {fmt::format("at most {} micro-batches of this model", most_layer_passes / layers)});
  }
  if (problems.empty()) append_at(problems, check(scenario.job()), place_of(scenario.root, "strategy", "name"));
  if (problems.empty() && scenario.checkpoint) check_loading(scenario, problems);
}

/// Training as the stack runs it.
Training run_by(Training training, const Stack& stack) {
  training.fused = stack.fused;
  return training;
}

struct ClusterChoice {
  Cluster cluster;
  std::vector<std::string> warnings;
};

/// The block's value as it was made before, or as `make` makes it now. What has problems is not kept.
template <class Value, class Make>
std::shared_ptr<const Value> known_or(ByTree<Value>& known, const ConfigNode& block, const Problems& problems, Make make) {
  if (auto value = known.find(block)) return value;
  const bool clean = problems.empty();
  auto value = std::make_shared<const Value>(make());
  if (clean && problems.empty()) known.add(block, value);
  return value;
}

}  // namespace

struct ScenarioCache::Blocks {
  using ModelKey = std::tuple<std::shared_ptr<const ModelChoice>, std::shared_ptr<const Training>, std::shared_ptr<const Stack>>;

  explicit Blocks(std::size_t most) : models(most), clusters(most), trainings(most), strategies(most), stacks(most), built(most) {}

  /// The model at its batch shape. Equal blocks have equal pointers, so these stand for them.
  Result<std::shared_ptr<const Model>> build(const ModelKey& key) {
    if (auto model = built.find(key)) return model;
    const auto& [choice, training, stack] = key;
    auto model = build_model(choice->architecture, run_by(*training, *stack), choice->trainable);
    if (model) built.add(key, *model);
    return model;
  }

  std::shared_ptr<const Stack> stack(const ConfigNode& node, const std::string& folder, Problems& problems) {
    if (auto known = stacks.find(node)) return known;
    auto stack = read_stack_choice(node, folder, problems);
    if (stack) stacks.add(node, stack);
    return stack;
  }

  ByTree<ModelChoice> models;
  ByTree<ClusterChoice> clusters;
  ByTree<Training> trainings;
  ByTree<StrategyChoice> strategies;
  ByTree<Stack> stacks;
  RecentValues<ModelKey, Model> built;
  std::shared_ptr<const Training> usual_training = std::make_shared<const Training>();
};

ScenarioCache::ScenarioCache(std::string file, std::string folder, std::size_t most)
    : file_(std::move(file)), folder_(std::move(folder)), blocks_(std::make_unique<Blocks>(most)) {}

ScenarioCache::~ScenarioCache() = default;

Result<Scenario> ScenarioCache::read(ConfigNode root) {
  Problems problems;
  Scenario scenario;
  scenario.file = file_;
  scenario.root = std::move(root);
  auto model = std::make_shared<const ModelChoice>();
  auto training = blocks_->usual_training;
  MapReader reader(scenario.root, problems, "the scenario");
  if (const ConfigNode* block = reader.require("model"))
    model = known_or(blocks_->models, *block, problems, [&] { return read_model(*block, folder_, problems); });
  if (const ConfigNode* block = reader.require("cluster")) {
    const auto choice = known_or(blocks_->clusters, *block, problems, [&] {
      ClusterChoice made;
      made.cluster = read_cluster(*block, folder_, problems, made.warnings);
      return made;
    });
    scenario.cluster = choice->cluster;
    scenario.warnings = choice->warnings;
  }
  if (const ConfigNode* block = reader.find("training"))
    training = known_or(blocks_->trainings, *block, problems, [&] { return read_training(*block, problems); });
  if (const ConfigNode* block = reader.find("strategy"))
    scenario.strategy = *known_or(blocks_->strategies, *block, problems, [&] { return read_strategy(*block, problems); });
  if (const ConfigNode* block = reader.find("checkpoint"))
    scenario.checkpoint = read_checkpoint(*block, scenario.cluster.profile.storage, problems);
  if (const ConfigNode* list = reader.find("expect")) scenario.expect = read_expectations(*list, problems);
  for (const std::string_view key : {"plan", "measured"}) reader.ignore(key);  // their studies read them from the tree
  reader.finish();
  scenario.architecture = model->architecture;
  scenario.training = *training;
  scenario.stack = blocks_->stack(stack_node(scenario.root, scenario.strategy), folder_, problems);
  if (problems.empty()) {
    scenario.training = run_by(*training, *scenario.stack);
    complete(scenario, blocks_->build({model, training, scenario.stack}), problems);
  }
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  return scenario;
}

}  // namespace shardsim
