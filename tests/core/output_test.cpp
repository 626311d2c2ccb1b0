// SPDX-License-Identifier: Apache-2.0
#include "sim/base/output.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
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

TEST_F(OutputTest, AnEmptyNameIsRefused) { EXPECT_THROW(Output(""), InputError); }

TEST_F(OutputTest, AnInputIsKnownUnderWhateverName) {
  const fs::path file = folder / "input.yaml", link = folder / "link.yaml", hard = folder / "hard.yaml";
  std::ofstream(file) << "text";
  fs::create_symlink("input.yaml", link);
  fs::create_hard_link(file, hard);
  const std::vector<std::string> inputs{(folder / "other").string(), file.string()};
  for (const fs::path& output : {file, link, hard, folder / "." / "input.yaml"})
    EXPECT_THROW(write_output(output.string(), "x", inputs), InputError) << output;
  EXPECT_EQ(content(file), "text");
  write_output((folder / "new").string(), "x", inputs);
  EXPECT_EQ(content(folder / "new"), "x");
}

TEST_F(OutputTest, DraftsHaveNamesThatNobodyForesees) {
  std::set<std::string> names;
  for (int i = 0; i < 10; ++i) {
    Output output((folder / "f.html").string());
    output.write("half");
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  }
  EXPECT_EQ(names.size(), 10U);
  EXPECT_EQ(files(), 0U);
}

TEST_F(OutputTest, AFileTooLargeIsSaidAndLeavesNothing) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);  // as the program does
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_output((folder / "large").string(), std::string(5000, 'x'));
    } catch (const EnvironmentError&) { ::_exit(3); }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  EXPECT_EQ(files(), 0U);
}

TEST_F(OutputTest, ReportsAFullDisk) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_THROW(write_output("/dev/full", "x"), EnvironmentError);
}

}  // namespace
}  // namespace shardsim
