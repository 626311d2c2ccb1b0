// SPDX-License-Identifier: Apache-2.0
// docs/accuracy.md: every table of a validation, as Markdown.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/validation_report.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

constexpr std::size_t most_unexplained = 30;

std::string page_share(double value) { return fmt::format("{:.1f} %", 100 * value); }
std::string page_signed(double value) { return fmt::format("{:+.1f} %", 100 * value); }

std::string page_errors(const Errors& errors) {
  if (errors.rows == 0) return "| 0 | | | | |";
  return fmt::format("| {} | {} | {} | {} | {} |", errors.rows, page_share(errors.median), page_share(errors.mean), page_share(errors.p90),
                     page_signed(errors.bias));
}

std::string page_sentence(const Errors& errors) {
  return fmt::format("median {}, mean {}, nine in ten within {}", page_share(errors.median), page_share(errors.mean),
                     page_share(errors.p90));
}

std::string page_groups(const char* what, const std::vector<ErrorGroup>& groups) {
  std::string out = fmt::format(
      "\n| {} | fit rows | held out | median | mean | p90 | bias | constant MFU: median | mean |\n|---|---|---|---|---|---|---|---|---|\n",
      what);
  for (const ErrorGroup& group : groups)
    out += fmt::format("| {} | {} {} {} | {} |\n", group.name, group.fit_rows, page_errors(group.model), page_share(group.baseline.median),
                       page_share(group.baseline.mean));
  return out;
}

std::string page_sources(const ValidationReport& report) {
  std::string out =
      "\n## Sources\n\nFacts and figures of public repositories; the rows are in `scenarios/validation`, one file a source, with what a "
      "source leaves open and what is assumed for it.\n\n| source | what | where | date | rows |\n|---|---|---|---|---|\n";
  for (const MeasurementSource& source : *report.sources)
    out += fmt::format("| {} | {} | {} | {} | {} |\n", source.name, source.title, source.where, source.date, source.rows.size());
  return out;
}

std::string page_left_out(const ValidationReport& report) {
  if (report.left_out.empty()) return {};
  std::string out =
      "\n## Each source left out in turn\n\nThe constants fitted again without any row of the source, then asked for all its rows.\n\n| "
      "source | rows | shipped constants: median | mean | p90 | fitted without it: median | mean | p90 "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const LeftOut& row : report.left_out)
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", row.source, row.shipped.rows, page_share(row.shipped.median),
                       page_share(row.shipped.mean), page_share(row.shipped.p90), page_share(row.refitted.median),
                       page_share(row.refitted.mean), page_share(row.refitted.p90));
  return out;
}

std::string page_scaling(const ValidationReport& report) {
  std::string out =
      "\n## Scaling\n\nThroughput of a GPU lost from the fewest nodes of a configuration to the most.\n\n| source | rows | GPUs | lost, "
      "measured | lost, predicted | states its network |\n|---|---|---|---|---|---|\n";
  double measured = 0, predicted = 0;
  for (const ScalingLoss& loss : report.scaling) {
    out += fmt::format("| {} | {} | {} to {} | {} | {} | {} |\n", loss.source, loss.what, loss.from, loss.to, page_share(loss.measured),
                       page_share(loss.predicted), loss.stated ? "yes" : "no");
    if (loss.stated) measured += loss.measured, predicted += loss.predicted;
  }
  if (measured > 0)
    out += fmt::format("\nOver the series that state their network: {} of the measured loss is predicted.\n",
                       page_share(predicted / measured));
  return out;
}

std::string page_order(const ValidationReport& report) {
  const auto right = [&](bool stated) {
    return std::count_if(report.order.begin(), report.order.end(),
                         [&](const OrderedPair& pair) { return pair.stated == stated && pair.right(); });
  };
  const auto all = [&](bool stated) {
    return std::count_if(report.order.begin(), report.order.end(), [&](const OrderedPair& pair) { return pair.stated == stated; });
  };
  std::string out = fmt::format(
      "\n## Order of strategies\n\nPairs of one source that differ in their strategy alone, and in throughput by more than the source's "
      "error bar: {} of {} right where the network is stated, {} of {} where it is not.\n\n"
      "| source | faster | slower | by, measured | by, predicted |\n|---|---|---|---|---|\n",
      right(true), all(true), right(false), all(false));
  for (const OrderedPair& pair : report.order)
    out += fmt::format("| {} | {} | {} | {} | {} |\n", pair.source, pair.faster, pair.slower, page_signed(pair.measured),
                       page_signed(pair.predicted));
  return out;
}

