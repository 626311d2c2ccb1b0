// SPDX-License-Identifier: Apache-2.0
// Every command that the documentation shows runs, and the pictures in it are those that its commands draw. Runs in a scratch folder with
// copies of docs/ and scenarios/, so that what commands write never touches the source.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "cli/application.hpp"
#include "cli/commands.hpp"
#include "file_content.hpp"
#include "strategies/strategy.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

using test::content;

struct ShownCommand {
  std::string place;  ///< "README.md:12"
  std::string text;   ///< from "shardsim" on
};

/// Words as a shell would make them; stops at a comment, a pipe, a redirection or the end of the command.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        *word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      if (!word) word.emplace();
    } else if (c == ' ') {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
    } else if (c == '|' || c == '>' || c == '&' || c == ';' || (c == '#' && !word)) {
      break;
    } else {
      if (!word) word.emplace();
      *word += c;
    }
  }
  if (word) words.push_back(*word);
  return words;
}

/// The command in a line of code: after a prompt, a path to the program, a launcher (without which it is one rank), or other commands.
std::optional<std::string> command_in(const std::string& line) {
  static const std::regex shown(R"((?:^|[\s/])shardsim ([a-z].*)$)");
  std::smatch match;
  if (!std::regex_search(line, match, shown)) return std::nullopt;
  const std::string text = match[1];
  const auto& known = program().subcommands;
  const bool command =
      std::any_of(known.begin(), known.end(), [&](const Command& c) { return text == c.name || text.starts_with(c.name + " "); });
  return command ? std::optional(text) : std::nullopt;
}

/// Lines of code blocks, and code inside of text and tables.
std::vector<ShownCommand> commands_of(const std::string& page) {
  std::vector<ShownCommand> found;
  std::ifstream lines(fs::path(SHARDSIM_SOURCE_DIR) / page);
  bool fenced = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = page + ":" + std::to_string(++number);
    if (line.starts_with("```")) {
      fenced = !fenced;
    } else if (fenced || line.starts_with("    ")) {
      const std::size_t comment = std::min(line.find(" #"), line.size());
      if (const auto text = command_in(line.substr(0, comment))) found.push_back({place, *text + line.substr(comment)});
    } else {
      static const std::regex span("`([^`]*shardsim [^`]+)`");
      for (std::sregex_iterator it(line.begin(), line.end(), span), end; it != end; ++it)
        if (const auto text = command_in((*it)[1])) found.push_back({place, *text});
    }
  }
  return found;
}

