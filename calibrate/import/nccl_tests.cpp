// SPDX-License-Identifier: Apache-2.0
// What a log leaves out, filled in from what it says: ranks from counts or from the ratio of printed bandwidths, nodes from the
// device list, the collective from the test's name.
#include "calibrate/import/nccl_tests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "calibrate/import/nccl_tests_line.hpp"
#include "calibrate/import/nccl_tests_text.hpp"

namespace shardsim {
namespace {

using nccl_tests::size_of_type;
using nccl_tests::test_named_in;

constexpr double printed_digit = 0.0101;  // GB/s: bandwidths are printed with two decimals, and times with four digits
constexpr double printed_share = 0.01;

/// Printed 0.75 may be anything between 0.745 and 0.755.
double rounding(double printed) { return 0.0051 + 1e-4 * printed; }

/// The other tools that users take for nccl-tests, by a text that only they print.
std::string other_tool(const std::string& text) {
  if (text.find("comm op:") != std::string::npos)
    return "this is DeepSpeed's communication logger: it counts an all-reduce twice and its message sizes changed meaning between "
           "versions; "
           "run nccl-tests for a calibration";
  if (text.find("algo throughput") != std::string::npos)
    return "this is the output of a torch.distributed all_reduce benchmark: its throughput counts the payload twice and the log has no "
           "size; "
           "run nccl-tests for a calibration";
  if (text.find("COMMS-RES") != std::string::npos) return "this is the output of PARAM's comms benchmark, which is not supported";
  if (text.find("# OSU ") != std::string::npos) return "this is the output of the OSU micro-benchmarks, which is not supported";
  return {};
}

/// Ranks from "count is per rank": exact for all-gather, reduce-scatter and all-to-all.
std::int64_t ranks_from_counts(const NcclTestsTable& table) {
  std::int64_t ranks = 0;
  for (const NcclTestsRow& row : table.rows) {
    const std::int64_t part = row.count * size_of_type(row.type);
    if (row.size == Bytes{} || part <= 0) continue;
    if (row.size.value() % part != 0) return 0;
    const std::int64_t n = row.size.value() / part;
    if (ranks != 0 && n != ranks) return 0;
    ranks = n;
  }
  return ranks > 1 ? ranks : 0;
}

/// Ranks from busbw / algbw = passes (n - 1) / n: the n that explains every row within the printed digits, a multiple of 8 before others.
std::int64_t ranks_from_ratio(const NcclTestsTable& table, Collective collective) {
  if (bus_factor(collective, 2) == 1 && bus_factor(collective, 3) == 1) return 0;
  double low = 0, high = 2;  // of the factor, narrowed by each row
  for (const NcclTestsRow& row : table.rows)
    for (const NcclTestsTiming& side : {row.out_of_place, row.in_place}) {
      if (!side.algbw || !side.busbw || *side.algbw < 0.05) continue;
      const double bus = *side.busbw, algorithm = *side.algbw;
      low = std::max(low, (bus - rounding(bus)) / (algorithm + rounding(algorithm)));
      high = std::min(high, (bus + rounding(bus)) / (algorithm - rounding(algorithm)));
    }
  std::int64_t best = 0;
  double best_error = 1e9;
  for (std::int64_t n = 2; n <= 16384; ++n) {
    const double factor = bus_factor(collective, n);
    if (factor < low || factor > high) continue;
    const double error = std::abs(factor - (low + high) / 2) + (n % 8 == 0 || n < 8 ? 0 : 1);
    if (error >= best_error) continue;
    best = n;
    best_error = error;
  }
  return best;
}

/// The collective from the shape of its rows; all-to-all looks like all-gather and must be named.
std::optional<Collective> collective_from_rows(const NcclTestsTable& table) {
  const bool per_rank = ranks_from_counts(table) > 1;
  const bool reduces =
      std::ranges::any_of(table.rows, [](const NcclTestsRow& row) { return !row.reduction.empty() && row.reduction != "none"; });
  if (per_rank) return reduces ? Collective::reduce_scatter : Collective::all_gather;
  if (reduces) return Collective::all_reduce;
  return std::nullopt;
}

bool disagrees(double printed, double computed) {
  return std::abs(printed - computed) > std::max(printed_share * std::abs(computed), printed_digit);
}

/// The first thing about a row that does not follow from size, time and ranks; empty if all does.
std::string inconsistency(const NcclTestsTable& table, const NcclTestsRow& row) {
  if (row.size == Bytes{}) return {};
  for (const NcclTestsTiming& side : {row.out_of_place, row.in_place}) {
    if (!side.time) continue;
    const double algbw = (row.size / *side.time).base() / 1e9;
    const double busbw = algbw * bus_factor(*table.collective, table.ranks);
    if (side.algbw && disagrees(*side.algbw, algbw))
      return fmt::format("algbw {} is printed where size and time give {:.2f} GB/s", *side.algbw, algbw);
    if (side.busbw && disagrees(*side.busbw, busbw))
      return fmt::format("busbw {} is printed where size, time and {} ranks give {:.2f} GB/s", *side.busbw, table.ranks, busbw);
  }
  return {};
}

class Finisher {
 public:
  Finisher(std::shared_ptr<const Source> source, const NcclTestsFacts& facts) : source_(std::move(source)), facts_(facts) {}

