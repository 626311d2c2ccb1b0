// SPDX-License-Identifier: Apache-2.0
#include "reports/planner_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reports/assumed.hpp"
#include "reports/text.hpp"
#include "sim/base/csv.hpp"
#include "sim/base/units_text.hpp"
#include "studies/plan/feasible.hpp"
#include "studies/plan/words.hpp"
#include "studies/simulate/simulate_json.hpp"

namespace shardsim {
namespace {

Json economics_json(const Economics& e) {
  const auto sensible = [&](double figure) { return e.hopeless() ? Json() : Json(figure); };
  return Json::Object{{"steps", e.steps},
                      {"days", sensible(e.wall.base() / 86400)},
                      {"gpu_hours", sensible(e.gpu_hours)},
                      {"cost", e.cost ? sensible(*e.cost) : Json()},
                      {"goodput", e.goodput},
                      {"checkpoint_s", e.checkpoint.base()},
                      {"checkpoint_interval_s", e.interval.base()}};
}

Json list_json(const std::vector<std::string>& texts) { return Json::List(texts.begin(), texts.end()); }

Json entry_json(const PlanEntry& entry, const Plan& plan) {
  const Candidate& c = entry.evaluated.candidate;
  const SimulationResult& r = entry.evaluated.result;
  Json options(Json::List{});
  for (const std::string& option : c.options) options.add(Json(option));
  Json json = Json::Object{{"gpus", c.gpus()},
                           {"nodes", c.nodes},
                           {"gpus_per_node", c.gpus_per_node},
                           {"strategy", c.strategy},
                           {"stack", r.stack},
                           {"options", std::move(options)},
                           {"micro_batch_size", c.micro_batch},
                           {"gradient_accumulation_steps", c.accumulation},
                           {"activation_checkpointing", c.checkpointing},
                           {"offload", c.offload},
                           {"step_time_s", r.step.time.base()},
                           {"exposed_communication_s", r.step.exposed_communication.base()},
                           {"tokens_per_second", r.step.tokens_per_second},
                           {"tokens_per_second_per_gpu", r.step.tokens_per_second_per_gpu},
                           {"mfu", r.step.mfu},
                           {"bound_by", r.step.bound_by},
                           {"device_peak_bytes", r.memory.device_peak.value()},
                           {"allocated_bytes", r.memory.peak.value()},
                           {"reserved_bytes", r.memory.reserved_peak.value()},
                           {"capacity_bytes", r.memory.capacity.value()},
                           {"fragile", !fits_with(r.memory, plan.request.headroom)},
                           {"host_bytes_per_node", r.memory.host_pinned_node.value()},
                           {"sent_bytes_per_rank", r.traffic.total.value()}};
  const Json money = economics_json(entry.economics);
  for (const auto& [key, value] : *money.as<Json::Object>()) json.add(key, value);
  json.add("set", list_json(entry.set));
  json.add("command", entry.command(plan.scenario));
  json.add("config", list_json(entry.config));
  json.add("warnings", list_json(r.warnings));
  return json;
}

Json optional_json(const std::optional<PlanEntry>& entry, const Plan& plan) { return entry ? entry_json(*entry, plan) : Json(); }
Json optional_json(const std::optional<std::int64_t>& number) { return number ? Json(*number) : Json(); }

Json scaling_json(const Scaling& scaling) {
  Json::List points, left_out;
  for (const ScalingPoint& p : scaling.points)
    points.emplace_back(Json::Object{{"gpus", p.gpus},
                                     {"nodes", p.nodes},
                                     {"efficiency", p.efficiency},
                                     {"step_time_s", p.result.step.time.base()},
                                     {"tokens_per_second_per_gpu", p.result.step.tokens_per_second_per_gpu},
                                     {"exposed_communication_s", p.result.step.exposed_communication.base()},
                                     {"bound_by", p.result.step.bound_by},
                                     {"device_peak_bytes", p.result.memory.device_peak.value()},
                                     {"fits", p.result.memory.fits}});
  for (const std::string& text : scaling.left_out) left_out.emplace_back(text);
  Json cliff;
  if (scaling.cliff) {
    const ScalingPoint &before = scaling.points[*scaling.cliff - 1], &after = scaling.points[*scaling.cliff];
    cliff = Json::Object{{"from_gpus", before.gpus},
                         {"to_gpus", after.gpus},
                         {"lost", 1 - after.efficiency / before.efficiency},
                         {"node_boundary", before.nodes == 1 && after.nodes > 1},
                         {"why", scaling.why}};
  }
  return Json::Object{{"points", std::move(points)}, {"cliff", cliff}, {"to_hide", scaling.to_hide}, {"left_out", std::move(left_out)}};
}

/// How to have what the plan names: a command that gives the same figures, and the words of the user's own configuration.
std::string recipe_text(const Plan& plan) {
  if (!plan.time) return {};
  const PlanEntry& best = plan.request.days && plan.deadline ? *plan.deadline : *plan.time;
  std::string out =
      fmt::format("{}:\n  {}\n", plan.request.days ? "The fewest GPUs that end in time" : "The fastest way", best.command(plan.scenario));
  if (best.config.empty()) return out + "\n";
  out += fmt::format("as {} has it:\n", best.config_of);
  for (const std::string& line : best.config) out += "  " + line + "\n";
  return out + "\n";
}

/// A table of fixed columns, with the long description of each row on a line of its own.
std::string pareto_text(const Plan& plan) {
  TextGrid grid{.header = {"GPUs", "Step", "Peak", "Days", "GPU-hours", "MFU", "$"}, .right = std::vector<bool>(7, true), .rows = {}};
  for (const PlanEntry& entry : plan.pareto) {
    const SimulationResult& r = entry.evaluated.result;
    const Economics& e = entry.economics;
    const auto sensible = [&](std::string figure) { return e.hopeless() ? std::string("-") : figure; };
    grid.rows.push_back({grouped(entry.evaluated.gpus()), to_text(r.step.time), to_text(r.memory.device_peak), sensible(days_text(e.wall)),
                         sensible(whole_text(e.gpu_hours)), fmt::format("{:.1f} %", r.step.mfu * 100),
                         e.cost ? sensible(whole_text(*e.cost)) : "-"});
  }
  std::string out = "Fewer GPUs or less time (Pareto front):\n" + grid.text();
  for (const PlanEntry& entry : plan.pareto)
    out += fmt::format("{:>7}: {}\n", grouped(entry.evaluated.gpus()),
                       wrapped(entry.evaluated.candidate.text() + ", stack " + entry.evaluated.result.stack, 9, 9));
  return out;
}

std::string scaling_text(const Scaling& scaling) {
  TextGrid grid{
      .header = {"GPUs", "Step", "Exposed", "tok/s/GPU", "Efficiency", "Fits"}, .right = {true, true, true, true, true, false}, .rows = {}};
  for (const ScalingPoint& p : scaling.points)
    grid.rows.push_back({grouped(p.gpus), to_text(p.result.step.time), to_text(p.result.step.exposed_communication),
                         grouped(static_cast<std::int64_t>(p.result.step.tokens_per_second_per_gpu)),
                         fmt::format("{:.1f} %", p.efficiency * 100), p.result.memory.fits ? "yes" : "no"});
  std::string out =
      "\n" + wrapped("Scaling, the same work for each rank, efficiency against the first that fits:", 0, 0) + "\n" + grid.text();
  out += wrapped(scaling.cliff ? "Cliff: " + scaling.why : std::string("No cliff: no doubling loses 1 % of the efficiency"), 2, 0) + "\n";
  if (!scaling.to_hide.empty()) out += wrapped("Network: " + scaling.to_hide, 2, 0) + "\n";
  for (const std::string& text : scaling.left_out) out += wrapped("Left out: " + text, 2, 0) + "\n";
  return out;
}

}  // namespace

Json plan_json(const Plan& plan) {
  Json::List pareto, list, elsewhere;
  for (const PlanEntry& entry : plan.elsewhere) elsewhere.push_back(entry_json(entry, plan));
  for (const PlanEntry& entry : plan.pareto) pareto.push_back(entry_json(entry, plan));
  for (const Answer& a : plan.answers) list.emplace_back(Json::Object{{"question", a.question}, {"answer", a.answer}, {"why", a.why}});
  Json json = Json::Object{{"schema", "shardsim.plan/1"},
                           {"scenario", plan.scenario},
                           {"global_batch", plan.request.global_batch},
                           {"tokens", plan.request.tokens},
                           {"headroom", plan.request.headroom},
                           {"best", Json::Object{{"time", optional_json(plan.time, plan)},
                                                 {"cost", optional_json(plan.cost, plan)},
                                                 {"gpus", optional_json(plan.gpus, plan)}}},
                           {"pareto", std::move(pareto)},
                           {"minimum_gpus", optional_json(plan.minimum_gpus)},
                           {"largest_micro_batch", optional_json(plan.largest_micro_batch)},
                           {"evaluated", plan.evaluated},
                           {"pruned", plan.pruned},
                           {"refused", plan.refused},
                           {"answers", std::move(list)},
                           {"other_libraries", std::move(elsewhere)},
                           {"fragile", optional_json(plan.fragile, plan)},
                           {"warnings", list_json(plan.warnings)},
                           {"assumptions", list_json(plan.request.assumptions)},
                           {"assumed", assumed_json(plan.assumed)},
                           {"left_out", list_json(plan.left_out)}};
  if (plan.request.days) json.add("within_days", Json::Object{{"days", *plan.request.days}, {"best", optional_json(plan.deadline, plan)}});
  if (plan.scaling) json.add("scaling", scaling_json(*plan.scaling));
  return json;
}

std::string plan_table(const Plan& plan) {
  std::string out = wrapped(fmt::format("Plan for {}: global batch {}, {}", plan.scenario, grouped(plan.request.global_batch),
                                        tokens_text(plan.request.tokens)),
                            2, 0) +
                    "\n\n";
  for (const Answer& a : plan.answers)
    out += fmt::format("{}\n  {}\n  {}\n", wrapped(a.question, 0, 0), wrapped(a.answer, 2, 2), wrapped("because " + a.why, 2, 2));
  out += "\n" + recipe_text(plan) + (plan.pareto.empty() ? std::string("Nothing fits.\n") : pareto_text(plan));
  if (plan.scaling) out += scaling_text(*plan.scaling);
  out += "\n" +
         wrapped(fmt::format("{} {} simulated, {} left out by bounds, {} refused by their library.", grouped(plan.evaluated),
                             plan.evaluated == 1 ? "candidate" : "candidates", grouped(plan.pruned), grouped(plan.refused)),
                 2, 0) +
         "\n";
  for (const std::string& text : plan.left_out) out += wrapped("Left out: " + text + ".", 2, 0) + "\n";
  return out + assumed_text(plan.assumed, plan.request.assumptions) + warnings_text(plan.warnings);
}

std::string plan_csv(const Plan& plan) {
  const Json json = plan_json(plan);
  const Json* list = plan.scaling ? json.find("scaling.points") : json.find("pareto");
  std::string out;
  for (const Json& row : *list->as<Json::List>()) {
    std::vector<std::string> names, fields;
    for (const auto& [key, value] : *row.as<Json::Object>()) {
      names.push_back(key);
      const auto* items = value.as<Json::List>();
      std::string joined;
      if (items != nullptr)
        for (const Json& item : *items) joined += (joined.empty() ? "" : " ") + csv_field(item);
      fields.push_back(items == nullptr ? csv_field(value) : joined);
    }
    if (out.empty()) out += csv_row(names);
    out += csv_row(fields);
  }
  return out;
}

}  // namespace shardsim
