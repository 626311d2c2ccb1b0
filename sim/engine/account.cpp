// SPDX-License-Identifier: Apache-2.0
// Sums are kept as fractions over the group's size and rounded up once each, so that a figure can differ by a byte from the sum of its
// rounded parts.
#include "sim/engine/account.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace shardsim {
namespace {

/// Calls alike in group, collective, dtype, payload and control.
struct Row {
  std::int32_t group = 0;
  Collective collective = Collective::all_reduce;
  DType dtype = DType::bf16;
  Bytes payload;
  bool control = false;
  std::int64_t calls = 0;
  std::map<std::int64_t, std::int64_t> silent_calls;  ///< of chains: by the position in the group that sends nothing

  [[nodiscard]] bool holds(std::int32_t g, const Communicate& c) const {
    return group == g && collective == c.kind && dtype == c.dtype && control == c.control && payload == bytes(c.payload, c.dtype);
  }
  [[nodiscard]] bool is_chain() const { return collective == Collective::broadcast || collective == Collective::reduce; }
};

std::int64_t ceil_of(__int128 numerator, std::int64_t denominator) {
  return static_cast<std::int64_t>((numerator + denominator - 1) / denominator);
}

/// The tail of a broadcast stands just before the root; a reduction ends at its root.
std::int64_t silent_position(const Communicate& c, std::int64_t n) {
  return c.kind == Collective::broadcast ? (c.root + n - 1) % n : c.root;
}

std::vector<Row> rows_of(const Schedule& schedule) {
  std::vector<Row> rows;
  for (const Op& op : schedule.ops) {
    const auto* c = std::get_if<Communicate>(&op.action);
    if (c == nullptr) continue;
    const std::int32_t group = schedule.at(c->communicator).group.index;
    auto row = std::find_if(rows.rbegin(), rows.rend(), [&](const Row& r) { return r.holds(group, *c); });
    if (row == rows.rend()) {
      rows.push_back({group, c->kind, c->dtype, bytes(c->payload, c->dtype), c->control, 0, {}});
      row = rows.rbegin();
    }
    ++row->calls;
    if (row->is_chain()) ++row->silent_calls[silent_position(*c, schedule.group_of(c->communicator).size)];
  }
  const auto key = [](const Row& r) { return std::tuple(r.control, r.group, r.collective, r.dtype, -r.payload.value()); };
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
  return rows;
}

class Accountant {
 public:
  Accountant(const Schedule& schedule, const Chooser& chooser) : schedule_(schedule), rows_(rows_of(schedule)) {
    for (const Row& row : rows_) ways_.push_back(way_of(row, chooser));
    find_extreme_ranks();
  }

  Traffic account(Elements psi) const {
    Traffic traffic;
    for (const Row& row : rows_) traffic.by_group.push_back(reported(row));
    for (Collective c : all_collectives)
      traffic.sent_per_rank[static_cast<std::size_t>(c)] =
          sent_by(most_, [c](const Row& row) { return !row.control && row.collective == c; });
    const auto counts = [](const Row& row) { return !row.control; };
    traffic.total = traffic.by_rank_max = sent_by(most_, counts);
    traffic.by_rank_min = sent_by(least_, counts);
    traffic.by_rank_mean = mean();
    traffic.control = sent_by(most_, [](const Row& row) { return row.control; });
    if (psi > Elements{}) traffic.psi_units = passed_payload() / static_cast<double>(psi.value());
    return traffic;
  }

 private:
  [[nodiscard]] const Group& group_of(const Row& row) const { return schedule_.groups[static_cast<std::size_t>(row.group)]; }
  [[nodiscard]] std::int64_t position(std::int64_t rank, const Group& group) const { return rank / group.stride % group.size; }

  Chosen way_of(const Row& row, const Chooser& chooser) const {
    if (row.is_chain()) return {Algorithm::chain, {}};
    if (chooser) return chooser(row.collective, row.payload, group_of(row));
    return {Algorithm::ring, {.ranks = group_of(row).size, .nodes = 1, .ranks_per_node = group_of(row).size}};
  }

  [[nodiscard]] const Chosen& way(const Row& row) const { return ways_[static_cast<std::size_t>(&row - rows_.data())]; }

