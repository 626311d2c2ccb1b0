// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "reports/execution_report.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

using execute::ByRank;
using Executions = std::vector<Execution>;

constexpr const char* predicted_color = "#56B4E9";
constexpr const char* measured_color = "#0072B2";

std::string name_of_run(const Execution& e) { return e.result.strategy + (e.result.semantics == "textbook" ? " (textbook)" : ""); }

std::int64_t total_bytes(const std::vector<Bytes>& values) {
  Bytes sum;
  for (const Bytes b : values) sum += b;
  return sum.value();
}

std::int64_t largest(const std::vector<Bytes>& values) {
  return values.empty() ? 0 : std::max_element(values.begin(), values.end())->value();
}

/// Two bars for each strategy: what was predicted, and what was measured.
template <class Predicted, class Measured>
HtmlChart pairs(const Executions& runs, HtmlAxis axis, std::string description, const Predicted& predicted, const Measured& measured) {
  HtmlChart chart{.kind = HtmlChart::Kind::bar,
                  .description = std::move(description),
                  .x = std::move(axis),
                  .y = {.unit = HtmlAxis::Unit::words},
                  .lying = true};
  Json::List first, second;
  for (const Execution& e : runs) {
    chart.labels.push_back(name_of_run(e));
    first.emplace_back(predicted(e));
    second.emplace_back(measured(e));
  }
  chart.series = {{.label = "predicted", .color = predicted_color, .data = std::move(first)},
                  {.label = "measured", .color = measured_color, .data = std::move(second)}};
  return chart;
}

/// One row for each strategy and rank.
TextGrid rank_grid(const Executions& runs, const ByRank execute::ExecutionResult::*figures) {
  TextGrid grid{
      .header = {"Strategy", "Rank", "Predicted", "Measured", "Difference"}, .right = {false, true, true, true, true}, .rows = {}};
  for (const Execution& e : runs) {
    const ByRank& f = e.result.*figures;
    for (std::size_t r = 0; r < std::min(f.predicted.size(), f.measured.size()); ++r)
      grid.rows.push_back({name_of_run(e), std::to_string(r), grouped(f.predicted[r].value()), grouped(f.measured[r].value()),
                           grouped(f.measured[r].value() - f.predicted[r].value())});
  }
  return grid;
}

std::string apart(const execute::Closeness& c) { return fmt::format("{:.2g} of {:.2g}", c.largest_difference, c.tolerance); }

HtmlSection verdicts(const Executions& runs) {
  TextGrid grid{.header = {"Strategy", "Agrees", "Sent, Ψ", "Textbook, a step", "Predicted, all steps", "Measured", "Peak predicted",
                           "Peak measured", "Loss apart", "Gradient apart", "Same parameters"},
                .right = {false, false, true, true, true, true, true, true, true, true, false},
                .rows = {}};
  for (const Execution& e : runs) {
    const execute::ExecutionResult& r = e.result;
    grid.rows.push_back({name_of_run(e), e.agree() ? "yes" : "NO", fmt::format("{:.2f}", e.psi_units), grouped(e.textbook.value()),
                         grouped(largest(r.sent.predicted)), grouped(largest(r.sent.measured)), grouped(largest(r.peak.predicted)),
                         grouped(largest(r.peak.measured)), apart(r.loss), apart(r.gradient), r.same_parameters ? "yes" : "NO"});
  }
  return {
      .title = "Predicted and measured",
      .text =
          "Bytes are those of the rank with the most; they, the peaks of memory and the losses decide whether a strategy agrees, time only "
          "with --time-tolerance. Ψ is the number of parameters: in its units stands the payload of a step, an all-reduce's twice. The "
          "textbook's bytes are what the papers count for a step.",
      .tables = {std::move(grid)}};
}

HtmlSection every_rank(const Executions& runs) {
  TextGrid grid{.header = {"Strategy", "Rank", "Scalars, predicted", "Scalars, measured", "Process"},
                .right = {false, true, true, true, true},
                .rows = {}};
  for (const Execution& e : runs) {
    const execute::ExecutionResult& r = e.result;
    for (std::size_t rank = 0; rank < r.control.measured.size(); ++rank)
      grid.rows.push_back({name_of_run(e), std::to_string(rank), grouped(r.control.predicted[rank].value()),
                           grouped(r.control.measured[rank].value()), rank < r.high_water.size() ? to_text(r.high_water[rank]) : ""});
  }
  return {.title = "Scalars and processes",
          .text = "Bytes of norms and flags, and the process as a whole: pages, code and the trainer's own scratch included.",
          .tables = {std::move(grid)}};
}

HtmlSection sent_section(const Executions& runs) {
  HtmlChart chart = pairs(
      runs, {.label = "sent by all ranks in all steps", .unit = HtmlAxis::Unit::traffic},
      "Bytes sent by all ranks, predicted and measured, by strategy.",
      [](const Execution& e) { return total_bytes(e.result.sent.predicted); },
      [](const Execution& e) { return total_bytes(e.result.sent.measured); });
  return {.title = "Bytes sent",
          .text = "Counted by " + runs.front().result.counted_by + ".",
          .chart = std::move(chart),
          .tables = {rank_grid(runs, &execute::ExecutionResult::sent)}};
}

