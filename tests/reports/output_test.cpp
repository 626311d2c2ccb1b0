// SPDX-License-Identifier: Apache-2.0
#include "reports/output.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

class OutputTest : public ::testing::Test {
 protected:
  OutputTest() { fs::create_directories(folder); }
  ~OutputTest() override { fs::remove_all(folder); }
  static std::string content(const fs::path& file) {
    std::stringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }
  std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {})); }

  fs::path folder = fs::temp_directory_path() / ("shardsim-output-" + std::to_string(getpid()));
};

TEST_F(OutputTest, AppearsOnlyWhenCommitted) {
  const fs::path file = folder / "report.json";
  {
    Output output(file.string());
    output.write("half");
    EXPECT_FALSE(fs::exists(file));
  }
  EXPECT_EQ(files(), 0U);  // nothing is left of an output that was given up
  write_output(file.string(), "whole");
  EXPECT_EQ(content(file), "whole");
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputTest, ReplacesWhatWasThereAndKeepsItsModeAndLinks) {
  const fs::path file = folder / "old", link = folder / "link";
  std::ofstream(file) << "old";
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("old", link);
  write_output(link.string(), "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(content(file), "new");
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(OutputTest, SaysWhichFileCannotBeWritten) {
  try {
    Output output((folder / "no" / "such" / "folder.json").string());
    FAIL() << "opened";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("folder.json: No such file or directory"), std::string::npos) << error.what();
  }
  EXPECT_THROW(Output(folder.string()), EnvironmentError);
}

TEST_F(OutputTest, ReportsAFullDisk) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_THROW(write_output("/dev/full", "x"), EnvironmentError);
}

}  // namespace
}  // namespace shardsim
