// SPDX-License-Identifier: Apache-2.0
// Every published row as a simulation, and its errors.
#include "studies/validate/validation.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "calibrate/fit/statistics.hpp"
#include "scenarios/reader/scenario.hpp"
#include "sim/base/parallel.hpp"
#include "sim/config/node_edit.hpp"
#include "sim/costs/products.hpp"
#include "studies/simulate/simulation_job.hpp"
#include "studies/validate/comparisons.hpp"

namespace shardsim {
namespace {

ConfigNode number_node(std::int64_t value) {
  ConfigNode node;
  node.kind = ConfigNode::Kind::scalar;
  node.text = std::to_string(value);
  return node;
}

Scenario scenario_of(const MeasurementSource& source, ConfigNode tree) {
  return value_or_throw(read_scenario(std::move(tree), source.file, std::filesystem::path(source.file).parent_path().string()));
}

void predict(const Scenario& scenario, ValidatedRow& out) {
  const SimulationResult result = simulate_scenario(scenario);
  const StepTime& step = result.step;
  out.gpu = scenario.cluster.profile.gpu.name;
  out.strategy = scenario.strategy.name;
  out.library = result.schedule->library;
  out.compiled = scenario.training.compile;
  out.world_size = result.world_size;
  out.nodes = result.nodes;
  out.bound_by = step.bound_by;
  out.parameters = result.parameters.value();
  out.tokens_per_second_per_gpu = step.tokens_per_second_per_gpu;
  out.share_of_peak = step.model_flops / step.time / peak_for(scenario.cluster.profile.gpu, DType::bf16);
  out.allocated = result.memory.peak;
  out.reserved = result.memory.reserved_peak;
  out.fits = result.memory.fits;
  const Measurement& row = *out.row;
  if (row.tokens_per_second_per_gpu)
    out.measured = row.tokens_per_second_per_gpu;
  else if (row.step_time)
    out.measured = step.tokens_per_second_per_gpu * (step.time / *row.step_time);
  if (out.measured) out.error = out.tokens_per_second_per_gpu / *out.measured - 1;
}

void predict_row(ValidatedRow& out) {
  try {
    ConfigNode tree = out.row->scenario;
    if (out.row->largest_micro_batch) put(tree, "training.micro_batch_size", number_node(*out.row->largest_micro_batch));
    predict(scenario_of(*out.source, tree), out);
    if (!out.row->largest_micro_batch) return;
    put(tree, "training.micro_batch_size", number_node(*out.row->largest_micro_batch + 1));
    out.next_batch_fits = simulate_scenario(scenario_of(*out.source, std::move(tree))).memory.fits;
  } catch (const InputError& error) { out.problem = error.what(); }
}

/// The measured share of the peak of a row.
double measured_share(const ValidatedRow& row) { return row.share_of_peak / (1 + row.error); }

/// The baseline: each GPU's median share of its peak over the rows to fit; of a GPU without such rows, the median of all.
void add_baseline(std::vector<ValidatedRow>& rows) {
  std::map<std::string, std::vector<double>> shares;
  std::vector<double> all;
  for (const ValidatedRow& row : rows) {
    if (!row.timed(RowUse::fit)) continue;
    shares[row.gpu].push_back(measured_share(row));
    all.push_back(measured_share(row));
  }
  for (ValidatedRow& row : rows) {
    if (!row.measured || !row.problem.empty()) continue;
    const auto known = shares.find(row.gpu);
    row.baseline_error = median(known == shares.end() ? all : known->second) / measured_share(row) - 1;
  }
}

template <class Key>
std::vector<ErrorGroup> grouped(const std::vector<ValidatedRow>& rows, Key key) {
  std::vector<ErrorGroup> groups;
  std::map<std::string, std::size_t> fits;
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> errors;
  std::vector<std::string> names;
  for (const ValidatedRow& row : rows) {
    if (row.timed(RowUse::fit)) ++fits[key(row)];
    if (!row.timed(RowUse::held_out)) continue;
    auto& [model, baseline] = errors[key(row)];
    if (model.empty()) names.push_back(key(row));
    model.push_back(row.error);
    baseline.push_back(row.baseline_error);
  }
  for (const std::string& name : names) groups.push_back({name, errors_of(errors[name].first), errors_of(errors[name].second), fits[name]});
  return groups;
}

template <class Wanted>
Errors errors_where(const std::vector<ValidatedRow>& rows, double ValidatedRow::*error, Wanted wanted) {
  std::vector<double> values;
  for (const ValidatedRow& row : rows)
    if (wanted(row)) values.push_back(row.*error);
  return errors_of(values);
}

void summarise(ValidationReport& report) {
  const auto& rows = report.rows;
  std::map<std::string, std::size_t> known;
  for (const ValidatedRow& row : rows)
    if (row.timed(RowUse::fit)) ++known[row.row->software];
  const auto of = [](RowUse use) { return [use](const ValidatedRow& row) { return row.timed(use); }; };
  report.fit = errors_where(rows, &ValidatedRow::error, of(RowUse::fit));
  report.held_out = errors_where(rows, &ValidatedRow::error, of(RowUse::held_out));
  report.baseline = errors_where(rows, &ValidatedRow::baseline_error, of(RowUse::held_out));
  report.unstated = errors_where(rows, &ValidatedRow::error, of(RowUse::unstated));
  report.known_software = errors_where(rows, &ValidatedRow::error, [&](const ValidatedRow& row) {
    return row.timed(RowUse::held_out) && known.contains(row.row->software);
  });
  report.new_software = errors_where(rows, &ValidatedRow::error, [&](const ValidatedRow& row) {
    return row.timed(RowUse::held_out) && !known.contains(row.row->software);
  });
  report.by_source = grouped(rows, [](const ValidatedRow& row) { return row.source->name; });
  report.by_gpu = grouped(rows, [](const ValidatedRow& row) { return row.gpu; });
  report.by_stack = grouped(rows, [](const ValidatedRow& row) { return row.row->software; });
  report.by_strategy = grouped(rows, [](const ValidatedRow& row) { return row.strategy; });
}

}  // namespace

Errors errors_of(std::span<const double> signed_errors) {
  if (signed_errors.empty()) return {};
  std::vector<double> sizes;
  double sum = 0;
  for (const double error : signed_errors) {
    sizes.push_back(std::abs(error));
    sum += sizes.back();
  }
  return {sizes.size(), median(sizes), sum / static_cast<double>(sizes.size()), percentile(sizes, 0.9),
          median({signed_errors.begin(), signed_errors.end()})};
}

ValidationReport validate(std::vector<MeasurementSource> sources) {
  ValidationReport report;
  report.sources = std::make_shared<const std::vector<MeasurementSource>>(std::move(sources));
  for (const MeasurementSource& source : *report.sources)
    for (const Measurement& row : source.rows) {
      report.rows.emplace_back();
      report.rows.back().source = &source;
      report.rows.back().row = &row;
    }
  parallel_for(report.rows.size(), available_cores(), [&](std::size_t i) { predict_row(report.rows[i]); });
  add_baseline(report.rows);
  summarise(report);
  compare_rows(report);
  return report;
}

}  // namespace shardsim
