// SPDX-License-Identifier: Apache-2.0
#include "reports/execution_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.hpp"
#include "sim/base/units_text.hpp"
#include "sim/base/utf8.hpp"

namespace shardsim {
namespace {

using execute::ByRank;
using execute::Closeness;

Json bytes_json(const std::vector<Bytes>& values) {
  Json::List list;
  for (Bytes b : values) list.emplace_back(b.value());
  return list;
}

Json numbers_json(const std::vector<double>& values) {
  Json::List list;
  for (double v : values) list.emplace_back(v);
  return list;
}

Json by_rank_json(const ByRank& figures) {
  return Json::Object{{"predicted", bytes_json(figures.predicted)}, {"measured", bytes_json(figures.measured)}};
}

Json categories_json(const std::vector<std::vector<Bytes>>& by_rank) {
  Json::List ranks;
  for (const auto& categories : by_rank) {
    Json::Object row;
    for (std::size_t c = 0; c < categories.size(); ++c) row.emplace_back(std::string(category_names[c]), Json(categories[c].value()));
    ranks.emplace_back(std::move(row));
  }
  return ranks;
}

Json pools_json(const std::vector<execute::PoolCheck>& pools) {
  const auto bytes = [](std::size_t value) { return Json(static_cast<std::int64_t>(value)); };
  Json::List ranks;
  for (const execute::PoolCheck& pool : pools)
    ranks.emplace_back(Json::Object{{"used_high", bytes(pool.use.used_high)},
                                    {"predicted_least", Json(pool.least.value())},
                                    {"predicted_most", Json(pool.most.value())},
                                    {"granularity", bytes(pool.use.granularity)},
                                    {"reserved_high", bytes(pool.use.reserved_high)},
                                    {"device_free", bytes(pool.use.device_free)},
                                    {"device_total", bytes(pool.use.device_total)}});
  return ranks;
}

/// Allocators whose high-water mark is not what the schedule's buffers come to.
std::string pool_differences(const std::string& strategy, const std::vector<execute::PoolCheck>& pools) {
  std::string text;
  for (std::size_t r = 0; r < pools.size(); ++r)
    if (!pools[r].within())
      text += fmt::format("  {}: the pool of rank {} held {} B at once, predicted {} to {} B\n", strategy, r,
                          grouped(static_cast<std::int64_t>(pools[r].use.used_high)), grouped(pools[r].least.value()),
                          grouped(pools[r].most.value()));
  return text;
}

Json strategy_json(const Execution& execution) {
  const execute::ExecutionResult& r = execution.result;
  Json sent = by_rank_json(r.sent);
  sent.add("counted_by", r.counted_by);
  if (r.sent.tolerance > Bytes{}) sent.add("tolerance", r.sent.tolerance.value());
  Json json;
  json.add("strategy", r.strategy);
  json.add("semantics", r.semantics);
  json.add("sent_bytes", std::move(sent));
  json.add("control_bytes", by_rank_json(r.control));
  Json peak = by_rank_json(r.peak);
  peak.add("by_category", categories_json(r.peak_by_category));
  peak.add("highest_by_category", categories_json(r.highest_by_category));
  peak.add("process_high_water", bytes_json(r.high_water));
  if (!r.pools.empty()) peak.add("pools", pools_json(r.pools));
  json.add("peak_memory", std::move(peak));
  json.add("psi_units", execution.psi_units);
  json.add("textbook_bytes_per_rank", execution.textbook.value());
  json.add("step_time_s", Json::Object{{"predicted", execution.predicted_step.base()},
                                       {"measured", execution.measured_step().base()},
                                       {"predicted_with_overlap", execution.overlapped_step.base()}});
  json.add("loss", Json::Object{{"reference", numbers_json(r.reference_losses)},
                                {"measured", numbers_json(r.losses)},
                                {"largest_difference", r.loss.largest_difference},
                                {"tolerance", r.loss.tolerance}});
  json.add("gradient", Json::Object{{"largest_difference", r.gradient.largest_difference}, {"tolerance", r.gradient.tolerance}});
  json.add("parameters_identical_on_all_ranks", r.same_parameters);
  json.add("payload_arrived_as_sent", r.corrupted.empty());
  json.add("agree", execution.agree());
  return json;
}

Bytes total(const std::vector<Bytes>& values) {
  Bytes sum;
  for (Bytes b : values) sum += b;
  return sum;
}

std::string verdict(bool agrees) { return agrees ? "equal" : "DIFFER"; }
std::string verdict(const Closeness& c) {
  return fmt::format("{:.2g} {} {:.2g}", c.largest_difference, c.within() ? "<=" : "EXCEEDS", c.tolerance);
}

/// The ranks whose figures differ, one line each.
std::string differences(const std::string& strategy, const char* what, const ByRank& figures) {
  std::string text;
  for (std::size_t r = 0; r < figures.predicted.size() && r < figures.measured.size(); ++r)
    if (figures.predicted[r] != figures.measured[r])
      text += fmt::format("  {}: {} of rank {}: predicted {} B, measured {} B\n", strategy, what, r, grouped(figures.predicted[r].value()),
                          grouped(figures.measured[r].value()));
  return text;
}

}  // namespace

Json execution_json(const ExecutionSummary& summary) {
  Json json;
  json.add("schema", "shardsim.execute/1");
  json.add("backend", summary.backend);
  json.add("scenario", summary.scenario);
  json.add("ranks", summary.ranks);
  json.add("calibrated", summary.calibrated);
  Json::List strategies;
  for (const Execution& e : summary.strategies) strategies.push_back(strategy_json(e));
  json.add("strategies", std::move(strategies));
  return json;
}

std::string execution_table(const ExecutionSummary& summary) {
  TextGrid grid{.header = {"Strategy", "Sent, all ranks", "Bytes", "Peak of a rank", "Peak", "Loss", "Gradient"},
                .right = {false, true, false, true, false, false, false},
                .rows = {}};
  std::string notes;
  for (const Execution& e : summary.strategies) {
    const execute::ExecutionResult& r = e.result;
    const std::string name = r.strategy + (r.semantics == "textbook" ? " (textbook)" : "");
    grid.rows.push_back({name, grouped(total(r.sent.measured).value()), verdict(r.sent.equal() && r.control.equal()),
                         grouped(r.peak.measured.empty() ? 0 : std::max_element(r.peak.measured.begin(), r.peak.measured.end())->value()),
                         verdict(r.peak.equal()), verdict(r.loss), verdict(r.gradient)});
    notes += differences(name, "bytes sent", r.sent) + differences(name, "control bytes", r.control) +
             differences(name, "peak memory", r.peak) + pool_differences(name, r.pools);
    for (const auto& [from, to] : r.corrupted)
      notes += fmt::format("  {}: what rank {} received is not what rank {} sent (checksums of the payload)\n", name, to, from);
    if (!r.same_parameters) notes += fmt::format("  {}: the ranks computed with different parameters\n", name);
    notes += fmt::format("  {}: step predicted {} on {}, measured {} here\n", name, to_text(e.predicted_step),
                         summary.calibrated ? "this machine's profile" : "the scenario's cluster", to_text(e.measured_step()));
  }
  std::string out = fmt::format("{} on {} ranks, backend {}", shown_path(summary.scenario), summary.ranks, summary.backend);
  if (!summary.strategies.empty()) out += fmt::format("; bytes counted by {}", summary.strategies.front().result.counted_by);
  return out + "\n\n" + grid.text() + "\n" + notes;
}

}  // namespace shardsim
