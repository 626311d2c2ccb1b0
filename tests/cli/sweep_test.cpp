// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
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
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "cli/progress.hpp"
#include "sim/base/problem.hpp"
#include "studies/sweep/run.hpp"

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
  EXPECT_EQ(rows.row(0).line, "0,1,,8");
  const std::string bad = rows.row(1).line;
  EXPECT_TRUE(bad.starts_with("1,-1,")) << bad;
  EXPECT_TRUE(bad.ends_with(",")) << bad;
  EXPECT_EQ(SweepRows(*plan, RowFormat::json_lines).row(0).line,
            R"({"index":0,"set":{"training.micro_batch_size":"1"},"error":null,"result":{"world_size":8}})");
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
    EXPECT_EQ(shared.row(row).line, SweepRows(*plan, RowFormat::json_lines).row(row).line);
  }
  for (std::uint64_t row = 0; row < plan->size; ++row)  // whatever came before
    EXPECT_EQ(shared.row(row).line, SweepRows(*plan, RowFormat::json_lines).row(row).line);
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
  EXPECT_TRUE(SweepRows(simple, RowFormat::csv).row(0).line.starts_with("0,1,,pools,"));
  EXPECT_NE(fingerprint(simple), fingerprint(plan("columns: [memory.reserved_peak_bytes]\n")));
}

class SweepRunTest : public SweepTest {
 protected:
  static constexpr std::uint64_t rows = 20;
  SweepPlan plan(const std::string& more = "") {
    write("base.yaml", base_text);
    const auto plan = load_sweep(write("sweep.yaml",
                                       "base: base.yaml\ngrid:\n  training.sequence_length: [16, 32, 48, 64, 80]\n"
                                       "  training.micro_batch_size: [1, -1, 2, 3]\ncolumns: [world_size, step.time_s]\n" +
                                           more),
                                 simulate_columns());
    EXPECT_TRUE(plan.has_value()) << plan.error().text();
    return *plan;
  }
  SweepOutcome run(const SweepPlan& plan, const std::string& output, const Shard& shard = {}, unsigned threads = 2) {
    SweepRun sweep(plan, path(output), output.ends_with(".csv") ? RowFormat::csv : RowFormat::json_lines, shard);
    notes_ = sweep.notes();
    sweep.simulate(threads, [] {});
    return sweep.finish();
  }
  /// What one process that nothing interrupts writes.
  std::string whole(const SweepPlan& plan, const std::string& output) {
    EXPECT_TRUE(run(plan, output, {}, 1).table);
    std::string text = read(path(output));
    fs::remove(path(output));
    return text;
  }
  [[nodiscard]] std::vector<std::string> parts() const {
    std::vector<std::string> found;
    for (const std::string& name : files())
      if (name.ends_with(".part")) found.push_back(name);
    return found;
  }
  std::vector<std::string> notes_;
};

TEST_F(SweepRunTest, TheTableIsTheSameForEveryNumberOfShardsAndThreads) {
  const SweepPlan plan = this->plan();
  for (const std::string output : {"out.csv", "out.jsonl"}) {
    const std::string expected = whole(plan, output);
    for (const std::uint64_t shards : {1, 2, 3, 7, 40})
      for (const unsigned threads : {1U, 3U}) {
        for (std::uint64_t i = shards; i-- > 0;) {
          EXPECT_FALSE(fs::exists(path(output)));
          EXPECT_EQ(run(plan, output, {i, shards}, threads).table, i == 0);
        }
        EXPECT_EQ(read(path(output)), expected) << shards << " shards";
        EXPECT_EQ(parts().size(), 0U);
        fs::remove(path(output));
      }
  }
}

TEST_F(SweepRunTest, RowsThatCannotRunAreCounted) {
  for (const std::string output : {"out.csv", "out.jsonl"}) {
    const SweepOutcome outcome = run(plan(), output);
    EXPECT_EQ(outcome.failed.count, 5U);
    EXPECT_EQ(row_number(outcome.failed.first), 1);
    EXPECT_NE(read(path(output)).find(outcome.failed.first + "\n"), std::string::npos);
  }
}

