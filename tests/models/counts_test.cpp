// SPDX-License-Identifier: Apache-2.0
// Parameter counts against the public ones, and names and shapes against PyTorch's.
#include <fstream>
#include <sstream>

#include "models_support.hpp"

namespace shardsim::testing {
namespace {

const std::string data = SHARDSIM_SOURCE_DIR "/../shared/data";

std::vector<std::string> columns(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

Result<std::shared_ptr<const Architecture>> from_file(const std::string& path) {
  const auto source = read_source(path);
  if (!source) return tl::unexpected(source.error());
  const auto node = read_json(*source);
  if (!node) return tl::unexpected(node.error());
  return read_hf_config(*node);
}

TEST(ParameterCounts, EqualThePublishedOnes) {
  std::ifstream file(data + "/model_params.csv");
  if (!file) GTEST_SKIP() << "no model_params.csv beside the source tree";
  std::string line;
  std::getline(file, line);
  int compared = 0;
  while (std::getline(file, line)) {
    const auto cells = columns(line);
    const auto architecture = from_file(data + "/hf_configs/" + cells[0] + ".json");
    ASSERT_TRUE(architecture) << cells[0] << ": " << architecture.error().text();
    Training training;
    training.sequence_length = 128;
    EXPECT_EQ(model_of(*architecture, training)->total().value(), std::stoll(cells[3])) << cells[0];
    ++compared;
  }
  EXPECT_GT(compared, 65);
}

TEST(ParameterCounts, OtherPublicConfigsAreReadOrRefusedByName) {
  std::ifstream present(data + "/inputs/hf_config/llama31_8b.json");
  if (!present) GTEST_SKIP() << "no inputs/hf_config beside the source tree";
  const std::vector<std::pair<std::string, std::int64_t>> counts{
      {"deepseek_v3", 671026419200}, {"llama31_405b", 405853388800}, {"llama31_70b", 70553706496},    {"llama31_8b", 8030261248},
      {"mixtral_8x7b", 46702792704}, {"qwen3_0p6b", 596049920},      {"qwen3_30b_a3b", 30532122624},  {"qwen3_8b", 8190735360},
      {"qwen3_vl_4b", 4437815808},   {"t5_v1_1_xxl", 11135332352},   {"flame_mamba2_1b", 1371839488}, {"veomni_qwen2_0p5b", 494032768}};
  for (const auto& [name, count] : counts) {
    const auto architecture = from_file(data + "/inputs/hf_config/" + name + ".json");
    ASSERT_TRUE(architecture) << name << ": " << architecture.error().text();
    EXPECT_EQ(model_of(*architecture)->total().value(), count) << name;
    EXPECT_EQ(model_of(*architecture)->warnings.empty(), name != "qwen3_vl_4b" && name != "deepseek_v3" && name != "t5_v1_1_xxl") << name;
  }
  for (const std::string name : {"mimo_7b", "flame_7b", "bert_large"}) {
    const auto architecture = from_file(data + "/inputs/hf_config/" + name + ".json");
    ASSERT_FALSE(architecture) << name;
    EXPECT_NE(architecture.error().text().find("supported families: llama"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace shardsim::testing
