// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <regex>

#include "reports/html/assets.hpp"
#include "reports/html/simulate_html.hpp"
#include "sample_result.hpp"
#include "sim/config/node.hpp"
#include "studies/simulate/simulate_json.hpp"

namespace shardsim {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string element(const std::string& page, const std::string& id) {
  const std::string open = "id=\"" + id + "\">";
  const std::size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

class HtmlTest : public testing::Test {
 protected:
  void SetUp() override {
    if (chart_library.empty()) GTEST_SKIP() << "no Chart.js (libjs-chart.js)";
  }
};

TEST_F(HtmlTest, CarriesTheJsonAndTheFigures) {
  const SimulationResult result = sample_result();
  const std::string page = html_page(simulate_page(result));
  EXPECT_EQ(element(page, "data"), simulate_json(result).line());
  EXPECT_THAT(page, HasSubstr("<td>all-gather</td><td class=\"right\">3,000,000</td>"));
  EXPECT_THAT(page, HasSubstr("<td>textbook</td><td class=\"right\">4,400,000</td>"));
  EXPECT_THAT(page, HasSubstr("<td>activations</td><td class=\"right\">66.76 MiB</td><td class=\"right\">70,000,000</td>"));
  EXPECT_THAT(page, HasSubstr("<li>a warning</li>"));
}

TEST_F(HtmlTest, LoadsNothingFromANetwork) {
  const std::string page = html_page(simulate_page(sample_result()));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
  EXPECT_FALSE(std::regex_search(page.substr(0, page.find("<script>")), std::regex("(src|href)=")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
}

TEST_F(HtmlTest, DescribesItsChartsAsDataAndInWords) {
  const std::string page = html_page(simulate_page(sample_result()));
  const auto charts = read_json(Source{"charts", element(page, "charts")});
  ASSERT_TRUE(charts) << charts.error().text();
  ASSERT_EQ(charts->items.size(), 4U);
  EXPECT_EQ(charts->items[1].find("kind")->text, "area");
  EXPECT_EQ(charts->items[2].find("kind")->text, "timeline");
  std::size_t canvases = 0;
  for (std::size_t at = page.find("<canvas"); at != std::string::npos && at < page.find("<script"); at = page.find("<canvas", at + 1)) {
    ++canvases;
    EXPECT_THAT(page.substr(at, 80), HasSubstr("role=\"img\" aria-label=\""));
  }
  EXPECT_EQ(canvases, 4U);
}

TEST_F(HtmlTest, EscapesWhatUsersWrote) {
  SimulationResult result = sample_result();
  result.scenario = "</script><b>.yaml";
  const std::string page = html_page(simulate_page(result));
  EXPECT_THAT(page, HasSubstr("<h1>&lt;/script&gt;&lt;b&gt;.yaml</h1>"));
  EXPECT_THAT(element(page, "data"), HasSubstr(R"("scenario":"<\/script><b>.yaml")"));
}

TEST_F(HtmlTest, KeepsThePeakOfALongTimeline) {
  SimulationResult result = sample_result();
  std::vector<AllocationChange> changes;
  std::vector<SimTime> times;
  result.memory.before = {};
  std::int64_t allocated = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::int64_t next = i == 51'234 ? 999 : i % 7;
    times.emplace_back(result.timeline.end.picoseconds() / 100'000 * i);
    changes.push_back({.bytes = Bytes{next - std::exchange(allocated, next)}, .op = OpId{0}, .category = Category::parameters});
  }
  result.memory.timeline = {std::make_shared<const std::vector<AllocationChange>>(std::move(changes)), std::move(times)};
  const std::string charts = element(html_page(simulate_page(result)), "charts");
  EXPECT_THAT(charts, HasSubstr("\"y\":999}"));
  EXPECT_LT(charts.size(), 200'000U);
}

}  // namespace
}  // namespace shardsim
