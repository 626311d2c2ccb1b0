// SPDX-License-Identifier: Apache-2.0
#include "studies/plan/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sim/base/units_text.hpp"
#include "studies/compare/variant.hpp"
#include "studies/plan/feasible.hpp"
#include "studies/plan/words.hpp"
#include "studies/sweep/sweep_plan.hpp"

namespace shardsim {
namespace {

// Compute-optimal training: 20 tokens a parameter (Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models").
constexpr double tokens_per_parameter = 20;
// 419 unexpected interruptions in 54 days on 2,048 nodes: 54 * 24 * 2048 / 419 hours a node (Llama 3 paper, section 3.3.4).
constexpr Seconds typical_node_mtbf{54.0 * 24 * 2048 / 419 * 3600};
constexpr Seconds typical_restart{600};
constexpr ByteRate typical_storage{2e9};
constexpr std::int64_t most_nodes_by_default = 64;
// Fine-tuning goes over a data set a few times: three epochs (the recipes of Alpaca, Taori et al. 2023) of its 52,000 samples.
constexpr std::int64_t usual_epochs = 3, usual_samples = 52'000;

std::vector<std::string> texts(const ConfigNode& list, Problems& problems, const std::vector<std::string>& allowed) {
  std::vector<std::string> out;
  if (list.kind != ConfigNode::Kind::list || list.items.empty()) problems.add(list.where, "expected a list of at least one value");
  for (const ConfigNode& item : list.items) {
    out.push_back(flow_text(item));
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), out.back()) == allowed.end())
      problems.add(item.where, fmt::format("unknown value '{}'", out.back()), notes_for_unknown(out.back(), allowed));
  }
  return out;
}

std::vector<std::int64_t> integers(const ConfigNode& list, Problems& problems) {
  std::vector<std::int64_t> out;
  if (list.kind != ConfigNode::Kind::list || list.items.empty()) problems.add(list.where, "expected a list of at least one whole number");
  for (const ConfigNode& item : list.items)
    if (const auto value = as_integer(item, problems, 1, std::int64_t{1} << 24)) out.push_back(*value);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

/// Node counts that may be used. A world beyond 2^24 ranks is refused as it is in a scenario.
std::vector<std::int64_t> node_counts(const ConfigNode& list, Problems& problems, std::int64_t gpus_per_node) {
  if (list.kind == ConfigNode::Kind::list)
    for (const ConfigNode& item : list.items) {
      Problems not_whole;
      const auto nodes = as_integer(item, not_whole, 1, most_gpus);
      if (nodes && *nodes * gpus_per_node > most_gpus)
        problems.add(item.where,
                     fmt::format("{} nodes of {} are more than {}", grouped(*nodes), gpus_text(gpus_per_node), gpus_text(most_gpus)));
    }
  return integers(list, problems);
}

/// Values of training.activation_checkpointing; one that no scenario may have is a problem where it stands.
std::vector<std::string> checkpointing_values(const ConfigNode& list, Problems& problems, const Scenario& scenario) {
  std::vector<std::string> values = texts(list, problems, {});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto changed = vary(scenario, {"training.activation_checkpointing=" + values[i]});
    if (changed) continue;
    for (const Problem& problem : changed.error().list())
      if (problem.where.source && problem.where.source->name == "--set") problems.add(list.items[i].where, problem.message, problem.notes);
  }
  return values;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const StrategyInfo& info : strategies()) names.push_back(info.name);
  return names;
}

/// "8 %" or 0.08.
double read_share(const ConfigNode& node, Problems& problems) {
  ConfigNode number = node;
  const bool percent = node.kind == ConfigNode::Kind::scalar && node.text.ends_with('%');
  if (percent) number.text = node.text.substr(0, node.text.find_last_not_of(" %") + 1);
  return as_number(number, problems, 0, percent ? 90 : 0.9).value_or(0) / (percent ? 100 : 1);
}

