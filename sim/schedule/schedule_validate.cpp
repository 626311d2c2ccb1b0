// SPDX-License-Identifier: Apache-2.0
// What must hold of every Schedule. Strategies are checked by this in their tests; the executor relies on it.
#include <fmt/format.h>

#include "sim/schedule/schedule.hpp"

namespace shardsim {
namespace {

enum class Life : std::uint8_t { unborn, alive, freed };

class Validator {
 public:
  explicit Validator(const Schedule& schedule) : schedule_(schedule), life_(schedule.buffers.size(), Life::unborn) {}

  std::vector<std::string> run() && {
    check_tables();
    if (!sentences_.empty()) return std::move(sentences_);  // ops refer to the tables
    bear_persistent();
    for (std::size_t i = 0; i < schedule_.ops.size(); ++i) check_op(i);
    check_ends();
    return std::move(sentences_);
  }

 private:
  /// Persistent buffers are there from the start, but for those that this step makes.
  void bear_persistent() {
    const std::vector<bool> initial = initially_alive(schedule_);
    for (std::size_t i = 0; i < life_.size(); ++i)
      if (initial[i]) life_[i] = Life::alive;
  }

  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    sentences_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  template <class Tag, class Row>
  static bool in(Id<Tag> id, const std::vector<Row>& table) {
    return id.valid() && static_cast<std::size_t>(id.index) < table.size();
  }

  void check_tables() {
    if (schedule_.streams.empty()) say("there is no default stream");
    for (const Communicator& c : schedule_.communicators)
      if (!in(c.group, schedule_.groups)) say("communicator {} has no group", c.name);
    for (const Group& g : schedule_.groups)
      if (g.size < 1 || g.stride < 1 || schedule_.world_size % (g.size * g.stride) != 0)
        say("group {} of {} ranks {} apart does not divide a world of {}", g.name, g.size, g.stride, schedule_.world_size);
    for (std::size_t i = 0; i < schedule_.layouts.size(); ++i) check_layout(i);
    for (std::size_t i = 0; i < schedule_.buffers.size(); ++i) check_buffer(i);
  }

  void check_layout(std::size_t i) {
    const Layout& layout = schedule_.layouts[i];
    const auto end = static_cast<std::size_t>(layout.parameters.begin) + static_cast<std::size_t>(layout.parameters.count);
    if (layout.parameters.begin < 0 || layout.parameters.count < 0 || end > schedule_.parameter_pool.size())
      say("layout {} names parameters outside the pool", i);
    if (layout.n < 1 || layout.stride < 1 || layout.align < 1 || layout.multiple < 1) say("layout {} has a factor below 1", i);
  }

  void check_buffer(std::size_t i) {
    const Buffer& buffer = schedule_.buffers[i];
    if (buffer.label.verb[0] == '\0') say("buffer {} has no label", i);
    if (buffer.label.unit.valid() && !in(buffer.label.unit, schedule_.units)) say("buffer {} is labelled with an unknown unit", i);
    if (!in(buffer.pool, schedule_.streams)) say("buffer {} has no pool", i);
    if (buffer.layout.valid() && !in(buffer.layout, schedule_.layouts)) say("buffer {} has an unknown layout", i);
    if (buffer.elements < Elements{}) say("buffer {} has a negative size", i);
  }

  void check_op(std::size_t i) {
    const Op& op = schedule_.ops[i];
    op_ = i;
    if (op.label.verb[0] == '\0') say("op {} has no label", i);
    if (op.label.unit.valid() && !in(op.label.unit, schedule_.units)) say("op {} is labelled with an unknown unit", i);
    if (op.micro_batch < 0 || op.micro_batch >= schedule_.micro_batches) say("op {} belongs to unknown micro-batch {}", i, op.micro_batch);
    if (op.host.valid() && !in(op.host, schedule_.host_works)) say("op {} follows unknown calls of the host", i);
    std::visit([&](const auto& action) { check(action); }, op.action);
  }

  void need_stream() {
    if (!in(schedule_.ops[op_].stream, schedule_.streams)) say("op {} needs a stream", op_);
  }
  void need_host() {
    if (schedule_.ops[op_].stream.valid()) say("op {} happens on the host and must not have a stream", op_);
  }
  void need_earlier(OpId op) {
    if (!op.valid() || static_cast<std::size_t>(op.index) >= op_)
      say("op {} waits for {}, which is not an earlier op", op_, op.index);
    else if (!schedule_.at(op).stream.valid())
      say("op {} waits for {}, which runs on no stream", op_, op.index);
  }
  void need_work(WorkId work) {
    if (work.valid() && !in(work, schedule_.works)) say("op {} has unknown work", op_);
  }
  void need_alive(BufferId id) {
    if (!id.valid()) return;
    if (!in(id, schedule_.buffers)) return say("op {} uses unknown buffer {}", op_, id.index);
    if (schedule_.at(id).view_of.valid()) return need_alive(schedule_.at(id).view_of);
    const Life life = life_[static_cast<std::size_t>(id.index)];
    if (life != Life::alive)
      say("op {} {} uses buffer {} {} {}", op_, to_text(schedule_.ops[op_].label, schedule_), id.index,
          to_text(schedule_.at(id).label, schedule_), life == Life::unborn ? "before it is allocated" : "after it was freed");
  }

