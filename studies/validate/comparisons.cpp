// SPDX-License-Identifier: Apache-2.0
// Rows of one source that differ in their number of nodes, or in their strategy alone; rows with a memory figure.
#include "studies/validate/comparisons.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/config/node_edit.hpp"
#include "studies/sweep/sweep_plan.hpp"

namespace shardsim {
namespace {

using Rows = std::vector<const ValidatedRow*>;

/// Rows by what is left of their scenarios without some keys, in order of the first of each.
template <class Without>
std::vector<Rows> alike(const std::vector<ValidatedRow>& rows, Without without) {
  std::map<std::string, std::size_t> known;
  std::vector<Rows> groups;
  for (const ValidatedRow& row : rows) {
    if (!row.measured || !row.problem.empty()) continue;
    ConfigNode tree = row.row->scenario;
    without(tree);
    const auto [at, is_new] = known.emplace(row.source->name + flow_text(tree), groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(&row);
  }
  return groups;
}

void drop(ConfigNode& tree, std::string_view section, std::string_view key) {
  for (Entry& entry : tree.entries)
    if (entry.key == section) (void)take(entry.value, key);
}

void add_scaling(ValidationReport& report) {
  const auto series = alike(report.rows, [](ConfigNode& tree) {
    drop(tree, "cluster", "nodes");
    drop(tree, "strategy", "num_distributed_optimizer_instances");  // one for each node: the same sharding
    drop(tree, "training", "gradient_accumulation_steps");          // shared out anew for a fixed global batch
  });
  for (const Rows& rows : series) {
    const auto [few, many] = std::minmax_element(
        rows.begin(), rows.end(), [](const ValidatedRow* a, const ValidatedRow* b) { return a->world_size < b->world_size; });
    if (rows.empty() || (*few)->world_size == (*many)->world_size) continue;
    report.scaling.push_back({(*few)->source->name, fmt::format("{} to {}", (*few)->row->id, (*many)->row->id), (*few)->world_size,
                              (*many)->world_size, 1 - *(*many)->measured / *(*few)->measured,
                              1 - (*many)->tokens_per_second_per_gpu / (*few)->tokens_per_second_per_gpu,
                              (*few)->row->unstated.empty() && (*many)->row->unstated.empty()});
  }
}

void add_pair(const ValidatedRow* a, const ValidatedRow* b, ValidationReport& report) {
  if (a->strategy == b->strategy) return;
  if (*a->measured < *b->measured) std::swap(a, b);
  const double measured = *a->measured / *b->measured - 1;
  if (measured <= a->source->error_bar / 2) return;  // no order was measured
  report.order.push_back({a->source->name, fmt::format("{} ({})", a->strategy, a->row->id), fmt::format("{} ({})", b->strategy, b->row->id),
                          measured, a->tokens_per_second_per_gpu / b->tokens_per_second_per_gpu - 1,
                          a->row->unstated.empty() && b->row->unstated.empty()});
}

void add_order(ValidationReport& report) {
  const auto jobs = alike(report.rows, [](ConfigNode& tree) {
    (void)take(tree, "strategy");
    drop(tree, "training", "stack");
  });
  for (const Rows& rows : jobs)
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t k = i + 1; k < rows.size(); ++k) add_pair(rows[i], rows[k], report);
}

void add_memory(ValidationReport& report) {
  for (const ValidatedRow& row : report.rows) {
    if (!row.problem.empty()) continue;
    if (row.row->allocated) report.memory.push_back({&row, "allocated", *row.row->allocated, row.allocated});
    if (row.row->reserved) report.memory.push_back({&row, "reserved", *row.row->reserved, row.reserved});
    if (row.row->fits) report.verdicts.push_back({&row, 0, *row.row->fits, row.fits});
    if (!row.row->largest_micro_batch) continue;
    report.verdicts.push_back({&row, *row.row->largest_micro_batch, true, row.fits});
    report.verdicts.push_back({&row, *row.row->largest_micro_batch + 1, false, row.next_batch_fits.value_or(true)});
  }
}

}  // namespace

void compare_rows(ValidationReport& report) {
  add_scaling(report);
  add_order(report);
  add_memory(report);
}

}  // namespace shardsim
