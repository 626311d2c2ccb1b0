// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/local.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "calibrate/execute/backends/backend.hpp"
#include "calibrate/measure/gpu.hpp"
#include "sim/base/problem.hpp"
#include "sim/config/node.hpp"

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

TEST(CalibrateLocal, AnInterruptedRunIsResumed) {
  const std::string path = (std::filesystem::temp_directory_path() / ("shardsim-local-" + std::to_string(getpid()))).string();
  const LocalOptions options{.ranks = 2, .budget = Seconds{1}, .journal = path};
  struct Interrupted {};
  const auto quiet = [](double, const std::string&) {};
  // Stopped when the products begin: the ring and the memory are done.
  EXPECT_THROW((void)calibrate_local(options,
                                     [](double, const std::string& what) {
                                       if (what == "matrix products") throw Interrupted{};
                                     }),
               Interrupted);
  std::string memory;
  std::size_t samples = 0;
  std::ifstream journal(path);
  for (std::string line; std::getline(journal, line);) {
    if (line.starts_with("memory ")) memory = line.substr(7);
    samples += line.starts_with("ring ") ? 1 : 0;
  }
  ASSERT_GT(samples, 60u);
  const Profile profile = calibrate_local(options, quiet);
  EXPECT_EQ(profile.gpu.memory_bandwidth.base(), std::stod(memory));
  std::int64_t counted = 0;
  for (const CollectiveFit& fit : profile.collectives)
    for (const auto& sample : fit.samples) counted += sample.repetitions;
  EXPECT_GE(counted, static_cast<std::int64_t>(samples));
  // Nothing is left to measure: the same samples give the same profile.
  const Profile again = calibrate_local(options, quiet);
  EXPECT_EQ(again.gpu.gemm.table.size(), profile.gpu.gemm.table.size());
  EXPECT_EQ(again.gpu.gemm.table.front().time, profile.gpu.gemm.table.front().time);
  std::filesystem::remove(path);
}

TEST(CalibrateGpu, SaysWhatTheMachineLacks) {
  const auto quiet = [](double, const std::string&) {};
  try {
    (void)execute::open_platform("cuda");
    GTEST_SKIP() << "this machine has a GPU";
  } catch (const EnvironmentError&) {
    EXPECT_THROW((void)calibrate_cuda({}, "", quiet), EnvironmentError);
    EXPECT_THROW((void)calibrate_nccl({}, {}, quiet), EnvironmentError);
  }
}

}  // namespace
}  // namespace shardsim
