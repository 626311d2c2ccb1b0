// SPDX-License-Identifier: Apache-2.0
// execute as users start it: reports in every form, and what happens when something goes wrong.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "command.hpp"
#include "laboratory.hpp"
#include "sim/config/node.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* tiny = SHARDSIM_SOURCE_DIR "/scenarios/execute/tiny.yaml";

class Execute : public testing::Test {
 protected:
  Execute() { fs::create_directories(folder); }
  ~Execute() override { fs::remove_all(folder); }

  static std::string line(const std::string& arguments, const std::string& environment = "") {
    return environment + " SHARDSIM_DATA=" SHARDSIM_SOURCE_DIR "/scenarios " SHARDSIM_EXECUTABLE " execute " + tiny + " " + arguments;
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder / name).string(); }
  [[nodiscard]] std::string content(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(folder / name).rdbuf();
    return text.str();
  }

  fs::path folder = fs::temp_directory_path() / ("shardsim-execute-test-" + std::to_string(getpid()));
};

TEST_F(Execute, WritesEveryStrategyIntoOnePage) {
  const auto ran = test::run_command(line("--ranks 2 --steps 2 --strategies ddp,zero3 --report " + path("cross-validation.html")));
  if (ran.output.find("Chart.js") != std::string::npos) GTEST_SKIP() << "the build found no Chart.js";
  ASSERT_EQ(ran.code, 0) << ran.output;
  const std::string page = content("cross-validation.html");
  for (const char* words :
       {"2 of 2", "Predicted and measured", "<td>ddp</td>", "<td>zero3</td>", "tcpi_bytes_acked", "Loss apart", "shardsim.execute/1"})
    EXPECT_THAT(page, HasSubstr(words));
}

TEST_F(Execute, JsonHoldsEachStrategysFigures) {
  ASSERT_EQ(test::run_command(line("--ranks 2 --strategies ddp,fsdp2 --set strategy.semantics=textbook --report " + path("r.json"))).code,
            0);
  const auto json = read_json(Source{"r.json", content("r.json")});
  ASSERT_TRUE(json);
  const std::vector<ConfigNode>& strategies = json->find("strategies")->items;
  ASSERT_EQ(strategies.size(), 2u);
  EXPECT_EQ(strategies[0].find("psi_units")->text, "4.0");                   // an all-reduce of two-byte gradients
  EXPECT_EQ(strategies[0].find("textbook_bytes_per_rank")->text, "213632");  // 2 * 2 B * 106,816 / 2
  EXPECT_EQ(strategies[1].find("textbook_bytes_per_rank")->text, "320448");  // 3 * 2 B * 106,816 / 2
  const ConfigNode& time = *strategies[0].find("step_time_s");
  EXPECT_GE(std::stod(time.find("predicted")->text), std::stod(time.find("predicted_with_overlap")->text));
}

// Predicted on a profile of this machine: the same order of magnitude, however busy it is. The scenario's H100 is a hundred times faster.
TEST_F(Execute, CalibratesTheMachineFirst) {
  const auto ran = test::run_command(line("--ranks 2 --calibrate 2 --steps 5 --report " + path("r.json")));
  ASSERT_EQ(ran.code, 0) << ran.output;
  const auto json = read_json(Source{"r.json", content("r.json")});
  EXPECT_EQ(json->find("calibrated")->text, "true");
  const ConfigNode& time = *json->find("strategies")->items.at(0).find("step_time_s");
  const double ratio = std::stod(time.find("measured")->text) / std::stod(time.find("predicted")->text);
  EXPECT_GT(ratio, 0.1);
  EXPECT_LT(ratio, 10);
  EXPECT_EQ(test::run_command(line("--ranks 2 --backend mpi --calibrate 2")).code, 3);  // no launcher, whatever else
}

// Failure --------------------------------------------------------------------------------------------------------------------------

TEST_F(Execute, AKilledRankEndsAllWithinTenSeconds) {
  const auto ran = test::run_command(line("--ranks 3 --report " + path("r.json"), "SHARDSIM_FAULT=kill:1:1"));
  EXPECT_EQ(ran.code, 3) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("rank 1 was killed by signal 9; the others were ended"));
  EXPECT_LT(ran.seconds, 10);
  EXPECT_TRUE(fs::is_empty(folder));  // neither a report nor half of one
}

TEST_F(Execute, AFlippedByteIsADisagreement) {
  const auto ran = test::run_command(line("--ranks 2", "SHARDSIM_FAULT=flip:1:5001"));
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("EXCEEDS"));
}

TEST_F(Execute, AFullDiskIsTold) {
  const auto ran = test::run_command(line("--ranks 2 --steps 1 --report /dev/full"));
  EXPECT_EQ(ran.code, 3) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("/dev/full"));
  EXPECT_THAT(ran.output, HasSubstr("No space left on device"));
}

TEST_F(Execute, NoRankOutlivesTheProgram) {
  const std::string report = path("r.json");
  // The program is killed while its ranks train; a second later nothing of that command line may be left.
  const auto ran = test::run_command(
      line("--ranks 3 --steps 10000 --report " + report) + " & pid=$!; sleep 1.5; kill -9 $pid; wait $pid 2>/dev/null; sleep 1; " +
      "for c in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $c 2>/dev/null | grep '^[^ ]*shardsim execute' | grep -F " + report +
      "; done; true");
  EXPECT_EQ(ran.output.find("shardsim execute"), std::string::npos) << ran.output;
  EXPECT_FALSE(fs::exists(report));
}

// Ranks listen on whatever port is free; where none is, they say so.
TEST_F(Execute, NoFreePortIsTold) {
  const test::Laboratory laboratory{.ranks = 1};
  if (const std::string why = test::laboratory_forbidden(); !why.empty()) GTEST_SKIP() << why;
  const std::string output = test::in_laboratory(laboratory, [&] {
    const auto ran =
        test::run_command("ip link set lo up; echo 40000 40001 > /proc/sys/net/ipv4/ip_local_port_range; " + line("--ranks 4 --steps 1"));
    return std::to_string(ran.code) + " " + std::to_string(ran.seconds) + " " + ran.output;
  });
  EXPECT_EQ(output.substr(0, 2), "3 ") << output;
  EXPECT_THAT(output, HasSubstr("Address already in use"));
}

}  // namespace
}  // namespace shardsim
