// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/nccl_tests.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardsim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

NcclTestsLog read(const std::string& text, const std::string& name = "log.txt", const NcclTestsFacts& facts = {}) {
  auto log = read_nccl_tests(Source{name, text}, facts);
  EXPECT_TRUE(log) << log.error().text();
  return log ? *log : NcclTestsLog{};
}

std::string problems_of(const std::string& text, const std::string& name = "log.txt") {
  const auto log = read_nccl_tests(Source{name, text});
  return log ? "" : log.error().text();
}

constexpr const char* new_header =
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";

TEST(NcclTests, ReadsTheLayoutOfToday) {
  const NcclTestsLog log =
      read(std::string("# nccl-tests version 2.17.9 nccl-headers=22903 nccl-library=22903\n"
                       "# Collective test starting: all_reduce_perf\n"
                       "#  Rank  0 Group  0 Pid   10 on     host-a device  0 [0000:0f:00] NVIDIA H200\n"
                       "#  Rank  1 Group  0 Pid   11 on     host-b device  0 [0000:0f:00] NVIDIA H200\n") +
           new_header +
           "     1048576        262144     float     sum      -1    100.0   10.49   10.49      0    99.00   10.59   10.59    N/A\n"
           "# Avg bus bandwidth    : 10.5\n");
  ASSERT_THAT(log.tables, SizeIs(1));
  const NcclTestsTable& table = log.tables[0];
  EXPECT_EQ(table.collective, Collective::all_reduce);
  EXPECT_EQ(table.ranks, 2);
  EXPECT_EQ(table.nodes, 2);
  EXPECT_EQ(table.gpu, "NVIDIA H200");
  EXPECT_EQ(table.nccl_version, "2.29.3");
  EXPECT_TRUE(table.consistent);
  EXPECT_FALSE(table.one_device);
  ASSERT_THAT(table.rows, SizeIs(1));
  EXPECT_EQ(table.rows[0].size, mebibytes(1));
  EXPECT_NEAR(table.rows[0].out_of_place.time->base(), 100e-6, 1e-15);
  EXPECT_NEAR(table.rows[0].in_place.time->base(), 99e-6, 1e-15);
  EXPECT_TRUE(log.warnings.empty());
}

TEST(NcclTests, ReadsTheOldErrorColumnsWithAndWithoutReduction) {
  const std::string devices = "#   Rank  0 Pid 1 on  n0 device  0 [0x00] A100\n#   Rank  1 Pid 1 on  n0 device  1 [0x00] A100\n";
  const NcclTestsLog reduce = read(devices +
                                       "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"
                                       "  2097152  262144  float  sum  100.0  20.97  10.49  4e-07  100.0  20.97  10.49  4e-07\n",
                                   "reduce_scatter.log");
  EXPECT_EQ(reduce.tables[0].collective, Collective::reduce_scatter);
  EXPECT_EQ(reduce.tables[0].rows[0].reduction, "sum");
  const NcclTestsLog gather = read(devices +
                                       "#  size  count  type  time  algbw  busbw  error  time  algbw  busbw  error\n"
                                       "  2097152  262144  float  100.0  20.97  10.49  N/A  1.2e+02  17.48  8.74  N/A\n",
                                   "x.log");
  EXPECT_EQ(gather.tables[0].collective, Collective::all_gather);  // count is a rank's and nothing is reduced
  EXPECT_THAT(gather.tables[0].assumptions, ElementsAre("collective from the columns"));
  EXPECT_NEAR(gather.tables[0].rows[0].in_place.time->base(), 120e-6, 1e-15);
}

TEST(NcclTests, ReadsCopyBandwidthIterationAndTimeStampColumns) {
  const std::string copybw =
      "# all_reduce_perf\n#  size count type redop root time algbw busbw copybw #wrong time algbw busbw copybw #wrong\n"
      "1048576 262144 float sum -1 100.0 10.49 10.49 77.0 0 100.0 10.49 10.49 77.0 0\n";
  EXPECT_EQ(read(copybw).tables[0].rows[0].out_of_place.busbw, 10.49);
  const std::string iterations =
      "# all_reduce_perf\n#  size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min "
      "i_max i_p99 i_cv%\n"
      "1048576 262144 float sum -1 100.0 10.49 10.49 0 90 120 119 2.5 200.0 5.24 5.24 0 90 120 119 2.5\n";
  EXPECT_NEAR(read(iterations).tables[0].rows[0].in_place.time->base(), 200e-6, 1e-15);
  const std::string stamps = std::string("# all_reduce_perf\n") + new_header +
                             "1048576 262144 float sum -1 100.0 10.49 10.49 0 100.0 10.49 10.49 0 2026-01-02 03:04:05\n";
  EXPECT_THAT(read(stamps).tables[0].rows, SizeIs(1));
}

