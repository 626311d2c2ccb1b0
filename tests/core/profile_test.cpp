// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace shardsim {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

ConfigNode tree(const std::string& text) {
  auto node = read_yaml(Source{"p.yaml", text});
  EXPECT_TRUE(node) << node.error().text();
  return *node;
}

const std::string& minimal() {
  static const std::string text = R"(name: tiny
gpu:
  name: Test GPU
  capacity: 79.5 GiB
  memory_bandwidth: 2 TB/s
  peak: {bf16: 300 TFLOP/s}
  host_link: 25 GB/s
node: {gpus: 4, ring_bandwidth: 200 GB/s, intra_latency: 1.5 us}
network: {nics_per_node: 2, nic_bandwidth: 200 Gbit/s}
)";
  return text;
}

std::string profile_problems(const std::string& text) {
  const auto profile = read_profile(tree(text));
  return profile ? "" : profile.error().text();
}

std::vector<fs::path> shipped() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(SHARDSIM_SOURCE_DIR "/scenarios/clusters")) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

Profile read_shipped(const fs::path& path) {
  const auto source = read_source(path.string());
  const auto node = read_yaml(*source);
  auto profile = read_profile(*node);
  EXPECT_TRUE(profile) << profile.error().text();
  return *profile;
}

TEST(Profile, ReadsUnitsAndDefaults) {
  const auto profile = read_profile(tree(minimal()));
  ASSERT_TRUE(profile) << profile.error().text();
  EXPECT_EQ(profile->file, "p.yaml");
  EXPECT_EQ(profile->gpu.capacity, Bytes{79 * (std::int64_t{1} << 30) + (std::int64_t{1} << 29)});
  EXPECT_DOUBLE_EQ(profile->network.nic_bandwidth.base(), 25e9);
  EXPECT_DOUBLE_EQ(profile->gpu.peak.at(DType::bf16).base(), 300e12);
  EXPECT_DOUBLE_EQ(profile->gpu.kernel_launch.base(), 4.5e-6);
  EXPECT_FALSE(profile->price_per_gpu_hour);
}

TEST(Profile, ReportsUnknownMissingAndNonPositiveKeysTogether) {
  std::string text = minimal();
  text.replace(text.find("capacity: 79.5 GiB"), 18, "capacty: 79.5 GiB");
  text.replace(text.find("200 GB/s"), 8, "0 GB/s");
  const std::string problems = profile_problems(text);
  EXPECT_THAT(problems, HasSubstr("p.yaml:4:3: error: "));
  EXPECT_THAT(problems, HasSubstr("did you mean 'capacity'?"));
  EXPECT_THAT(problems, HasSubstr("'ring_bandwidth' must be from 100 kB/s to "));
}

TEST(Profile, SegmentsMustCoverEverySizeOnce) {
  const std::string head = minimal() + "collectives:\n  - collective: all_gather\n    ranks: 4\n    segments:\n";
  EXPECT_THAT(profile_problems(head + "      - {limit: 1 KiB, alpha: 1 us, algbw: 1 GB/s}\n"),
              HasSubstr("the last segment has no 'limit'"));
  EXPECT_THAT(
      profile_problems(head + "      - {limit: 2 KiB, alpha: 1 us, algbw: 1 GB/s}\n      - {limit: 1 KiB, alpha: 1 us, algbw: 1 GB/s}\n"
                              "      - {alpha: 1 us, algbw: 1 GB/s}\n"),
      HasSubstr("p.yaml:15:9: error: 'limit' must be above"));
  EXPECT_EQ(profile_problems(head + "      - {limit: 1 KiB, alpha: 1 us, algbw: 1 GB/s}\n      - {alpha: 1 us, algbw: 1 GB/s}\n"), "");
}

TEST(Profile, SamplesMustRise) {
  const std::string head = minimal() + "collectives:\n  - collective: all_gather\n    ranks: 4\n    samples:\n";
  EXPECT_THAT(profile_problems(head + "      - [2 KiB, 1 us, 1 us, 1 us, 3]\n      - [1 KiB, 1 us, 1 us, 1 us, 3]\n"),
              HasSubstr("sizes must rise"));
  EXPECT_THAT(profile_problems(head + "      - [2 KiB, 1 us]\n"), HasSubstr("[size, min, median, p90, repetitions]"));
}

