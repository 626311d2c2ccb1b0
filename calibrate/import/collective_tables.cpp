// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/collective_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "calibrate/fit/segment_fit.hpp"
#include "calibrate/fit/statistics.hpp"
#include "calibrate/import/nccl_tests_line.hpp"
#include "sim/costs/collectives/collective_curve.hpp"

namespace shardsim {
namespace {

std::vector<std::string_view> collective_cells(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const std::size_t comma = std::min(line.find(','), line.size());
    std::string_view cell = line.substr(0, comma);
    while (!cell.empty() && (cell.back() == '\r' || cell.back() == ' ')) cell.remove_suffix(1);
    cells.push_back(cell);
    if (comma == line.size()) return cells;
    line.remove_prefix(comma + 1);
  }
}

struct Times {
  std::map<Bytes, double> least;  // microseconds
  std::set<std::string> versions;
};
using Groups = std::map<std::pair<Collective, std::int64_t>, Times>;

class TableReader {
 public:
  TableReader(const Source& source, const CollectiveTableFacts& facts) : source_(std::make_shared<const Source>(source)), facts_(facts) {}

  Result<std::vector<CollectiveFit>> read() {
    std::string_view rest = source_->text;
    for (int line = 1; !rest.empty() && problems_.empty(); ++line) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const auto cells = collective_cells(rest.substr(0, end));
      if (line == 1)
        read_header(cells);
      else if (rest.substr(0, end).find(',') != std::string_view::npos)
        read_row(cells, line);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (problems_.empty() && groups_.empty())
      complain(0, fmt::format("no row of {}; the table has {}", facts_.gpu, fmt::join(gpus_, ", ")));
    if (facts_.gpu.empty() && gpus_.size() > 1)
      complain(1, fmt::format("the table is of several GPUs; --gpu chooses one: {}", fmt::join(gpus_, ", ")));
    if (!problems_.empty()) return tl::unexpected(problems_);
    std::vector<CollectiveFit> fits;
    for (const auto& [group, times] : groups_) fits.push_back(fit_of(group.first, group.second, times));
    return fits;
  }

 private:
  void complain(int line, std::string message) { problems_.add({source_, line, line > 0 ? 1 : 0}, std::move(message)); }

  void read_header(const std::vector<std::string_view>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) columns_[std::string(cells[i])] = i;
    for (const char* column : {"gpu", "collective", "ranks", "bytes", "time_us"})
      if (!columns_.contains(column)) complain(1, fmt::format("the column '{}' is missing", column));
  }

  [[nodiscard]] std::string_view cell(const std::vector<std::string_view>& cells, const char* column) const {
    const auto found = columns_.find(column);
    return found == columns_.end() || found->second >= cells.size() ? std::string_view() : cells[found->second];
  }

  void read_row(const std::vector<std::string_view>& cells, int line) {
    const std::string gpu(cell(cells, "gpu"));
    gpus_.insert(gpu);
    if (!facts_.gpu.empty() && gpu != facts_.gpu) return;
    const auto collective = nccl_tests::test_named_in(cell(cells, "collective")).collective;
    const auto ranks = nccl_tests::integer(cell(cells, "ranks"));
    const auto bytes = nccl_tests::integer(cell(cells, "bytes"));
    const auto us = nccl_tests::number(cell(cells, "time_us"));
    if (!collective || !ranks || *ranks < 2 || !bytes || *bytes <= 0 || !us || *us <= 0)
      return complain(line, "expected a collective, at least two ranks, bytes and a time above zero");
    Times& times = groups_[{*collective, *ranks}];
    const auto [at, fresh] = times.least.try_emplace(Bytes{*bytes}, *us);
    if (!fresh) at->second = std::min(at->second, *us);
    times.versions.emplace(cell(cells, "nccl_version"));
  }

  [[nodiscard]] CollectiveFit fit_of(Collective collective, std::int64_t ranks, const Times& times) const {
    CollectiveFit fit;
    fit.collective = collective;
    fit.ranks = ranks;
    for (const auto& [size, us] : times.least) fit.samples.push_back({size, microseconds(us), microseconds(us), microseconds(us), 1});
    fit.segments = rounded(fit_segments(fit.samples, most_segments));
    fit.largest = fit.samples.back().size;
    const double busbw = bus_factor(collective, ranks) * (fit.largest / fit.samples.back().median).base();
    const bool in_the_switch =
        collective == Collective::all_reduce && facts_.ring_bandwidth > ByteRate{} && busbw > facts_.ring_bandwidth.base();
    fit.algorithm = in_the_switch ? "nvls" : collective == Collective::all_to_all ? "unknown" : "ring";
    std::vector<double> errors;
    for (const auto& sample : fit.samples) errors.push_back(std::abs(time_of(fit.segments, sample.size) / sample.median - 1));
    const auto slash = source_->name.find_last_of('/');
    fit.origin = fmt::format("fitted: {}, {}, NCCL {}, least of repeats; {} sizes within {:.1f} % (median), {:.0f} % (worst)",
                             source_->name.substr(slash == std::string::npos ? 0 : slash + 1), facts_.gpu,
                             fmt::join(times.versions, " and "), fit.samples.size(), 100 * median(errors), 100 * std::ranges::max(errors));
    fit.samples.clear();
    return fit;
  }

  std::shared_ptr<const Source> source_;
  const CollectiveTableFacts& facts_;
  Problems problems_;
  std::map<std::string, std::size_t> columns_;
  std::set<std::string> gpus_;
  Groups groups_;
};

}  // namespace

Result<std::vector<CollectiveFit>> read_collective_table(const Source& source, const CollectiveTableFacts& facts) {
  return TableReader(source, facts).read();
}

}  // namespace shardsim
