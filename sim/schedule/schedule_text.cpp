// SPDX-License-Identifier: Apache-2.0
// The text form of a Schedule: the format of --dump-schedule and of the golden dumps. Numbers are plain digits, so that searching the
// text for an element count finds it.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/schedule/schedule.hpp"

namespace shardsim {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string_view name_of(Pass pass) { return pass == Pass::forward ? "forward" : pass == Pass::recompute ? "recompute" : "backward"; }

std::string_view name_of(CopyPath path) {
  return path == CopyPath::device ? "copy" : path == CopyPath::to_host ? "copy to host" : "copy to device";
}

std::string_view name_of(Reduction reduction) {
  return reduction == Reduction::sum ? "sum" : reduction == Reduction::average ? "average" : "max";
}

std::string_view name_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd:
      return "sgd";
    case OptimizerKind::momentum:
      return "momentum";
    case OptimizerKind::adam:
      return "adam";
    case OptimizerKind::adamw:
      return "adamw";
    case OptimizerKind::adamw_8bit:
      return "adamw_8bit";
    case OptimizerKind::lion:
      return "lion";
    case OptimizerKind::adafactor:
      return "adafactor";
    case OptimizerKind::muon:
      return "muon";
  }
  return "?";
}

const std::string& name_of(StreamId id, const Schedule& schedule) { return schedule.streams[static_cast<std::size_t>(id.index)].name; }

std::string amount(Elements count, DType dtype) {
  return fmt::format("{} {} elements {} bytes", name_of(dtype), count.value(), bytes(count, dtype).value());
}

std::string reference(BufferId id) { return id.valid() ? fmt::format("#{}", id.index) : "-"; }

std::string description(BufferId id, const Schedule& schedule) {
  const Buffer& buffer = schedule.at(id);
  return fmt::format("{} {} {}{} pool {}", reference(id), name_of(buffer.category), amount(buffer.elements, buffer.dtype),
                     buffer.host ? " in host memory" : "", name_of(buffer.pool, schedule));
}

std::string text_of(const Work& work) {
  return fmt::format("{:.0f} FLOPs {} bytes {} kernels", work.flops().base(), work.memory.value(), work.kernels);
}

// What an op does, after its index, stream and label. One function a kind, so that a new kind does not compile until it has a text.

std::string text_of(const Compute& op, const Schedule& schedule) {
  std::string text = fmt::format("{} {}", name_of(op.pass), op.work.valid() ? text_of(schedule.at(op.work)) : "nothing");
  if (op.modules.layer >= 0) fmt::format_to(Out(text), " layer {} modules {}:{}", op.modules.layer, op.modules.first, op.modules.last);
  return text;
}

bool reduces(Collective kind) { return kind == Collective::all_reduce || kind == Collective::reduce_scatter || kind == Collective::reduce; }

std::string text_of(const Communicate& op, const Schedule& schedule) {
  std::string text = fmt::format("{} {} on {}", name_of(op.kind), amount(op.payload, op.dtype), schedule.at(op.communicator).name);
  if (reduces(op.kind)) fmt::format_to(Out(text), " {}", name_of(op.reduction));
  if (op.kind == Collective::broadcast || op.kind == Collective::reduce) fmt::format_to(Out(text), " root {}", op.root);
  if (op.control) text += " control";
  if (op.source.valid() || op.target.valid()) fmt::format_to(Out(text), " {} -> {}", reference(op.source), reference(op.target));
  if (op.offset != Elements{}) fmt::format_to(Out(text), " at {}", op.offset.value());
  return text;
}

std::string text_of(const Copy& op, const Schedule& schedule) {
  const DType dtype = op.target.valid() ? schedule.at(op.target).dtype : DType::bf16;
  std::string text = fmt::format("{} {} {} -> {}", op.source.valid() ? name_of(op.path) : "fill", amount(op.count, dtype),
                                 reference(op.source), reference(op.target));
  if (op.accumulate) text += " accumulate";
  if (op.scale != 1) fmt::format_to(Out(text), " times {:.6g}", op.scale);
  if (op.kernels != 1) fmt::format_to(Out(text), " {} kernels", op.kernels);
  return text;
}

std::string text_of(const Allocate& op, const Schedule& schedule) { return "allocate " + description(op.buffer, schedule); }

std::string text_of(const Free& op, const Schedule& schedule) {
  std::string text = "free " + description(op.buffer, schedule);
  if (op.also_used_by.valid()) fmt::format_to(Out(text), " also used by {}", name_of(op.also_used_by, schedule));
  return text;
}

