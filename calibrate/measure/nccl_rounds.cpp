// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/nccl_rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "sim/base/problem.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

constexpr std::array round_kinds{Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::broadcast};

int index_of(Collective kind) {
  return static_cast<int>(std::find(all_collectives.begin(), all_collectives.end(), kind) - all_collectives.begin());
}

/// Of all ranks; those outside the group say nothing.
double slowest(execute::Line* line, double seconds) {
  if (line == nullptr) return seconds;
  for (const std::string& text : line->gather(fmt::format("{:.17g}", seconds))) seconds = std::max(seconds, std::stod(text));
  return seconds;
}

}  // namespace

std::vector<Bytes> NcclRounds::sizes() const {
  std::vector<Bytes> all;
  for (Bytes size = smallest; size <= largest; size = 2 * size) all.push_back(size);
  return all;
}

int calls_in_a_row(Bytes size) { return size <= mebibytes(1) ? 20 : size <= mebibytes(64) ? 10 : 3; }

Bytes even_size(Collective kind, Bytes size, std::int64_t ranks) {
  const std::int64_t unit = kind == Collective::all_gather || kind == Collective::reduce_scatter ? 2 * ranks : 2;
  return Bytes{size.value() / unit * unit};
}

std::vector<int> group_sizes(std::string_view text, int ranks) {
  if (text.empty()) return {ranks};
  std::set<int> sizes;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    int size = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
    if (error != std::errc() || end != word.data() + word.size() || size < 2 || size > ranks)
      throw InputError(fmt::format("--groups: {} is no group of 2 to {} ranks", in_quotes(word), ranks));
    sizes.insert(size);
  }
  return {sizes.begin(), sizes.end()};
}

std::int64_t nodes_of(const std::vector<std::string>& hosts, int ranks) {
  return static_cast<std::int64_t>(std::set<std::string>(hosts.begin(), hosts.begin() + ranks).size());
}

std::map<std::string, double> measurements_in(const std::vector<std::string>& lines) {
  std::map<std::string, double> found;
  for (const std::string& line : lines) {
    const std::size_t blank = line.rfind(' ');
    double seconds = 0;
    if (blank == std::string::npos || !line.starts_with("collective ")) continue;
    const auto [end, error] = std::from_chars(line.data() + blank + 1, line.data() + line.size(), seconds);
    if (error == std::errc() && end == line.data() + line.size()) found[line.substr(0, blank)] = seconds;
  }
  return found;
}

void measure_rounds(const NcclRounds& plan, const NcclGroupRun& run, const NcclRecord& record, CollectiveSamples& samples,
                    const Progress& progress) {
  const std::vector<Bytes> sizes = plan.sizes();
  const auto measure = [&](Collective kind, Bytes size) {
    return slowest(run.line, run.timer == nullptr ? 0 : run.timer->seconds(index_of(kind), size.value(), calls_in_a_row(size)));
  };
  double done = 0;
  const auto all = static_cast<double>(sizes.size() * static_cast<std::size_t>(plan.rounds + 1));
  for (int round = 0; round <= plan.rounds; ++round)
    for (const Bytes asked : sizes) {
      progress(done++ / all, fmt::format("{} ranks, {}, round {} of {}", run.ranks, to_text(asked), round, plan.rounds));
      for (const Collective kind : round_kinds) {
        const Bytes size = even_size(kind, asked, run.ranks);
        if (size == Bytes{}) continue;
        const std::string what = fmt::format("collective {} {} {} {} {}", name_of(kind), run.ranks, run.nodes, size.value(), round);
        const auto earlier = record.earlier.find(what);
        const double seconds = earlier == record.earlier.end() ? measure(kind, size) : earlier->second;
        if (round == 0) continue;
        if (earlier == record.earlier.end()) record.keep(fmt::format("{} {:.17g}", what, seconds));
        const CollectiveSamples::Group group{.collective = kind, .ranks = run.ranks, .nodes = run.nodes};
        samples.add(group, size, Seconds{seconds});
        samples.note_origin(group, run.origin);
      }
    }
}

}  // namespace shardsim