  /// Fills in what is missing; false if the table cannot be used, with a warning that says why.
  bool finish(NcclTestsTable& table, NcclTestsLog& log) {
    const int line = table.rows.front().line;
    const auto leave_out = [&](const std::string& why) {
      log.warn(source_, line, "table left out: " + why);
      return false;
    };
    if (!find_collective(table))
      return leave_out(table.test.empty() ? "the collective is not stated; give --collective"
                                          : table.test + " is no collective of data-parallel training");
    find_ranks(table);
    if (table.ranks == 0) return leave_out("the number of ranks is not stated; give --ranks");
    if (table.ranks == 1) return leave_out("a run of one rank measures no communication");
    if (!table.network.empty() && facts_.nodes == 0 && table.rows.front().leading == 0)
      return leave_out(fmt::format(
          "NCCL's lines show a network between ranks ({}), and nothing says on how many nodes the ranks are; give --nodes", table.network));
    if (const std::string wrong = settle_unit(table); !wrong.empty()) return leave_out(wrong);
    find_nodes(table, log);
    check(table, log);
    name_unused(table, log);
    return true;
  }

 private:
  bool find_collective(NcclTestsTable& table) const {
    if (facts_.collective) table.collective = facts_.collective;
    if (!table.collective && !table.test.empty()) {
      table.collective = test_named_in(table.test).collective;
      if (!table.collective) return false;
    }
    if (!table.collective) {
      const auto slash = source_->name.find_last_of('/');
      const auto named = test_named_in(source_->name.substr(slash == std::string::npos ? 0 : slash + 1));
      table.test = named.name;
      if (!named.name.empty() && !named.collective) return false;
      table.collective = named.collective;
      if (named.collective) table.assumptions.push_back("collective from the file's name");
    }
    if (!table.collective) {
      table.collective = collective_from_rows(table);
      if (table.collective) table.assumptions.push_back("collective from the columns");
    }
    return table.collective.has_value();
  }

  void find_ranks(NcclTestsTable& table) const {
    if (facts_.ranks > 0) table.ranks = facts_.ranks;
    if (table.ranks > 0) return;
    const Collective c = *table.collective;
    if (c == Collective::all_gather || c == Collective::reduce_scatter || c == Collective::all_to_all)
      table.ranks = ranks_from_counts(table);
    if (table.ranks == 0) table.ranks = ranks_from_ratio(table, c);
    if (table.ranks > 0) table.assumptions.push_back(fmt::format("{} ranks from the rows", table.ranks));
  }

  void find_nodes(NcclTestsTable& table, NcclTestsLog& log) const {
    if (facts_.nodes > 0) table.nodes = facts_.nodes;
    if (table.nodes > 0) return;
    const std::int64_t leading = table.rows.front().leading;
    table.nodes = leading > 0 && table.ranks % leading == 0 ? leading : ceil_div(table.ranks, 8);
    if (leading > 0) return table.assumptions.push_back(fmt::format("{} nodes from the first column", table.nodes));
    table.assumptions.push_back(
        fmt::format("{} node{}, at eight ranks on each; --nodes says otherwise", table.nodes, table.nodes == 1 ? "" : "s"));
    log.warn(source_, table.rows.front().line,
             "the log does not say on how many nodes its " + std::to_string(table.ranks) + " ranks ran: " + table.assumptions.back());
  }

  /// Until March 2019 times were printed in milliseconds. Bandwidths tell: they must follow from size and time. Where all of them are off
  /// by another factor, nothing tells which of the columns is wrong.
  static std::string settle_unit(NcclTestsTable& table) {
    double least = std::numeric_limits<double>::max(), most = 0;
    for (const NcclTestsRow& row : table.rows)
      for (const NcclTestsTiming& side : {row.out_of_place, row.in_place}) {
        if (!side.time || !side.algbw || *side.algbw < 1) continue;  // fewer digits tell nothing
        const double factor = (row.size / *side.time).base() / 1e9 / *side.algbw;
        least = std::min(least, factor);
        most = std::max(most, factor);
      }
    constexpr double printed = 0.05;
    const auto all_are = [&](double factor) { return least > factor * (1 - printed) && most < factor * (1 + printed); };
    if (most == 0 || all_are(1) || most > least * (1 + 2 * printed)) return {};
    if (!all_are(1000)) return fmt::format("every printed bandwidth is {:.3g} times what size and time give", 1 / std::sqrt(least * most));
    for (NcclTestsRow& row : table.rows)
      for (NcclTestsTiming* side : {&row.out_of_place, &row.in_place})
        if (side->time) side->time = *side->time * 1000.0;
    table.assumptions.emplace_back("times in milliseconds, as nccl-tests printed them before March 2019");
    return {};
  }