TEST_F(SweepRunTest, MissingShardsAreMergedWhenTheyAreThere) {
  const SweepPlan plan = this->plan();
  const std::string expected = whole(plan, "out.csv");
  EXPECT_FALSE(run(plan, "out.csv", {0, 2}).table);
  const SweepOutcome early = merge_sweep(plan, path("out.csv"), RowFormat::csv);
  EXPECT_FALSE(early.table);
  EXPECT_EQ(early.rows, 10U);
  // The journal of another process, hidden until both have ended: neither saw all rows.
  const std::string hidden = parts().front();
  fs::rename(path(hidden), path("hidden"));
  EXPECT_FALSE(run(plan, "out.csv", {1, 2}).table);
  fs::rename(path("hidden"), path(hidden));
  EXPECT_TRUE(merge_sweep(plan, path("out.csv"), RowFormat::csv).table);
  EXPECT_EQ(read(path("out.csv")), expected);
  EXPECT_TRUE(merge_sweep(plan, path("out.csv"), RowFormat::csv).table);  // done already
  std::ofstream(path("out.csv"), std::ios::app) << "more\n";
  EXPECT_FALSE(merge_sweep(plan, path("out.csv"), RowFormat::csv).table);
}

TEST_F(SweepRunTest, AnInterruptedSweepGoesOnWithAnotherNumberOfShards) {
  const SweepPlan plan = this->plan();
  const std::string expected = whole(plan, "out.csv");
  EXPECT_FALSE(run(plan, "out.csv", {2, 3}).table);
  SweepRun rest(plan, path("out.csv"), RowFormat::csv, {});
  EXPECT_GT(rest.done_before(), 3U);
  rest.simulate(1, [] {});
  EXPECT_TRUE(rest.finish().table);
  EXPECT_EQ(read(path("out.csv")), expected);
  EXPECT_EQ(parts().size(), 0U);
}

TEST_F(SweepRunTest, ADamagedJournalCostsTheRowsOfItsDamagedLines) {
  const SweepPlan plan = this->plan();
  const std::string expected = whole(plan, "out.csv");
  EXPECT_FALSE(run(plan, "out.csv", {0, 2}).table);
  const std::string part = path(parts().front()), good = read(part);
  std::mt19937 random(20260102);
  for (int i = 0; i < 40; ++i) {
    std::string damaged = good;
    const std::size_t at = std::uniform_int_distribution<std::size_t>(good.find('\n') + 1, good.size() - 1)(random);
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::ofstream(part, std::ios::binary) << damaged;
    EXPECT_TRUE(run(plan, "out.csv").table);
    EXPECT_EQ(read(path("out.csv")), expected) << "byte " << at;
    fs::remove(path("out.csv"));
  }
}

TEST_F(SweepRunTest, WhateverTheRowsReadIsInTheFingerprint) {
  fs::copy_file(fs::path(SHARDSIM_SOURCE_DIR) / "scenarios/clusters/h100-sxm.yaml", folder_ / "p.yaml");
  const auto number = [&] { return fingerprint(plan("set: {cluster.profile: p.yaml}\n")); };
  const std::uint64_t before = number();
  EXPECT_EQ(number(), before);
  std::string profile = read(path("p.yaml"));
  profile.replace(profile.find("memory_bandwidth: 3"), 19, "memory_bandwidth: 2");
  write("p.yaml", profile);
  EXPECT_NE(number(), before);
  EXPECT_THAT(plan("set: {cluster.profile: p.yaml}\n").inputs, testing::Contains(testing::EndsWith("/p.yaml")));
}

TEST_F(SweepRunTest, RowsOfAnotherSweepAreNamedAndNotUsed) {
  EXPECT_FALSE(run(plan(), "out.csv", {0, 2}).table);
  const SweepPlan other = plan("set: {training.gradient_accumulation_steps: 2}\n");
  EXPECT_TRUE(run(other, "out.csv").table);
  ASSERT_EQ(notes_.size(), 1U);
  EXPECT_NE(notes_.front().find("1-of-2.part holds rows of a sweep that was not this one"), std::string::npos) << notes_.front();
}

