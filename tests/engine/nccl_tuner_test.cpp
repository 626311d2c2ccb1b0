// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/nccl_tuner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "shared_data.hpp"

namespace shardsim {
namespace {

TEST(NcclTuner, RingTimesByHand) {
  const NcclSystem h100 = nccl_system(NcclGeneration::hopper, 8);
  // Simple all-gather: 8.4 + 7 * 3.4 us, 360 * 8/7 GB/s.
  EXPECT_NEAR(nccl_time(h100, Collective::all_gather, mebibytes(512), NcclAlgorithm::ring, NcclProtocol::simple).base(),
              32.2e-6 + 536870912 / (360e9 * 8 / 7), 1e-12);
  // LL all-reduce: 6.6 + 14 * 0.6 us, min(141, 180) * 8/14 GB/s.
  EXPECT_NEAR(nccl_time(h100, Collective::all_reduce, kibibytes(8), NcclAlgorithm::ring, NcclProtocol::ll).base(),
              15e-6 + 8192 / (141e9 * 8 / 14), 1e-12);
}

TEST(NcclTuner, SmallTakesLlAndLargeTakesSimple) {
  const NcclSystem a100 = nccl_system(NcclGeneration::ampere, 8);
  EXPECT_EQ(nccl_choice(a100, Collective::all_gather, kibibytes(1)).protocol, NcclProtocol::ll);
  EXPECT_EQ(nccl_choice(a100, Collective::all_gather, gibibytes(1)).protocol, NcclProtocol::simple);
  EXPECT_EQ(nccl_choice(a100, Collective::all_reduce, gibibytes(1)).algorithm, NcclAlgorithm::ring);
}

TEST(NcclTuner, LargeAllReducesOnHopperTakeNvls) {
  EXPECT_EQ(nccl_choice(nccl_system(NcclGeneration::hopper, 8), Collective::all_reduce, gibibytes(1)).algorithm, NcclAlgorithm::nvls);
  EXPECT_LT(
      nccl_time(nccl_system(NcclGeneration::ampere, 8), Collective::all_reduce, gibibytes(1), NcclAlgorithm::nvls, NcclProtocol::simple),
      Seconds{});
}

TEST(NcclTuner, ManyNodesTakeATreeForSmallAllReduces) {
  NcclSystem many = nccl_system(NcclGeneration::hopper, 256);
  many.nodes = 32;
  EXPECT_EQ(nccl_choice(many, Collective::all_reduce, kibibytes(64)).algorithm, NcclAlgorithm::tree);
}

struct Point {
  std::string gpu, version, collective;
  std::int64_t ranks, bytes;
  double us;
};

std::vector<Point> single_node_points() {
  std::map<std::tuple<std::string, std::string, std::string, std::int64_t, std::int64_t>, double> least;
  for (const auto& row : csv(data() / "gpu_measurements/nccl_collectives.csv")) {
    if (row[2] == "alltoall" || row[0] == "l40s") continue;
    const auto [at, fresh] = least.try_emplace({row[0], row[1], row[2], std::stoll(row[3]), std::stoll(row[4])}, std::stod(row[5]));
    if (!fresh) at->second = std::min(at->second, std::stod(row[5]));
  }
  std::vector<Point> points;
  for (const auto& [key, us] : least)
    points.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), std::get<3>(key), std::get<4>(key), us});
  return points;
}

double ratio_of(const Point& p) {
  const NcclGeneration generation = p.gpu.starts_with("a")   ? NcclGeneration::ampere
                                    : p.gpu.starts_with("b") ? NcclGeneration::blackwell
                                                             : NcclGeneration::hopper;
  const Collective c = p.collective == "all_reduce"   ? Collective::all_reduce
                       : p.collective == "all_gather" ? Collective::all_gather
                                                      : Collective::reduce_scatter;
  return nccl_choice(nccl_system(generation, p.ranks), c, Bytes{p.bytes}).time.base() * 1e6 / p.us;
}

double median_of(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

TEST(NcclTuner, AgreesWithPublishedMeasurementsAsFarAsAPriorCan) {
  if (!fs::exists(data() / "gpu_measurements/nccl_collectives.csv")) GTEST_SKIP() << "shared/data/gpu_measurements is not here";
  std::vector<double> all;
  std::map<std::string, std::vector<double>> h100;
  double least = 1, most = 1;
  for (const Point& p : single_node_points()) {
    const double ratio = ratio_of(p);
    all.push_back(std::abs(ratio - 1));
    least = std::min(least, ratio);
    most = std::max(most, ratio);
    if (p.gpu == "h100_sxm" && p.ranks == 8 && p.collective != "all_reduce") h100[p.version + p.collective].push_back(std::abs(ratio - 1));
  }
  EXPECT_EQ(all.size(), 870u);
  EXPECT_LE(median_of(all), 0.25);
  EXPECT_GE(least, 1 / 2.6);
  EXPECT_LE(most, 2.6);
  for (const auto& [name, errors] : h100) EXPECT_LE(median_of(errors), 0.10) << name;
  std::printf("tuner: median %.1f %%, model / measured %.2f to %.2f\n", 100 * median_of(all), least, most);
}

}  // namespace
}  // namespace shardsim
