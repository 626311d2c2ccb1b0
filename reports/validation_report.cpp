// SPDX-License-Identifier: Apache-2.0
// A validation on one screen.
#include "reports/validation_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.hpp"

namespace shardsim {
namespace {

std::string errors_line(const char* what, const Errors& errors) {
  if (errors.rows == 0) return {};
  return fmt::format("  {:<44}{:>4} rows  median {:>5.1f} %  mean {:>5.1f} %  p90 {:>5.1f} %\n", what, errors.rows, 100 * errors.median,
                     100 * errors.mean, 100 * errors.p90);
}

std::string groups_text(const char* name, const std::vector<ErrorGroup>& groups) {
  TextGrid grid;
  grid.header = {name, "fit", "held out", "median", "mean", "p90", "bias", "constant MFU"};
  grid.right = {false, true, true, true, true, true, true, true};
  for (const ErrorGroup& group : groups)
    grid.rows.push_back({group.name, std::to_string(group.fit_rows), std::to_string(group.model.rows), percentage(group.model.median),
                         percentage(group.model.mean), percentage(group.model.p90), fmt::format("{:+.1f} %", 100 * group.model.bias),
                         percentage(group.baseline.median)});
  return "\n" + grid.text();
}

std::size_t right_of(const std::vector<OrderedPair>& pairs) {
  return static_cast<std::size_t>(std::count_if(pairs.begin(), pairs.end(), [](const OrderedPair& pair) { return pair.right(); }));
}

}  // namespace

std::string validation_table(const ValidationReport& report) {
  std::string out = "Throughput next to published measurements (|predicted / measured - 1|)\n";
  out += errors_line("held out (not fitted)", report.held_out);
  out += errors_line("  of software with fit rows", report.known_software);
  out += errors_line("  of other software", report.new_software);
  out += errors_line("  by a constant MFU for each GPU", report.baseline);
  out += errors_line("fit", report.fit);
  out += errors_line("something unstated, not counted", report.unstated);
  out += groups_text("Source", report.by_source) + groups_text("GPU", report.by_gpu) + groups_text("Software", report.by_stack) +
         groups_text("Strategy", report.by_strategy);

  out += "\nMemory\n";
  out += errors_line("allocated", memory_errors(report, "allocated", false)) +
         errors_line("reserved", memory_errors(report, "reserved", false)) +
         errors_line("reserved, compiled", memory_errors(report, "reserved", true));
  const auto wrong =
      std::count_if(report.verdicts.begin(), report.verdicts.end(), [](const Verdict& v) { return v.fitted != v.predicted; });
  out += fmt::format("  {} of {} verdicts (fits, does not fit) are right\n", static_cast<std::ptrdiff_t>(report.verdicts.size()) - wrong,
                     report.verdicts.size());

  out += fmt::format("\nOrder of strategies: {} of {} pairs right\n", right_of(report.order), report.order.size());
  TextGrid scaling;
  scaling.header = {"Scaling", "GPUs", "lost, measured", "lost, predicted"};
  scaling.right = {false, true, true, true};
  for (const ScalingLoss& loss : report.scaling)
    if (loss.stated)
      scaling.rows.push_back({loss.what, fmt::format("{} to {}", loss.from, loss.to), fmt::format("{:.1f} %", 100 * loss.measured),
                              fmt::format("{:.1f} %", 100 * loss.predicted)});
  out += "\n" + scaling.text();
  for (const ValidatedRow& row : report.rows)
    if (!row.problem.empty()) out += fmt::format("\n{} cannot be simulated:\n{}", row.row->id, row.problem);
  return out;
}

}  // namespace shardsim
