// SPDX-License-Identifier: Apache-2.0
// Presets against published parameter counts.
#include <map>

#include "models_support.hpp"

namespace shardsim::testing {
namespace {

const std::map<std::string, std::int64_t> published{{"bert-base", 109482240},
                                                    {"bert-large", 335141888},
                                                    {"bloom-176b", 176247271424},
                                                    {"bloom-7b1", 7069016064},
                                                    {"deepseek-v2-lite", 15706484224},
                                                    {"deepseek-v3", 671026419200},
                                                    {"falcon-40b", 41303293952},
                                                    {"falcon-7b", 6921720704},
                                                    {"gemma-2-27b", 27227128320},
                                                    {"gemma-2-2b", 2614341888},
                                                    {"gemma-2-9b", 9241705984},
                                                    {"gemma-2b", 2506172416},
                                                    {"gemma-3-1b", 999885952},
                                                    {"gemma-7b", 8537680896},
                                                    {"gpt-j-6b", 6050882784},
                                                    {"gpt-neox-20b", 20554567680},
                                                    {"gpt2", 124439808},
                                                    {"gpt2-large", 774030080},
                                                    {"gpt2-medium", 354823168},
                                                    {"gpt2-xl", 1557611200},
                                                    {"llama-2-13b", 13015864320},
                                                    {"llama-2-70b", 68976648192},
                                                    {"llama-2-7b", 6738415616},
                                                    {"llama-3-70b", 70553706496},
                                                    {"llama-3-8b", 8030261248},
                                                    {"llama-3.1-405b", 405853388800},
                                                    {"llama-3.1-70b", 70553706496},
                                                    {"llama-3.1-8b", 8030261248},
                                                    {"llama-3.2-1b", 1235814400},
                                                    {"llama-3.2-3b", 3212749824},
                                                    {"mistral-7b", 7241732096},
                                                    {"mixtral-8x22b", 140620634112},
                                                    {"mixtral-8x7b", 46702792704},
                                                    {"mpt-7b", 6649286656},
                                                    {"olmo-2-7b", 7298617344},
                                                    {"olmo-7b", 6888095744},
                                                    {"opt-1.3b", 1315758080},
                                                    {"opt-125m", 125239296},
                                                    {"opt-13b", 12853473280},
                                                    {"opt-6.7b", 6658473984},
                                                    {"phi-2", 2779683840},
                                                    {"phi-3-mini", 3821079552},
                                                    {"phi-4", 14659507200},
                                                    {"pythia-1.4b", 1414647808},
                                                    {"pythia-160m", 162322944},
                                                    {"pythia-6.9b", 6857302016},
                                                    {"qwen2.5-0.5b", 494032768},
                                                    {"qwen2.5-32b", 32763876352},
                                                    {"qwen2.5-72b", 72706203648},
                                                    {"qwen2.5-7b", 7615616512},
                                                    {"qwen3-0.6b", 596049920},
                                                    {"qwen3-235b-a22b", 235093634560},
                                                    {"qwen3-30b-a3b", 30532122624},
                                                    {"qwen3-32b", 32762123264},
                                                    {"qwen3-8b", 8190735360},
                                                    {"resnet-18", 11689512},
                                                    {"tinyllama-1.1b", 1100048384},
                                                    {"vit-base", 86567656},
                                                    {"vit-large", 304326632}};

TEST(Presets, HaveThePublishedParameterCounts) {
  for (const std::string& name : preset_names()) {
    const auto architecture = preset(name);
    ASSERT_TRUE(architecture) << name << ": " << architecture.error().text();
    Training training;
    training.sequence_length = 128;
    const auto model = model_of(*architecture, training);
    EXPECT_EQ(model->name, name);
    ASSERT_TRUE(published.contains(name)) << name << " has " << model->total().value();
    EXPECT_EQ(model->total().value(), published.at(name)) << name;
  }
  EXPECT_EQ(preset_names().size(), published.size());
}

TEST(Presets, UnknownNamesAreRefusedWithTheNearestOne) {
  const auto architecture = preset("lama-3-8b");
  ASSERT_FALSE(architecture);
  EXPECT_NE(architecture.error().text().find("llama-3-8b"), std::string::npos) << architecture.error().text();
}

}  // namespace
}  // namespace shardsim::testing