  /// By all ranks of a group together, in all calls of the row.
  [[nodiscard]] __int128 sent_by_all(const Row& row) const {
    const std::int64_t n = group_of(row).size;
    if (n <= 1 || way(row).algorithm == Algorithm::chain) return sent_times_n(row.collective, row.payload, n) * row.calls;
    return sent_times_n(way(row).algorithm, row.collective, row.payload, way(row).placement) * row.calls;
  }

  /// What `rank` sends in all calls of the row, times the group's size.
  [[nodiscard]] __int128 sent_times_size(const Row& row, std::int64_t rank) const {
    const Group& group = group_of(row);
    if (!row.is_chain()) return sent_by_all(row);
    if (group.size == 1) return 0;
    const auto silent = row.silent_calls.find(position(rank, group));
    const std::int64_t calls = row.calls - (silent == row.silent_calls.end() ? 0 : silent->second);
    return static_cast<__int128>(row.payload.value()) * calls * group.size;
  }

  /// Rounded up once a group.
  template <class Predicate>
  [[nodiscard]] Bytes sent_by(std::int64_t rank, Predicate counts) const {
    std::vector<__int128> by_group(schedule_.groups.size());
    for (const Row& row : rows_)
      if (counts(row)) by_group[static_cast<std::size_t>(row.group)] += sent_times_size(row, rank);
    Bytes sum;
    for (std::size_t g = 0; g < by_group.size(); ++g) sum += Bytes{ceil_of(by_group[g], schedule_.groups[g].size)};
    return sum;
  }

  /// Bytes that `rank` does not send although an average rank of a ring would: only chains tell ranks apart.
  [[nodiscard]] std::int64_t silence(std::int64_t rank) const {
    std::int64_t sum = 0;
    for (const Row& row : rows_) {
      if (row.control || !row.is_chain()) continue;
      const auto silent = row.silent_calls.find(position(rank, group_of(row)));
      if (silent != row.silent_calls.end()) sum += row.payload.value() * silent->second;
    }
    return sum;
  }

  void find_extreme_ranks() {
    if (std::none_of(rows_.begin(), rows_.end(), [](const Row& row) { return !row.control && row.is_chain(); })) return;
    std::int64_t smallest = silence(0), largest = smallest;
    for (std::int64_t rank = 1; rank < schedule_.world_size; ++rank) {
      const std::int64_t here = silence(rank);
      if (here < smallest) most_ = rank;
      if (here > largest) least_ = rank;
      smallest = std::min(smallest, here);
      largest = std::max(largest, here);
    }
  }

  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const Row& row : rows_)
      if (!row.control) sum += static_cast<double>(sent_by_all(row)) / static_cast<double>(group_of(row).size);
    return sum;
  }

  /// A library's collective over a group of one rank passes nothing on; the papers' formulas are defined for every number of ranks.
  [[nodiscard]] bool passes_on(const Row& row) const {
    return !row.control && (group_of(row).size > 1 || schedule_.semantics == "textbook");
  }

  [[nodiscard]] double passed_payload() const {
    double sum = 0;
    for (const Row& row : rows_)
      if (passes_on(row))
        sum += static_cast<double>(passes(row.collective)) * static_cast<double>(row.payload.value()) * static_cast<double>(row.calls);
    return sum;
  }

  [[nodiscard]] TrafficRow reported(const Row& row) const {
    const Group& group = group_of(row);
    return {.group = group.name,
            .collective = row.collective,
            .dtype = row.dtype,
            .payload = row.payload,
            .calls = row.calls,
            .sent_per_rank = Bytes{ceil_of(sent_times_size(row, most_), group.size)},
            .algorithm = std::string(name_of(way(row).algorithm)),
            .cost_model = {},
            .control = row.control,
            .bottleneck = {}};
  }

  const Schedule& schedule_;
  std::vector<Row> rows_;
  std::vector<Chosen> ways_;           // by row
  std::int64_t most_ = 0, least_ = 0;  // the ranks that send the most and the least
};

}  // namespace

Traffic account(const Schedule& schedule, Elements psi, const Chooser& chooser) { return Accountant(schedule, chooser).account(psi); }

}  // namespace shardsim
