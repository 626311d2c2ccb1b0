// SPDX-License-Identifier: Apache-2.0
// What tests ask of a Schedule: its collectives in order, and how much memory is alive at each op, in host order.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <vector>

#include "sim/schedule/schedule.hpp"

namespace shardsim::testing {

/// Collectives that are traffic, or those that are control, in program order.
[[nodiscard]] inline std::vector<Communicate> collectives(const Schedule& schedule, bool control = false) {
  std::vector<Communicate> found;
  for (const Op& op : schedule.ops)
    if (const auto* c = std::get_if<Communicate>(&op.action); c && c->control == control) found.push_back(*c);
  return found;
}

[[nodiscard]] inline std::vector<std::int64_t> payloads(const Schedule& schedule, Collective kind) {
  std::vector<std::int64_t> found;
  for (const Communicate& c : collectives(schedule))
    if (c.kind == kind) found.push_back(c.payload.value());
  return found;
}

/// Bytes that the average rank sends in a step, control apart, rounded up.
[[nodiscard]] inline std::int64_t bytes_sent(const Schedule& schedule) {
  __int128 times_n = 0;
  for (const Communicate& c : collectives(schedule)) times_n += sent_times_n(c.kind, bytes(c.payload, c.dtype), schedule.world_size);
  return static_cast<std::int64_t>((times_n + schedule.world_size - 1) / schedule.world_size);
}

/// Moments stand beside the weights that they belong to, element by element.
[[nodiscard]] inline bool moments_fit_weights(const Schedule& schedule) {
  return std::all_of(schedule.ops.begin(), schedule.ops.end(), [&](const Op& op) {
    const auto* u = std::get_if<Update>(&op.action);
    return !u || !u->first_moment.valid() || schedule.at(u->first_moment).elements == schedule.at(u->parameters).elements;
  });
}

using Selected = std::function<bool(const Buffer&)>;
[[nodiscard]] inline Selected in_category(Category category) {
  return [category](const Buffer& b) { return b.category == category && !b.host; };
}
[[nodiscard]] inline Selected labelled(std::string_view verb) {
  return [verb](const Buffer& b) { return b.label.verb == verb; };
}

/// Bytes of the selected buffers that are alive after each op; one entry more than ops: the first is before the step.
[[nodiscard]] inline std::vector<std::int64_t> alive_after(const Schedule& schedule, const Selected& selected) {
  std::int64_t now = 0;
  const std::vector<bool> initial = initially_alive(schedule);
  for (std::size_t i = 0; i < initial.size(); ++i)
    if (initial[i] && selected(schedule.buffers[i])) now += schedule.buffers[i].size().value();
  std::vector<std::int64_t> alive{now};
  for (const Op& op : schedule.ops) {
    if (const auto* a = std::get_if<Allocate>(&op.action); a && selected(schedule.at(a->buffer)))
      now += schedule.at(a->buffer).size().value();
    if (const auto* f = std::get_if<Free>(&op.action); f && selected(schedule.at(f->buffer))) now -= schedule.at(f->buffer).size().value();
    alive.push_back(now);
  }
  return alive;
}

[[nodiscard]] inline std::int64_t most_alive(const Schedule& schedule, const Selected& selected) {
  const std::vector<std::int64_t> alive = alive_after(schedule, selected);
  return *std::max_element(alive.begin(), alive.end());
}

/// Bytes alive when the last op of this phase and micro-batch has been issued.
[[nodiscard]] inline std::int64_t alive_at_end_of(const Schedule& schedule, Phase phase, std::int32_t micro_batch,
                                                  const Selected& selected) {
  const std::vector<std::int64_t> alive = alive_after(schedule, selected);
  std::int64_t last = alive.front();
  for (std::size_t i = 0; i < schedule.ops.size(); ++i)
    if (schedule.ops[i].phase == phase && schedule.ops[i].micro_batch == micro_batch) last = alive[i + 1];
  return last;
}

}  // namespace shardsim::testing
