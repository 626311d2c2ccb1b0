// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/sample_journal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct SampleJournalFiles : ::testing::Test {
  std::string path = (std::filesystem::temp_directory_path() / ("shardsim-journal-" + std::to_string(getpid()))).string();
  void SetUp() override { std::filesystem::remove(path); }
  void TearDown() override { std::filesystem::remove(path); }
};

TEST_F(SampleJournalFiles, AnInterruptedRunLeavesItsLines) {
  {
    SampleJournal first(path, "ring of 4");
    EXPECT_THAT(first.earlier(), IsEmpty());
    first.add("ring 1024 3.5e-05");
    first.add("product 64 64 64 1e-06");
  }
  {
    SampleJournal second(path, "ring of 4");
    EXPECT_THAT(second.earlier(), ElementsAre("ring 1024 3.5e-05", "product 64 64 64 1e-06"));
    EXPECT_THAT(second.earlier("ring"), ElementsAre("1024 3.5e-05"));
    second.add("ring 2048 4e-05");
  }
  EXPECT_THAT(SampleJournal(path, "ring of 4").earlier("ring"), ElementsAre("1024 3.5e-05", "2048 4e-05"));
}

TEST_F(SampleJournalFiles, AnotherJobStartsAnew) {
  SampleJournal(path, "ring of 4").add("ring 1024 3.5e-05");
  EXPECT_THAT(SampleJournal(path, "ring of 8").earlier(), IsEmpty());
}

TEST_F(SampleJournalFiles, ALineThatWasCutIsDroppedAndTheRestKept) {
  SampleJournal(path, "job").add("one");
  std::ofstream(path, std::ios::app) << "tw";
  {
    SampleJournal again(path, "job");
    EXPECT_THAT(again.earlier(), ElementsAre("one"));
    again.add("three");
  }
  EXPECT_THAT(SampleJournal(path, "job").earlier(), ElementsAre("one", "three"));
}

TEST_F(SampleJournalFiles, AProcessKilledHardLosesNothingThatWasAdded) {
  {
    SampleJournal journal(path, "job");
    const pid_t child = fork();
    if (child == 0) {
      journal.add("from the child");
      (void)raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    journal.add("from the parent");
  }
  EXPECT_THAT(SampleJournal(path, "job").earlier(), ElementsAre("from the child", "from the parent"));
}

TEST_F(SampleJournalFiles, AFinishedRunRemovesIt) {
  SampleJournal(path, "job").add("one");
  remove_journal(path);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(SampleJournalFiles, WithoutAPathNothingIsKept) {
  SampleJournal journal(journal_path("-"), "job");
  journal.add("one");
  EXPECT_EQ(journal_path("p.yaml"), "p.yaml.samples");
  EXPECT_THROW(SampleJournal("/nowhere/at/all", "job"), EnvironmentError);
}

}  // namespace
}  // namespace shardsim