std::vector<std::string> pages() {
  const fs::path source = SHARDSIM_SOURCE_DIR;
  std::vector<std::string> found{"README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(source / "docs"))
    if (entry.path().extension() == ".md") found.push_back(fs::relative(entry.path(), source).string());
  std::sort(found.begin(), found.end());
  return found;
}

/// "check" or "calibrate import" alone names a command; it is asked for its help.
std::vector<std::string> runnable(std::vector<std::string> words) {
  const Command* at = &program();
  for (const std::string& word : words) {
    const auto next = std::find_if(at->subcommands.begin(), at->subcommands.end(), [&](const Command& c) { return c.name == word; });
    if (next == at->subcommands.end()) {
      if (words.front() == "calibrate" && words[1] == "local") words.insert(words.end(), {"--seconds", "1"});
      return words;
    }
    at = &*next;
  }
  const bool needs =
      !at->subcommands.empty() || std::any_of(at->arguments.begin(), at->arguments.end(), [](const Argument& a) { return a.required; });
  if (needs) words.emplace_back("--help");
  return words;
}

/// What the page says comes of it: the code of a comment ("# exit code 1"), else 0. A machine without GPUs or MPI says so.
bool as_stated(ExitCode code, const std::string& text) {
  std::smatch match;
  static const std::regex stated("exit code ([0-9]+)"), hardware("^calibrate (cuda|nccl|mpi)|^doctor|--backend (cuda|mpi)");
  if (code == ExitCode::environment && std::regex_search(text, hardware)) return true;
  return code == (std::regex_search(text, match, stated) ? static_cast<ExitCode>(std::stoi(match[1])) : ExitCode::done);
}

/// README's own scenario, which the page calls S.yaml; plans of it look at two numbers of nodes only, to be quick.
std::string scenario_of_the_readme() {
  std::istringstream lines(content(SHARDSIM_SOURCE_DIR "/README.md"));
  std::string scenario, line;
  while (std::getline(lines, line) && line != "## A scenario") {}
  while (std::getline(lines, line) && (scenario.empty() || !line.empty()))
    if (line.starts_with("    ")) scenario += line.substr(4) + "\n";
  return scenario + "plan: {nodes: [4, 8], strategies: [ddp, zero3, fsdp2]}\n";
}

class Documentation : public testing::TestWithParam<std::string> {
 protected:
  Documentation() : before_(fs::current_path()) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    for (const char* part : {"docs", "scenarios"})
      fs::copy(fs::path(SHARDSIM_SOURCE_DIR) / part, folder / part, fs::copy_options::recursive);
    std::ofstream(folder / "S.yaml") << scenario_of_the_readme();
    fs::current_path(folder);
    setenv("SHARDSIM_DATA", SHARDSIM_SOURCE_DIR "/scenarios", 1);
    unsetenv("GITHUB_ACTIONS");
  }
  ~Documentation() override {
    fs::current_path(before_);
    fs::remove_all(folder);
  }

  static void run(const ShownCommand& command) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    static const std::regex here("[$]PWD");
    const ExitCode code = run_command_line(runnable(words_of(std::regex_replace(command.text, here, fs::current_path().string()))));
    const std::string out = testing::internal::GetCapturedStdout(), err = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(as_stated(code, command.text)) << command.place << ": shardsim " << command.text << "\nexit code " << static_cast<int>(code)
                                               << "\n"
                                               << err;
  }

  const fs::path folder = fs::temp_directory_path() / ("shardsim-documentation-" + std::to_string(getpid()));

 private:
  fs::path before_;
};

TEST_P(Documentation, ShowsCommandsThatRunAndPicturesThatAreTheirs) {
  std::set<std::string> done;
  for (const ShownCommand& command : commands_of(GetParam()))
    if (done.insert(command.text).second) run(command);
  static const std::regex drawn("--svg (docs/images/[a-z0-9_]+[.]svg)");
  for (const std::string& command : done) {
    std::smatch match;
    if (!std::regex_search(command, match, drawn)) continue;
    const std::string picture = match[1];
    EXPECT_TRUE(content(picture) == content(fs::path(SHARDSIM_SOURCE_DIR) / picture))
        << picture << " is not what its command draws now: run scripts/pictures.sh";
    EXPECT_LT(fs::file_size(picture), 60'000U) << picture;
  }
}

INSTANTIATE_TEST_SUITE_P(Pages, Documentation, testing::ValuesIn(pages()), [](const testing::TestParamInfo<std::string>& page) {
  std::string name = page.param.substr(0, page.param.rfind('.'));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

TEST(StrategyPages, HaveAPictureAndTheCommandThatDrawsIt) {
  for (const StrategyInfo& strategy : strategies()) {
    const std::string page = content(SHARDSIM_SOURCE_DIR "/docs/strategies/" + strategy.name + ".md");
    EXPECT_THAT(page, testing::HasSubstr("](../images/" + strategy.name + ".svg)")) << strategy.name;
    EXPECT_THAT(page, testing::HasSubstr("--svg docs/images/" + strategy.name + ".svg")) << strategy.name;
  }
}

TEST(Words, AreThoseOfAShell) {
  EXPECT_THAT(words_of("simulate S.yaml --set 'strategy={name: ddp}' --set a=\"b c\" | head"),
              testing::ElementsAre("simulate", "S.yaml", "--set", "strategy={name: ddp}", "--set", "a=b c"));
  EXPECT_THAT(words_of("check scenarios   # exit code 1"), testing::ElementsAre("check", "scenarios"));
  EXPECT_EQ(command_in("scripts/build.sh && build/release/shardsim list models"), "list models");
  EXPECT_EQ(command_in("git clone x shardsim && y"), std::nullopt);
}

}  // namespace
}  // namespace shardsim
