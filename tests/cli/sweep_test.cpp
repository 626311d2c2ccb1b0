// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "cli/launch.hpp"
#include "cli/progress.hpp"
#include "sim/base/problem.hpp"
#include "studies/sweep/journal.hpp"
#include "studies/sweep/rows.hpp"
#include "studies/sweep/table_check.hpp"

extern char** environ;

namespace shardsim {
namespace {

namespace fs = std::filesystem;

/// A folder of this test's own.
class SweepTest : public testing::Test {
 protected:
  SweepTest() : folder_(fs::temp_directory_path() / ("shardsim-sweep-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~SweepTest() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const auto path = folder_ / name;
    std::ofstream(path) << text;
    return path.string();
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] static std::string read(const std::string& file) {
    std::ifstream in(file);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  [[nodiscard]] std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  fs::path folder_;
};

constexpr const char* base_text =
    "model:\n  layers:\n    - {name: up, type: linear, in: 64, out: 64}\n"
    "cluster: {profile: clusters/h100-sxm.yaml, nodes: 1, gpus_per_node: 8}\ntraining: {sequence_length: 16}\nstrategy: {name: ddp}\n";

using SweepJournalTest = SweepTest;

TEST_F(SweepJournalTest, AFinishedJournalHasItsRealNameAndNothingElse) {
  SweepJournal journal(path("out.csv"), 7, 2, "index,a");
  journal.append("1,x");
  journal.append("0,y");
  journal.finish();
  EXPECT_EQ(read(path("out.csv")), "index,a\n1,x\n0,y\n");
  EXPECT_EQ(files(), std::vector<std::string>{"out.csv"});
}

TEST_F(SweepJournalTest, ATornLineIsDoneAgainAndNoRowTwice) {
  const std::string part = path("out.csv.0000000000000007.part");
  std::ofstream(part) << "index,a\n2,x\n0,y\n1,to";
  SweepJournal journal(path("out.csv"), 7, 3, "index,a");
  EXPECT_EQ(journal.done_count(), 2U);
  EXPECT_TRUE(journal.done(2));
  EXPECT_FALSE(journal.done(1));
  journal.append("1,torn");
  journal.finish();
  EXPECT_EQ(read(path("out.csv")), "index,a\n2,x\n0,y\n1,torn\n");
}

TEST_F(SweepJournalTest, WhatIsNoRowEndsTheGoodPart) {
  const std::string zeros(16, '\0');
  for (const std::string& bad : {std::string("junk"), std::string("7,out of range"), std::string("0,again"), zeros}) {
    const std::string part = path("out.csv.0000000000000007.part");
    std::ofstream(part) << "index,a\n0,y\n" << bad << "\n1,z\n";
    SweepJournal journal(path("out.csv"), 7, 3, "index,a");
    EXPECT_EQ(journal.done_count(), 1U) << bad;
    EXPECT_EQ(read(part), "index,a\n0,y\n") << bad;
  }
}

TEST_F(SweepJournalTest, TwoProcessesDoNotWriteOneJournal) {
  SweepJournal first(path("out.csv"), 7, 1, "index");
  EXPECT_THROW(SweepJournal(path("out.csv"), 7, 1, "index"), EnvironmentError);
  EXPECT_THROW(SweepJournal(path("no/such/folder/out.csv"), 7, 1, "index"), EnvironmentError);
}

TEST(SweepRows, NumbersStandFirst) {
  EXPECT_EQ(row_number("17,a,b"), 17);
  EXPECT_EQ(row_number("{\"index\":3,\"set\":{}}"), 3);
  EXPECT_EQ(row_number("17"), -1);
  EXPECT_EQ(row_number(""), -1);
  EXPECT_EQ(row_number("x,1"), -1);
}

using SweepPlanTest = SweepTest;

TEST_F(SweepPlanTest, TheLastKeyVariesFastestAndListRowsChangeTogether) {
  write("base.yaml", base_text);
  const std::string file = write(
      "sweep.yaml",
      "base: base.yaml\nset: {training.sequence_length: 32}\ngrid:\n  strategy.name: [ddp, fsdp2]\n  training.micro_batch_size: [1, 2, 4]\n"
      "list:\n  - {cluster.nodes: 1, cluster.gpus_per_node: 4}\n  - {cluster.nodes: 2, cluster.gpus_per_node: 8}\n");
  const auto plan = load_sweep(file, simulate_columns());
  ASSERT_TRUE(plan.has_value()) << plan.error().text();
  EXPECT_EQ(plan->size, 12U);
  EXPECT_EQ(plan->keys(),
            (std::vector<std::string>{"cluster.nodes", "cluster.gpus_per_node", "strategy.name", "training.micro_batch_size"}));
  const auto row = plan->values(10);  // 10 = 1 * 6 + 1 * 3 + 1
  EXPECT_EQ(row[0]->text, "2");
  EXPECT_EQ(row[1]->text, "8");
  EXPECT_EQ(row[2]->text, "fsdp2");
  EXPECT_EQ(row[3]->text, "2");
  const ConfigNode tree = plan->scenario(10);
  EXPECT_EQ(tree.find("training")->find("sequence_length")->text, "32");
  EXPECT_EQ(tree.find("training")->find("micro_batch_size")->text, "2");
  EXPECT_EQ(tree.find("strategy")->find("name")->text, "fsdp2");
}

TEST_F(SweepPlanTest, MistakesAreToldWhereTheyStand) {
  write("base.yaml", base_text);
  const auto problem = [&](const std::string& text) {
    const auto plan = load_sweep(write("sweep.yaml", text), simulate_columns());
    return plan ? std::string("accepted") : plan.error().text();
  };
  EXPECT_NE(problem("base: base.yaml\n").find("needs a grid or a list"), std::string::npos);
  EXPECT_NE(problem("base: base.yaml\ngird: {a: [1]}\n").find("gird"), std::string::npos);
  EXPECT_NE(problem("base: nowhere.yaml\ngrid: {a.b: [1]}\n").find("sweep.yaml:1:7"), std::string::npos);
  EXPECT_NE(problem("base: base.yaml\ngrid: {training: [{}], training.dropout: [0.1]}\n").find("independently"), std::string::npos);
  EXPECT_NE(problem("base: base.yaml\ngrid: {a.b: [1]}\nlist: [{a.b: 1}]\n")
                .find("sweep.yaml:2:8: error: 'a.b' stands in the grid and in the list"),
            std::string::npos);
  EXPECT_NE(problem("base: base.yaml\ngrid: {cluster.nodez: [1]}\n").find("sweep.yaml:2:24: error: unknown key 'nodez'"),
            std::string::npos);
  EXPECT_NE(problem("base: base.yaml\ngrid: {strategy.bucket_cap_md: [1]}\n").find("did you mean 'bucket_cap_mb'?"), std::string::npos);
  EXPECT_EQ(problem("base: base.yaml\ngrid: {strategy.name: [fsdp2, ddp], strategy.bucket_cap_mb: [25]}\n"),
            "accepted");  // one of them has it
  EXPECT_NE(problem("base: base.yaml\nlist: [{a: 1}, {b: 1}]\n").find("lacks the key 'a'"), std::string::npos);
  EXPECT_NE(problem("base: base.yaml\ngrid: {a: 1}\n").find("needs a list"), std::string::npos);
  EXPECT_NE(problem("base: base.yaml\ngrid: {a: [1]}\ncolumns: [step.time]\n").find("step.time_s"), std::string::npos);
}

TEST_F(SweepPlanTest, ABadCornerOfTheGridIsARowWithItsError) {
  write("base.yaml", base_text);
  const auto plan = load_sweep(write("sweep.yaml", "base: base.yaml\ngrid: {training.micro_batch_size: [1, -1]}\ncolumns: [world_size]\n"),
                               simulate_columns());
  ASSERT_TRUE(plan.has_value()) << plan.error().text();
  EXPECT_EQ(sweep_header(*plan, RowFormat::csv), "index,training.micro_batch_size,error,world_size");
  SweepRows rows(*plan, RowFormat::csv);
  EXPECT_EQ(rows.line(0), "0,1,,8");
  const std::string bad = rows.line(1);
  EXPECT_TRUE(bad.starts_with("1,-1,")) << bad;
  EXPECT_TRUE(bad.ends_with(",")) << bad;
  EXPECT_EQ(SweepRows(*plan, RowFormat::json_lines).line(0),
            R"({"index":0,"set":{"training.micro_batch_size":"1"},"error":null,"result":{"world_size":8}})");
}

TEST_F(SweepPlanTest, RowsWithErrorsAreCounted) {
  write("base.yaml", base_text);
  for (const std::string name : {"out.csv", "out.jsonl"}) {
    const auto plan = load_sweep(write("sweep.yaml",
                                       "base: base.yaml\ngrid: {training.activation_checkpointing: [{every: 2}, full, 'a\"b,c'], "
                                       "training.micro_batch_size: [1, -1]}\ncolumns: [world_size]\n"),
                                 simulate_columns());
    ASSERT_TRUE(plan.has_value()) << plan.error().text();
    const RowFormat format = name == "out.csv" ? RowFormat::csv : RowFormat::json_lines;
    SweepRows rows(*plan, format);
    std::string text = format == RowFormat::csv ? sweep_header(*plan, format) + "\n" : "";
    for (const std::uint64_t row : {5, 4, 3, 2, 1, 0}) text += rows.line(row) + "\n";
    const FailedRows failed = failed_rows(write(name, text), *plan);
    EXPECT_EQ(failed.count, 4U) << text;  // -1 three times, and the quoted word with 1
    EXPECT_EQ(failed.first, rows.line(1));
  }
}

TEST(SweepProgress, TellsSpeedAndWhatIsLeft) {
  EXPECT_EQ(progress_line("sweep", 1500, 6000, 500, 10), "sweep [#####...............] 1,500/6,000  100/s  ETA 45 s");
  EXPECT_EQ(progress_line("sweep", 0, 10, 0, 0), "sweep [....................] 0/10");
}

TEST_F(SweepPlanTest, KeysThatChangeOnlySpeedsVaryFastestInTheOrderOfSimulationThenThoseOfTheBatch) {
  write("base.yaml", base_text);
  const auto plan =
      load_sweep(write("sweep.yaml",
                       "base: base.yaml\ngrid:\n  cluster.nic_bandwidth: [1 GB/s, 2 GB/s]\n  training.micro_batch_size: [1, 2, 4]\n"
                       "  strategy.name: [ddp, fsdp2]\n  cluster.nodes: [1, 2]\n"),
                 simulate_columns());
  ASSERT_TRUE(plan.has_value()) << plan.error().text();
  std::vector<std::uint64_t> rows;
  for (std::uint64_t position = 0; position < plan->size; ++position) rows.push_back(plan->row_at(position));
  // Rows are numbered bandwidth * 12 + micro-batch * 4 + strategy * 2 + nodes.
  EXPECT_EQ((std::vector<std::uint64_t>(rows.begin(), rows.begin() + 8)), (std::vector<std::uint64_t>{0, 12, 4, 16, 8, 20, 1, 13}));
  std::sort(rows.begin(), rows.end());
  for (std::uint64_t row = 0; row < plan->size; ++row) EXPECT_EQ(rows[static_cast<std::size_t>(row)], row);
}

/// Neighbours share blocks, models, schedules and machines: none of that may show.
TEST_F(SweepPlanTest, RowsAreWhatTheyWouldBeAlone) {
  write("base.yaml", base_text);
  const auto plan =
      load_sweep(write("sweep.yaml",
                       "base: base.yaml\ngrid:\n  training.micro_batch_size: [1, 2, 0]\n"
                       "  strategy: [{name: ddp}, {name: ddp, bucket_cap_mb: 1}, {name: fsdp2}, {name: zero3, semantics: textbook}]\n"
                       "  cluster.nodes: [1, 2]\n  cluster.nic_bandwidth: [1 GB/s, 2 GB/s]\n"
                       "list:\n  - {cluster.gpu.overlap_slowdown: 0, training.sequence_length: 16, cluster.gpu.capacity: 80 GiB}\n"
                       "  - {cluster.gpu.overlap_slowdown: 0.5, training.sequence_length: 32, cluster.gpu.capacity: 80 GiB}\n"
                       "  - {cluster.gpu.overlap_slowdown: 0.5, training.sequence_length: 32, cluster.gpu.capacity: 512 MiB}\n"),
                 simulate_columns());
  ASSERT_TRUE(plan.has_value()) << plan.error().text();
  SweepRows shared(*plan, RowFormat::json_lines);
  for (std::uint64_t position = 0; position < plan->size; ++position) {
    const std::uint64_t row = plan->row_at(position);
    EXPECT_EQ(shared.line(row), SweepRows(*plan, RowFormat::json_lines).line(row));
  }
  for (std::uint64_t row = 0; row < plan->size; ++row)  // whatever came before
    EXPECT_EQ(shared.line(row), SweepRows(*plan, RowFormat::json_lines).line(row));
}

TEST_F(SweepPlanTest, TheAllocatorRunsWhereAFigureNeedsItAndRowsSayIfItDoesNot) {
  write("base.yaml", base_text);
  const auto plan = [&](const std::string& more) {
    return *load_sweep(write("sweep.yaml", "base: base.yaml\ngrid: {training.micro_batch_size: [1]}\n" + more), simulate_columns());
  };
  EXPECT_TRUE(plan("").allocator);
  EXPECT_TRUE(plan("columns: [step.time_s, memory.fits]\n").allocator);
  EXPECT_FALSE(plan("columns: [step.time_s, memory.peak_bytes]\n").allocator);
  const SweepPlan simple = plan("allocator: false\ncolumns: [memory.reserved_peak_bytes]\n");
  EXPECT_FALSE(simple.allocator);
  EXPECT_EQ(sweep_header(simple, RowFormat::csv), "index,training.micro_batch_size,error,reserved_by,memory.reserved_peak_bytes");
  EXPECT_TRUE(SweepRows(simple, RowFormat::csv).line(0).starts_with("0,1,,pools,"));
  EXPECT_NE(fingerprint(simple), fingerprint(plan("columns: [memory.reserved_peak_bytes]\n")));
}

TEST(Launch, RanksAreKnownByTheLaunchersVariables) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"}) ::unsetenv(name);
  EXPECT_EQ(launched().size, 1);
  ::setenv("SLURM_PROCID", "3", 1);
  ::setenv("SLURM_NTASKS", "4", 1);
  EXPECT_EQ(launched().rank, 3);
  EXPECT_EQ(launched().size, 4);
  ::setenv("OMPI_COMM_WORLD_RANK", "1", 1);  // mpirun inside a Slurm allocation
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_EQ(launched().rank, 1);
  EXPECT_EQ(launched().size, 2);
  ::setenv("OMPI_COMM_WORLD_RANK", "2", 1);  // no rank of two
  EXPECT_EQ(launched().rank, 3);
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"}) ::unsetenv(name);
}

/// The whole command in processes of their own that can be killed.
class SweepProcess : public SweepTest {
 protected:
  using Variables = std::vector<std::string>;

