// SPDX-License-Identifier: Apache-2.0
// execute and calibrate under mpirun, as processes of their own. Skipped by name without OpenMPI.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "command.hpp"
#include "laboratory.hpp"
#include "sim/config/node.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* tiny_job = SHARDSIM_SOURCE_DIR "/scenarios/execute/tiny.yaml";

class Mpi : public testing::Test {
 protected:
  Mpi() { fs::create_directories(folder); }
  ~Mpi() override { fs::remove_all(folder); }

  void SetUp() override {
    if (test::run_command("command -v mpirun").code != 0) GTEST_SKIP() << "there is no mpirun";
    const std::string alone = shardsim("execute " + std::string(tiny_job) + " --backend mpi").output;
    if (alone.find("has no MPI") != std::string::npos) GTEST_SKIP() << "this build has no MPI";
  }

  test::CommandResult shardsim(const std::string& arguments) const {
    return test::run_command("SHARDSIM_DATA=" SHARDSIM_SOURCE_DIR "/scenarios " SHARDSIM_EXECUTABLE " " + arguments);
  }
  /// With standard output in a file, for mpirun says much on standard error. Leaks are OpenMPI's own.
  test::CommandResult mpirun(int n, const std::string& arguments, const std::string& environment = "") const {
    return test::run_command(
        environment +
        " ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 SHARDSIM_DATA=" SHARDSIM_SOURCE_DIR
        "/scenarios timeout 120 mpirun --oversubscribe -n " +
        std::to_string(n) + " " SHARDSIM_EXECUTABLE " " + arguments);
  }
  [[nodiscard]] ConfigNode json(const std::string& file) const { return *read_json(*read_source((folder / file).string())); }

  fs::path folder = fs::temp_directory_path() / ("shardsim-mpi-test-" + std::to_string(getpid()));
};

std::vector<std::int64_t> numbers(const ConfigNode& list) {
  std::vector<std::int64_t> values;
  for (const ConfigNode& item : list.items) values.push_back(std::stoll(item.text));
  return values;
}

TEST_F(Mpi, WithoutALauncherSaysHowToStart) {
  for (const char* command : {"execute %s --backend mpi", "calibrate mpi -o -"}) {
    std::string line = command;
    if (const auto at = line.find("%s"); at != std::string::npos) line.replace(at, 2, tiny_job);
    const auto ran = shardsim(line);
    EXPECT_EQ(ran.code, 3) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("mpirun -n 4 shardsim"));
  }
}

// Every byte of every strategy, with uneven segments too, as OpenMPI's monitoring component saw them.
class MpiRanks : public Mpi, public testing::WithParamInterface<int> {};

TEST_P(MpiRanks, SendWhatIsPredicted) {
  for (const char* semantics : {"framework", "textbook"}) {
    const std::string report = (folder / "r.json").string();
    const auto ran = mpirun(GetParam(), std::string("execute ") + tiny_job +
                                            " --backend mpi --steps 2 --strategies naive_dp,ddp,zero1,zero2,zero3,fsdp1,fsdp2 --report " +
                                            report + " --set strategy.semantics=" + semantics);
    ASSERT_EQ(ran.code, 0) << ran.output;
    const ConfigNode result = json("r.json");
    EXPECT_EQ(result.find("backend")->text, "mpi");
    EXPECT_EQ(result.find("strategies")->items.size(), 7u);
    for (const ConfigNode& strategy : result.find("strategies")->items) {
      const ConfigNode& sent = *strategy.find("sent_bytes");
      EXPECT_THAT(sent.find("counted_by")->text, HasSubstr("OpenMPI"));
      EXPECT_EQ(numbers(*sent.find("measured")), numbers(*sent.find("predicted"))) << strategy.find("strategy")->text;
      EXPECT_EQ(numbers(*sent.find("measured")).size(), static_cast<std::size_t>(GetParam()));
      EXPECT_EQ(strategy.find("agree")->text, "true");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Count, MpiRanks, testing::Values(2, 3, 4));

TEST_F(Mpi, ReplicatedShardsHaveCommunicatorsOfTheirOwn) {
  const auto ran = mpirun(4, std::string("execute ") + tiny_job + " --backend mpi --set 'strategy={name: fsdp2, replicate: 2}'");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("fsdp2"));
}

TEST_F(Mpi, AWrongByteOnTheWireIsFound) {
  const auto ran = mpirun(2, std::string("execute ") + tiny_job + " --backend mpi", "SHARDSIM_FAULT=flip:1:5001");
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("EXCEEDS"));
}

TEST_F(Mpi, AKilledRankEndsTheJobAndLeavesNoReport) {
  const std::string report = (folder / "r.json").string();
  const auto ran = mpirun(3, std::string("execute ") + tiny_job + " --backend mpi --report " + report, "SHARDSIM_FAULT=kill:1:1");
  EXPECT_NE(ran.code, 0);
  EXPECT_LT(ran.seconds, 30);  // about 3 on a quiet machine; mpirun itself waits for what it ends
  EXPECT_THAT(ran.output, HasSubstr("rank 1"));
  EXPECT_FALSE(fs::exists(report));
}

