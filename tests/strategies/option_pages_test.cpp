// SPDX-License-Identifier: Apache-2.0
// docs/strategies/<name>.md lists the options that the code takes, word for word. SHARDSIM_UPDATE_GOLDEN=1 rewrites the lists; review the
// difference. Every option can be given, and every strategy names the library that it models.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "jobs.hpp"

namespace shardsim::testing {
namespace {

constexpr std::size_t page_width = 80, option_column = 4, help_column = 32;

/// Words from `column` on, wrapped at the page's width; the first line goes on where `line` ends.
void wrap(std::string& page, std::string line, const std::string& text, std::size_t column) {
  std::istringstream words(text);
  bool empty = true;
  for (std::string word; words >> word;) {
    if (!empty && line.size() + 1 + word.size() > page_width) {
      page += line + "\n";
      line = std::string(column, ' ');
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  page += line + "\n";
}

std::string text_of(const OptionSpec& option) {
  std::string text = option.help;
  for (std::size_t i = 0; i < option.words.size(); ++i) text += (i == 0 ? ": " : ", ") + option.words[i];
  return option.fallback.empty() ? text : text + " (default: " + option.fallback + ")";
}

void entry(std::string& page, const std::string& name, const std::string& text) {
  std::string line = std::string(option_column, ' ') + name;
  if (line.size() + 1 > help_column) {
    page += line + "\n";
    line.clear();
  }
  line.resize(help_column, ' ');
  wrap(page, line, text, help_column);
}

/// The list as it stands in the page: an indented block.
std::string option_list(const StrategyInfo& info) {
  std::string page;
  wrap(page, std::string(option_column, ' '), "framework: " + with_version(info.library, info.releases, ""), option_column + 2);
  for (const Release& release : info.releases) entry(page, "version " + release.version, release.changes);
  for (const OptionSpec& option : info.options) entry(page, option.name, text_of(option));
  return page;
}

class OptionPage : public ::testing::TestWithParam<std::string> {};

TEST_P(OptionPage, ListsWhatTheCodeTakes) {
  const StrategyInfo& info = *find_strategy(GetParam());
  const std::string file = std::string(SHARDSIM_SOURCE_DIR) + "/docs/strategies/" + info.name + ".md";
  std::stringstream read;
  read << std::ifstream(file).rdbuf();
  std::string page = read.str();
  const std::string heading = "## Options\n\n";
  const std::size_t begin = page.find(heading);
  ASSERT_NE(begin, std::string::npos) << file;
  const std::size_t first = begin + heading.size(), last = page.find("\n\n", first) + 1;
  const std::string listed = page.substr(first, last - first);
  if (std::getenv("SHARDSIM_UPDATE_GOLDEN")) {
    std::ofstream(file) << page.replace(first, last - first, option_list(info));
  } else {
    EXPECT_EQ(listed, option_list(info)) << file;
  }
}

TEST_P(OptionPage, EveryOptionSaysWhatItDoes) {
  const StrategyInfo& info = *find_strategy(GetParam());
  EXPECT_FALSE(info.library.empty());
  EXPECT_NE(info.library.find_first_of("0123456789"), std::string::npos) << "a version or a date: " << info.library;
  for (const OptionSpec& option : info.options) {
    EXPECT_FALSE(option.help.empty()) << option.name;
    const bool known = option.words.empty() || std::find(option.words.begin(), option.words.end(), option.fallback) != option.words.end();
    const bool flag = option.kind != OptionKind::boolean || option.fallback == "true" || option.fallback == "false";
    EXPECT_TRUE(option.fallback.empty() || (known && flag)) << option.name;
  }
}

std::string page_name(const ::testing::TestParamInfo<std::string>& name) { return name.param; }

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const StrategyInfo& info : strategies()) names.push_back(info.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Strategies, OptionPage, ::testing::ValuesIn(strategy_names()), page_name);

// Every result names the library version that it models, and every schedule of the papers the papers.
TEST_P(OptionPage, SchedulesNameTheLibrary) {
  const StrategyInfo& info = *find_strategy(GetParam());
  EXPECT_EQ(emit(make_job(toy(), info.name).job).library, info.library);
  EXPECT_NE(emit(make_job(toy(), info.name, {.semantics = Semantics::textbook}).job).library.find("arXiv 1910.02054"), std::string::npos);
}

}  // namespace
}  // namespace shardsim::testing
