// SPDX-License-Identifier: Apache-2.0
#include "reports/trace.hpp"

#include <fmt/format.h>

#include <iterator>

#include "sim/base/json_value.hpp"

namespace shardsim {
namespace {

constexpr int host_row = 1;  // the host's thread id; stream i has i + 2 (0 is special in Perfetto)

std::int64_t nanoseconds(SimTime time) { return (time.picoseconds() + 500) / 1000; }

/// Microseconds as integer and fraction: a double would lose nanoseconds in a long step.
std::string microseconds_text(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string quoted(const std::string& text) { return Json(text).line(); }

class Writer {
 public:
  explicit Writer(const SimulationResult& result) : result_(result), schedule_(*result.schedule) {}

  std::string text() {
    out_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
    rows();
    for (const HostSlice& slice : result_.timeline.host) slice_event(host_row, slice.op, slice.begin, slice.end);
    for (const Slice& slice : result_.timeline.slices) slice_event(slice.stream.index + 2, slice.op, slice.begin, slice.end);
    visit_states(result_.memory, [&](SimTime time, OpId, const ByCategory& allocated) { counter_event(time, allocated); });
    out_ += "\n]}\n";
    return std::move(out_);
  }

 private:
  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void rows() {
    event(R"({{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{{"name":{}}}}})",
          quoted(fmt::format("rank {} of {} ({})", schedule_.rank, result_.world_size, schedule_.strategy)));
    row(host_row, "host");
    for (std::size_t i = 0; i < schedule_.streams.size(); ++i) row(static_cast<int>(i) + 2, "stream " + schedule_.streams[i].name);
  }

  void row(int id, const std::string& name) {
    event(R"({{"ph":"M","name":"thread_name","pid":1,"tid":{},"args":{{"name":{}}}}})", id, quoted(name));
    event(R"({{"ph":"M","name":"thread_sort_index","pid":1,"tid":{},"args":{{"sort_index":{}}}}})", id, id);
  }

  void slice_event(int row, OpId id, SimTime begin, SimTime end) {
    const Op& op = schedule_.at(id);
    const std::int64_t from = nanoseconds(begin);
    event(R"({{"ph":"X","name":{},"cat":"{}","pid":1,"tid":{},"ts":{},"dur":{},"args":{{"op":{},"micro_batch":{}{}}}}})",
          quoted(to_text(op.label, schedule_)), name_of(op.phase), row, microseconds_text(from), microseconds_text(nanoseconds(end) - from),
          id.index, op.micro_batch, details(op));
  }

  std::string details(const Op& op) const {
    const auto buffer = [&](BufferId id) {
      return id.valid() ? fmt::format(R"(,"bytes":{},"category":"{}")", schedule_.at(id).size().value(), name_of(schedule_.at(id).category))
                        : "";
    };
    return std::visit(
        Overloaded{[&](const Communicate& c) {
                     return fmt::format(R"(,"collective":"{}","bytes":{},"dtype":"{}","group":{},"communicator":{})", name_of(c.kind),
                                        bytes(c.payload, c.dtype).value(), name_of(c.dtype),
                                        quoted(schedule_.group_of(c.communicator).name), quoted(schedule_.at(c.communicator).name));
                   },
                   [&](const Compute& c) { return fmt::format(R"(,"flops":{:.0f},"bytes":{})", flops_of(c.work), memory_of(c.work)); },
                   [&](const Copy& c) {
                     return c.target.valid() ? fmt::format(R"(,"bytes":{})", bytes(c.count, schedule_.at(c.target).dtype).value()) : "";
                   },
                   [&](const Allocate& a) { return buffer(a.buffer); }, [&](const Free& f) { return buffer(f.buffer); },
                   [&](const Wait& w) { return fmt::format(R"(,"waits_for":{})", w.op.index); },
                   [&](const HostWait& w) { return fmt::format(R"(,"waits_for":{})", w.op.index); },
                   [&](const Synchronize&) { return std::string(); },
                   [&](const Update& u) { return fmt::format(R"(,"elements":{})", u.count.value()); }},
        op.action);
  }

  double flops_of(WorkId id) const { return id.valid() ? schedule_.at(id).flops().base() : 0; }
  std::int64_t memory_of(WorkId id) const { return id.valid() ? schedule_.at(id).memory.value() : 0; }

  void counter_event(SimTime time, const ByCategory& allocated) {
    std::string args;
    for (std::size_t i = 0; i < category_count; ++i)
      fmt::format_to(std::back_inserter(args), R"({}"{}":{})", i == 0 ? "" : ",", category_names[i], allocated[i].value());
    event(R"({{"ph":"C","name":"memory","pid":1,"tid":0,"ts":{},"args":{{{}}}}})", microseconds_text(nanoseconds(time)), args);
  }

  const SimulationResult& result_;
  const Schedule& schedule_;
  std::string out_;
  bool first_ = true;
};

}  // namespace

std::string chrome_trace(const SimulationResult& result) { return Writer(result).text(); }

}  // namespace shardsim
