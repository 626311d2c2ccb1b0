// SPDX-License-Identifier: Apache-2.0
// What DeepSpeed's releases changed in a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "jobs.hpp"

namespace shardsim::testing {
namespace {

/// has_inf_or_nan: 11 bytes an element of the largest slice until 0.19.6; in bf16 only if asked for until 0.19.3.
TEST(DeepSpeedVersions, TheOverflowCheckLostItsTemporaries) {
  const auto searches = [](const char* version) {
    OwnedJob owned = make_job(equal_blocks(2), "zero2", {.ranks = 2});
    owned.job.strategy.version = version;
    const Schedule schedule = emit(owned.job);
    return std::count_if(schedule.buffers.begin(), schedule.buffers.end(),
                         [](const Buffer& b) { return std::string(b.label.verb) == "has_inf_or_nan"; });
  };
  EXPECT_EQ(searches(""), 0);
  EXPECT_EQ(searches("0.19.6"), 0);
  EXPECT_EQ(searches("0.19.5"), 1);
  EXPECT_EQ(searches("0.18.9"), 0);
}

}  // namespace
}  // namespace shardsim::testing
