// SPDX-License-Identifier: Apache-2.0
// Strategies on links of a set bandwidth: the kernel's interface counters as a second witness of the bytes, and, as a recorded benchmark
// (SHARDSIM_BENCHMARK=1), predicted against measured times. Skipped by name where user namespaces or tc are forbidden.
#include "laboratory.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "calibrate/fit/statistics.hpp"
#include "calibrate/measure/local.hpp"
#include "studies/execute/execution_job.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

constexpr int timed_steps = 30;
constexpr const char* all = "naive_dp ddp zero1 zero2 zero3 fsdp1 fsdp2 hsdp";

/// The shipped scenario of execute with another strategy; "hsdp": FSDP2 with two replicas.
Scenario scenario_of(const std::string& strategy, int ranks, const std::vector<std::string>& more = {}) {
  setenv("SHARDSIM_DATA", SHARDSIM_SOURCE_DIR "/scenarios", 1);
  std::vector<std::string> overrides{"strategy={name: " + (strategy == "hsdp" ? "fsdp2, replicate: 2" : strategy) + "}",
                                     "cluster.gpus_per_node=" + std::to_string(ranks)};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return value_or_throw(load_scenario(SHARDSIM_SOURCE_DIR "/scenarios/execute/tiny.yaml", overrides));
}

class LaboratoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = test::laboratory_forbidden(); !why.empty()) GTEST_SKIP() << why;
  }
};

std::int64_t sum(const std::vector<Bytes>& values) {
  std::int64_t total = 0;
  for (Bytes b : values) total += b.value();
  return total;
}

// Headers, acknowledgements and handshakes come on top of the payload: some hundredths for messages of some kilobytes.
TEST_F(LaboratoryTest, InterfacesCarryTheMeasuredBytes) {
  const test::Laboratory laboratory{.ranks = 4, .rate = "1gbit"};
  std::istringstream strategies(all);
  for (std::string strategy; strategies >> strategy;) {
    const std::string text = test::in_laboratory(laboratory, [&] {
      execute::LocalPlatform platform;
      const auto before = laboratory.sent_bytes();
      const Execution e = execute_scenario(platform, scenario_of(strategy, 4), {.steps = 2, .network = laboratory.network()});
      const auto after = laboratory.sent_bytes();
      std::int64_t carried = 0;
      for (std::size_t r = 0; r < after.size(); ++r) carried += after[r] - before[r];
      return fmt::format("{} {} {}", e.agree() ? "agree" : "differ", sum(e.result.sent.measured) + sum(e.result.control.measured), carried);
    });
    std::istringstream words(text);
    std::string verdict;
    double measured = 0, carried = 0;
    words >> verdict >> measured >> carried;
    EXPECT_EQ(verdict, "agree") << strategy;
    EXPECT_GT(measured, 1e6) << strategy;
    EXPECT_GT(carried / measured, 1.0) << strategy;
    EXPECT_LT(carried / measured, 1.1) << strategy;  // scalars and acknowledgements travel in packets of their own
  }
}

TEST_F(LaboratoryTest, ALinkThatIsDownIsTold) {
  const test::Laboratory laboratory{.ranks = 2};
  const std::string text = test::in_laboratory(laboratory, [&] {
    if (test::run_command("ip link set v1 down").code != 0) return std::string("cannot take the link down");
    execute::LocalPlatform platform;
    execute::MeshOptions network = laboratory.network();
    network.connect_timeout = std::chrono::milliseconds(500);
    try {
      (void)execute_scenario(platform, scenario_of("ddp", 2), {.steps = 1, .network = network});
    } catch (const EnvironmentError& error) { return std::string(error.what()); }
    return std::string("no error");
  });
  EXPECT_TRUE(text.find("rank") != std::string::npos &&
              (text.find("did not connect in time") != std::string::npos || text.find("cannot connect") != std::string::npos))
      << text;
}

// Times ----------------------------------------------------------------------------------------------------------------------------

/// No more ranks than cores, or they would wait for each other's compute.
int timed_ranks() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 2, 4); }

Profile calibrated(const test::Laboratory& laboratory) {
  LocalOptions options{.ranks = laboratory.ranks, .budget = Seconds{24}, .network = laboratory.network()};
  options.rings.largest = mebibytes(1);
  return calibrate_local(options, [](double, const std::string&) {});
}

