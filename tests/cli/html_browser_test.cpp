// SPDX-License-Identifier: Apache-2.0
// A real page in a real browser: it draws without a complaint, and its figures are those of the JSON. Leaves a screenshot in the test's
// working folder.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/application.hpp"
#include "reports/assets.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::string content(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string between(const std::string& text, const std::string& open, const std::string& close) {
  const std::size_t begin = text.find(open);
  if (begin == std::string::npos) return "";
  return text.substr(begin + open.size(), text.find(close, begin) - begin - open.size());
}

TEST(HtmlInBrowser, DrawsEveryChartWithoutAComplaint) {
  if (chart_library.empty()) GTEST_SKIP() << "no Chart.js (libjs-chart.js)";
  if (std::system("command -v chromium >/dev/null 2>&1") != 0) GTEST_SKIP() << "no chromium";
  setenv("SHARDSIM_DATA", SHARDSIM_SOURCE_DIR "/scenarios", 1);
  const fs::path folder = fs::temp_directory_path() / ("shardsim-browser-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const fs::path page = folder / "page.html", dom = folder / "dom.html", log = folder / "log.txt";
  const std::vector<std::string> words{"simulate", SHARDSIM_SOURCE_DIR "/scenarios/execute/tiny.yaml", "--html", page.string(), "--format", "json"};
  testing::internal::CaptureStdout();
  ASSERT_EQ(run_command_line(words), ExitCode::done);
  const std::string json = testing::internal::GetCapturedStdout();

  const std::string browser = "HOME=" + folder.string() + " chromium --headless --no-sandbox --disable-gpu --disable-background-networking "
                              "--disable-component-update --disable-extensions --no-first-run --disable-dev-shm-usage --enable-logging=stderr "
                              "--virtual-time-budget=2000 ";
  ASSERT_EQ(std::system((browser + "--dump-dom file://" + page.string() + " >" + dom.string() + " 2>" + log.string()).c_str()), 0);
  EXPECT_THAT(content(dom), HasSubstr("data-drawn=\"4\""));
  EXPECT_THAT(content(log), Not(HasSubstr("CONSOLE")));

  // The page's own copy of the result, as the browser holds it, says what the JSON report says: compare them without white space.
  const auto bare = [](std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    return text;
  };
  EXPECT_EQ(bare(between(content(dom), "id=\"data\">", "</script>")), bare(json));

  const std::string shot = browser + "--window-size=1100,2600 --screenshot=" + (fs::current_path() / "html_report.png").string() + " file://" + page.string();
  EXPECT_EQ(std::system((shot + " >/dev/null 2>&1").c_str()), 0);
  EXPECT_GT(fs::file_size("html_report.png"), 20'000U);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace shardsim