/// The scenario's own value first, then the usual ones.
std::vector<std::string> with_own(const Scenario& scenario, std::string_view key, std::vector<std::string> usual) {
  const ConfigNode* block = scenario.root.find("training");
  const ConfigNode* own = block == nullptr ? nullptr : block->find(key);
  if (own == nullptr || own->kind == ConfigNode::Kind::null) return usual;
  std::vector<std::string> values{flow_text(*own)};
  for (std::string& value : usual)
    if (value != values.front()) values.push_back(std::move(value));
  return values;
}

std::vector<std::int64_t> default_nodes(const Scenario& scenario, std::int64_t global_batch) {
  std::vector<std::int64_t> nodes{scenario.cluster.nodes};
  const std::int64_t most = std::max(most_nodes_by_default, scenario.cluster.nodes);
  for (std::int64_t n = 1; n <= most && n * scenario.cluster.gpus_per_node <= std::max(global_batch, scenario.cluster.gpus_per_node);
       n *= 2)
    nodes.push_back(n);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

/// A time or a rate of which there must be some: with none of it nothing would ever be trained.
template <class Quantity>
Quantity positive(MapReader& reader, std::string_view key, Quantity value) {
  if (reader.has(key) && value == Quantity{} && reader.problems().empty())
    reader.problems().add(reader.find(key)->where, fmt::format("{} must be more than 0", key));
  return value;
}

void read_money_and_failures(PlanRequest& request, MapReader& reader, const Profile& profile) {
  constexpr double unlimited = std::numeric_limits<double>::max();
  request.price_per_gpu_hour = profile.price_per_gpu_hour;
  if (reader.has("price_per_gpu_hour"))
    request.price_per_gpu_hour = reader.number("price_per_gpu_hour", 0, 0, unlimited);
  else if (request.price_per_gpu_hour)
    request.assumptions.push_back(fmt::format("a GPU-hour costs ${:.2f}, as the profile says", *request.price_per_gpu_hour));
  request.node_mtbf = positive(reader, "node_mtbf", reader.seconds("node_mtbf", typical_node_mtbf));
  request.restart = reader.seconds("restart", typical_restart);
  if (reader.has("checkpoint_interval"))
    request.checkpoint_interval = positive(reader, "checkpoint_interval", reader.seconds("checkpoint_interval", {}));
  const ByteRate storage = profile.storage ? profile.storage->write_per_node : typical_storage;
  request.checkpoint_bandwidth = positive(reader, "checkpoint_bandwidth", reader.byte_rate("checkpoint_bandwidth", storage));
  if (!reader.has("node_mtbf"))
    request.assumptions.push_back(
        fmt::format("a node fails every {} hours, as Meta reports for Llama 3", whole_text(request.node_mtbf.base() / 3600)));
  if (!reader.has("checkpoint_bandwidth"))
    request.assumptions.push_back(fmt::format("a node writes checkpoints at {}", to_text(request.checkpoint_bandwidth)));
}

/// Strategies that the job can move to by an option or a few lines are those of its own library; another library is another code base.
void read_strategies(PlanRequest& request, MapReader& reader, const Scenario& scenario) {
  const ConfigNode* list = reader.find("strategies");
  if (list != nullptr && list->kind == ConfigNode::Kind::scalar && list->text == "all") {
    request.strategies = strategy_names();
  } else if (list != nullptr) {
    request.strategies = texts(*list, reader.problems(), strategy_names());
  } else {
    for (const StrategyInfo& info : strategies())
      (same_library(info.name, scenario.strategy.name) ? request.strategies : request.others).push_back(info.name);
    request.assumptions.push_back(
        fmt::format("only strategies of {}, which the scenario's {} is of, are chosen from; plan.strategies names others",
                    library_of(scenario.strategy.name), scenario.strategy.name));
  }
  const auto senseless = [&](const std::string& name) { return !makes_sense(name, scenario); };
  if (list == nullptr || list->kind == ConfigNode::Kind::scalar) {
    std::erase_if(request.strategies, senseless);
    std::erase_if(request.others, senseless);
  }
}

void read_choices(PlanRequest& request, MapReader& reader, const Scenario& scenario) {
  Problems& problems = reader.problems();
  read_strategies(request, reader, scenario);
  request.headroom = reader.has("headroom") ? read_share(*reader.find("headroom"), problems) : request.headroom;
  if (!reader.has("headroom"))
    request.assumptions.push_back(fmt::format("{:.0f} % of the memory stays free (plan.headroom)", request.headroom * 100));
  if (const ConfigNode* list = reader.find("micro_batch_sizes")) request.micro_batches = integers(*list, problems);
  request.checkpointing = with_own(scenario, "activation_checkpointing", {"none", "selective_ops", "full"});
  if (const ConfigNode* list = reader.find("activation_checkpointing"))
    request.checkpointing = checkpointing_values(*list, problems, scenario);
  request.offload = with_own(scenario, "offload", {"none"});
  if (const ConfigNode* list = reader.find("offload")) {
    request.offload = texts(*list, problems, {"none", "optimizer", "all"});
    for (std::string& value : request.offload) {
      if (value == "optimizer") value = "{optimizer: cpu}";
      if (value == "all") value = "{parameters: cpu, optimizer: cpu}";
    }
  }
  request.hybrid = reader.boolean("hybrid", true);
}

/// Pre-training is told by its tokens; fine-tuning, which frozen parameters or a data set give away, by epochs of the data set.
void read_tokens(PlanRequest& request, MapReader& reader, const Scenario& scenario) {
  const Model& model = *scenario.model;
  const bool has_data_set = reader.has("epochs") || reader.has("samples"), fine_tunes = has_data_set || model.trainable() != model.total();
  const std::int64_t epochs = reader.integer("epochs", usual_epochs, 1, 1'000'000),
                     samples = reader.integer("samples", usual_samples, 1, std::int64_t{1} << 48);
  const double data_set =
      static_cast<double>(epochs) * static_cast<double>(samples) * static_cast<double>(scenario.training.sequence_length);
  const double usual = fine_tunes ? data_set : tokens_per_parameter * static_cast<double>(model.total().value());
  if (has_data_set && reader.has("tokens"))
    reader.problems().add(reader.find("tokens")->where, "tokens, and epochs of samples, say the same thing: give one of them");
  request.tokens = reader.number("tokens", usual, 1, 1e18);
  if (!reader.has("tokens") && !fine_tunes)
    request.assumptions.push_back(fmt::format("training takes 20 tokens a parameter, {} in all", tokens_text(request.tokens)));
  else if (!reader.has("tokens") && !(reader.has("epochs") && reader.has("samples")))
    request.assumptions.push_back(
        fmt::format("fine-tuning takes {} epochs of {} samples, each as long as the sequence, {} in all (plan.epochs, plan.samples)",
                    epochs, grouped(samples), tokens_text(request.tokens)));
  if (reader.has("days")) request.days = reader.number("days", 0, 1e-6, 1e6);
}

}  // namespace

Result<PlanRequest> read_plan(const Scenario& scenario) {
  Problems problems;
  ConfigNode empty;
  empty.kind = ConfigNode::Kind::map;
  const ConfigNode* block = scenario.root.find("plan");
  MapReader reader(block == nullptr || block->kind == ConfigNode::Kind::null ? empty : *block, problems, "plan");

  PlanRequest request;
  const std::int64_t own =
      scenario.training.micro_batch_size * scenario.training.gradient_accumulation_steps * scenario.cluster.world_size();
  request.global_batch = reader.integer("global_batch", own, 1, std::int64_t{1} << 32);
  if (!reader.has("global_batch"))
    request.assumptions.push_back(
        fmt::format("the global batch is the scenario's, {} {}", grouped(own), own == 1 ? "sequence" : "sequences"));
  read_tokens(request, reader, scenario);
  request.nodes = default_nodes(scenario, request.global_batch);
  if (const ConfigNode* list = reader.find("nodes")) {
    request.nodes = node_counts(*list, problems, scenario.cluster.gpus_per_node);
    request.parts_of_a_node = false;
  }
  read_choices(request, reader, scenario);
  read_money_and_failures(request, reader, scenario.cluster.profile);
  reader.finish();
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  return request;
}

}  // namespace shardsim