TEST(NcclTests, TakesLabelsOffWhereverTheyStand) {
  for (const char* row : {"[1,0]<stdout>:   4096  1024  float  sum  -1  10.0  0.41  0.72  0  10.0  0.41  0.72  0\n",
                          "0:   4096  1024  float  sum  -1  10.0  0.41  0.72  0  10.0  0.41  0.72  0\n",
                          "[0]   4096  1024  float  sum  -1[0]  10.0  0.41  0.72  0[0]  10.0  0.41  0.72  0\n"}) {
    const NcclTestsLog log = read(row, "all_reduce.txt", {.collective = {}, .ranks = 8});
    ASSERT_THAT(log.tables, SizeIs(1)) << row;
    EXPECT_EQ(log.tables[0].rows[0].size, kibibytes(4)) << row;
    EXPECT_TRUE(log.tables[0].consistent) << row;
  }
}

TEST(NcclTests, InfersRanksFromCountsOrFromTheRatioOfBandwidths) {
  // busbw / algbw = 487.09 / 259.78 = 1.875 = 2 (16 - 1) / 16.
  const NcclTestsLog log = read(std::string("# all_reduce_perf\n") + new_header +
                                "17179869184 4294967296 float sum -1 66132 259.78 487.09 0 66109 259.87 487.26 0\n");
  EXPECT_EQ(log.tables[0].ranks, 16);
  EXPECT_EQ(log.tables[0].nodes, 2);
  EXPECT_THAT(log.tables[0].assumptions, ElementsAre("16 ranks from the rows", "2 nodes, at eight ranks on each; --nodes says otherwise"));
  const NcclTestsLog gather =
      read(std::string("# all_gather_perf\n") + new_header + "1048576 65536 bfloat16 none -1 47.14 22.24 19.46 0 45.43 23.08 20.20 0\n");
  EXPECT_EQ(gather.tables[0].ranks, 8);
}

TEST(NcclTests, SplitsSeveralRunsInOneFile) {
  const std::string run = std::string(
                              "# nThread 1 nGpus 2\n# Using devices\n#  Rank  0 Group  0 Pid 1 on n0 device  0 [0a] H100\n"
                              "#  Rank  1 Group  0 Pid 1 on n0 device  1 [0b] H100\n") +
                          new_header;
  const std::string row = "1048576 262144 float sum -1 100.0 10.49 10.49 0 100.0 10.49 10.49 0\n";
  const NcclTestsLog log = read("# Collective test starting: all_reduce_perf\n" + run + row +
                                "# Collective test concluded: all_reduce_perf\n"
                                "# Collective test starting: broadcast_perf\n" +
                                run + row + row);
  ASSERT_THAT(log.tables, SizeIs(2));
  EXPECT_EQ(log.tables[1].collective, Collective::broadcast);
  EXPECT_THAT(log.tables[1].rows, SizeIs(2));
}

TEST(NcclTests, ACutRowIsAWarningWithItsLineAndTheRestIsKept) {
  const NcclTestsLog log = read(std::string("# all_reduce_perf\n") + new_header +
                                "1048576 262144 float sum -1 100.0 10.49 18.35 0 100.0 10.49 18.35 0\n"
                                "2097152 524288 float sum -1 200.0 10.\n"
                                "   366.5    1.43    2.74      0\n");
  EXPECT_THAT(log.tables[0].rows, SizeIs(1));
  ASSERT_THAT(log.warnings, SizeIs(2));
  EXPECT_EQ(to_text(log.warnings[0]), "log.txt:5: row is cut and left out: values are missing at the end");
  EXPECT_EQ(log.warnings[1].where.line, 6);
}

TEST(NcclTests, PrintedBandwidthsAreNotBelieved) {
  const NcclTestsLog log =
      read(std::string("# all_reduce_perf\n") + new_header + "1048576 262144 float sum -1 100.0 10.49 99.99 0 100.0 10.49 99.99 0\n", "x",
           {.collective = {}, .ranks = 8});
  EXPECT_FALSE(log.tables[0].consistent);
  EXPECT_THAT(log.warnings[0].message, HasSubstr("busbw 99.99 is printed where size, time and 8 ranks give 18.35 GB/s"));
}

TEST(NcclTests, RanksThatShareAGpuAreMarked) {
  const NcclTestsLog log = read(std::string("# all_reduce_perf\n#  Rank  0 Group  0 Pid 1 on n0 device  0 [0000:02:00] RTX\n"
                                            "#  Rank  1 Group  0 Pid 2 on n0 device  0 [0000:02:00] RTX\n") +
                                new_header + "1048576 262144 float sum -1 100.0 10.49 10.49 0 100.0 10.49 10.49 0\n");
  EXPECT_TRUE(log.tables[0].one_device);
}

TEST(NcclTests, AlgorithmAndProtocolComeFromTheEnvironmentOrTheTuner) {
  const std::string rows =
      std::string("# all_reduce_perf\n") + new_header + "1048576 262144 float sum -1 100.0 10.49 18.35 0 100.0 10.49 18.35 0\n";
  EXPECT_EQ(read(rows).tables[0].algorithm, "unknown");
  const NcclTestsTable forced = read("mpirun -x NCCL_ALGO=Ring -x NCCL_PROTO=Simple ./all_reduce_perf\n" + rows).tables[0];
  EXPECT_EQ(forced.algorithm, "ring");
  EXPECT_EQ(forced.protocol, "simple");
  EXPECT_EQ(
      read("n0:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..23}\n" + rows).tables[0].algorithm,
      "nvls");
}

