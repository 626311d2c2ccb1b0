// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "studies/plan/goodput.hpp"

namespace shardsim {
namespace {

// delta = 60 s, M = 24 h: Young gives sqrt(2 * 60 * 86400) = 3219.9 s; Daly adds 3219.9 * (sqrt(60 / 172800) / 3 + 60 / 172800 / 9) = 20.1
// s and takes off delta.
TEST(Goodput, DalysIntervalIsYoungsWithACorrection) {
  const Reliability job{Seconds{60}, Seconds{600}, Seconds{86400}};
  EXPECT_NEAR(std::sqrt(2 * 60.0 * 86400.0), 3219.94, 0.01);
  EXPECT_NEAR(optimum_interval(job).base(), 3219.94 + 20.0 + 0.12 - 60, 0.1);
}

// First order: useful / wall = 1 / (1 + delta/tau + (tau + delta)/(2 M) + R/M).
TEST(Goodput, IsNearTheFirstOrderEstimateWhenFailuresAreRare) {
  const Reliability job{Seconds{60}, Seconds{600}, Seconds{86400}};
  const Seconds tau = optimum_interval(job);
  const double loss = 60 / tau.base() + (tau.base() + 60) / (2 * 86400.0) + 600 / 86400.0;
  EXPECT_NEAR(goodput(job, tau), 1 / (1 + loss), 1.5e-3);
}

TEST(Goodput, TheOptimumBeatsItsNeighbours) {
  for (const double delta : {5.0, 60.0, 900.0})
    for (const double mtbf : {3600.0, 86400.0, 2e6}) {
      const Reliability job{Seconds{delta}, Seconds{300}, Seconds{mtbf}};
      const Seconds best = optimum_interval(job);
      EXPECT_GE(goodput(job, best) * (1 + 2e-3), goodput(job, best * 0.7)) << delta << " " << mtbf;
      EXPECT_GE(goodput(job, best) * (1 + 2e-3), goodput(job, best * 1.4)) << delta << " " << mtbf;
    }
}

TEST(Goodput, AJobThatFailsBeforeItsCheckpointIsWrittenStands) {
  const Reliability job{Seconds{7200}, Seconds{600}, Seconds{60}};
  EXPECT_EQ(optimum_interval(job).base(), 60);
  EXPECT_LT(goodput(job, optimum_interval(job)), 1e-9);
}

}  // namespace
}  // namespace shardsim
