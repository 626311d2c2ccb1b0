// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule/schedule_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace shardsim {
namespace {

template <class IdType, class Row>
IdType push(std::vector<Row>& table, Row row) {
  table.push_back(std::move(row));
  return IdType{static_cast<std::int32_t>(table.size()) - 1};
}

/// Position of the row of that name; -1 if there is none. Tables of streams, groups and communicators hold a handful of rows.
template <class Row>
std::int32_t position_of(const std::vector<Row>& table, const std::string& name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Row& row) { return row.name == name; });
  return found == table.end() ? -1 : static_cast<std::int32_t>(found - table.begin());
}

GroupId group_named(std::vector<Group>& groups, const Group& wanted) {
  const std::int32_t known = position_of(groups, wanted.name);
  if (known < 0) return push<GroupId>(groups, wanted);
  const Group& group = groups[static_cast<std::size_t>(known)];
  if (group.size != wanted.size || group.stride != wanted.stride)
    throw std::logic_error(fmt::format("group {} declared with {} ranks {} apart, and with {} ranks {} apart", wanted.name, group.size,
                                       group.stride, wanted.size, wanted.stride));
  return GroupId{known};
}

}  // namespace

ScheduleBuilder::ScheduleBuilder() { stream("default"); }

UnitId ScheduleBuilder::unit(std::string name) {
  const auto [place, is_new] = units_.try_emplace(name, UnitId{static_cast<std::int32_t>(schedule_.units.size())});
  if (is_new) schedule_.units.push_back(std::move(name));
  return place->second;
}

StreamId ScheduleBuilder::stream(std::string name) {
  if (const std::int32_t known = position_of(schedule_.streams, name); known >= 0) return StreamId{known};
  last_.emplace_back();
  return push<StreamId>(schedule_.streams, Stream{std::move(name)});
}

CommunicatorId ScheduleBuilder::communicator(std::string name, std::string group, std::int64_t size, std::int64_t stride) {
  const GroupId id = group_named(schedule_.groups, Group{std::move(group), size, stride});
  if (const std::int32_t known = position_of(schedule_.communicators, name); known >= 0) {
    if (schedule_.communicators[static_cast<std::size_t>(known)].group != id)
      throw std::logic_error(fmt::format("communicator {} declared over two groups", name));
    return CommunicatorId{known};
  }
  return push<CommunicatorId>(schedule_.communicators, Communicator{std::move(name), id});
}

WorkId ScheduleBuilder::work(Work work) { return push<WorkId>(schedule_.works, std::move(work)); }

ParameterSpan ScheduleBuilder::parameters(std::span<const ParameterId> ids) {
  const ParameterSpan span{static_cast<std::int32_t>(schedule_.parameter_pool.size()), static_cast<std::int32_t>(ids.size())};
  schedule_.parameter_pool.insert(schedule_.parameter_pool.end(), ids.begin(), ids.end());
  return span;
}

LayoutId ScheduleBuilder::layout(Layout layout) { return push<LayoutId>(schedule_.layouts, layout); }

BufferId ScheduleBuilder::buffer(Buffer buffer) {
  if (!buffer.pool.valid()) buffer.pool = compute_stream();
  return push<BufferId>(schedule_.buffers, buffer);
}

OpId ScheduleBuilder::append(Action action, StreamId stream, Label label) {
  const OpId id{static_cast<std::int32_t>(schedule_.ops.size())};
  const bool issued =
      !std::holds_alternative<Allocate>(action) && !std::holds_alternative<Free>(action) && !std::holds_alternative<Wait>(action);
  const HostWorkId host = called_ && issued ? take_calls() : HostWorkId{};
  schedule_.ops.push_back({action, stream, label, phase_, static_cast<std::int16_t>(micro_batch_), host});
  if (stream.valid()) last_[static_cast<std::size_t>(stream.index)] = id;
  return id;
}

void ScheduleBuilder::call(HostCall call, std::int32_t count) {
  std::int16_t& sum = calls_.calls[static_cast<std::size_t>(call)];
  sum = static_cast<std::int16_t>(std::min(sum + count, static_cast<std::int32_t>(std::numeric_limits<std::int16_t>::max())));
  called_ = true;
}

HostWorkId ScheduleBuilder::take_calls() {
  const auto [place, is_new] = host_works_.try_emplace(calls_, HostWorkId{static_cast<std::int32_t>(schedule_.host_works.size())});
  if (is_new) schedule_.host_works.push_back(calls_);
  calls_ = {};
  called_ = false;
  return place->second;
}

void ScheduleBuilder::micro_batch(std::int32_t index) {
  if (index < 0 || index > std::numeric_limits<std::int16_t>::max())
    throw std::logic_error(fmt::format("micro-batch {} is out of range", index));
  micro_batch_ = index;
}

OpId ScheduleBuilder::compute(Label label, WorkId work, Pass pass, ModuleRange modules) {
  return append(Compute{work, pass, modules}, compute_stream(), label);
}

OpId ScheduleBuilder::communicate(Label label, StreamId stream, Communicate action) { return append(action, stream, label); }
OpId ScheduleBuilder::copy(Label label, StreamId stream, Copy action) { return append(action, stream, label); }
OpId ScheduleBuilder::update(Label label, StreamId stream, Update action) { return append(action, stream, label); }

BufferId ScheduleBuilder::allocate(Buffer declared) {
  const BufferId id = buffer(declared);
  allocate(id);
  return id;
}

void ScheduleBuilder::allocate(BufferId buffer) { append(Allocate{buffer}, StreamId{}, schedule_.at(buffer).label); }

void ScheduleBuilder::free(BufferId buffer, StreamId also_used_by) {
  append(Free{buffer, also_used_by}, StreamId{}, schedule_.at(buffer).label);
}

void ScheduleBuilder::wait(StreamId stream, OpId op) {
  if (!op.valid() || schedule_.at(op).stream == stream) return;
  append(Wait{op}, stream, Label{"wait", schedule_.at(op).label.unit});
}

void ScheduleBuilder::wait_stream(StreamId stream, StreamId other) { wait(stream, last(other)); }

void ScheduleBuilder::host_wait(Label label, OpId op) {
  if (op.valid()) append(HostWait{op}, StreamId{}, label);
}

void ScheduleBuilder::synchronize(Label label) { append(Synchronize{}, StreamId{}, label); }

OpId ScheduleBuilder::last(StreamId stream) const { return last_[static_cast<std::size_t>(stream.index)]; }

}  // namespace shardsim
