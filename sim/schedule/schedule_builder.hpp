// SPDX-License-Identifier: Apache-2.0
// The verbs with which a Schedule is written, op by op, in host order.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/schedule/schedule.hpp"

namespace shardsim {

class ScheduleBuilder {
 public:
  ScheduleBuilder();

  // Tables. Units, streams, groups and communicators are found by name if they exist already.
  UnitId unit(std::string name);
  StreamId stream(std::string name);
  /// A communicator of its own over `size` ranks, `stride` apart.
  CommunicatorId communicator(std::string name, std::string group, std::int64_t size, std::int64_t stride = 1);
  WorkId work(Work work);
  ParameterSpan parameters(std::span<const ParameterId> ids);
  LayoutId layout(Layout layout);
  BufferId buffer(Buffer buffer);

  /// The default stream.
  [[nodiscard]] static constexpr StreamId compute_stream() { return StreamId{0}; }

  void phase(Phase phase) { phase_ = phase; }
  void micro_batch(std::int32_t index);
  [[nodiscard]] Phase phase() const { return phase_; }

  /// The host makes this call before the next op that it issues.
  void call(HostCall call, std::int32_t count = 1);

  // Ops. Each returns the op's id, to be waited on.
  OpId compute(Label label, WorkId work, Pass pass, ModuleRange modules);
  OpId communicate(Label label, StreamId stream, Communicate action);
  OpId copy(Label label, StreamId stream, Copy action);
  OpId update(Label label, StreamId stream, Update action);
  BufferId allocate(Buffer buffer);  ///< declares and allocates
  void allocate(BufferId buffer);    ///< allocates a declared buffer
  void free(BufferId buffer, StreamId also_used_by = {});

  /// Later ops of `stream` start after `op` (nothing if `op` is none or is the stream's own).
  void wait(StreamId stream, OpId op);
  /// Later ops of `stream` start after everything issued to `other` so far.
  void wait_stream(StreamId stream, StreamId other);
  void host_wait(Label label, OpId op);
  void synchronize(Label label);
  /// The last op issued to a stream so far (a Wait counts: it is done when what it waits for is); none if there is none.
  [[nodiscard]] OpId last(StreamId stream) const;

  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] Schedule& schedule() { return schedule_; }
  [[nodiscard]] Schedule take() && { return std::move(schedule_); }

 private:
  OpId append(Action action, StreamId stream, Label label);
  HostWorkId take_calls();

  Schedule schedule_;
  Phase phase_ = Phase::forward;
  std::int32_t micro_batch_ = 0;
  std::vector<OpId> last_;  // by stream
  std::map<std::string, UnitId> units_;
  HostWork calls_;  // made since the last op that was issued
  bool called_ = false;
  std::map<HostWork, HostWorkId> host_works_;
};

}  // namespace shardsim
