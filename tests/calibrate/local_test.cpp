// SPDX-License-Identifier: Apache-2.0
#include "calibrate/local.hpp"

#include <gtest/gtest.h>

#include "calibrate/gpu.hpp"
#include "sim/core/node.hpp"
#include "sim/core/problem.hpp"

namespace shardsim {
namespace {

TEST(CalibrateLocal, WritesAProfileThatReadsBackWhole) {
  double last = -1;
  const Profile profile = calibrate_local({.ranks = 2, .budget = Seconds{2}}, [&](double share, const std::string& what) {
    EXPECT_GE(share, last);
    EXPECT_FALSE(what.empty());
    last = share;
  });
  EXPECT_EQ(last, 1);
  EXPECT_GT(profile.gpu.memory_bandwidth, ByteRate{1e8});
  EXPECT_GT(profile.gpu.peak.at(DType::fp32), FlopRate{1e8});
  EXPECT_GT(profile.node.ring_bandwidth, ByteRate{1e6});
  ASSERT_EQ(profile.collectives.size(), 4u);
  for (const CollectiveFit& fit : profile.collectives) {
    EXPECT_EQ(fit.ranks, 2);
    EXPECT_EQ(fit.algorithm, "ring");
    EXPECT_GE(fit.samples.size(), 20u);
    EXPECT_FALSE(fit.segments.empty());
    EXPECT_LE(fit.samples[0].min, fit.samples[0].median);
  }
  const auto back = read_profile(*read_yaml(Source{"local.yaml", to_yaml(profile)}));
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(to_yaml(*back), to_yaml(profile));
}

#ifndef SHARDSIM_GPU
TEST(CalibrateGpu, SaysWhatTheMachineLacks) {
  const auto quiet = [](double, const std::string&) {};
  EXPECT_THROW((void)calibrate_cuda({}, quiet), EnvironmentError);
  EXPECT_THROW((void)calibrate_nccl({}, quiet), EnvironmentError);
}
#endif

}  // namespace
}  // namespace shardsim
