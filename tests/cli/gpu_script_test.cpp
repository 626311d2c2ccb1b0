// SPDX-License-Identifier: Apache-2.0
// The script for machines with GPUs, as far as one without can run it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "command.hpp"

namespace shardsim {
namespace {

using testing::HasSubstr;

const std::string script = SHARDSIM_SOURCE_DIR "/scripts/gpu.sh";

TEST(GpuScript, IsBash) { EXPECT_EQ(test::run_command("bash -n " + script).output, ""); }

TEST(GpuScript, WithoutAGpuEndsWithThreeAndLeavesTheLog) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("shardsim-gpu-script-" + std::to_string(getpid()));
  const std::string probe = test::run_command(SHARDSIM_EXECUTABLE " calibrate cuda -o -").output;
  if (probe.find("no CUDA GPU") == std::string::npos) GTEST_SKIP() << "this machine has a GPU";
  const auto ran = test::run_command("SHARDSIM=" SHARDSIM_EXECUTABLE " bash " + script + " clusters/h100-sxm.yaml " + folder.string());
  EXPECT_EQ(ran.code, 3) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("calibrate cuda: no CUDA GPU"));
  EXPECT_TRUE(std::filesystem::exists(folder / "gpu.log"));
  EXPECT_FALSE(std::filesystem::exists(folder / "profile.yaml"));
  std::filesystem::remove_all(folder);
}

// A program in shardsim's place that finds the textbook's runs different: everything is tried, and the first failure is the script's.
TEST(GpuScript, GoesOnAfterAFailure) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("shardsim-gpu-script-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::filesystem::path program = folder / "program";
  std::ofstream(program) << "#!/bin/sh\necho \"ran: $*\"\ncase \"$*\" in *textbook*) exit 1;; esac\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const auto ran = test::run_command("SHARDSIM=" + program.string() + " bash " + script + " base.yaml " + (folder / "out").string());
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("ran: calibrate cuda --base base.yaml"));
  EXPECT_THAT(ran.output, HasSubstr("--ranks 2 --strategies all --set strategy.semantics=textbook"));
  EXPECT_THAT(ran.output, HasSubstr("--ranks 4 --strategies all --set strategy.semantics=textbook"));
  EXPECT_THAT(ran.output, HasSubstr("strategy.replicate=2"));
  std::filesystem::remove_all(folder);
}

TEST(CudaBackend, WithoutAGpuEndsWithThree) {
  const auto ran = test::run_command(SHARDSIM_EXECUTABLE " execute " SHARDSIM_SOURCE_DIR "/scenarios/execute/tiny.yaml --backend cuda");
  if (ran.code != 3) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(ran.output, HasSubstr("execute --backend cuda: "));
}

}  // namespace
}  // namespace shardsim
