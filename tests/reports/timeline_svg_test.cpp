// SPDX-License-Identifier: Apache-2.0
#include "reports/html/timeline_svg.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "reports/html/timeline_bars.hpp"
#include "sample_result.hpp"
#include "sim/base/output.hpp"

namespace shardsim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

SimTime at(std::int64_t microseconds) { return SimTime{microseconds * 1'000'000}; }

/// The sample's schedule (one gather, one product) at times of one hundredth of the step.
SimulationResult result() {
  SimulationResult r = sample_result();
  r.timeline.host = {{OpId{1}, at(0), at(10)}, {OpId{3}, at(10), at(20)}};
  r.timeline.slices = {{OpId{1}, StreamId{1}, at(10), at(410)}, {OpId{3}, StreamId{0}, at(410), at(1000)}};
  r.timeline.end = at(1000);
  r.step.time = r.timeline.end.seconds();
  r.step.exposed_communication = Seconds{400e-6};
  return r;
}

TEST(TimelineBars, AreByKindRowAndTime) {
  const SimulationResult r = result();
  EXPECT_THAT(timeline_rows(*r.schedule), ElementsAre("host", "default", "all-gather", "exposed communication"));
  const auto bars = timeline_bars(r, at(1), Merge::near);
  ASSERT_EQ(bars.size(), 4U);
  EXPECT_EQ(bars[0].kind, BarKind::forward);
  EXPECT_EQ(bars[0].row, 1U);
  EXPECT_EQ(bars[0].begin, at(410));
  EXPECT_EQ(bars[1].kind, BarKind::communication);
  EXPECT_EQ(bars[1].row, 2U);
  EXPECT_EQ(bars[2].kind, BarKind::host);  // both slices: nothing stands between them
  EXPECT_EQ(bars[2].count, 2);
  EXPECT_EQ(bars[2].end, at(20));
  EXPECT_EQ(bars[3].kind, BarKind::exposed);
  EXPECT_EQ(bars[3].end - bars[3].begin, at(400));
  EXPECT_EQ(timeline_bars(r, SimTime{}, Merge::near).size(), 5U);  // without a gap nothing is merged
}

TEST(TimelineSvg, DrawsBarsInWholePixels) {
  const std::string svg = timeline_svg(result());
  EXPECT_THAT(svg, HasSubstr("<title>fsdp2 on 4 GPUs: 1.00 ms a step, 400 us of it exposed communication</title>"));
  // 776 pixels of 1 ms from x = 170: 10 us are 7.76, 410 us 318.2.
  EXPECT_THAT(svg, HasSubstr("<g fill=\"#E69F00\">\n<rect x=\"178\" y=\"91\" width=\"309\" height=\"18\"/>"));
  EXPECT_THAT(svg, HasSubstr("<g fill=\"#56B4E9\">\n<rect x=\"488\" y=\"67\" width=\"457\" height=\"18\"/>"));
  EXPECT_THAT(svg, HasSubstr("fill=\"#1b1f24\">0</text>"));  // layers.0
  EXPECT_THAT(svg, HasSubstr(">400 us</text>"));
  EXPECT_THAT(svg, HasSubstr(">peak 70.10 MiB</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("http://www.w3.org/1999/xlink")));
  EXPECT_EQ(svg, timeline_svg(result()));
}

TEST(TimelineSvg, IsWellFormed) {
  if (std::system("command -v xmllint >/dev/null 2>&1") != 0) GTEST_SKIP() << "no xmllint (libxml2-utils)";
  const auto file = std::filesystem::temp_directory_path() / ("shardsim-timeline-" + std::to_string(getpid()) + ".svg");
  write_output(file.string(), timeline_svg(result()));
  EXPECT_EQ(std::system(("xmllint --nonet --noout " + file.string()).c_str()), 0);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace shardsim
