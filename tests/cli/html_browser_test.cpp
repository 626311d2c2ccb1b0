// SPDX-License-Identifier: Apache-2.0
// Real pages in a real browser: they draw without a complaint, and the figures read out of them are those of the JSON report. Each leaves
// a screenshot in the test's working folder.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/application.hpp"
#include "file_content.hpp"
#include "reports/html/assets.hpp"
#include "sim/config/node.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

using test::content;

std::string between(const std::string& text, const std::string& open, const std::string& close) {
  const std::size_t begin = text.find(open);
  if (begin == std::string::npos) return "";
  return text.substr(begin + open.size(), text.find(close, begin) - begin - open.size());
}

ConfigNode parsed(const std::string& json) {
  auto node = read_json(Source{"json", json});
  if (!node) throw std::runtime_error(node.error().text());
  return std::move(*node);
}

/// "results.0.step.time_s" in a JSON document, as a number.
double number(const ConfigNode& node, const std::string& path) {
  const ConfigNode* at = &node;
  std::stringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    if (at->kind == ConfigNode::Kind::list)
      at = &at->items.at(std::stoul(part));
    else
      at = at->find(part);
    if (at == nullptr) throw std::runtime_error("no " + path);
  }
  return std::stod(at->text);
}

class HtmlInBrowser : public testing::Test {
 protected:
  void SetUp() override {
    if (chart_library.empty()) GTEST_SKIP() << "no Chart.js (libjs-chart.js)";
    if (std::system("command -v chromium >/dev/null 2>&1") != 0) GTEST_SKIP() << "no chromium";
    setenv("SHARDSIM_DATA", SHARDSIM_SOURCE_DIR "/scenarios", 1);
    fs::create_directories(folder);
  }
  ~HtmlInBrowser() override { fs::remove_all(folder); }

  /// Runs the command with --html and --format json, lets the browser draw the page, and checks what holds of every page.
  void open(std::vector<std::string> words, const std::string& name) {
    const fs::path page = folder / "page.html", dom = folder / "dom.html", log = folder / "log.txt",
                   picture = fs::current_path() / ("html_" + name + ".png");
    words.insert(words.end(), {"--html", page.string(), "--format", "json"});
    testing::internal::CaptureStdout();
    const ExitCode code = run_command_line(words);
    const std::string report = testing::internal::GetCapturedStdout();
    ASSERT_EQ(code, ExitCode::done);
    fs::remove(picture);
    const std::string browser =
        "HOME=" + folder.string() +
        " chromium --headless --no-sandbox --disable-gpu --disable-background-networking "
        "--disable-component-update --disable-extensions --no-first-run --disable-dev-shm-usage --enable-logging=stderr "
        "--virtual-time-budget=2000 --window-size=1100,2600 --print-to-pdf=" +
        (folder / "page.pdf").string() + " --dump-dom --screenshot=" + picture.string();
    ASSERT_EQ(std::system((browser + " file://" + page.string() + " >" + dom.string() + " 2>" + log.string()).c_str()), 0);
    EXPECT_THAT(content(log), Not(HasSubstr("CONSOLE")));
    EXPECT_GT(fs::file_size(picture), 20'000U);
    EXPECT_TRUE(content(folder / "page.pdf").starts_with("%PDF")) << "it does not print";

    // The page's own copy of the result, as the browser holds it, says what the JSON report says: compare them without white space.
    const std::string text = content(dom);
    const auto bare = [](std::string text_of) {
      std::erase_if(text_of, [](char c) { return c == ' ' || c == '\n'; });
      return text_of;
    };
    EXPECT_EQ(bare(between(text, "id=\"data\">", "</script>")), bare(report));
    json = parsed(report);
    charts = parsed(between(text, "id=\"charts\">", "</script>"));
    EXPECT_THAT(text, HasSubstr("data-drawn=\"" + std::to_string(charts.items.size()) + "\""));
  }

  /// One number of a chart's series, by position.
  [[nodiscard]] double drawn(std::size_t chart, std::size_t series, const std::string& path) const {
    return number(*charts.items.at(chart).find("series")->items.at(series).find("data"), path);
  }
  [[nodiscard]] std::size_t position(std::size_t chart, const std::string& label) const {
    const auto& series = charts.items.at(chart).find("series")->items;
    for (std::size_t i = 0; i < series.size(); ++i)
      if (series[i].find("label")->text.starts_with(label)) return i;
    throw std::runtime_error("no series " + label);
  }
  /// What a stack of bars adds up to, without the marks across it.
  [[nodiscard]] double stacked(std::size_t chart, std::size_t bar) const {
    double sum = 0;
    const auto& series = charts.items.at(chart).find("series")->items;
    for (std::size_t i = 0; i < series.size(); ++i)
      if (series[i].find("style")->text.empty()) sum += drawn(chart, i, std::to_string(bar));
    return sum;
  }

  const fs::path folder = fs::temp_directory_path() / ("shardsim-browser-" + std::to_string(getpid()));
  ConfigNode json, charts;
};

constexpr const char* tiny_run = SHARDSIM_SOURCE_DIR "/scenarios/execute/tiny.yaml";

TEST_F(HtmlInBrowser, ShowsASimulation) {
  ASSERT_NO_FATAL_FAILURE(open({"simulate", tiny_run}, "simulate"));
  ASSERT_EQ(charts.items.size(), 4U);
  EXPECT_NEAR(stacked(0, 0), number(json, "step.time_s"), 1e-9);
  EXPECT_EQ(drawn(1, position(1, "peak"), "0.y"), number(json, "memory.peak_bytes"));
  EXPECT_EQ(drawn(1, position(1, "capacity"), "0.y"), number(json, "memory.capacity_bytes"));
  EXPECT_EQ(stacked(3, 0), number(json, "traffic.sent_bytes_per_rank.total"));
  EXPECT_EQ(drawn(3, position(3, "textbook"), "1"), number(json, "traffic.textbook_bytes_per_rank"));
}

TEST_F(HtmlInBrowser, ShowsAComparison) {
  ASSERT_NO_FATAL_FAILURE(open({"compare", tiny_run, "--strategies", "ddp,zero1,fsdp2"}, "compare"));
  ASSERT_EQ(charts.items.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string result = "results." + std::to_string(i) + ".", bar = std::to_string(i);
    EXPECT_NEAR(stacked(0, i), number(json, result + "step.time_s"), 1e-9);
    EXPECT_EQ(drawn(0, position(0, "exposed"), bar), number(json, result + "step.exposed_communication_s"));
    EXPECT_EQ(stacked(1, i), number(json, result + "memory.device_peak_bytes"));
    EXPECT_EQ(drawn(1, position(1, "capacity"), bar), number(json, result + "memory.capacity_bytes"));
    EXPECT_EQ(stacked(2, i), number(json, result + "traffic.sent_bytes_per_rank.total"));
    EXPECT_EQ(drawn(2, position(2, "textbook"), bar), number(json, result + "traffic.textbook_bytes_per_rank"));
  }
}

TEST_F(HtmlInBrowser, ShowsAPlanAndItsScaling) {
  const std::vector<std::string> words{
      "plan",     SHARDSIM_SOURCE_DIR "/scenarios/questions/does-not-scale.yaml", "--scaling", "1..32", "--nodes", "1,2", "--strategies",
      "fsdp2,ddp"};
  ASSERT_NO_FATAL_FAILURE(open(words, "plan"));
  ASSERT_EQ(charts.items.size(), 3U);
  const auto& front = json.find("pareto")->items;
  ASSERT_FALSE(front.empty());
  for (std::size_t i = 0; i < front.size(); ++i) {
    const std::string entry = "pareto." + std::to_string(i) + ".", at = std::to_string(i);
    EXPECT_EQ(drawn(0, 0, at + ".x"), number(json, entry + "gpus"));
    EXPECT_EQ(drawn(0, 0, at + ".y"), number(json, entry + "days"));
  }
  EXPECT_EQ(drawn(0, position(0, "fastest"), "0.y"), number(json, "best.time.days"));
  const auto& points = json.find("scaling")->find("points")->items;
  ASSERT_GT(points.size(), 3U);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::string point = "scaling.points." + std::to_string(i) + ".", at = std::to_string(i);
    EXPECT_EQ(drawn(1, position(1, "efficiency"), at + ".x"), number(json, point + "gpus"));
    EXPECT_EQ(drawn(1, position(1, "efficiency"), at + ".y"), number(json, point + "efficiency"));
    EXPECT_NEAR(stacked(2, i), number(json, point + "step_time_s"), 1e-9);
  }
  EXPECT_EQ(drawn(1, position(1, "cliff at the node boundary"), "0.x"), number(json, "scaling.cliff.from_gpus"));
  EXPECT_EQ(drawn(1, position(1, "cliff at the node boundary"), "1.x"), number(json, "scaling.cliff.to_gpus"));
}