TEST(NcclTests, AColumnOfNodesInFrontMakesOneTableForEach) {
  const NcclTestsLog log = read(
      "1 1073741824 268435456 float sum 8142.6 131.87 230.77 2e-07 8141.2 131.89 230.81 2e-07\n"
      "2 1073741824 268435456 float sum 35215 30.49 57.17 4e-07 35198 30.51 57.20 4e-07\n",
      "all_reduce.txt");
  ASSERT_THAT(log.tables, SizeIs(2));
  EXPECT_EQ(log.tables[0].ranks, 8);
  EXPECT_EQ(log.tables[0].nodes, 1);
  EXPECT_EQ(log.tables[1].ranks, 16);
  EXPECT_EQ(log.tables[1].nodes, 2);
}

TEST(NcclTests, WhatIsNoLogIsAProblem) {
  EXPECT_THAT(problems_of(""), HasSubstr("no data row"));
  EXPECT_THAT(problems_of(std::string("\0\1\2\xff\n\x80", 6)), HasSubstr("no data row"));
  EXPECT_THAT(problems_of("# nThread 1 nGpus 8\n# Using devices\n"), HasSubstr("log.txt: error: no data row"));
  EXPECT_THAT(problems_of("[Rank 0] comm op: all_reduce | time (ms): 135.06 | msg size: 1002.0 MB\n"),
              HasSubstr("DeepSpeed's communication logger"));
  EXPECT_THAT(problems_of(" duration: 3.9 sec\n algo throughput: 16 bps, 16.1 Gbps\n"), HasSubstr("counts the payload twice"));
  EXPECT_THAT(
      problems_of(std::string("./sendrecv_perf -g 8\n") + new_header + "4096 1024 float sum -1 10.0 0.41 0.41 0 10.0 0.41 0.41 0\n"),
      HasSubstr("sendrecv is no collective"));
  EXPECT_THAT(problems_of(std::string("# all_reduce_perf\n#  Rank  0 Group  0 Pid 1 on n0 device  0 [02] RTX\n") + new_header +
                          "4096 1024 float sum -1 10.0 0.41 0.00 0 10.0 0.41 0.00 0\n"),
              HasSubstr("log.txt:5:1: error: no usable row: table left out: a run of one rank"));
}

constexpr const char* json =
    R"({"version": "2.17.6", "start_time": "x", "args": ["./reduce_scatter_perf", "-b", "1M"], "env": ["NOTE=all_gather"],
 "nccl_version": 22703,
 "config": {"devices": [{"rank": 0, "hostname": "a", "device_info": "NVIDIA B200"}, {"rank": 1, "hostname": "a", "device_info": "NVIDIA B200"}]},
 "results": [
  {"size": 1048576, "count": 131072, "type": "float", "redop": "sum", "root": "    -1", "out_of_place": {"time": 50.0, "alg_bw": 20.97, "bus_bw": 10.49, "nwrong": null}, "in_place": null},
  {"size": 2097152, "count": 262144, "type": "float", "redop": "sum", "root": "    -1", "out_of_place": {"cpu_time": 100.0, "alg_bw": "nan", "bus_bw": 10.49}, "in_place": {"time": 90.0}, "extra": {"a": "}"}})";

TEST(NcclTestsJson, ReadsResultsAndDevices) {
  const NcclTestsLog log = read(std::string(json) + "], \"out_of_bounds\": {\"count\": 0, \"okay\": \"true\"}, \"end_time\": \"y\"}");
  ASSERT_THAT(log.tables, SizeIs(1));
  const NcclTestsTable& table = log.tables[0];
  EXPECT_EQ(table.collective, Collective::reduce_scatter);
  EXPECT_EQ(table.ranks, 2);
  EXPECT_EQ(table.nodes, 1);
  EXPECT_EQ(table.gpu, "NVIDIA B200");
  EXPECT_EQ(table.nccl_version, "2.27.3");
  ASSERT_THAT(table.rows, SizeIs(2));
  EXPECT_FALSE(table.rows[0].in_place.time);
  EXPECT_NEAR(table.rows[1].out_of_place.time->base(), 100e-6, 1e-15);
  EXPECT_FALSE(table.rows[1].out_of_place.algbw);
  EXPECT_TRUE(table.consistent);
}

TEST(NcclTestsJson, AFileThatWasCutKeepsWhatIsWhole) {
  const NcclTestsLog log = read(std::string(json) + ",\n  {\"size\": 4194304, \"count\": 52");
  EXPECT_THAT(log.tables[0].rows, SizeIs(2));
  ASSERT_THAT(log.warnings, SizeIs(1));
  EXPECT_THAT(log.warnings[0].message, HasSubstr("cut off"));
}

}  // namespace
}  // namespace shardsim
