// SPDX-License-Identifier: Apache-2.0
// Logs, traces and topologies that were once misread without a word (tests/fixtures/failing): each gives what it says now.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/import/collective_samples.hpp"
#include "calibrate/import/kineto.hpp"
#include "calibrate/import/nccl_tests.hpp"

namespace shardsim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::string fixture(const std::string& name) { return SHARDSIM_SOURCE_DIR "/tests/fixtures/failing/" + name; }

NcclTestsLog log_of(const std::string& name) {
  const auto log = read_nccl_tests(*read_source(fixture(name)));
  EXPECT_TRUE(log) << log.error().text();
  return log ? *log : NcclTestsLog{};
}

/// Bus bandwidth of the largest size, GB/s.
double busbw(const CollectiveFit& fit) {
  const auto& last = fit.samples.back();
  return bus_factor(fit.collective, fit.ranks) * (last.size / last.median).base() / 1e9;
}

CollectiveFit only_fit(const NcclTestsLog& log) {
  CollectiveSamples samples;
  samples.add(log, "log");
  const auto fits = samples.fits();
  EXPECT_EQ(fits.size(), 1u);
  return fits.empty() ? CollectiveFit{} : fits.front();
}

TEST(FailingLogs, OneDeviceEntryAProcessStandsForAllItsGpus) {
  const CollectiveFit fit = only_fit(log_of("log_json_2x8.json"));
  EXPECT_EQ(fit.ranks, 16);
  EXPECT_EQ(fit.nodes, 2);
  EXPECT_NEAR(busbw(fit), 180, 1);
}

TEST(FailingLogs, OldTimesAreMilliseconds) {
  const NcclTestsLog log = log_of("log_2018_all_reduce_ms.txt");
  EXPECT_THAT(log.tables.front().assumptions, Contains(HasSubstr("milliseconds")));
  EXPECT_NEAR(busbw(only_fit(log)), 128.6, 0.5);
  const CollectiveFit gather = only_fit(log_of("log_2018_all_gather_ms.txt"));
  EXPECT_EQ(gather.collective, Collective::all_gather);
  EXPECT_NEAR(busbw(gather), 59.3, 0.5);
}

TEST(FailingLogs, CopiesWithoutMpiAreRunsOfOneNode) {
  const NcclTestsLog log = log_of("log_no_mpi_two_copies.txt");
  const CollectiveFit fit = only_fit(log);
  EXPECT_EQ(fit.ranks, 2);
  EXPECT_EQ(fit.nodes, 1);
  EXPECT_EQ(fit.samples.front().repetitions, 2);
  EXPECT_NEAR(busbw(fit), 10.9, 0.2);
  EXPECT_THAT(log.tables.front().assumptions, Contains(HasSubstr("2 copies")));
}

TEST(FailingLogs, SplitGroupsCrossNodes) {
  const CollectiveFit fit = only_fit(log_of("log_split_mod8_all_reduce.txt"));
  EXPECT_EQ(fit.ranks, 2);
  EXPECT_EQ(fit.nodes, 2);
  EXPECT_NEAR(busbw(fit), 47.5, 0.2);
  EXPECT_THAT(fit.origin, HasSubstr("8 groups at once"));
}

TEST(FailingLogs, RowsOfOneSideAreRead) {
  const CollectiveFit fit = only_fit(log_of("log_rccl_in_place_only_all_reduce.txt"));
  EXPECT_EQ(fit.ranks, 8);
  EXPECT_NEAR(busbw(fit), 309.7, 1);
}

constexpr const char* log_header =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";

std::string row(std::int64_t size, double us, const std::string& printed = "") {
  const double gbs = static_cast<double>(size) / us / 1e3;
  const std::string side = printed.empty() ? fmt::format("{:.2f} {:.2f} {:.2f} 0", us, gbs, gbs * 0.875) : printed;
  return fmt::format("{} {} float none -1 {} {}\n", size, size / 32, side, side);
}