HtmlSection peak_section(const Executions& runs) {
  HtmlChart chart = pairs(
      runs, {.label = "peak of the rank with the most", .unit = HtmlAxis::Unit::bytes},
      "The largest peak of memory of a rank, predicted and measured, by strategy.",
      [](const Execution& e) { return largest(e.result.peak.predicted); },
      [](const Execution& e) { return largest(e.result.peak.measured); });
  return {.title = "Peak memory",
          .text = "Of the buffers of the schedule, in bytes.",
          .chart = std::move(chart),
          .tables = {rank_grid(runs, &execute::ExecutionResult::peak)}};
}

HtmlSection time_section(const ExecutionSummary& summary) {
  const Executions& runs = summary.strategies;
  HtmlChart chart = pairs(
      runs, {.label = "time of one step", .unit = HtmlAxis::Unit::seconds}, "The time of one step, predicted and measured, by strategy.",
      [](const Execution& e) { return e.predicted_step.base(); }, [](const Execution& e) { return e.measured_step().base(); });
  TextGrid grid{.header = {"Strategy", "Predicted", "Measured (median)", "Apart", "Predicted with overlap", "Decides"},
                .right = {false, true, true, true, true, false},
                .rows = {}};
  for (const Execution& e : runs)
    grid.rows.push_back({name_of_run(e), to_text(e.predicted_step), to_text(e.measured_step()),
                         fmt::format("{:+.1f} %", 100 * (e.measured_step() / e.predicted_step - 1)), to_text(e.overlapped_step),
                         e.time_tolerance ? fmt::format("within {:.3g}", *e.time_tolerance) : "no"});
  return {
      .title = "Step time",
      .text = summary.calibrated
                  ? "Operations one after another as they run here, predicted on a profile of this machine that was measured just before."
                  : "Predicted on the scenario's cluster, operations one after another as they run here; comparable only if that is a "
                    "profile of the machine that ran it (--calibrate, calibrate local, calibrate mpi).",
      .chart = std::move(chart),
      .tables = {std::move(grid)}};
}

HtmlSection loss_section(const Executions& runs) {
  HtmlChart chart{.kind = HtmlChart::Kind::line,
                  .description = "The loss of each step: one rank with the whole batch as reference, and each strategy.",
                  .x = {.label = "step", .unit = HtmlAxis::Unit::words},
                  .y = {.label = "loss"}};
  const std::vector<double>& reference = runs.front().result.reference_losses;
  TextGrid grid{.header = {"Step", "Reference"}, .right = {true, true}, .rows = {}};
  for (std::size_t i = 0; i < reference.size(); ++i) {
    chart.labels.push_back(std::to_string(i + 1));
    grid.rows.push_back({std::to_string(i + 1), fmt::format("{:.9g}", reference[i])});
  }
  chart.series.push_back(
      {.label = "reference", .color = "#1b1f24", .data = Json::List(reference.begin(), reference.end()), .style = "dashed"});
  for (std::size_t k = 0; k < runs.size(); ++k) {
    const execute::ExecutionResult& r = runs[k].result;
    chart.series.push_back(
        {.label = name_of_run(runs[k]), .color = series_color(k), .data = Json::List(r.losses.begin(), r.losses.end()), .style = "dots"});
    grid.header.push_back(name_of_run(runs[k]));
    grid.right.push_back(true);
    for (std::size_t i = 0; i < grid.rows.size(); ++i)
      grid.rows[i].push_back(i < r.losses.size() ? fmt::format("{:.9g}", r.losses[i]) : "");
  }
  return {.title = "Loss", .text = "Mean over the global batch.", .chart = std::move(chart), .tables = {std::move(grid)}};
}

HtmlTile agreement(const char* label, const Executions& runs, bool (*agrees)(const Execution&)) {
  const auto count = std::count_if(runs.begin(), runs.end(), agrees);
  const bool all = count == static_cast<std::ptrdiff_t>(runs.size());
  return {.label = label,
          .value = all ? "equal" : "DIFFER",
          .note = fmt::format("{} of {} strategies", count, runs.size()),
          .mood = all ? "good" : "bad"};
}

}  // namespace

HtmlPage execution_page(const ExecutionSummary& summary) {
  const Executions& runs = summary.strategies;
  HtmlPage page{.title = "Execution of " + summary.scenario,
                .lines = {fmt::format("{} ranks, backend {}. The schedule that simulate replays, run on real memory and a real network.",
                                      summary.ranks, summary.backend)},
                .data = execution_json(summary)};
  if (runs.empty()) return page;
  page.tiles = {agreement("Bytes sent", runs, [](const Execution& e) { return e.result.sent.equal() && e.result.control.equal(); }),
                agreement("Peak memory", runs,
                          [](const Execution& e) {
                            return e.result.peak.equal() && std::ranges::all_of(e.result.pools, &execute::PoolCheck::within);
                          }),
                agreement("Loss", runs, [](const Execution& e) { return e.result.loss.within(); }),
                agreement("Gradient", runs, [](const Execution& e) { return e.result.gradient.within() && e.result.same_parameters; })};
  page.sections = {verdicts(runs), sent_section(runs), peak_section(runs), time_section(summary), loss_section(runs), every_rank(runs)};
  return page;
}

}  // namespace shardsim
