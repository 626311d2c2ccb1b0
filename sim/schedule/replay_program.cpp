// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule/replay_program.hpp"

#include <array>
#include <unordered_map>
#include <utility>

namespace shardsim {
namespace {

/// What the cost of an op depends on besides the machine: its kind of action first.
using Traits = std::array<std::int64_t, 6>;

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
    if (!compute.work.valid()) return 0;
    std::int32_t& known = by_work_[static_cast<std::size_t>(compute.work.index)];
    if (known == none) known = added(id);
    return known;
  }

  std::int32_t of(OpId id, const Copy& copy) {
    const auto types = (copy.source.valid() ? static_cast<std::int64_t>(schedule_.at(copy.source).dtype) : -1) * 256 +
                       static_cast<std::int64_t>(schedule_.at(copy.target).dtype);
    return with({0, copy.count.value(), types, static_cast<std::int64_t>(copy.path), copy.accumulate, copy.kernels}, id);
  }

  std::int32_t of(OpId id, const Communicate& collective) {
    return with({1, static_cast<std::int64_t>(collective.kind), bytes(collective.payload, collective.dtype).value(),
                 schedule_.at(collective.communicator).group.index},
                id);
  }

  std::int32_t of(OpId id, const Update& update) { return with({2, update.work.index, update.on_host}, id); }

  // Bookkeeping of the host: well below a kernel launch.
  static std::int32_t of(OpId, const Wait&) { return 0; }
  static std::int32_t of(OpId, const HostWait&) { return 0; }
  static std::int32_t of(OpId, const Synchronize&) { return 0; }

 private:
  static constexpr std::int32_t none = -1;

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

}  // namespace shardsim
