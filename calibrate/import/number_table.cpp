// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/number_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "calibrate/import/nccl_tests_line.hpp"

namespace shardsim {
namespace {

std::vector<std::string_view> table_cells(std::string_view line) {
  std::vector<std::string_view> cells;
  for (bool more = true; more;) {
    const std::size_t comma = std::min(line.find(','), line.size());
    more = comma < line.size();
    std::string_view cell = line.substr(0, comma);
    line.remove_prefix(std::min(comma + 1, line.size()));
    while (!cell.empty() && (cell.back() == '\r' || cell.back() == ' ')) cell.remove_suffix(1);
    cells.push_back(cell);
  }
  return cells;
}

std::ptrdiff_t column_of(const std::vector<std::string_view>& header, std::string_view name) {
  const auto found = std::find(header.begin(), header.end(), name);
  return found == header.end() ? -1 : found - header.begin();
}

}  // namespace

Result<std::vector<std::vector<double>>> read_numbers(const Source& source, const std::vector<std::string>& columns,
                                                      const std::vector<RowFilter>& filters) {
  const auto shared = std::make_shared<const Source>(source);
  Problems problems;
  std::vector<std::vector<double>> rows;
  std::vector<std::string_view> header;
  std::vector<std::size_t> wanted;
  std::vector<std::pair<std::size_t, std::string_view>> kept;
  std::string_view rest = source.text;
  for (int line = 1; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const auto cells = table_cells(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line == 1) {
      header = cells;
      for (const std::string& name : columns) {
        const auto at = column_of(header, name);
        if (at < 0) problems.add({shared, 1, 1}, fmt::format("the header has no column {}", name));
        wanted.push_back(static_cast<std::size_t>(std::max<std::ptrdiff_t>(at, 0)));
      }
      for (const RowFilter& filter : filters)
        if (const auto at = column_of(header, filter.column); at >= 0) kept.emplace_back(static_cast<std::size_t>(at), filter.prefix);
      if (!problems.empty()) return tl::unexpected(std::move(problems));
      continue;
    }
    if (cells.size() < header.size()) {
      if (cells.size() > 1 || !cells.front().empty()) problems.add({shared, line, 1}, fmt::format("expected {} cells", header.size()));
      continue;
    }
    if (!std::all_of(kept.begin(), kept.end(), [&](const auto& k) { return cells[k.first].starts_with(k.second); })) continue;
    std::vector<double> numbers;
    for (const std::size_t at : wanted) {
      const auto number = nccl_tests::number(cells[at]);
      if (!number) {
        problems.add({shared, line, 1}, fmt::format("column {} must be a number", std::string(header[at])));
        break;
      }
      numbers.push_back(*number);
    }
    if (numbers.size() == wanted.size()) rows.push_back(std::move(numbers));
  }
  if (!problems.empty()) return tl::unexpected(std::move(problems));
  return rows;
}

}  // namespace shardsim
