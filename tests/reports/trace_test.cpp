// SPDX-License-Identifier: Apache-2.0
#include "reports/trace.hpp"

#include <gmock/gmock.h>

#include <map>

#include "sample_result.hpp"
#include "sim/config/node.hpp"

namespace shardsim {
namespace {

using ::testing::HasSubstr;

const std::string* text_at(const ConfigNode& event, std::string_view key) {
  const ConfigNode* found = event.find(key);
  return found ? &found->text : nullptr;
}

TEST(ChromeTrace, IsJsonInObjectForm) {
  const auto tree = read_json(Source{"trace", chrome_trace(sample_result())});
  ASSERT_TRUE(tree) << tree.error().text();
  const ConfigNode* events = tree->find("traceEvents");
  ASSERT_NE(events, nullptr);
  std::map<std::string, int> phases;
  for (const ConfigNode& event : events->items) ++phases[*text_at(event, "ph")];
  // A name for the process; a name and an index for the host and two streams; two host slices and two device slices; one memory point.
  EXPECT_EQ(phases, (std::map<std::string, int>{{"M", 7}, {"X", 4}, {"C", 1}}));
}

TEST(ChromeTrace, RoundsBeginAndEndSoThatNeighboursTouch) {
  const std::string trace = chrome_trace(sample_result());
  // 100.4 ns to 1500.6 ns on the gather stream, and 1500.6 ns on on the compute stream: both meet at 1501 ns.
  EXPECT_THAT(trace, HasSubstr(R"("tid":3,"ts":0.100,"dur":1.401,)"));
  EXPECT_THAT(trace, HasSubstr(R"("tid":2,"ts":1.501,"dur":1999998.622,)"));
}

TEST(ChromeTrace, TellsWhatASliceMovesAndEscapesNames) {
  const std::string trace = chrome_trace(sample_result());
  EXPECT_THAT(trace, HasSubstr(R"j("name":"FSDP::all_gather(layers.0)")j"));
  EXPECT_THAT(trace, HasSubstr(R"("collective":"all_gather","bytes":2048,"dtype":"bf16","group":"world","communicator":"shard")"));
  EXPECT_THAT(trace, HasSubstr(R"(forward \"quoted\")"));
  EXPECT_THAT(trace, HasSubstr(R"("flops":8192,)"));  // 2 x 8 x 16 x 32
  EXPECT_THAT(trace, HasSubstr(R"("ph":"C","name":"memory","pid":1,"tid":0,"ts":0.000,"args":{"parameters":500000,"gradients":0,)"));
}

}  // namespace
}  // namespace shardsim
