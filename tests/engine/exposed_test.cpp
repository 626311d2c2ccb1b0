// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/exposed.hpp"

#include <gtest/gtest.h>

#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {
namespace {

/// Ops 0 and 1 communicate, 2 computes, 3 copies on the device, 4 copies to the host.
Schedule sample() {
  ScheduleBuilder build;
  const StreamId side = build.stream("side");
  const CommunicatorId world = build.communicator("world", "world", 2);
  const BufferId buffer = build.buffer({.label = {"buffer", {}}, .persistent = true, .pool = side, .layout = {}, .elements = Elements{4}});
  Communicate gather;
  gather.communicator = world;
  gather.payload = Elements{4};
  gather.target = buffer;
  build.communicate({"first", {}}, side, gather);
  build.communicate({"second", {}}, side, gather);
  build.compute({"compute", {}}, {}, Pass::forward, {});
  Copy copy;
  copy.target = buffer;
  copy.count = Elements{4};
  build.copy({"cast", {}}, side, copy);
  copy.path = CopyPath::to_host;
  build.copy({"offload", {}}, side, copy);
  return std::move(build).take();
}

std::vector<std::pair<std::int64_t, std::int64_t>> exposed(std::vector<Slice> slices) {
  Timeline timeline;
  timeline.slices = std::move(slices);
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  for (const TimeSpan& span : exposed_communication(sample(), timeline)) out.emplace_back(span.begin.picoseconds(), span.end.picoseconds());
  return out;
}

Slice slice(int op, std::int64_t begin, std::int64_t end) { return {OpId{op}, StreamId{0}, SimTime{begin}, SimTime{end}}; }

using Spans = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST(ExposedCommunication, IsWhatNoKernelCovers) {
  EXPECT_EQ(exposed({slice(0, 0, 100), slice(2, 20, 60)}), (Spans{{0, 20}, {60, 100}}));
  EXPECT_EQ(exposed({slice(0, 0, 100), slice(2, 0, 100)}), Spans{});
  EXPECT_EQ(exposed({slice(0, 0, 100), slice(3, 90, 120)}), (Spans{{0, 90}}));  // a cast is a kernel
  EXPECT_EQ(exposed({slice(0, 0, 100), slice(4, 10, 50)}), (Spans{{0, 100}}));  // a copy to the host is none
}

TEST(ExposedCommunication, CountsCollectivesThatRunTogetherOnce) {
  EXPECT_EQ(exposed({slice(0, 0, 50), slice(1, 30, 80), slice(2, 40, 45)}), (Spans{{0, 40}, {45, 80}}));
  EXPECT_EQ(exposed({slice(0, 0, 10), slice(1, 20, 30), slice(2, 5, 25)}), (Spans{{0, 5}, {25, 30}}));
}

}  // namespace
}  // namespace shardsim