TEST(SweepShard, IsWrittenAsIOfN) {
  EXPECT_EQ(parse_shard("2/16").index, 1U);
  EXPECT_EQ(parse_shard("2/16").count, 16U);
  for (const char* bad : {"", "2", "0/3", "4/3", "2/", "/3", "2/3x", "-1/3", "2/0", "1/99999999999", " 1/2"})
    EXPECT_THROW((void)parse_shard(bad), InputError) << bad;
}

TEST(SweepShard, RanksAndTasksMultiply) {
  const auto shard = [](std::map<std::string, std::string> variables) {
    const Shard found = shard_of([&](std::string_view name) -> std::optional<std::string> {
      const auto at = variables.find(std::string(name));
      return at == variables.end() ? std::nullopt : std::optional(at->second);
    });
    return std::pair(found.index, found.count);
  };
  using Pair = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(shard({}), Pair(0, 1));
  EXPECT_EQ(shard({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}}), Pair(0, 1));  // a batch script without srun
  EXPECT_EQ(shard({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}}), Pair(3, 8));
  EXPECT_EQ(shard({{"SLURM_ARRAY_TASK_ID", "2"},
                   {"SLURM_ARRAY_TASK_COUNT", "3"},
                   {"SLURM_ARRAY_TASK_MIN", "1"},
                   {"SLURM_ARRAY_TASK_MAX", "3"},
                   {"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "4"}}),
            Pair(5, 12));
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
  EXPECT_EQ(read(path("whole.csv")), read(path("killed.csv")));
  EXPECT_EQ(std::ranges::count(read(path("whole.csv")), '\n'), 15001);
  EXPECT_EQ(files(), (std::vector<std::string>{"base.yaml", "killed.csv", "sweep.yaml", "whole.csv"}));
}

TEST_F(SweepProcess, RanksOfALauncherWriteOneTable) {
  if (!fs::exists(SHARDSIM_EXECUTABLE)) GTEST_SKIP() << "the executable is not built";
  const std::string sweep = write_sweep(1000);
  ASSERT_EQ(wait(start(sweep, path("whole.csv"))), 0);
  for (const pid_t rank : start_ranks(3, sweep, path("ranks.csv"))) EXPECT_EQ(wait(rank), 0);
  if (!fs::exists(path("ranks.csv"))) { ASSERT_EQ(wait(start(sweep, path("ranks.csv"))), 0); }  // none of them saw the rows of all
  EXPECT_EQ(read(path("whole.csv")), read(path("ranks.csv")));
  EXPECT_EQ(files(), (std::vector<std::string>{"base.yaml", "ranks.csv", "sweep.yaml", "whole.csv"}));
}

TEST_F(SweepProcess, ARankThatDiesLeavesItsRowsAndTheSameCommandGoesOn) {
  if (!fs::exists(SHARDSIM_EXECUTABLE)) GTEST_SKIP() << "the executable is not built";
  const std::string sweep = write_sweep(3000);
  ASSERT_EQ(wait(start(sweep, path("whole.csv"))), 0);
  const auto ranks = start_ranks(2, sweep, path("ranks.csv"));
  wait_for_rows();
  ::kill(ranks[0], SIGKILL);
  EXPECT_EQ(wait(ranks[0]), -SIGKILL);
  EXPECT_EQ(wait(ranks[1]), 0);
  EXPECT_FALSE(fs::exists(path("ranks.csv")));
  for (const pid_t rank : start_ranks(3, sweep, path("ranks.csv"))) EXPECT_EQ(wait(rank), 0);  // of another number
  if (!fs::exists(path("ranks.csv"))) { ASSERT_EQ(wait(start(sweep, path("ranks.csv"))), 0); }
  EXPECT_EQ(read(path("whole.csv")), read(path("ranks.csv")));
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
  if (!fs::exists(path("ranks.csv"))) { ASSERT_EQ(wait(start(sweep, path("ranks.csv"))), 0); }
  EXPECT_EQ(read(path("whole.csv")), read(path("ranks.csv")));
}

}  // namespace
}  // namespace shardsim