  void check(const Compute& a) {
    need_stream();
    need_work(a.work);
  }

  void check(const Communicate& a) {
    need_stream();
    need_alive(a.source);
    need_alive(a.target);
    if (!in(a.communicator, schedule_.communicators)) return say("op {} has no communicator", op_);
    if (a.payload < Elements{}) say("op {} has a negative payload", op_);
    if (a.root < 0 || a.root >= schedule_.group_of(a.communicator).size) say("op {} has root {} outside its group", op_, a.root);
    const BufferId full = a.kind == Collective::reduce_scatter ? a.source : a.target;
    if (in(full, schedule_.buffers) && (a.offset < Elements{} || a.offset + a.payload > schedule_.at(full).elements))
      say("op {} {} moves elements {} to {} of a buffer of {}", op_, to_text(schedule_.ops[op_].label, schedule_), a.offset.value(),
          (a.offset + a.payload).value(), schedule_.at(full).elements.value());
  }

  void check(const Copy& a) {
    need_stream();
    need_alive(a.source);
    need_alive(a.target);
    if (a.count < Elements{}) say("op {} copies a negative count", op_);
  }

  void check(const Allocate& a) {
    need_host();
    if (!in(a.buffer, schedule_.buffers)) return say("op {} allocates unknown buffer {}", op_, a.buffer.index);
    if (schedule_.at(a.buffer).view_of.valid()) return say("op {} allocates the view {}", op_, a.buffer.index);
    Life& life = life_[static_cast<std::size_t>(a.buffer.index)];
    if (life != Life::unborn) say("op {} allocates buffer {} a second time", op_, a.buffer.index);
    life = Life::alive;
  }

  void check(const Free& a) {
    need_host();
    if (a.also_used_by.valid() && !in(a.also_used_by, schedule_.streams)) say("op {} frees for an unknown stream", op_);
    if (!in(a.buffer, schedule_.buffers)) return say("op {} frees unknown buffer {}", op_, a.buffer.index);
    if (schedule_.at(a.buffer).persistent) return say("op {} frees persistent buffer {}", op_, a.buffer.index);
    Life& life = life_[static_cast<std::size_t>(a.buffer.index)];
    if (life != Life::alive) say("op {} frees buffer {}, which is not alive", op_, a.buffer.index);
    life = Life::freed;
  }

  void check(const Wait& a) {
    need_stream();
    need_earlier(a.op);
  }
  void check(const HostWait& a) {
    need_host();
    need_earlier(a.op);
  }
  void check(const Synchronize&) { need_host(); }

  void check(const Update& a) {
    need_stream();
    need_work(a.work);
    for (BufferId id : {a.parameters, a.gradients, a.first_moment, a.second_moment}) need_alive(id);
  }

  void check_ends() {
    for (std::size_t i = 0; i < life_.size(); ++i) {
      if (schedule_.buffers[i].view_of.valid() || life_[i] == (schedule_.buffers[i].persistent ? Life::alive : Life::freed)) continue;
      say("buffer {} {} is never {}", i, to_text(schedule_.buffers[i].label, schedule_), life_[i] == Life::unborn ? "allocated" : "freed");
    }
  }

  const Schedule& schedule_;
  std::vector<Life> life_;
  std::size_t op_ = 0;
  std::vector<std::string> sentences_;
};

}  // namespace

std::vector<bool> initially_alive(const Schedule& schedule) {
  std::vector<bool> alive(schedule.buffers.size());
  for (std::size_t i = 0; i < alive.size(); ++i) alive[i] = schedule.buffers[i].persistent && !schedule.buffers[i].view_of.valid();
  for (const Op& op : schedule.ops)
    if (const auto* a = std::get_if<Allocate>(&op.action);
        a && a->buffer.valid() && static_cast<std::size_t>(a->buffer.index) < alive.size())
      alive[static_cast<std::size_t>(a->buffer.index)] = false;
  return alive;
}

std::vector<std::string> validate(const Schedule& schedule) { return Validator(schedule).run(); }

}  // namespace shardsim
