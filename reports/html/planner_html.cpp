// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "reports/html/parts.hpp"
#include "reports/html/timeline_html.hpp"
#include "reports/planner_report.hpp"
#include "sim/base/units_text.hpp"
#include "studies/plan/words.hpp"

namespace shardsim {
namespace {

constexpr const char* blue = "#0072B2";
constexpr const char* green = "#009E73";
constexpr const char* orange = "#E69F00";
constexpr const char* faint = "#999999";

double days(const PlanEntry& entry) { return entry.economics.wall.base() / 86400; }

std::string dollars(const Economics& e) { return e.hopeless() ? "-" : e.cost ? "$" + whole_text(*e.cost) : "no price"; }
std::string duration(const PlanEntry& e) { return e.economics.hopeless() ? "never" : wall_text(e.economics.wall); }

Json point(double x, double y, std::string name) { return Json::Object{{"x", x}, {"y", y}, {"name", std::move(name)}}; }

Json point(const PlanEntry& entry) {
  return point(static_cast<double>(entry.evaluated.gpus()), days(entry),
               fmt::format("{}, {}, {}", gpus_text(entry.evaluated.gpus()), entry.evaluated.candidate.text(), dollars(entry.economics)));
}

std::vector<HtmlTile> plan_tiles(const Plan& plan) {
  std::vector<HtmlTile> tiles;
  tiles.push_back({.label = "GPUs at least",
                   .value = plan.minimum_gpus ? grouped(*plan.minimum_gpus) : "none fits",
                   .mood = plan.minimum_gpus ? "" : "bad"});
  tiles.push_back(
      {.label = "Largest micro-batch, as written", .value = plan.largest_micro_batch ? grouped(*plan.largest_micro_batch) : "none fits"});
  if (plan.time)
    tiles.push_back({.label = "Fastest", .value = duration(*plan.time), .note = gpus_text(plan.time->evaluated.gpus()), .mood = "good"});
  if (plan.cost)
    tiles.push_back(
        {.label = "Cheapest",
         .value = plan.cost->economics.cost ? dollars(plan.cost->economics) : whole_text(plan.cost->economics.gpu_hours) + " GPU-hours",
         .note = fmt::format("{}, {}", gpus_text(plan.cost->evaluated.gpus()), duration(*plan.cost))});
  if (plan.request.days)
    tiles.push_back({.label = fmt::format("Within {:g} days", *plan.request.days),
                     .value = plan.deadline ? gpus_text(plan.deadline->evaluated.gpus()) : "none",
                     .note = plan.deadline ? duration(*plan.deadline) : "",
                     .mood = plan.deadline ? "good" : "bad"});
  return tiles;
}

HtmlSection answers_section(const Plan& plan) {
  TextGrid grid{.header = {"Question", "Answer", "Because"}, .right = {false, false, false}, .rows = {}};
  for (const Answer& a : plan.answers) grid.rows.push_back({a.question, a.answer, a.why});
  return {.title = "Answers", .tables = {std::move(grid)}};
}

HtmlSection pareto_section(const Plan& plan) {
  HtmlChart chart{.kind = HtmlChart::Kind::scatter,
                  .description = fmt::format("Days of training against GPUs: the {} ways that nothing beats in both, the cheapest marked.",
                                             plan.pareto.size()),
                  .x = {.label = "GPUs", .doubling = true},
                  .y = {.label = "days of training"}};
  TextGrid grid{.header = {"GPUs", "Way", "Step", "Exposed", "On the device", "Days", "GPU-hours", "MFU", "Cost"},
                .right = {true, false, true, true, true, true, true, true, true},
                .rows = {}};
  Json front(Json::List{});
  for (const PlanEntry& entry : plan.pareto) {
    const SimulationResult& r = entry.evaluated.result;
    front.add(point(entry));
    grid.rows.push_back(
        {grouped(entry.evaluated.gpus()), entry.evaluated.candidate.text(), to_text(r.step.time), to_text(r.step.exposed_communication),
         to_text(r.memory.device_peak), entry.economics.hopeless() ? "-" : days_text(entry.economics.wall),
         entry.economics.hopeless() ? "-" : whole_text(entry.economics.gpu_hours), percentage(r.step.mfu), dollars(entry.economics)});
  }
  chart.series.push_back({.label = "no other is faster on as few GPUs", .color = blue, .data = std::move(front)});
  const auto mark = [&](const char* name, const std::optional<PlanEntry>& entry, const char* color) {
    if (entry) chart.series.push_back({.label = name, .color = color, .data = Json::List{point(*entry)}, .style = "star"});
  };
  mark("fastest", plan.time, green);
  mark("cheapest", plan.cost, orange);
  return {.title = "Fewer GPUs or less time",
          .text = "The Pareto front of the search.",
          .chart = std::move(chart),
          .tables = {std::move(grid)}};
}

/// The dashed line at the last point inside one node.
void mark_node(HtmlChart& chart, const Scaling& scaling) {
  double last = 0;
  for (const ScalingPoint& p : scaling.points)
    if (p.nodes == 1) last = static_cast<double>(p.gpus);
  if (last == 0 || scaling.points.back().nodes == 1) return;
  chart.series.push_back({.label = "one node",
                          .color = faint,
                          .data = Json::List{point(last, 0, "the last within one node"), point(last, 1, "the last within one node")},
                          .style = "dashed"});
}

void mark_cliff(HtmlChart& chart, const Scaling& scaling) {
  if (!scaling.cliff) return;
  const ScalingPoint &before = scaling.points[*scaling.cliff - 1], &after = scaling.points[*scaling.cliff];
  const bool boundary = before.nodes == 1 && after.nodes > 1;
  const std::string name = fmt::format("{}: {} to {} GPUs, {} of the efficiency lost", boundary ? "cliff at the node boundary" : "cliff",
                                       before.gpus, after.gpus, percentage(1 - after.efficiency / before.efficiency));
  chart.series.push_back({.label = name,
                          .color = exposed_color,
                          .data = Json::List{point(static_cast<double>(before.gpus), before.efficiency, name),
                                             point(static_cast<double>(after.gpus), after.efficiency, name)},
                          .style = "plain"});
}

HtmlSection scaling_section(const Scaling& scaling) {
  HtmlChart chart{.kind = HtmlChart::Kind::line,
                  .description = "Efficiency of each GPU against the first point, over the number of GPUs." +
                                 (scaling.cliff ? " Cliff: " + scaling.why + "." : std::string()),
                  .x = {.label = "GPUs", .doubling = true},
                  .y = {.label = "efficiency of each GPU", .unit = HtmlAxis::Unit::share}};
  TextGrid grid{.header = {"GPUs", "Nodes", "Step", "Exposed", "tok/s/GPU", "Efficiency", "On the device", "Fits", "Bound by"},
                .right = {true, true, true, true, true, true, true, false, false},
                .rows = {}};
  Json line(Json::List{});
  for (const ScalingPoint& p : scaling.points) {
    const StepTime& step = p.result.step;
    line.add(point(static_cast<double>(p.gpus), p.efficiency, fmt::format("{} GPUs, {} a step", grouped(p.gpus), to_text(step.time))));
    grid.rows.push_back({grouped(p.gpus), grouped(p.nodes), to_text(step.time), to_text(step.exposed_communication),
                         whole_text(step.tokens_per_second_per_gpu), percentage(p.efficiency), to_text(p.result.memory.device_peak),
                         p.result.memory.fits ? "yes" : "no", step.bound_by});
  }
  mark_cliff(chart, scaling);
  chart.series.push_back({.label = "efficiency", .color = blue, .data = std::move(line)});
  if (!scaling.points.empty()) mark_node(chart, scaling);
  return {.title = "Scaling",
          .text = scaling.cliff ? "The same work for each rank. Cliff: " + scaling.why + "." : "The same work for each rank; no cliff.",
          .chart = std::move(chart),
          .tables = {std::move(grid)}};
}

HtmlSection scaling_times(const Scaling& scaling) {
  HtmlChart chart{.kind = HtmlChart::Kind::bar,
                  .description = "The time of one step over the number of GPUs, exposed communication apart.",
                  .x = {.label = "GPUs", .unit = HtmlAxis::Unit::words},
                  .y = {.label = "time of one step", .unit = HtmlAxis::Unit::seconds},
                  .stacked = true};
  Json::List rest, exposed;
  for (const ScalingPoint& p : scaling.points) {
    chart.labels.push_back(grouped(p.gpus));
    rest.emplace_back((p.result.step.time - p.result.step.exposed_communication).base());
    exposed.emplace_back(p.result.step.exposed_communication.base());
  }
  chart.series = {{.label = "everything else", .color = blue, .data = std::move(rest)},
                  {.label = "exposed communication", .color = exposed_color, .data = std::move(exposed)}};
  return {.title = "Step time over GPUs", .text = "The figures are those of the table above.", .chart = std::move(chart)};
}

/// How to have what the plan names.
HtmlSection recipe_section(const Plan& plan) {
  std::string code;
  const auto add = [&](const char* what, const std::optional<PlanEntry>& entry) {
    if (!entry) return;
    code += fmt::format("# {}\n{}\n", what, entry->command(plan.scenario));
    for (const std::string& line : entry->config) code += "#   " + line + "\n";
  };
  add("the fastest way", plan.time);
  add("the cheapest way", plan.cost);
  add("the fewest GPUs", plan.gpus);
  add("the fewest GPUs that end in time", plan.deadline);
  return {
      .title = "Run it",
      .text = plan.time ? fmt::format("Each command simulates the figures above; below it the lines for {}.", plan.time->config_of) : "",
      .code = std::move(code)};
}

}  // namespace

HtmlPage plan_page(const Plan& plan) {
  HtmlPage page{.title = "Plan for " + plan.scenario,
                .lines = {fmt::format("Global batch {}, {}. {} candidates simulated, {} left out by bounds, {} refused by their library.",
                                      grouped(plan.request.global_batch), tokens_text(plan.request.tokens), grouped(plan.evaluated),
                                      grouped(plan.pruned), grouped(plan.refused))},
                .tiles = plan_tiles(plan),
                .sections = {answers_section(plan)},
                .data = plan_json(plan)};
  if (plan.time) page.sections.push_back(recipe_section(plan));
  if (!plan.pareto.empty()) page.sections.push_back(pareto_section(plan));
  if (plan.scaling) {
    page.sections.push_back(scaling_section(*plan.scaling));
    page.sections.push_back(scaling_times(*plan.scaling));
    for (const std::string& text : plan.scaling->left_out) page.warnings.push_back("Left out of the scaling study: " + text);
  }
  for (const std::string& text : plan.left_out) page.warnings.push_back("Left out: " + text);
  page.warnings.insert(page.warnings.end(), plan.warnings.begin(), plan.warnings.end());
  page.sections.push_back(assumed_section(plan.assumed, plan.request.assumptions));
  return page;
}

}  // namespace shardsim
