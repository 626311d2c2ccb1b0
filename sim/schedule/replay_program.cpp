// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule/replay_program.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

namespace shardsim {
namespace {

/// What the cost of an op depends on besides the machine: its kind of action first.
using Traits = std::array<std::int64_t, 5>;

struct HashOfTraits {
  std::size_t operator()(const Traits& traits) const {
    std::uint64_t hash = 0;
    for (const std::int64_t trait : traits) hash = (hash ^ static_cast<std::uint64_t>(trait)) * 0x9E3779B97F4A7C15U;
    return hash ^ hash >> 32;
  }
};

/// Finds the class of each op.
class Classifier {
 public:
  Classifier(const Schedule& schedule, std::vector<OpId>& examples)
      : schedule_(schedule), examples_(examples), by_work_(schedule.works.size(), none) {}

  std::int32_t of(OpId id, const Compute& compute) {
    const HostWorkId host = schedule_.at(id).host;
    if (host.valid()) return with({3, compute.work.index, host.index}, id);
    if (!compute.work.valid()) return 0;
    std::int32_t& known = by_work_[static_cast<std::size_t>(compute.work.index)];
    if (known == none) known = added(id);
    return known;
  }

  std::int32_t of(OpId id, const Copy& copy) {
    const auto types = (copy.source.valid() ? static_cast<std::int64_t>(schedule_.at(copy.source).dtype) : -1) * 256 +
                       static_cast<std::int64_t>(schedule_.at(copy.target).dtype);
    // Path, accumulation and kernels are small numbers: one trait holds them.
    const std::int64_t how =
        static_cast<std::int64_t>(copy.kernels) * 8 + static_cast<std::int64_t>(copy.path) * 2 + (copy.accumulate ? 1 : 0);
    return with({0, copy.count.value(), types, how, schedule_.at(id).host.index}, id);
  }

  std::int32_t of(OpId id, const Communicate& collective) {
    return with({1, static_cast<std::int64_t>(collective.kind), bytes(collective.payload, collective.dtype).value(),
                 schedule_.at(collective.communicator).group.index, schedule_.at(id).host.index},
                id);
  }

  std::int32_t of(OpId id, const Update& update) { return with({2, update.work.index, update.on_host, schedule_.at(id).host.index}, id); }

  // Bookkeeping of the host: well below a kernel launch.
  static std::int32_t of(OpId, const Wait&) { return 0; }
  std::int32_t of(OpId id, const HostWait&) { return after_calls(id); }
  std::int32_t of(OpId id, const Synchronize&) { return after_calls(id); }

 private:
  static constexpr std::int32_t none = -1;

  std::int32_t after_calls(OpId id) {
    const HostWorkId host = schedule_.at(id).host;
    return host.valid() ? with({4, host.index}, id) : 0;
  }

  std::int32_t with(const Traits& traits, OpId id) {
    if (last_.second != none && last_.first == traits) return last_.second;  // alike ops come in runs
    std::int32_t& known = by_traits_.try_emplace(traits, none).first->second;
    if (known == none) known = added(id);
    last_ = {traits, known};
    return known;
  }

  std::int32_t added(OpId id) {
    examples_.push_back(id);
    return static_cast<std::int32_t>(examples_.size()) - 1;
  }