  pid_t start(const std::string& sweep, const std::string& output, Variables variables = {}, std::vector<std::string> launcher = {}) {
    std::vector<std::string> words = std::move(launcher);
    for (const std::string& word : {std::string(SHARDSIM_EXECUTABLE), std::string("sweep"), sweep, std::string("-o"), output})
      words.push_back(word);
    if (variables.empty()) words.insert(words.end(), {"--jobs", "2"});
    std::vector<char*> arguments, environment;
    for (auto& word : words) arguments.push_back(word.data());
    for (auto& variable : variables) environment.push_back(variable.data());
    for (char** variable = environ; *variable != nullptr; ++variable) environment.push_back(*variable);
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    pid_t pid = 0;
    EXPECT_EQ(::posix_spawnp(&pid, words.front().c_str(), nullptr, nullptr, arguments.data(), environment.data()), 0);
    return pid;
  }
  /// As mpirun starts them.
  std::vector<pid_t> start_ranks(int size, const std::string& sweep, const std::string& output) {
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < size; ++rank)
      ranks.push_back(
          start(sweep, output, {"OMPI_COMM_WORLD_RANK=" + std::to_string(rank), "OMPI_COMM_WORLD_SIZE=" + std::to_string(size)}));
    return ranks;
  }
  static int wait(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  /// Until some rows are on disk.
  void wait_for_rows() const {
    for (int i = 0; i < 1000; ++i) {
      for (const auto& entry : fs::directory_iterator(folder_))
        if (entry.path().extension() == ".part" && fs::file_size(entry.path()) > 4096) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  [[nodiscard]] std::string write_sweep(int lengths) {
    write("base.yaml", base_text);
    std::string grid = "base: base.yaml\ngrid:\n  strategy.name: [ddp, fsdp2, naive_dp]\n  training.sequence_length: [";
    for (int i = 1; i <= lengths; ++i) grid += (i == 1 ? "" : ", ") + std::to_string(i);
    return write("sweep.yaml", grid + "]\n");
  }
  [[nodiscard]] static std::vector<std::string> sorted_lines(const std::string& file) {
    std::istringstream in(read(file));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  }
};

TEST_F(SweepProcess, KilledAtRandomMomentsItEndsAsIfItHadNotBeen) {
  if (!fs::exists(SHARDSIM_EXECUTABLE)) GTEST_SKIP() << "the executable is not built";
  const std::string sweep = write_sweep(5000);
  ASSERT_EQ(wait(start(sweep, path("whole.csv"))), 0);

  std::mt19937 random(20260101);
  std::uniform_int_distribution<int> milliseconds(1, 150);
  int killed = 0;
  for (int attempt = 0; attempt < 20 && !fs::exists(path("killed.csv")); ++attempt) {
    const pid_t pid = start(sweep, path("killed.csv"));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds(random)));
    ::kill(pid, SIGKILL);
    killed += wait(pid) == -SIGKILL ? 1 : 0;
  }
  RecordProperty("killed", killed);  // 20 unless the machine is so fast that fewer leave nothing to do
  EXPECT_GT(killed, 0);
  if (!fs::exists(path("killed.csv"))) { ASSERT_EQ(wait(start(sweep, path("killed.csv"))), 0); }
  EXPECT_EQ(sorted_lines(path("whole.csv")), sorted_lines(path("killed.csv")));
  EXPECT_EQ(sorted_lines(path("whole.csv")).size(), 15001U);
  EXPECT_EQ(files(), (std::vector<std::string>{"base.yaml", "killed.csv", "sweep.yaml", "whole.csv"}));
}

TEST_F(SweepProcess, RanksOfALauncherWriteOneTable) {
  if (!fs::exists(SHARDSIM_EXECUTABLE)) GTEST_SKIP() << "the executable is not built";
  const std::string sweep = write_sweep(1000);
  ASSERT_EQ(wait(start(sweep, path("whole.csv"))), 0);
  std::ofstream(path("ranks.csv." + std::string(16, '0') + ".rank0")) << "stale 1 127.0.0.1\n";  // of another sweep
  for (const pid_t rank : start_ranks(3, sweep, path("ranks.csv"))) EXPECT_EQ(wait(rank), 0);
  EXPECT_EQ(sorted_lines(path("whole.csv")), sorted_lines(path("ranks.csv")));
  EXPECT_EQ(files().size(), 5U);
}

TEST_F(SweepProcess, WhatARankThatDiesOwedIsDoneByTheOthers) {
  if (!fs::exists(SHARDSIM_EXECUTABLE)) GTEST_SKIP() << "the executable is not built";
  const std::string sweep = write_sweep(2000);
  ASSERT_EQ(wait(start(sweep, path("whole.csv"))), 0);
  const auto ranks = start_ranks(3, sweep, path("ranks.csv"));
  wait_for_rows();
  ::kill(ranks[2], SIGKILL);
  EXPECT_EQ(wait(ranks[2]), -SIGKILL);
  EXPECT_EQ(wait(ranks[0]), 0);
  EXPECT_EQ(wait(ranks[1]), 0);
  EXPECT_EQ(sorted_lines(path("whole.csv")), sorted_lines(path("ranks.csv")));
}

TEST_F(SweepProcess, WhenRankZeroDiesTheOthersSayItAndTheSweepGoesOnLater) {
  if (!fs::exists(SHARDSIM_EXECUTABLE)) GTEST_SKIP() << "the executable is not built";
  const std::string sweep = write_sweep(6000);
  ASSERT_EQ(wait(start(sweep, path("whole.csv"))), 0);
  const auto start_rank = [&](int rank) {
    return start(sweep, path("ranks.csv"), {"OMPI_COMM_WORLD_RANK=" + std::to_string(rank), "OMPI_COMM_WORLD_SIZE=3"});
  };
  // The others first: they look for rank 0 ten times a second, and one that came after its death would look for a minute.
  const std::array others{start_rank(1), start_rank(2)};
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const pid_t zero = start_rank(0);
  wait_for_rows();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ::kill(zero, SIGKILL);
  EXPECT_EQ(wait(zero), -SIGKILL);
  for (const pid_t other : others) EXPECT_EQ(wait(other), 3);
  ASSERT_FALSE(fs::exists(path("ranks.csv")));
  for (const pid_t rank : start_ranks(2, sweep, path("ranks.csv"))) EXPECT_EQ(wait(rank), 0);
  EXPECT_EQ(sorted_lines(path("whole.csv")), sorted_lines(path("ranks.csv")));
  EXPECT_EQ(files(), (std::vector<std::string>{"base.yaml", "ranks.csv", "sweep.yaml", "whole.csv"}));
}

TEST_F(SweepProcess, MpirunStartsTheSameCommand) {
  if (!fs::exists(SHARDSIM_EXECUTABLE)) GTEST_SKIP() << "the executable is not built";
  if (std::system("mpirun --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "mpirun is not installed";
  const std::string sweep = write_sweep(500);
  ASSERT_EQ(wait(start(sweep, path("whole.csv"))), 0);
  const Variables anywhere{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1",
                           "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"};
  EXPECT_EQ(wait(start(sweep, path("ranks.csv"), anywhere, {"mpirun", "-n", "3"})), 0);
  EXPECT_EQ(sorted_lines(path("whole.csv")), sorted_lines(path("ranks.csv")));
}

}  // namespace
}  // namespace shardsim
