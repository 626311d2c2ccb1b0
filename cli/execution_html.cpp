// SPDX-License-Identifier: Apache-2.0
#include "cli/execution_html.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/html.hpp"
#include "sim/core/units_text.hpp"

namespace shardsim {
namespace {

Bytes most(const std::vector<Bytes>& values) { return values.empty() ? Bytes{} : *std::ranges::max_element(values); }

std::string name_of(const Execution& e) { return e.result.strategy + (e.result.semantics == "textbook" ? " (textbook)" : ""); }

std::string relative(double predicted, double measured) { return predicted > 0 ? fmt::format("{:+.1f} %", 100 * (measured / predicted - 1)) : ""; }

std::string difference(const execute::Closeness& c) { return fmt::format("{:.2g} of {:.2g}", c.largest_difference, c.tolerance); }

/// Two bars for each strategy.
HtmlChart beside(std::string description, HtmlAxis axis, const std::vector<Execution>& executions, auto&& predicted, auto&& measured) {
  HtmlChart chart{.kind = HtmlChart::Kind::bar, .description = std::move(description), .x = std::move(axis), .y = {.unit = HtmlAxis::Unit::words}, .lying = true};
  Json::List left, right;
  for (const Execution& e : executions) {
    chart.labels.push_back(name_of(e));
    left.emplace_back(predicted(e));
    right.emplace_back(measured(e));
  }
  chart.series = {{.label = "predicted", .color = series_color(0), .data = Json(std::move(left))},
                  {.label = "measured", .color = series_color(1), .data = Json(std::move(right))}};
  return chart;
}

HtmlSection verdicts(const ExecutionSummary& summary) {
  TextGrid grid{.header = {"Strategy", "Predicted, Ψ", "Textbook, a step", "Predicted, all steps", "Measured", "Peak predicted", "Peak measured", "Step predicted",
                           "Step measured", "Time", "Loss apart", "Gradient apart", "Agree"},
                .right = {false, true, true, true, true, true, true, true, true, true, true, true, false},
                .rows = {}};
  for (const Execution& e : summary.strategies) {
    const execute::ExecutionResult& r = e.result;
    grid.rows.push_back({name_of(e), fmt::format("{:.2f}", e.psi_units), grouped(e.textbook.value()), grouped(most(r.sent.predicted).value()),
                         grouped(most(r.sent.measured).value()), grouped(most(r.peak.predicted).value()), grouped(most(r.peak.measured).value()),
                         to_text(e.predicted_step), to_text(e.measured_step()), relative(e.predicted_step.base(), e.measured_step().base()), difference(r.loss),
                         difference(r.gradient), e.agree() ? "yes" : "NO"});
  }
  return {.title = "Predicted and measured",
          .text = "Bytes are those of the rank with the most; they, the peaks of memory and the losses decide whether a strategy agrees, time only with "
                  "--time-tolerance. Ψ is the number of parameters: in its units stands the payload of a step, an all-reduce's twice. The textbook's bytes are what the papers count for a step.",
          .tables = {std::move(grid)}};
}

HtmlSection by_rank(const ExecutionSummary& summary) {
  TextGrid grid{.header = {"Strategy", "Rank", "Sent, predicted", "Sent, measured", "Scalars, predicted", "Scalars, measured", "Peak, predicted", "Peak, measured", "Process"},
                .right = {false, true, true, true, true, true, true, true, true},
                .rows = {}};
  for (const Execution& e : summary.strategies) {
    const execute::ExecutionResult& r = e.result;
    for (std::size_t rank = 0; rank < r.sent.measured.size(); ++rank)
      grid.rows.push_back({name_of(e), std::to_string(rank), grouped(r.sent.predicted[rank].value()), grouped(r.sent.measured[rank].value()),
                           grouped(r.control.predicted[rank].value()), grouped(r.control.measured[rank].value()), grouped(r.peak.predicted[rank].value()),
                           grouped(r.peak.measured[rank].value()), to_text(r.high_water[rank])});
  }
  return {.title = "Every rank", .text = "Bytes. The last column is the process as a whole: pages, code and the trainer's own scratch included.", .tables = {std::move(grid)}};
}

HtmlSection losses(const ExecutionSummary& summary) {
  HtmlChart chart{.kind = HtmlChart::Kind::line,
                  .description = "Loss by step of every strategy, and of one rank with the whole batch: the lines lie on each other.",
                  .x = {.label = "step"},
                  .y = {.label = "loss"}};
  const auto points = [](const std::vector<double>& values) {
    Json::List list;
    for (std::size_t s = 0; s < values.size(); ++s) list.emplace_back(Json::Object{{"x", static_cast<std::int64_t>(s + 1)}, {"y", values[s]}});
    return Json(std::move(list));
  };
  for (std::size_t i = 0; i < summary.strategies.size(); ++i)
    chart.series.push_back({.label = name_of(summary.strategies[i]), .color = series_color(i), .data = points(summary.strategies[i].result.losses)});
  if (!summary.strategies.empty())
    chart.series.push_back({.label = "one rank", .color = "#000000", .data = points(summary.strategies.front().result.reference_losses), .style = "dashed"});
  return {.title = "Losses", .chart = std::move(chart)};
}

}  // namespace

std::string execution_html(const ExecutionSummary& summary) {
  const auto agreeing = std::ranges::count_if(summary.strategies, [](const Execution& e) { return e.agree(); });
  const auto all = static_cast<std::ptrdiff_t>(summary.strategies.size());
  HtmlPage page{.title = "Cross-validation: predicted against executed",
                .lines = {fmt::format("{} on {} ranks, backend {}", summary.scenario, summary.ranks, summary.backend)},
                .tiles = {{.label = "Strategies that agree", .value = fmt::format("{} of {}", agreeing, all), .mood = agreeing == all ? "good" : "bad"}},
                .data = execution_json(summary)};
  if (!summary.strategies.empty()) page.lines.push_back("Bytes counted by " + summary.strategies.front().result.counted_by);
  page.sections.push_back(verdicts(summary));
  page.sections.push_back({.title = "Bytes sent",
                           .chart = beside("Two bars for each strategy: bytes that the busiest rank sends, predicted and measured.",
                                           {.label = "sent by the busiest rank in all steps", .unit = HtmlAxis::Unit::traffic}, summary.strategies,
                                           [](const Execution& e) { return most(e.result.sent.predicted).value(); },
                                           [](const Execution& e) { return most(e.result.sent.measured).value(); })});
  page.sections.push_back({.title = "Time of a step",
                           .text = "Predicted on the scenario's cluster; comparable only if that is a profile of the machine that ran it (calibrate local, calibrate mpi).",
                           .chart = beside("Two bars for each strategy: time of a step, predicted and measured.", {.label = "time of a step", .unit = HtmlAxis::Unit::seconds},
                                           summary.strategies, [](const Execution& e) { return e.predicted_step.base(); },
                                           [](const Execution& e) { return e.measured_step().base(); })});
  page.sections.push_back(losses(summary));
  page.sections.push_back(by_rank(summary));
  return html_page(page);
}

}  // namespace shardsim