  const Schedule& schedule_;
  std::vector<OpId>& examples_;
  std::vector<std::int32_t> by_work_;
  std::unordered_map<Traits, std::int32_t, HashOfTraits> by_traits_;
  std::pair<Traits, std::int32_t> last_{{}, none};
};

using Kind = ReplayOp::Kind;

// Targets of waits are ops of the schedule until link() has them.
ReplayOp replay_op(const Compute&) { return {}; }
ReplayOp replay_op(const Communicate& c) {
  return {.target = c.communicator.index, .kind = Kind::collective, .activity = Activity::collective};
}
ReplayOp replay_op(const Copy& c) { return {.activity = c.path == CopyPath::device ? Activity::kernel : Activity::link}; }
ReplayOp replay_op(const Wait& w) { return {.target = w.op.index, .kind = Kind::wait}; }
ReplayOp replay_op(const HostWait& w) { return {.target = w.op.index, .kind = Kind::host_wait}; }
ReplayOp replay_op(const Synchronize&) { return {.kind = Kind::synchronize}; }
ReplayOp replay_op(const Update& u) { return {.kind = u.on_host ? Kind::host_update : Kind::kernel, .activity = Activity::update}; }

/// Kernels that an op puts into the driver's queue.
std::int64_t launches_of(const Op& op, const Schedule& schedule) {
  const auto of_work = [&](WorkId id) { return id.valid() ? std::max<std::int64_t>(schedule.at(id).kernels, 1) : 0; };
  return std::visit(
      Overloaded{[&](const Compute& c) { return of_work(c.work); }, [](const Copy& c) { return std::int64_t{c.kernels}; },
                 [](const Communicate&) { return std::int64_t{1}; }, [&](const Update& u) { return u.on_host ? 0 : of_work(u.work); },
                 [](const auto&) { return std::int64_t{0}; }},
      op.action);
}

bool is_on_stream(Kind kind) { return kind == Kind::kernel || kind == Kind::collective || kind == Kind::wait; }

}  // namespace

ReplayProgram::ReplayProgram(const Schedule& schedule, Pricing pricing) : schedule_(&schedule), examples_{OpId{}} {
  Classifier classifier(schedule, examples_);
  ops_.reserve(schedule.ops.size() / 2);
  positions_.assign(schedule.ops.size(), -1);
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    const OpId id{static_cast<std::int32_t>(i)};
    const auto add = [&](const auto& action) {
      if constexpr (requires { replay_op(action); }) {
        positions_[i] = static_cast<std::int32_t>(ops_.size());
        ReplayOp& added = ops_.emplace_back(replay_op(action));
        added.op = id;
        added.stream = is_on_stream(added.kind) ? static_cast<std::int16_t>(op.stream.index) : std::int16_t{-1};
        if (pricing == Pricing::by_class) added.price = classifier.of(id, action);
      }
      if (pricing == Pricing::op_by_op) examples_.push_back(id);
    };
    std::visit(add, op.action);
    if (pricing == Pricing::op_by_op && positions_[i] >= 0) ops_.back().price = id.index + 1;
  }
  link();
  bound_flight();
}

void ReplayProgram::link() {
  std::vector<std::int32_t> last(schedule_->streams.size(), -1);
  std::vector<std::int32_t> turns(schedule_->communicators.size());
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    ReplayOp& op = ops_[i];
    if (op.kind == Kind::collective) op.turn = turns[static_cast<std::size_t>(op.target)]++;
    if (op.kind == Kind::wait || op.kind == Kind::host_wait) op.target = positions_[static_cast<std::size_t>(op.target)];
    if (op.stream < 0) continue;
    std::int32_t& before = last[static_cast<std::size_t>(op.stream)];
    if (before >= 0) ops_[static_cast<std::size_t>(before)].next = static_cast<std::int32_t>(i);
    before = static_cast<std::int32_t>(i);
  }
}

void ReplayProgram::bound_flight() {
  constexpr std::int64_t quarter = launches_in_flight / 4;
  std::vector<std::int64_t> issued;     // launches up to and with each op that launches
  std::vector<std::int32_t> launchers;  // those ops
  std::int64_t launches = 0;
  std::size_t oldest = 0;
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const std::int64_t own = launches_of(schedule_->at(ops_[i].op), *schedule_);
    if (own == 0) continue;
    const bool looks = (launches + own) / quarter != launches / quarter;
    launches += own;
    if (looks && launches > launches_in_flight) {
      while (oldest + 1 < issued.size() && issued[oldest + 1] <= launches - launches_in_flight) ++oldest;
      ops_[i].behind = launchers[oldest];
    }
    issued.push_back(launches);
    launchers.push_back(static_cast<std::int32_t>(i));
  }
}

}  // namespace shardsim