  void name_unused(const NcclTestsTable& table, NcclTestsLog& log) const {
    std::vector<std::string> sizes;
    std::size_t empty = 0;
    for (const NcclTestsRow& row : table.rows) {
      if (row.size == Bytes{})
        ++empty;
      else if (!time_of(row))
        sizes.push_back(std::to_string(row.size.value()));
    }
    if (!sizes.empty())
      log.warn(source_, table.rows.front().line,
               fmt::format("{} of {} rows are not used, for their time is N/A, nan or not above zero: {} B", sizes.size(),
                           table.rows.size(), fmt::join(sizes, ", ")));
    if (empty > 0)
      log.warn(source_, table.rows.front().line, fmt::format("{} of {} rows are not used: their size is 0", empty, table.rows.size()));
  }

  void check(NcclTestsTable& table, NcclTestsLog& log) const {
    for (const NcclTestsRow& row : table.rows) {
      const std::string what = inconsistency(table, row);
      if (what.empty()) continue;
      if (table.consistent) log.warn(source_, row.line, "inconsistent row: " + what);
      table.consistent = false;
    }
  }

  std::shared_ptr<const Source> source_;
  const NcclTestsFacts& facts_;
};

/// Tables with a leading column hold one run for each of its values.
std::vector<NcclTestsTable> split_by_leading_column(NcclTestsTable table) {
  const std::vector<NcclTestsRow> rows = std::exchange(table.rows, {});
  std::map<std::int64_t, NcclTestsTable> by_value;
  for (const NcclTestsRow& row : rows) by_value.try_emplace(row.leading, table).first->second.rows.push_back(row);
  std::vector<NcclTestsTable> tables;
  for (auto& [value, part] : by_value) tables.push_back(std::move(part));
  return tables;
}

}  // namespace

std::string to_text(const Warning& warning) {
  const std::string name = warning.where.source ? warning.where.source->name : "";
  return warning.where.line > 0 ? fmt::format("{}:{}: {}", name, warning.where.line, warning.message)
                                : fmt::format("{}: {}", name, warning.message);
}

void NcclTestsLog::warn(const std::shared_ptr<const Source>& source, int line, std::string message) {
  Warning warning;
  warning.where = {source, line, 1};
  warning.message = std::move(message);
  warnings.push_back(std::move(warning));
}

bool usable(const NcclTestsTable& table, const NcclTestsRow& row) {
  return table.ranks > 1 && row.size > Bytes{} && time_of(row).has_value();
}

std::optional<Seconds> time_of(const NcclTestsRow& row) { return row.out_of_place.time ? row.out_of_place.time : row.in_place.time; }

Result<NcclTestsLog> read_nccl_tests(const Source& source, const NcclTestsFacts& facts) {
  const auto shared = std::make_shared<const Source>(source);
  const auto fail = [&](const std::string& message, int line = 0) {
    Problems problems;
    problems.add({shared, line, line > 0 ? 1 : 0}, message);
    return tl::unexpected(problems);
  };
  const auto first = source.text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && (source.text[first] == '{' || source.text[first] == '[') &&
                    source.text.find("\"results\"") != std::string::npos;
  NcclTestsLog raw = json ? nccl_tests::tables_of_json(source) : nccl_tests::tables_of_text(source);
  if (raw.tables.empty()) {
    const std::string tool = other_tool(source.text);
    return fail(tool.empty() ? "no data row of nccl-tests or rccl-tests found" : tool);
  }
  NcclTestsLog log;
  log.warnings = std::move(raw.warnings);
  Finisher finisher(shared, facts);
  for (NcclTestsTable& table : raw.tables)
    for (NcclTestsTable& part : split_by_leading_column(std::move(table)))
      if (finisher.finish(part, log)) log.tables.push_back(std::move(part));
  const bool any = std::ranges::any_of(log.tables, [](const NcclTestsTable& table) {
    return std::ranges::any_of(table.rows, [&](const NcclTestsRow& row) { return usable(table, row); });
  });
  if (!any)
    return fail("no usable row" + (log.warnings.empty() ? "" : ": " + log.warnings.back().message),
                log.warnings.empty() ? 0 : log.warnings.back().where.line);
  return log;
}

}  // namespace shardsim
