// SPDX-License-Identifier: Apache-2.0
#include "reports/profile_rows.hpp"

#include <gmock/gmock.h>

#include "reports/html/markup.hpp"
#include "reports/html/profile_html.hpp"

namespace shardsim {
namespace {

Profile measured() {
  Profile p;
  p.name = "mine <1>";
  p.gpu.name = "GPU";
  p.gpu.capacity = gibibytes(80);
  p.origins["gpu"] = "measured: here";
  CollectiveFit fit;
  fit.collective = Collective::all_reduce;
  fit.ranks = 4;
  fit.segments = {{std::nullopt, microseconds(10), ByteRate{1e9}}};
  fit.samples = {{Bytes{1'000'000}, microseconds(1000), microseconds(1000), microseconds(1100), 20}};
  p.collectives = {fit};
  return p;
}

TEST(ProfileRows, TellValuesWithTheirOrigins) {
  const auto values = profile_values(measured());
  ASSERT_GE(values.size(), 2U);
  EXPECT_EQ(values[1].key, "gpu.capacity");
  EXPECT_EQ(values[1].value, "80.00 GiB");
  EXPECT_EQ(values[1].origin, "measured: here");
  EXPECT_TRUE(profile_values(Profile{}).empty());
}

// 10 us + 1 MB at 1 GB/s = 1010 us against 1000 us; 1 GB/s of the algorithm is 2 * 3/4 of the bus.
TEST(ProfileRows, SetTheFitBesideTheMeasurement) {
  const auto points = curve_points(measured().collectives[0]);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_NEAR(points[0].fitted.base(), 1010e-6, 1e-12);
  EXPECT_NEAR(points[0].error(), 0.01, 1e-9);
  EXPECT_NEAR(points[0].bus_gigabytes, 1.5, 1e-9);
  EXPECT_EQ(fit_title(measured().collectives[0]), "all_reduce, 4 ranks on 1 node, ring");
}

TEST(ProfileRows, AreOnePictureInJsonAndOnThePage) {
  const HtmlPage page = profile_page(measured());
  EXPECT_EQ(page.data.line(), profile_json(measured()).line());
  EXPECT_EQ(*page.data.find("schema")->as<std::string>(), "shardsim.profile/1");
  EXPECT_NEAR(*page.data.find("collectives.0.points.0.fitted_s")->as<double>(), 1010e-6, 1e-12);
  ASSERT_EQ(page.sections.size(), 2U);
  ASSERT_TRUE(page.sections[1].chart);
  EXPECT_NEAR(*page.sections[1].chart->series[0].data.find("0.y")->as<double>(), 1.5, 1e-9);
  EXPECT_EQ(page.sections[1].tables[0].rows[0][3], "+1.0 %");
}

TEST(Markup, EscapesWhatXmlCannotHold) { EXPECT_EQ(markup("a<b> & \"c\"\n\t\x01"), "a&lt;b&gt; &amp; &quot;c&quot;&#10;&#9;?"); }

}  // namespace
}  // namespace shardsim