/// The median time of a collective, the slowest rank's.
double measured_seconds(const test::Laboratory& laboratory, Collective kind, Bytes size) {
  execute::LocalPlatform platform;
  const auto texts = platform.run(laboratory.ranks, [&](int rank, execute::Line& line) {
    const auto backend = platform.open(rank, laboratory.ranks, line, laboratory.network());
    std::vector<std::byte> buffer(static_cast<std::size_t>(size.value()));
    std::vector<double> times;
    for (int i = 0; i < 7; ++i) {
      line.barrier();
      const auto begin = std::chrono::steady_clock::now();
      backend->traffic().run(execute::members_of(Group{"world", laboratory.ranks, 1}, rank), {.kind = kind, .full = buffer});
      double slowest = 0;
      for (const std::string& text :
           line.gather(fmt::format("{}", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count())))
        slowest = std::max(slowest, std::stod(text));
      times.push_back(slowest);
    }
    return fmt::format("{}", median(times));
  });
  return std::stod(texts[0]);
}

std::string collectives_report(const test::Laboratory& laboratory, const Profile& profile) {
  const CostModel costs(Cluster{.profile = profile, .nodes = 1, .gpus_per_node = laboratory.ranks});
  std::string report;
  for (Collective kind : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
    for (std::int64_t kib : {96, 448, 896, 2048}) {  // the last lies beyond what was calibrated
      const double predicted = costs.collective(kind, kibibytes(kib), Group{"world", laboratory.ranks, 1}).time.seconds().base();
      const double measured = measured_seconds(laboratory, kind, kibibytes(kib));
      report += fmt::format("{} {} KiB: predicted {:.2f} ms, measured {:.2f} ms, {:+.1f} %\n", name_of(kind), kib, 1e3 * predicted,
                            1e3 * measured, 100 * (measured / predicted - 1));
    }
  return report;
}

/// fp32 and few tokens: a step whose bytes weigh more than its arithmetic, so that the link decides.
Scenario timed_scenario(const std::string& strategy, int ranks) {
  return scenario_of(strategy, ranks, {"training.precision=fp32", "training.micro_batch_size=1", "training.sequence_length=8"});
}

/// The fastest of the steps: whatever else runs on the machine only adds.
double fastest_step(const Execution& e) { return *std::ranges::min_element(e.result.step_seconds); }

std::string steps_report(const test::Laboratory& laboratory, const Profile& profile) {
  std::string report;
  std::istringstream strategies(all);
  for (std::string strategy; strategies >> strategy;) {
    if (strategy == "hsdp" && laboratory.ranks != 4) continue;
    const Scenario together = on_this_machine(
        timed_scenario(strategy, laboratory.ranks), profile, [](const Execution& e) { return Seconds{fastest_step(e)}; }, timed_steps);
    execute::LocalPlatform platform;
    const Execution e = execute_scenario(platform, together, {.steps = timed_steps, .network = laboratory.network()});
    const double predicted = e.predicted_step.base(), measured = fastest_step(e);
    report += fmt::format("{}: predicted {:.2f} ms, measured {:.2f} ms, {}, {:+.1f} %\n", strategy, 1e3 * predicted, 1e3 * measured,
                          e.agree() ? "agree" : "DIFFER", 100 * (measured / predicted - 1));
  }
  return report;
}

// Each line of a report ends in its difference in per cent.
void expect_within(const std::string& report, double percent) {
  std::istringstream lines(report);
  for (std::string line; std::getline(lines, line);) {
    const auto sign = line.find_last_of("+-");
    ASSERT_NE(sign, std::string::npos) << line;
    EXPECT_LE(std::abs(std::strtod(line.c_str() + sign, nullptr)), percent) << line;
    EXPECT_EQ(line.find("DIFFER"), std::string::npos) << line;
  }
}

TEST_F(LaboratoryTest, TimesAreThePredicted) {
  if (std::getenv("SHARDSIM_BENCHMARK") == nullptr) GTEST_SKIP() << "a benchmark: set SHARDSIM_BENCHMARK=1 on a quiet machine";
  const test::Laboratory laboratory{.ranks = timed_ranks()};
  const std::string both = test::in_laboratory(laboratory, [&] {
    const Profile profile = calibrated(laboratory);
    return collectives_report(laboratory, profile) + "|" + steps_report(laboratory, profile);
  });
  const auto split = both.find('|');
  std::fputs((both.substr(0, split) + both.substr(split + 1)).c_str(), stdout);
  expect_within(both.substr(0, split), 12);
  expect_within(both.substr(split + 1), 15);
}

}  // namespace
}  // namespace shardsim
