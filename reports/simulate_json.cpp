// SPDX-License-Identifier: Apache-2.0
#include "reports/simulate_json.hpp"

#include <algorithm>

#include "reports/csv.hpp"
#include "sim/core/checkpoint_report.hpp"
#include "sim/engine/memory_explanation.hpp"

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

Json traffic_json(const Traffic& traffic) {
  Json sent(Json::Object{{"total", number(traffic.total)}});
  for (Collective c : all_collectives) sent.add(std::string(name_of(c)), number(traffic.sent_per_rank[static_cast<std::size_t>(c)]));
  return Json::Object{
      {"sent_bytes_per_rank", sent},
      {"sent_bytes_by_rank",
       Json::Object{{"min", number(traffic.by_rank_min)}, {"mean", traffic.by_rank_mean}, {"max", number(traffic.by_rank_max)}}},
      {"by_group", by_group(traffic)},
      {"control_bytes_per_rank", number(traffic.control)},
      {"psi_units", traffic.psi_units},
      {"textbook_bytes_per_rank", number(traffic.textbook)},
      {"textbook_differs_because", traffic.textbook_differs_because}};
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
                      {"device_peak_bytes", number(memory.device_peak)}};
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
  return Json::Object{{"format", name_of(c.format)},
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
  return Json::Object{{"change", change.text},         {"set", std::move(set)},   {"device_peak_bytes", number(change.device_peak)},
                      {"fits", change.fits},           {"time_relative", change.time}, {"traffic_relative", change.traffic}};
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

}  // namespace

Json simulate_json(const SimulationResult& result) {
  const Schedule& schedule = *result.schedule;
  Json::List warnings(result.warnings.begin(), result.warnings.end());
  Json json = Json::Object{{"schema", "shardsim.simulate/1"},
                      {"scenario", result.scenario},
                      {"strategy", schedule.strategy},
                      {"semantics", schedule.semantics},
                      {"library", schedule.library},
                      {"world_size", result.world_size},
                      {"model", Json::Object{{"name", result.model_name},
                                             {"parameters", result.parameters.value()},
                                             {"trainable_parameters", result.trainable_parameters.value()}}},
                      {"traffic", traffic_json(result.traffic)},
                      {"memory", memory_json(result.memory)},
                      {"step", step_json(result.step)},
                      {"warnings", std::move(warnings)}};
  if (result.checkpoint) json.add("checkpoint", checkpoint_json(*result.checkpoint));
  if (result.explanation) json.add("explanation", explanation_json(*result.explanation, result.memory));
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
