// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/exposed.hpp"

#include <algorithm>

namespace shardsim {
namespace {

/// Sorted spans, those that touch made one.
std::vector<TimeSpan> merged(std::vector<TimeSpan> spans) {
  std::sort(spans.begin(), spans.end(), [](const TimeSpan& a, const TimeSpan& b) { return a.begin < b.begin; });
  std::vector<TimeSpan> out;
  for (const TimeSpan& span : spans) {
    if (span.end <= span.begin) continue;
    if (!out.empty() && span.begin <= out.back().end)
      out.back().end = std::max(out.back().end, span.end);
    else
      out.push_back(span);
  }
  return out;
}

std::vector<TimeSpan> without(const std::vector<TimeSpan>& spans, const std::vector<TimeSpan>& covers) {
  std::vector<TimeSpan> out;
  auto cover = covers.begin();
  for (TimeSpan span : spans) {
    while (cover != covers.end() && cover->end <= span.begin) ++cover;
    for (auto it = cover; it != covers.end() && it->begin < span.end; ++it) {
      if (it->begin > span.begin) out.push_back({span.begin, it->begin});
      span.begin = std::max(span.begin, it->end);
    }
    if (span.begin < span.end) out.push_back(span);
  }
  return out;
}

bool hides_communication(const Op& op) {
  const auto* copy = std::get_if<Copy>(&op.action);
  return !std::holds_alternative<Communicate>(op.action) && (copy == nullptr || copy->path == CopyPath::device);
}

bool updates_on_host(const Op& op) {
  const auto* update = std::get_if<Update>(&op.action);
  return update != nullptr && update->on_host;
}

}  // namespace

std::vector<TimeSpan> exposed_communication(const Schedule& schedule, const Timeline& timeline) {
  std::vector<TimeSpan> communication, work;
  for (const Slice& slice : timeline.slices) {
    const Op& op = schedule.at(slice.op);
    if (std::holds_alternative<Communicate>(op.action))
      communication.push_back({slice.begin, slice.end});
    else if (hides_communication(op))
      work.push_back({slice.begin, slice.end});
  }
  for (const HostSlice& slice : timeline.host)
    if (updates_on_host(schedule.at(slice.op))) work.push_back({slice.begin, slice.end});
  return without(merged(std::move(communication)), merged(std::move(work)));
}

}  // namespace shardsim