TEST(FailingLogs, EveryRowThatIsNotUsedIsNamed) {
  std::string text = log_header + row(0, 1, "1.00 0.00 0.00 0") + row(1 << 20, 100);
  for (const char* missing : {"N/A N/A N/A N/A", "nan nan nan N/A", "-12.5 0.00 0.00 0"}) text += row(1 << 21, 1, missing);
  const auto log = read_nccl_tests({"all_gather.txt", text});
  ASSERT_TRUE(log) << log.error().text();
  std::string told;
  for (const Warning& warning : log->warnings) told += to_text(warning) + "\n";
  EXPECT_THAT(told, HasSubstr("3 of 5 rows are not used"));
  EXPECT_THAT(told, HasSubstr("2097152 B"));
  EXPECT_THAT(told, HasSubstr("1 of 5 rows are not used: their size is 0"));
}

TEST(FailingLogs, ATableWhoseRowsDisagreeByOneFactorIsRefused) {
  std::string text = log_header;
  for (std::int64_t size = 1 << 20; size <= 1 << 28; size *= 4) {
    const double us = 10 + static_cast<double>(size) / 1e5, gbs = static_cast<double>(size) / us / 1e3 * 8;  // gigabits, say
    text += row(size, 1, fmt::format("{:.2f} {:.2f} {:.2f} 0", us, gbs, gbs * 0.875));
  }
  const auto log = read_nccl_tests({"all_gather.txt", text});
  ASSERT_FALSE(log);
  EXPECT_THAT(log.error().text(), HasSubstr("every printed bandwidth is 8 times what size and time give"));
}

TEST(FailingLogs, LinesOfNcclTellTheNodesWhereNoDeviceListDoes) {
  const std::string info = "node1:100:200 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 0\n";
  const auto told = read_nccl_tests({"all_gather.txt", info + log_header + row(1 << 20, 100)});
  ASSERT_TRUE(told) << told.error().text();
  EXPECT_EQ(told->tables.front().nodes, 2);
  const std::string hosts = "node1:1:2 [0] NCCL INFO Bootstrap\nnode2:1:2 [0] NCCL INFO Bootstrap\n";
  EXPECT_EQ(read_nccl_tests({"all_gather.txt", hosts + log_header + row(1 << 20, 100)})->tables.front().nodes, 2);
  const std::string channel = "node1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/OFI/0/GDRDMA\n";
  const auto open = read_nccl_tests({"all_gather.txt", channel + log_header + row(1 << 20, 100)});
  ASSERT_FALSE(open);
  EXPECT_THAT(open.error().text(), HasSubstr("give --nodes"));
  // Nothing at all: a guess, and it is said.
  const auto guess = read_nccl_tests({"all_gather.txt", log_header + row(1 << 20, 100)});
  ASSERT_TRUE(guess) << guess.error().text();
  EXPECT_THAT(to_text(guess->warnings.front()), HasSubstr("does not say on how many nodes"));
}

TEST(FailingLogs, LabelsOfLaunchersAndCollectorsAreTakenOff) {
  for (const char* label : {"gpu-node-01: ", "2024-05-01T12:00:00.123Z ", "[pod/nccl-0/main] ", "[1,mpirank:0,algo-1]<stdout>:", " 3: "}) {
    const auto log = read_nccl_tests({"all_gather.txt", label + std::string(log_header) + label + row(1 << 20, 100)});
    ASSERT_TRUE(log) << label << log.error().text();
    EXPECT_EQ(log->tables.front().rows.front().size, mebibytes(1)) << label;
  }
}

TEST(FailingTraces, GroupRanksTellTheNodes) {
  const auto trace = read_kineto(*read_source(fixture("trace_hsdp_2x8.json")));
  ASSERT_TRUE(trace) << trace.error().text();
  bool replicate = false;
  for (const CollectiveFit& fit : samples_of(*trace, "trace").fits()) {
    EXPECT_EQ(fit.nodes, fit.ranks == 2 ? 2 : 1);
    if (fit.ranks != 2) continue;
    replicate = true;
    EXPECT_NEAR(busbw(fit), 42.7, 0.2);
  }
  EXPECT_TRUE(replicate);
}

TEST(FailingTraces, AllToAllsArePairedWithTheirAnnotations) {
  const auto trace = read_kineto(*read_source(fixture("trace_alltoall_then_allreduce.json")));
  ASSERT_TRUE(trace) << trace.error().text();
  const auto count = [&](Collective c) {
    return std::ranges::count_if(trace->collectives, [&](const auto& call) { return call.group.collective == c; });
  };
  EXPECT_EQ(count(Collective::all_reduce), 6);
  EXPECT_EQ(count(Collective::all_to_all), 6);
}

}  // namespace
}  // namespace shardsim