TEST(Profile, YamlReadsBackUnchanged) {
  auto profile = read_profile(tree(minimal()));
  ASSERT_TRUE(profile);
  profile->description = "quotes \" and \\ back\nslashes: #";
  profile->gpu.gemm.table = {{128, 256, 512, Seconds{1.0 / 3e5}}, {1, 1, 1, microseconds(2.1)}};
  profile->price_per_gpu_hour = 0.1 + 0.2;
  CollectiveFit fit;
  fit.collective = Collective::reduce_scatter;
  fit.ranks = 3;
  fit.algorithm = "unknown";
  fit.protocol = "ll128";
  fit.segments = {{Bytes{12345}, Seconds{1e-6 / 3}, ByteRate{1e9 / 7}}, {std::nullopt, Seconds{}, ByteRate{3.7e11}}};
  fit.samples = {{Bytes{1000}, Seconds{1.1e-6}, Seconds{1.7e-6 / 3}, Seconds{2.5}, 7}};
  fit.leave_one_out_median = 0.0123456789;
  profile->collectives = {fit};
  profile->origins = {{"gpu", "data sheet"}, {"gpu.gemm", "measured"}};
  const std::string yaml = to_yaml(*profile);
  const auto back = read_profile(tree(yaml));
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(to_yaml(*back), yaml);
  EXPECT_EQ(back->description, profile->description);
  EXPECT_EQ(back->gpu.gemm.table[0].time, profile->gpu.gemm.table[0].time);
  EXPECT_EQ(back->collectives[0].segments[0].algbw, fit.segments[0].algbw);
  EXPECT_EQ(back->collectives[0].samples[0].median, fit.samples[0].median);
  EXPECT_EQ(back->price_per_gpu_hour, profile->price_per_gpu_hour);
}

TEST(Profile, APartNeedsNothingAndClaimsNothing) {
  const std::string text = "collectives:\n  - collective: all_reduce\n    ranks: 8\n    samples:\n      - [1 MiB, 1 us, 1 us, 1 us, 1]\n";
  EXPECT_THAT(profile_problems(text), HasSubstr("gpu"));
  const auto part = read_profile(tree(text), Completeness::part);
  ASSERT_TRUE(part) << part.error().text();
  EXPECT_THAT(to_yaml(*part), ::testing::Not(HasSubstr("gpu")));
}

TEST(Profile, OriginOfAKeyIsThatOfItsSection) {
  Profile profile;
  profile.origins = {{"gpu", "a"}, {"gpu.gemm", "b"}};
  EXPECT_EQ(origin_of(profile, "gpu.gemm.launch"), "b");
  EXPECT_EQ(origin_of(profile, "gpu.capacity"), "a");
  EXPECT_EQ(origin_of(profile, "node.gpus"), "");
}

TEST(ShippedProfiles, AreTheFourOfTheContract) {
  std::vector<std::string> names;
  for (const auto& path : shipped()) names.push_back(path.filename().string());
  EXPECT_THAT(names, ::testing::ElementsAre("a100-sxm-80.yaml", "b200-sxm.yaml", "h100-sxm.yaml", "h200-sxm.yaml"));
}

void expect_origins(const ConfigNode& node, const std::string& prefix, const Profile& profile) {
  for (const Entry& entry : node.entries) {
    const std::string key = prefix.empty() ? entry.key : prefix + "." + entry.key;
    if (key == "origins" || key == "name" || key == "description" || key == "collectives") continue;
    if (entry.value.kind == ConfigNode::Kind::map) {
      expect_origins(entry.value, key, profile);
    } else {
      EXPECT_FALSE(origin_of(profile, key).empty()) << profile.file << ": " << key << " has no origin";
    }
  }
}

TEST(ShippedProfiles, EveryValueHasAnOrigin) {
  for (const auto& path : shipped()) {
    const Profile profile = read_shipped(path);
    const Source source = *read_source(path.string());
    expect_origins(*read_yaml(source), "", profile);
    for (const CollectiveFit& fit : profile.collectives) EXPECT_FALSE(fit.origin.empty()) << path;
  }
}

TEST(ShippedProfiles, HoldThePublishedFigures) {
  const Profile h100 = read_shipped(SHARDSIM_SOURCE_DIR "/scenarios/clusters/h100-sxm.yaml");
  EXPECT_DOUBLE_EQ(h100.gpu.peak.at(DType::bf16).base(), 989e12);
  EXPECT_DOUBLE_EQ(h100.network.nic_bandwidth.base(), 50e9);
  EXPECT_DOUBLE_EQ(h100.node.ring_bandwidth.base(), 367e9);
  EXPECT_EQ(h100.overheads.cublas_workspace, mebibytes(64));
  ASSERT_EQ(h100.collectives.size(), 3u);
  EXPECT_EQ(h100.collectives[0].algorithm, "nvls");
  EXPECT_EQ(h100.collectives[1].algorithm, "ring");
  const Profile a100 = read_shipped(SHARDSIM_SOURCE_DIR "/scenarios/clusters/a100-sxm-80.yaml");
  EXPECT_EQ(a100.overheads.cublas_workspace, 2 * Bytes{8'519'680});
  EXPECT_EQ(a100.collectives[0].algorithm, "ring");
}

}  // namespace
}  // namespace shardsim