TEST_F(HtmlInBrowser, ShowsAnExecution) {
  ASSERT_NO_FATAL_FAILURE(open({"execute", tiny_run, "--ranks", "2", "--strategies", "ddp,fsdp2"}, "execute"));
  ASSERT_EQ(charts.items.size(), 4U);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string run = "strategies." + std::to_string(i) + ".", bar = std::to_string(i);
    for (const std::string what : {"predicted", "measured"}) {
      const auto by_rank = [&](const std::string& figure, int rank) {
        return number(json, run + figure + "." + what + "." + std::to_string(rank));
      };
      EXPECT_EQ(drawn(0, position(0, what), bar), by_rank("sent_bytes", 0) + by_rank("sent_bytes", 1));
      EXPECT_EQ(drawn(1, position(1, what), bar), std::max(by_rank("peak_memory", 0), by_rank("peak_memory", 1)));
      EXPECT_EQ(drawn(2, position(2, what), bar), number(json, run + "step_time_s." + what));
    }
    EXPECT_EQ(drawn(3, i + 1, "2"), number(json, run + "loss.measured.2"));
  }
}

TEST_F(HtmlInBrowser, ShowsAProfile) {
  ASSERT_NO_FATAL_FAILURE(open({"calibrate", "show", SHARDSIM_SOURCE_DIR "/scenarios/clusters/h100-sxm.yaml"}, "profile"));
  const auto& fits = json.find("collectives")->items;
  ASSERT_EQ(charts.items.size(), fits.size());
  for (std::size_t f = 0; f < fits.size(); ++f) {
    const std::size_t series = fits[f].find("points")->items.front().find("measured_s")->kind == ConfigNode::Kind::null
                                   ? position(f, "fitted")
                                   : position(f, "measured");
    for (std::size_t i = 0; i < fits[f].find("points")->items.size(); ++i) {
      const std::string point = "collectives." + std::to_string(f) + ".points." + std::to_string(i) + ".", at = std::to_string(i);
      EXPECT_EQ(drawn(f, series, at + ".x"), number(json, point + "bytes"));
      EXPECT_EQ(drawn(f, series, at + ".y"), number(json, point + "bus_gigabytes_per_second"));
    }
  }
}

}  // namespace
}  // namespace shardsim
