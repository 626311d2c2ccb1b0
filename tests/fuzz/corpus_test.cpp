// SPDX-License-Identifier: Apache-2.0
// Every kept input, and hostile ones that are too large to keep, end in a value or in problems: no crash, no hang.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "targets.hpp"

namespace shardsim {
namespace {

using Target = void (*)(std::string_view);
const std::map<std::string, Target> targets{{"scenario", fuzz_scenario}, {"config", fuzz_config},     {"units", fuzz_units},
                                            {"profile", fuzz_profile},   {"topology", fuzz_topology}, {"journal", fuzz_journal},
                                            {"toml", fuzz_toml},         {"import", fuzz_import}};

std::string alias_bomb() {
  std::string text = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c <= 'm'; ++c) {
    text += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 9; ++i) text += std::string(i ? "," : "") + "*" + static_cast<char>(c - 1);
    text += "]\n";
  }
  return text;
}

std::string repeated(std::string_view piece, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += piece;
  return text;
}

std::map<std::string, std::string> hostile() {
  return {{"deep list", "a: " + std::string(20000, '[')},
          {"closed deep list", std::string(20000, '[') + std::string(20000, ']')},
          {"deep map", repeated("{\"a\":", 20000)},
          {"deep dashes", repeated("- ", 20000)},
          {"deep questions", repeated("? ", 20000)},
          {"anchors", repeated("&a ", 20000)},
          {"alias bomb", alias_bomb()},
          {"long line", "model: " + std::string(10'000'000, 'x') + "\n"},
          {"long key", std::string(1'000'000, 'k') + ": 1\n"},
          {"long quoted", "a: \"" + std::string(1'000'000, 'x')},
          {"many keys",
           [] {
             std::string text;
             for (int i = 0; i < 50000; ++i) text += "k" + std::to_string(i) + ": 1\n";
             return text;
           }()},
          {"many problems", "model: {preset: [" + repeated("x, ", 50000) + "]}\n"},
          {"many documents", repeated("---\na: 1\n", 1000)},
          {"many digits", "a: " + std::string(1'000'000, '9') + "\n"},
          {"zeroes", std::string(1000, '\0')},
          {"not UTF-8", std::string(1000, '\xff')},
          {"tabs", repeated("\t", 10000) + "a: 1\n"},
          {"comments", repeated("# x\n", 100000)}};
}

TEST(FuzzCorpus, KeptInputs) {
  std::size_t inputs = 0;
  for (const auto& [name, target] : targets)
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(SHARDSIM_FUZZ_CORPUS) / name)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      SCOPED_TRACE(entry.path().string());
      target(text);
      ++inputs;
    }
  EXPECT_GE(inputs, targets.size());
}

TEST(FuzzCorpus, HostileInputsEndSoon) {
  for (const auto& [what, text] : hostile())
    for (const auto& [name, target] : targets) {
      const auto start = std::chrono::steady_clock::now();
      target(text);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 10) << what << " as " << name;  // sanitizers included; a release build takes well under a second
    }
}

TEST(FuzzCorpus, TruncatedScenariosAndConfigs) {
  for (const char* path : {"/../../../scenarios/execute/tiny.yaml", "/../../../scenarios/models/tiny-llama.json"}) {
    std::ifstream file(std::string(SHARDSIM_FUZZ_CORPUS) + path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    ASSERT_FALSE(text.empty());
    for (std::size_t size = 0; size <= text.size(); size += 7) {
      fuzz_scenario(std::string_view(text).substr(0, size));
      fuzz_config(std::string_view(text).substr(0, size));
    }
  }
}

}  // namespace
}  // namespace shardsim