std::string page_memory(const ValidationReport& report) {
  std::string out = "\n## Peak memory\n\n| counter | rows | median | mean | p90 | bias |\n|---|---|---|---|---|---|\n";
  out += "| allocated " + page_errors(memory_errors(report, "allocated", false)) + "\n";
  out += "| reserved, eager " + page_errors(memory_errors(report, "reserved", false)) + "\n";
  out += "| reserved, compiled " + page_errors(memory_errors(report, "reserved", true)) + "\n";
  const auto wrong =
      std::count_if(report.verdicts.begin(), report.verdicts.end(), [](const Verdict& v) { return v.fitted != v.predicted; });
  out += fmt::format("\nVerdicts (a run that ran fits, one that ran out of memory does not): {} of {} right.\n",
                     static_cast<std::ptrdiff_t>(report.verdicts.size()) - wrong, report.verdicts.size());
  for (const Verdict& verdict : report.verdicts)
    if (verdict.fitted != verdict.predicted)
      out += fmt::format("- {}{}: {}, predicted that it {}\n", verdict.row->row->id,
                         verdict.micro_batch > 0 ? fmt::format(" with micro-batch {}", verdict.micro_batch) : "",
                         verdict.fitted ? "fitted" : "did not fit", verdict.predicted ? "does" : "does not");
  out += "\n| row | counter | measured | predicted | error |\n|---|---|---|---|---|\n";
  for (const MemoryError& row : report.memory)
    out += fmt::format("| {}{} | {} | {} | {} | {} |\n", row.row->row->id, row.row->compiled ? " (compiled)" : "", row.counter,
                       to_text(row.measured), to_text(row.predicted), page_signed(row.error()));
  return out;
}

/// Sources whose held-out rows are off on one side, and the single rows that are off most.
std::string page_unexplained(const ValidationReport& report) {
  std::string out =
      "\n## What stays unexplained\n\nBy source, the median of the signed error (what a single factor could hide) and what is known of "
      "it:\n\n";
  for (const MeasurementSource& source : *report.sources) {
    const auto group =
        std::find_if(report.by_source.begin(), report.by_source.end(), [&](const ErrorGroup& g) { return g.name == source.name; });
    if (group == report.by_source.end()) continue;
    out += fmt::format("- {}: {}{}{}\n", source.name, page_signed(group->model.bias), source.unexplained.empty() ? "" : ". ",
                       source.unexplained);
  }
  std::vector<const ValidatedRow*> worst;
  for (const ValidatedRow& row : report.rows)
    if (row.timed(RowUse::held_out)) worst.push_back(&row);
  std::stable_sort(worst.begin(), worst.end(),
                   [](const ValidatedRow* a, const ValidatedRow* b) { return std::abs(a->error) > std::abs(b->error); });
  if (worst.size() > most_unexplained) worst.resize(most_unexplained);
  out += fmt::format(
      "\nThe {} held-out rows that are off most:\n\n| row | software | GPU | strategy | GPUs | error | bound by "
      "|\n|---|---|---|---|---|---|---|\n",
      worst.size());
  for (const ValidatedRow* row : worst)
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", row->row->id, row->row->software, row->gpu, row->strategy, row->world_size,
                       page_signed(row->error), row->bound_by);
  return out;
}

std::string page_rows(const ValidationReport& report) {
  std::string out =
      "\n## Every row\n\nTokens per second and GPU.\n\n| row | use | GPU | strategy | GPUs | measured | predicted | error | constant MFU "
      "|\n|---|---|---|---|---|---|---|---|---|\n";
  for (const ValidatedRow& row : report.rows) {
    if (!row.problem.empty()) out += fmt::format("| {} | not simulated | | | | | | | |\n", row.row->id);
    if (!row.measured || !row.problem.empty()) continue;
    out +=
        fmt::format("| {} | {} | {} | {} | {} | {:.0f} | {:.0f} | {} | {} |\n", row.row->id, name_of(row.row->use), row.gpu, row.strategy,
                    row.world_size, *row.measured, row.tokens_per_second_per_gpu, page_signed(row.error), page_signed(row.baseline_error));
  }
  return out;
}

}  // namespace

std::string accuracy_page(const ValidationReport& report) {
  std::string out =
      "# Accuracy\n\nPredictions next to published measurements. This page is written by `scripts/accuracy.sh` from the rows in "
      "`scenarios/validation`; nothing in it is typed by hand.\n\n";
  out += fmt::format("Rows not fitted to (held out, not fitted; {} rows): {}.\n", report.held_out.rows, page_sentence(report.held_out));
  out += fmt::format("The constant-MFU baseline on the same rows (each GPU's median share of its peak over the rows to fit): {}.\n\n",
                     page_sentence(report.baseline));
  out +=
      "Errors are |predicted / measured - 1| of tokens per second. A source's rule says which of its rows constants may be fitted to "
      "(`fit: {every: 3}`: the first, fourth, seventh ... of its file); all others are held out. Rows whose source "
      "leaves something open that matters (most often the network) count in no figure of this table but the last.\n\n| rows | number | "
      "median | mean | p90 | bias |\n|---|---|---|---|---|---|\n";
  out += "| held out " + page_errors(report.held_out) + "\n| held out, of software with fit rows " + page_errors(report.known_software) +
         "\n| held out, of other software " + page_errors(report.new_software) + "\n";
  out += "| held out, by the constant-MFU baseline " + page_errors(report.baseline) + "\n| fit " + page_errors(report.fit) +
         "\n| something unstated " + page_errors(report.unstated) + "\n";
  out += page_groups("source", report.by_source) + page_groups("GPU", report.by_gpu) + page_groups("software", report.by_stack) +
         page_groups("strategy", report.by_strategy);
  return out + page_left_out(report) + page_scaling(report) + page_order(report) + page_memory(report) + page_unexplained(report) +
         page_sources(report) + page_rows(report);
}

}  // namespace shardsim
