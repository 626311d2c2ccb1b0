// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/allocator_replay.hpp"

#include <algorithm>

namespace shardsim {
namespace {

/// The clocks of one step, op by op in host order.
class Clocks {
 public:
  Clocks(const Schedule& schedule, const Timeline& timeline)
      : schedule_(schedule), timeline_(timeline), done_(schedule.ops.size()), passed_(schedule.streams.size()) {
    for (const Slice& slice : timeline.slices) done_[static_cast<std::size_t>(slice.op.index)] = slice.end;
  }

  /// To be called for every op in order.
  void pass(std::size_t op) {
    while (next_ < timeline_.host.size() && timeline_.host[next_].op.index <= static_cast<std::int32_t>(op))
      host_ = timeline_.host[next_++].end;
    const StreamId stream = schedule_.ops[op].stream;
    if (!stream.valid()) return;
    SimTime& passed = passed_[static_cast<std::size_t>(stream.index)];
    if (const auto* wait = std::get_if<Wait>(&schedule_.ops[op].action)) done_[op] = done_[static_cast<std::size_t>(wait->op.index)];
    passed = std::max(passed, done_[op]);
    done_[op] = passed;
  }
  [[nodiscard]] SimTime host() const { return host_; }
  /// When the stream is through with everything issued to it so far.
  [[nodiscard]] SimTime passed(StreamId stream) const { return passed_[static_cast<std::size_t>(stream.index)]; }

 private:
  const Schedule& schedule_;
  const Timeline& timeline_;
  std::vector<SimTime> done_;    // by op
  std::vector<SimTime> passed_;  // by stream
  std::size_t next_ = 0;
  SimTime host_;
};

/// Where no time bears on allocations.
struct NoClocks {
  void pass(std::size_t) {}
  [[nodiscard]] static SimTime host() { return {}; }
  [[nodiscard]] static SimTime passed(StreamId) { return {}; }
};

bool is_recorded(const Free& release, const Buffer& buffer) { return release.also_used_by.valid() && release.also_used_by != buffer.pool; }

class Replayer {
 public:
  Replayer(const Schedule& schedule, const Timeline& timeline, const AllocatorOptions& options)
      : schedule_(schedule),
        timeline_(timeline),
        timed_(allocations_depend_on_time(schedule)),
        allocator_(schedule.streams.size(), options),
        blocks_(schedule.buffers.size(), -1) {}

  AllocatorReplay run(Bytes workspace, int steps) && {
    if (workspace > Bytes{}) note(allocator_.allocate(workspace, StreamId{0}, {}), Category::temporaries);
    const std::vector<bool> initial = initially_alive(schedule_);
    for (std::size_t i = 0; i < initial.size(); ++i)
      if (initial[i]) allocate(BufferId{static_cast<std::int32_t>(i)}, {});
    for (int s = 0; s < steps; ++s) {
      const std::int64_t retries = allocator_.retries(), calls = allocator_.driver_calls();
      const SimTime start{timeline_.end.picoseconds() * s};
      timed_ ? step(start, Clocks(schedule_, timeline_)) : step(start, NoClocks{});
      report_.driver_calls = allocator_.retries() > retries ? allocator_.driver_calls() - calls : 0;
    }
    report_.peak = allocator_.peak();
    report_.retries = allocator_.retries();
    report_.out_of_memory = allocator_.out_of_memory();
    return report_;
  }

 private:
  template <class AnyClocks>
  void step(SimTime start, AnyClocks clocks) {
    for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
      clocks.pass(i);
      if (const auto* allocation = std::get_if<Allocate>(&schedule_.ops[i].action))
        allocate(allocation->buffer, start + clocks.host());
      else if (const auto* release = std::get_if<Free>(&schedule_.ops[i].action))
        free(*release, start, clocks);
    }
  }

  void allocate(BufferId id, SimTime now) {
    const Buffer& buffer = schedule_.at(id);
    CachingAllocator::Handle& block = blocks_[static_cast<std::size_t>(id.index)];
    if (buffer.host || buffer.size() == Bytes{}) return;
    if (block >= 0) return;  // states that the first step made are there in the second
    block = allocator_.allocate(buffer.size(), buffer.pool, now);
    note(block, buffer.category);
  }

  void note(CachingAllocator::Handle block, Category category) {
    held_[static_cast<std::size_t>(category)] += allocator_.size(block);
    if (allocator_.now().allocated <= most_) return;
    most_ = allocator_.now().allocated;
    report_.at_peak = held_;
  }

  template <class AnyClocks>
  void free(const Free& release, SimTime start, const AnyClocks& clocks) {
    const Buffer& buffer = schedule_.at(release.buffer);
    CachingAllocator::Handle& block = blocks_[static_cast<std::size_t>(release.buffer.index)];
    if (block < 0) return;  // in host memory, or empty
    held_[static_cast<std::size_t>(buffer.category)] -= allocator_.size(block);
    if (is_recorded(release, buffer))
      allocator_.free_after(block, start + clocks.passed(release.also_used_by));
    else
      allocator_.free(block);
    block = -1;
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  bool timed_;
  CachingAllocator allocator_;
  std::vector<CachingAllocator::Handle> blocks_;  // by buffer
  ByCategory held_{};
  Bytes most_;
  AllocatorReplay report_;
};

}  // namespace

AllocatorReplay replay_allocations(const Schedule& schedule, const Timeline& timeline, const AllocatorOptions& options, Bytes workspace,
                                   int steps) {
  return Replayer(schedule, timeline, options).run(workspace, steps);
}

bool allocations_depend_on_time(const Schedule& schedule) {
  return std::any_of(schedule.ops.begin(), schedule.ops.end(), [&](const Op& op) {
    const auto* release = std::get_if<Free>(&op.action);
    return release != nullptr && is_recorded(*release, schedule.at(release->buffer));
  });
}

}  // namespace shardsim
