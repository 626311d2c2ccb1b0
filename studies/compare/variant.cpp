// SPDX-License-Identifier: Apache-2.0
#include "studies/compare/variant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace shardsim {

Result<Scenario> vary(const Scenario& base, const std::vector<std::string>& assignments) {
  ConfigNode root = base.root;
  for (const std::string& assignment : assignments) {
    auto changed = with_override(std::move(root), assignment);
    if (!changed) return tl::make_unexpected(std::move(changed.error()));
    root = std::move(*changed);
  }
  return read_scenario(std::move(root), base.file, std::filesystem::path(base.file).parent_path().string());
}

std::vector<std::string> choose_strategy(const Scenario& base, const std::string& strategy) {
  if (strategy == base.strategy.name) return {};
  const char* semantics = base.strategy.semantics == Semantics::textbook ? "textbook" : "framework";
  return {fmt::format("strategy={{name: {}, semantics: {}}}", strategy, semantics)};
}

namespace {

std::string trimmed(std::string word) {
  word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
  word.erase(word.find_last_not_of(' ') + 1);
  return word;
}

}  // namespace

std::vector<std::string> strategy_list(const std::string& text) {
  std::vector<std::string> known;
  for (const StrategyInfo& info : strategies()) known.push_back(info.name);
  if (text == "all") return known;
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string name = trimmed(text.substr(begin, end - begin));
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string message = fmt::format("unknown strategy '{}'", name);
      for (const std::string& note : notes_for_unknown(name, known)) message += "\n  = " + note;
      throw InputError(message);
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    begin = end + 1;
  }
  return names;
}

std::string first_message(const Problems& problems) { return problems.empty() ? std::string() : problems.list().front().message; }

}  // namespace shardsim
