// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/collective_tables.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared_data.hpp"
#include "sim/costs/collectives/collective_predictor.hpp"

namespace shardsim {
namespace {

using ::testing::HasSubstr;

constexpr const char* header = "gpu,nccl_version,collective,ranks,bytes,time_us\n";

/// 10 us + S / 200 GB/s, twice: the second time is slower and does not count.
std::string table() {
  std::string text = header;
  for (std::int64_t size = 1024; size <= 1 << 28; size *= 4)
    for (const double noise : {1.0, 1.5})
      text += fmt::format("a,2.27,all_gather,8,{},{:.3f}\n", size, noise * (10 + static_cast<double>(size) / 2e5));
  return text;
}

TEST(CollectiveTable, FitsTheLeastOfTheRepeats) {
  const auto fits = read_collective_table({"t.csv", table()}, {});
  ASSERT_TRUE(fits) << fits.error().text();
  ASSERT_EQ(fits->size(), 1u);
  const CollectiveFit& fit = fits->front();
  EXPECT_EQ(fit.collective, Collective::all_gather);
  EXPECT_EQ(fit.ranks, 8);
  EXPECT_EQ(fit.largest, mebibytes(256));
  EXPECT_TRUE(fit.samples.empty());
  EXPECT_THAT(fit.origin, HasSubstr("NCCL 2.27"));
  for (std::int64_t size = 1024; size <= 1 << 28; size *= 2)
    EXPECT_NEAR(time_of(fit.segments, Bytes{size}).base() / (10e-6 + static_cast<double>(size) / 2e11), 1, 0.01) << size;
}

TEST(CollectiveTable, AnAllReduceFasterThanTheRingWasAddedInTheSwitch) {
  std::string text = header;
  for (std::int64_t size = 1024; size <= 1 << 28; size *= 4)
    text += fmt::format("a,2.27,all_reduce,8,{},{:.3f}\n", size, 10 + static_cast<double>(size) / 2e5);  // 350 GB/s of bus bandwidth
  EXPECT_EQ(read_collective_table({"t.csv", text}, {.gpu = "a", .ring_bandwidth = ByteRate{300e9}})->front().algorithm, "nvls");
  EXPECT_EQ(read_collective_table({"t.csv", text}, {.gpu = "a", .ring_bandwidth = ByteRate{400e9}})->front().algorithm, "ring");
}

TEST(CollectiveTable, SaysWhatIsWrong) {
  EXPECT_THAT(read_collective_table({"t.csv", "gpu,bytes\n"}, {}).error().text(), HasSubstr("the column 'ranks' is missing"));
  EXPECT_THAT(read_collective_table({"t.csv", table()}, {.gpu = "b", .ring_bandwidth = {}}).error().text(),
              HasSubstr("no row of b; the table has a"));
  EXPECT_THAT(read_collective_table({"t.csv", table() + "b,1,all_gather,8,1024,5\n"}, {}).error().text(),
              HasSubstr("--gpu chooses one: a, b"));
  EXPECT_THAT(read_collective_table({"t.csv", header + std::string("a,1,all_gather,8,1024,-5\n")}, {}).error().text(),
              HasSubstr("t.csv:2:1"));
}

TEST(CollectiveTable, ShippedFitsAreNearTheTableTheyAreMadeFrom) {
  const fs::path file = data() / "gpu_measurements/nccl_collectives.csv";
  if (!fs::exists(file)) GTEST_SKIP() << "shared/data/gpu_measurements is not here";
  for (const auto& [name, gpu] :
       {std::pair{"a100-sxm-80", "a100_sxm"}, {"h100-sxm", "h100_sxm"}, {"h200-sxm", "h200_sxm"}, {"b200-sxm", "b200_sxm"}}) {
    Cluster cluster;
    cluster.profile = *read_profile(*read_yaml(*read_source(SHARDSIM_SOURCE_DIR "/scenarios/clusters/" + std::string(name) + ".yaml")));
    const CollectivePredictor predictor(cluster);
    std::map<std::tuple<std::string, std::int64_t, std::int64_t>, double> least;
    for (const auto& row : csv(file)) {
      if (row[0] != gpu || std::stoll(row[4]) < std::int64_t{16} << 20) continue;
      const auto [at, fresh] = least.try_emplace({row[2], std::stoll(row[3]), std::stoll(row[4])}, std::stod(row[5]));
      if (!fresh) at->second = std::min(at->second, std::stod(row[5]));
    }
    EXPECT_GT(least.size(), 60u);
    for (const auto& [key, us] : least) {
      const auto& [word, ranks, bytes] = key;
      for (const Collective c : all_collectives)
        if (name_of(c) == (word == "alltoall" ? "all_to_all" : word)) {
          EXPECT_NEAR(predictor.cost(c, Bytes{bytes}, {"g", ranks, 1}).time.seconds().base() * 1e6 / us, 1, 0.08)
              << name << word << ranks << " " << bytes;
        }
    }
  }
}

}  // namespace
}  // namespace shardsim
