// SPDX-License-Identifier: Apache-2.0
// A formula that moves is found: every formula of every shipped scenario is changed by one constant, and `check` must fail and say which
// formula, of which scenario, and both values.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "cli/application.hpp"
#include "file_content.hpp"
#include "sim/config/node.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using test::content;

struct Mutant {
  std::string text;     ///< of the scenario
  std::string formula;  ///< its start, up to a line break
};

/// One for each formula, with its first constant greater by one.
std::vector<Mutant> mutants(const std::string& scenario) {
  static const std::regex formula(R"re(equals:\s*"([^"0-9]*)([0-9]+)([^"\n]*))re");
  std::vector<Mutant> out;
  for (std::sregex_iterator it(scenario.begin(), scenario.end(), formula), end; it != end; ++it) {
    const std::smatch& match = *it;
    const std::string constant = std::to_string(std::stoll(match[2]) + 1);
    std::string text = scenario;
    text.replace(static_cast<std::size_t>(match.position(2)), match[2].str().size(), constant);
    out.push_back({std::move(text), match[1].str() + constant + match[3].str()});
  }
  return out;
}

TEST(CheckFindsMutants, OfEveryFormulaOfTheShippedScenarios) {
  setenv("SHARDSIM_DATA", SHARDSIM_SOURCE_DIR "/scenarios", 1);
  unsetenv("GITHUB_ACTIONS");
  const fs::path folder = fs::temp_directory_path() / ("shardsim-mutants-" + std::to_string(getpid()));
  fs::create_directories(folder);
  int tried = 0;
  for (const auto& entry : fs::recursive_directory_iterator(SHARDSIM_SOURCE_DIR "/scenarios")) {
    if (entry.path().extension() != ".yaml") continue;
    for (const Mutant& mutant : mutants(content(entry.path()))) {
      const std::string file = (folder / entry.path().filename()).string();
      std::ofstream(file) << mutant.text;
      testing::internal::CaptureStdout();
      const ExitCode code = run_command_line(std::vector<std::string>{"check", file, "--format", "json"});
      const std::string report = testing::internal::GetCapturedStdout();
      EXPECT_EQ(code, ExitCode::no) << mutant.formula << " of " << entry.path();
      const auto json = read_json({"report", report});
      ASSERT_TRUE(json) << report;
      int failed = 0;
      for (const ConfigNode& c : json->find("cases")->items) {
        if (c.find("ok")->text == "true") continue;
        ++failed;
        const std::string message = c.find("message")->text;
        EXPECT_EQ(c.find("scenario")->text, file);
        EXPECT_THAT(message, HasSubstr(mutant.formula.substr(0, 60)));
        EXPECT_THAT(message, HasSubstr(c.find("metric")->text + " is "));
        EXPECT_THAT(message, HasSubstr(", expected "));
        EXPECT_NE(c.find("expected")->text, c.find("actual")->text);
      }
      EXPECT_EQ(failed, 1) << mutant.formula << " of " << entry.path();
      ++tried;
    }
  }
  fs::remove_all(folder);
  EXPECT_GE(tried, 15);
}

}  // namespace
}  // namespace shardsim