TEST_F(Mpi, WrongInputIsToldOnce) {
  const auto ran = mpirun(3, "execute nothing.yaml --backend mpi");
  EXPECT_EQ(ran.code, 2);
  const auto first = ran.output.find("cannot read the file");
  ASSERT_NE(first, std::string::npos) << ran.output;
  EXPECT_EQ(ran.output.find("cannot read the file", first + 1), std::string::npos);
}

TEST_F(Mpi, OtherRanksThanTheLaunchersAreRefused) {
  const auto ran = mpirun(2, std::string("execute ") + tiny_job + " --backend mpi --ranks 3");
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.output, HasSubstr("3 ranks are asked for, but the launcher started 2"));
}

/// Starts `arguments` in the laboratory that this process is in, each rank on a "host" of its own: mpirun reaches a namespace as it would a
/// machine.
test::CommandResult mpirun_on_hosts(const test::Laboratory& laboratory, const std::string& arguments) {
  std::ofstream("/run/agent.sh") << "#!/bin/sh\n"
                                    "host=$1; shift\n"
                                    "space=rk$((${host##*.} - 10))\n"
                                    "exec ip netns exec $space unshare -u sh -c \"hostname $space; $*\"\n";
  std::string hosts;
  for (const std::string& peer : laboratory.network().peers) hosts += (hosts.empty() ? "" : ",") + peer + ":1";
  return test::run_command(
      "chmod +x /run/agent.sh && ip link set lo up && ip addr add 10.77.0.1/24 dev lab; "
      "ASAN_OPTIONS=detect_leaks=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 SHARDSIM_DATA=" SHARDSIM_SOURCE_DIR
      "/scenarios timeout 120 mpirun -np " +
      std::to_string(laboratory.ranks) + " --host " + hosts +
      " --mca plm_rsh_agent /run/agent.sh --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.77.0.0/24 --mca btl tcp,self "
      "--mca btl_tcp_if_include 10.77.0.0/24 --bind-to none -x SHARDSIM_DATA " SHARDSIM_EXECUTABLE " " +
      arguments);
}

TEST_F(Mpi, SeveralHosts) {
  const test::Laboratory laboratory{.ranks = 3, .rate = "1gbit"};
  if (const std::string why = test::laboratory_forbidden(); !why.empty()) GTEST_SKIP() << why;
  const std::string report = (folder / "r.json").string(), profile = (folder / "p.yaml").string();
  const std::string carried = test::in_laboratory(laboratory, [&] {
    const auto before = laboratory.sent_bytes();
    const auto ran = mpirun_on_hosts(laboratory, std::string("execute ") + tiny_job + " --backend mpi --steps 6 --report " + report);
    const auto after = laboratory.sent_bytes();
    if (ran.code != 0) return "execute: " + ran.output;
    if (const auto calibrated = mpirun_on_hosts(laboratory, "calibrate mpi --seconds 1 -o " + profile); calibrated.code != 0)
      return "calibrate: " + calibrated.output;
    std::string text;
    for (std::size_t r = 0; r < after.size(); ++r) text += std::to_string(after[r] - before[r]) + " ";
    return text;
  });
  std::istringstream on_links(carried);
  const ConfigNode result = json("r.json");
  for (const std::int64_t sent : numbers(*result.find("strategies")->items.at(0).find("sent_bytes")->find("measured"))) {
    double bytes = 0;
    ASSERT_TRUE(on_links >> bytes) << carried;
    EXPECT_GT(bytes / static_cast<double>(sent), 1.0);
    EXPECT_LT(bytes / static_cast<double>(sent), 1.15);  // headers, scalars, barriers and what mpirun says to its ranks
  }
  const auto read = read_profile(*read_yaml(*read_source(profile)));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->collectives.front().nodes, 3);
  EXPECT_EQ(read->node.gpus, 1);
}

TEST_F(Mpi, CalibrateWritesAProfile) {
  const std::string file = (folder / "p.yaml").string();
  const auto ran = mpirun(2, "calibrate mpi --seconds 2 -o " + file);
  ASSERT_EQ(ran.code, 0) << ran.output;
  const auto profile = read_profile(*read_yaml(*read_source(file)));
  ASSERT_TRUE(profile) << profile.error().text();
  ASSERT_EQ(profile->collectives.size(), 4u);
  for (const CollectiveFit& fit : profile->collectives) {
    EXPECT_EQ(fit.ranks, 2);
    EXPECT_EQ(fit.nodes, 1);
    EXPECT_EQ(fit.algorithm, "ring");
    EXPECT_THAT(fit.origin, HasSubstr("calibrate mpi"));
    EXPECT_LE(fit.samples.front().min, fit.samples.front().p90);
  }
  EXPECT_GT(profile->gpu.memory_bandwidth, ByteRate{1e8});
}

}  // namespace
}  // namespace shardsim