std::string waited(OpId op, const Schedule& schedule) { return fmt::format("{} {}", op.index, to_text(schedule.at(op).label, schedule)); }

std::string text_of(const Wait& op, const Schedule& schedule) { return "wait for " + waited(op.op, schedule); }
std::string text_of(const HostWait& op, const Schedule& schedule) { return "host waits for " + waited(op.op, schedule); }
std::string text_of(const Synchronize&, const Schedule&) { return "host waits for everything"; }

std::string text_of(const Update& op, const Schedule& schedule) {
  std::string text = fmt::format("{} {} elements", name_of(op.optimizer), op.count.value());
  if (op.work.valid()) fmt::format_to(Out(text), " {}", text_of(schedule.at(op.work)));
  fmt::format_to(Out(text), " parameters {} gradients {} moments {} {}", reference(op.parameters), reference(op.gradients),
                 reference(op.first_moment), reference(op.second_moment));
  if (op.on_host) text += " on the host";
  return text;
}

/// " after 2 module, 1 fsdp_pre_forward".
std::string text_of(const HostWork& work) {
  std::string text;
  for (std::size_t i = 0; i < host_call_count; ++i)
    if (work.calls[i] > 0) fmt::format_to(Out(text), "{} {} {}", text.empty() ? " after" : ",", work.calls[i], host_call_names[i]);
  return text;
}

void write_header(const Schedule& schedule, std::string& text) {
  fmt::format_to(Out(text), "schedule: {} with {} semantics, rank {} of {}, {} micro-batch{}\n", schedule.strategy, schedule.semantics,
                 schedule.rank, schedule.world_size, schedule.micro_batches, schedule.micro_batches == 1 ? "" : "es");
  if (!schedule.library.empty()) fmt::format_to(Out(text), "library: {}\n", schedule.library);
  if (!schedule.differs_because.empty()) fmt::format_to(Out(text), "differs from the textbook: {}\n", schedule.differs_because);
  for (const std::string& warning : schedule.warnings) fmt::format_to(Out(text), "warning: {}\n", warning);
}

void write_tables(const Schedule& schedule, std::string& text) {
  text += "streams:\n";
  for (std::size_t i = 0; i < schedule.streams.size(); ++i) fmt::format_to(Out(text), "  {} {}\n", i, schedule.streams[i].name);
  if (!schedule.communicators.empty()) text += "communicators:\n";
  for (std::size_t i = 0; i < schedule.communicators.size(); ++i) {
    const Group& group = schedule.group_of(CommunicatorId{static_cast<std::int32_t>(i)});
    fmt::format_to(Out(text), "  {} {}: group {}, {} rank{}, stride {}\n", i, schedule.communicators[i].name, group.name, group.size,
                   group.size == 1 ? "" : "s", group.stride);
  }
}

/// Buffers that no op allocates would not be described otherwise.
void write_persistent(const Schedule& schedule, std::string& text) {
  bool first = true;
  for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
    if (!schedule.buffers[i].persistent) continue;
    if (std::exchange(first, false)) text += "persistent buffers:\n";
    const BufferId id{static_cast<std::int32_t>(i)};
    fmt::format_to(Out(text), "  {}  {}\n", to_text(schedule.at(id).label, schedule), description(id, schedule));
  }
}

void write_ops(const Schedule& schedule, std::string& text) {
  std::size_t width = 4;  // of "host"
  for (const Stream& stream : schedule.streams) width = std::max(width, stream.name.size());
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    if (i == 0 || op.phase != schedule.ops[i - 1].phase || op.micro_batch != schedule.ops[i - 1].micro_batch)
      fmt::format_to(Out(text), "{} of micro-batch {}:\n", name_of(op.phase), op.micro_batch);
    const std::string_view stream = op.stream.valid() ? std::string_view(name_of(op.stream, schedule)) : "host";
    const std::string action = std::visit([&](const auto& a) { return text_of(a, schedule); }, op.action);
    fmt::format_to(Out(text), "{:>6} {:<{}}  {:<40}  {}{}\n", i, stream, width, to_text(op.label, schedule), action,
                   op.host.valid() ? text_of(schedule.at(op.host)) : std::string());
  }
}

}  // namespace

std::string to_text(const Label& label, const Schedule& schedule) {
  if (!label.unit.valid()) return label.verb;
  return fmt::format("{}({})", label.verb, schedule.units[static_cast<std::size_t>(label.unit.index)]);
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  write_header(schedule, text);
  write_tables(schedule, text);
  write_persistent(schedule, text);
  write_ops(schedule, text);
  return text;
}

}  // namespace shardsim
