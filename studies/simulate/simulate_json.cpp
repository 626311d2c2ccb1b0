// SPDX-License-Identifier: Apache-2.0
#include "studies/simulate/simulate_json.hpp"

#include <algorithm>
#include <array>

#include "sim/base/csv.hpp"
#include "sim/engine/measured_run.hpp"
#include "sim/engine/unlike_ranks.hpp"
#include "sim/memory/memory_explanation.hpp"
#include "sim/schedule/checkpoint_report.hpp"

namespace shardsim {
namespace {

Json number(Bytes bytes) { return bytes.value(); }

Json by_group(const Traffic& traffic) {
  Json::List rows;
  for (const TrafficRow& row : traffic.by_group) {
    if (row.control) continue;  // counted in control_bytes_per_rank
    Json json(Json::Object{{"group", row.group},
                           {"collective", name_of(row.collective)},
                           {"dtype", name_of(row.dtype)},
                           {"payload_bytes", number(row.payload)},
                           {"calls", row.calls},
                           {"sent_bytes_per_rank", number(row.sent_per_rank)},
                           {"algorithm", row.algorithm},
                           {"cost_model", row.cost_model}});
    if (!row.bottleneck.empty()) json.add("bottleneck_link", row.bottleneck);
    if (row.multiprocessors > 0) json.add("multiprocessors", row.multiprocessors);
    rows.push_back(std::move(json));
  }
  return rows;
}

enum class Lists : std::uint8_t { with, without };

Json traffic_json(const Traffic& traffic, Lists lists) {
  Json sent(Json::Object{{"total", number(traffic.total)}});
  for (Collective c : all_collectives) sent.add(std::string(name_of(c)), number(traffic.sent_per_rank[static_cast<std::size_t>(c)]));
  Json json(Json::Object{
      {"sent_bytes_per_rank", std::move(sent)},
      {"sent_bytes_by_rank",
       Json::Object{{"min", number(traffic.by_rank_min)}, {"mean", traffic.by_rank_mean}, {"max", number(traffic.by_rank_max)}}}});
  if (lists == Lists::with) json.add("by_group", by_group(traffic));
  json.add("by_node", Json::Object{{"sent_inside_bytes", number(traffic.sent_inside_node)},
                                   {"sent_to_others_bytes", number(traffic.sent_between_nodes)},
                                   {"sent_by_nic_bytes", number(traffic.sent_by_nic)},
                                   {"nic_mean_bytes_per_second", traffic.nic_mean.base()},
                                   {"nic_busiest_second_bytes_per_second", traffic.nic_busiest.base()}});
  json.add("control_bytes_per_rank", number(traffic.control));
  json.add("psi_units", traffic.psi_units);
  json.add("textbook_bytes_per_rank", number(traffic.textbook));
  json.add("textbook_differs_because", traffic.textbook_differs_because);
  return json;
}

Json model_json(const SimulationResult& result) {
  return Json::Object{{"name", result.model_name},
                      {"parameters", result.parameters.value()},
                      {"trainable_parameters", result.trainable_parameters.value()}};
}

Json persistent_json(const ByCategory& persistent) {
  Json out;
  Bytes total;
  for (Category c : {Category::parameters, Category::gradients, Category::optimizer_states}) {
    const Bytes bytes = persistent[static_cast<std::size_t>(c)];
    out.add(std::string(name_of(c)), number(bytes));
    total += bytes;
  }
  out.add("total", number(total));
  return out;
}

Json memory_json(const Memory& memory) {
  Json at_peak;
  for (std::size_t i = 0; i < category_count; ++i) at_peak.add(std::string(category_names[i]), number(memory.at_peak[i]));
  return Json::Object{{"peak_bytes", number(memory.peak)},
                      {"peak_at", memory.peak_at},
                      {"peak_phase", name_of(memory.peak_phase)},
                      {"capacity_bytes", number(memory.capacity)},
                      {"fits", memory.fits},
                      {"persistent_bytes", persistent_json(memory.persistent)},
                      {"resident_bytes", number(memory.resident)},
                      {"at_peak_bytes", at_peak},
                      {"reserved_peak_bytes", number(memory.reserved_peak)},
                      {"overhead_bytes", number(memory.overhead)},
                      {"device_peak_bytes", number(memory.device_peak)},
                      {"allocator_retries", memory.allocator_retries},
                      {"host_pinned_bytes", number(memory.host_pinned)},
                      {"host_pinned_bytes_per_node", number(memory.host_pinned_node)},
                      {"host_capacity_bytes_per_node", memory.host_capacity > Bytes{} ? number(memory.host_capacity) : Json()}};
}

Json step_json(const StepTime& step) {
  return Json::Object{{"time_s", step.time.base()},
                      {"compute_s", step.compute.base()},
                      {"communication_s", step.communication.base()},
                      {"exposed_communication_s", step.exposed_communication.base()},
                      {"host_bound_s", step.host_bound.base()},
                      {"optimizer_s", step.optimizer.base()},
                      {"tokens_per_second", step.tokens_per_second},
                      {"tokens_per_second_per_gpu", step.tokens_per_second_per_gpu},
                      {"model_flops", step.model_flops.base()},
                      {"hardware_flops", step.hardware_flops.base()},
                      {"flop_convention", step.flop_convention},
                      {"mfu", step.mfu},
                      {"hfu", step.hfu},
                      {"bound_by", step.bound_by},
                      {"bottleneck_link", step.bottleneck_link}};
}

Json checkpoint_json(const CheckpointReport& c) {
  Json loading(Json::Object{{"world_size", c.load_world_size}, {"possible", c.cannot_load.empty()}, {"why_not", c.cannot_load}});
  loading.add("wanted_bytes", number(c.load_wanted));
  loading.add("read_bytes", number(c.load_read));
  loading.add("read_bytes_per_rank_max", number(c.load_read_max));
  loading.add("time_s", c.load.base());
  return Json::Object{
      {"format", name_of(c.format)},
      {"async", c.async},
      {"files", c.files},
      {"total_bytes", number(c.total)},
      {"held_bytes", number(c.held)},
      {"written_bytes_by_rank", Json::Object{{"min", number(c.written_min)}, {"mean", c.written_mean}, {"max", number(c.written_max)}}},
      {"gathered_bytes_per_rank", number(c.gathered_per_rank)},
      {"gpu_extra_bytes", number(c.gpu_extra)},
      {"host_bytes_per_node", number(c.host_per_node)},
      {"save_s", c.save.base()},
      {"stall_s", c.stall.base()},
      {"load", std::move(loading)}};
}

Json change_json(const MemoryChange& change) {
  Json::List set(change.assignments.begin(), change.assignments.end());
  return Json::Object{{"change", change.text},
                      {"set", std::move(set)},
                      {"config", Json::List(change.config.begin(), change.config.end())},
                      {"device_peak_bytes", number(change.device_peak)},
                      {"fits", change.fits},
                      {"time_relative", change.time},
                      {"traffic_relative", change.traffic}};
}

Json explanation_json(const MemoryExplanation& e, const Memory& memory) {
  Json::List terms, changes;
  for (const MemoryTerm& term : e.terms)
    terms.emplace_back(Json::Object{{"category", name_of(term.category)},
                                    {"bytes", number(term.bytes)},
                                    {"on_twice_the_ranks_bytes", term.on_twice_the_ranks ? number(*term.on_twice_the_ranks) : Json()},
                                    {"falls_with_ranks", term.falls()}});
  for (const MemoryChange& change : e.changes) changes.push_back(change_json(change));
  return Json::Object{{"headroom_bytes", number(memory.capacity - memory.device_peak)},
                      {"terms", std::move(terms)},
                      {"changes_tried", e.tried},
                      {"changes", std::move(changes)},
                      {"cheapest", e.cheapest ? change_json(e.changes[*e.cheapest]) : Json()}};
}

/// Where ranks differ: who sets the pace, who waits for how long, and what the step would take if all were alike.
Json differences_json(const RankDifferences& differences, const StepTime& step, Lists lists) {
  const auto one = [](const RankDifferences::Class& c) {
    return Json::Object{{"first_rank", c.first}, {"ranks", c.ranks}, {"why", c.why}, {"waited_s", c.waited.seconds().base()}};
  };
  Json json{Json::Object{}};
  json.add("classes", differences.class_count);
  json.add("time_if_alike_s", differences.alike.seconds().base());
  json.add("cost_s", (step.time - differences.alike.seconds()).base());
  json.add("pace", one(differences.classes.front()));
  if (lists == Lists::without) return json;
  Json::List waits;
  for (const RankDifferences::Class& c : differences.classes) waits.push_back(one(c));
  json.add("waits", std::move(waits));
  return json;
}

Json measured_json(const MeasuredRun& run) {
  const auto number_or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  return Json::Object{{"step_time_s", run.step_time ? Json(run.step_time->base()) : Json()},
                      {"tokens_per_second_per_gpu", number_or_null(run.tokens_per_second_per_gpu)},
                      {"peak_bytes", run.peak ? number(*run.peak) : Json()},
                      {"mfu", number_or_null(run.mfu)},
                      {"hfu", number_or_null(run.hfu)},
                      {"time_error", number_or_null(run.time_error)},
                      {"peak_error", number_or_null(run.peak_error)},
                      {"doubts", Json::List(run.doubts.begin(), run.doubts.end())}};
}

Json assumed_of(const SimulationResult& result) { return result.assumed ? assumed_json(*result.assumed) : Json(); }

/// A key of the contract's outermost object.
struct Part {
  std::string_view name;
  Json (*make)(const SimulationResult& result, Lists lists);  ///< null: there is nothing to say
};

constexpr std::array<Part, 17> parts{{
    {"schema", [](const SimulationResult&, Lists) -> Json { return "shardsim.simulate/1"; }},
    {"scenario", [](const SimulationResult& r, Lists) -> Json { return r.scenario; }},
    {"strategy", [](const SimulationResult& r, Lists) -> Json { return r.schedule->strategy; }},
    {"semantics", [](const SimulationResult& r, Lists) -> Json { return r.schedule->semantics; }},
    {"library", [](const SimulationResult& r, Lists) -> Json { return r.schedule->library; }},
    {"stack", [](const SimulationResult& r, Lists) -> Json { return r.stack; }},
    {"world_size", [](const SimulationResult& r, Lists) -> Json { return r.world_size; }},
    {"model", [](const SimulationResult& r, Lists) { return model_json(r); }},
    {"traffic", [](const SimulationResult& r, Lists lists) { return traffic_json(r.traffic, lists); }},
    {"memory", [](const SimulationResult& r, Lists) { return memory_json(r.memory); }},
    {"step", [](const SimulationResult& r, Lists) { return step_json(r.step); }},
    {"differences",
     [](const SimulationResult& r, Lists lists) { return r.differences ? differences_json(*r.differences, r.step, lists) : Json(); }},
    {"warnings", [](const SimulationResult& r, Lists) -> Json { return Json::List(r.warnings.begin(), r.warnings.end()); }},
    {"checkpoint", [](const SimulationResult& r, Lists) { return r.checkpoint ? checkpoint_json(*r.checkpoint) : Json(); }},
    {"measured", [](const SimulationResult& r, Lists) { return r.measured ? measured_json(*r.measured) : Json(); }},
    {"assumed", [](const SimulationResult& r, Lists) { return assumed_of(r); }},
    {"explanation", [](const SimulationResult& r, Lists) { return r.explanation ? explanation_json(*r.explanation, r.memory) : Json(); }},
}};

/// Adds a part; nothing where the result has none.
void add(const Part& part, const SimulationResult& result, Lists lists, Json& json) {
  if (Json made = part.make(result, lists); !made.is_null()) json.add(std::string(part.name), std::move(made));
}

}  // namespace

Json assumed_json(const Assumptions& assumed) {
  Json::List list;
  for (const Assumption& a : assumed)
    list.emplace_back(Json::Object{{"key", a.key},
                                   {"value", a.value},
                                   {"origin", a.origin},
                                   {"time_relative", a.time},
                                   {"memory_bytes", number(a.memory)},
                                   {"measure", a.measure}});
  return list;
}

Json simulate_json(const SimulationResult& result) {
  Json json{Json::Object{}};
  for (const Part& part : parts) add(part, result, Lists::with, json);
  return json;
}

Json simulate_figures(const SimulationResult& result, std::span<const std::string> names) {
  Json json{Json::Object{}};
  for (const Part& part : parts)
    if (std::find(names.begin(), names.end(), part.name) != names.end()) add(part, result, Lists::without, json);
  return json;
}

/// A column for every figure that any of the results has: a checkpoint may be asked of some of them only.
std::string simulate_csv(std::span<const SimulationResult> results) {
  std::vector<Json> rows;
  std::vector<std::string> paths;
  for (const SimulationResult& result : results) {
    rows.push_back(simulate_json(result));
    for (std::string& path : leaf_paths(rows.back()))
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(std::move(path));
  }
  std::string out = results.empty() ? "" : csv_row(paths);
  for (const Json& json : rows) {
    std::vector<std::string> fields;
    fields.reserve(paths.size());
    for (const std::string& path : paths) fields.push_back(json.find(path) ? csv_field(*json.find(path)) : "");
    out += csv_row(fields);
  }
  return out;
}

}  // namespace shardsim
