// SPDX-License-Identifier: Apache-2.0
#include "reports/check_report.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "sim/base/output.hpp"

namespace shardsim {
namespace {

using testing::HasSubstr;
using Outcome = CheckCase::Outcome;

CheckCase make(std::string scenario, Outcome outcome, std::string metric) {
  CheckCase c;
  c.scenario = std::move(scenario);
  c.line = 31;
  c.column = 5;
  c.metric = std::move(metric);
  c.outcome = outcome;
  c.seconds = 0.5;
  return c;
}

CheckCases sample() {
  CheckCase failed = make("a.yaml", Outcome::failed, "traffic.total");
  failed.expectation = "= 4 * psi within 0.1 %";
  failed.expected = 4000;
  failed.actual = 6000;
  failed.moved = "+50 %";
  failed.message = "traffic.total is 6,000, expected 4,000 = 4 * psi <within> 0.1 %: +50 %";
  CheckCase moved = make("a.yaml", Outcome::moved, "step.time_s");
  moved.expectation = "(baseline) within 2 %";
  moved.expected = 3.21;
  moved.actual = 3.22;
  moved.moved = "+0.312 %";
  CheckCase held = make("b.yaml", Outcome::ok, "memory.peak_bytes");
  held.expected = held.actual = 5;
  CheckCase broken = make("c.yaml", Outcome::error, "scenario");
  broken.line = 0;
  broken.message = "unknown key 'strategi'\x01, found";
  return {failed, moved, held, broken};
}

TEST(CheckTable, ShowsWhatFailedAndWhatMoved) {
  EXPECT_EQ(check_table(sample()),
            "a.yaml\n"
            "  FAILED  traffic.total  +50 %\n"
            "          expected 4,000 = 4 * psi within 0.1 %\n"
            "          actual   6,000\n"
            "  moved   step.time_s  +0.312 %\n"
            "          expected 3.21 (baseline) within 2 %\n"
            "          actual   3.22\n"
            "\nc.yaml\n"
            "  ERROR   scenario\n"
            "          unknown key 'strategi'\x01, found\n"
            "\n4 checked, 2 failed\n");
  EXPECT_EQ(check_table({sample()[2]}), "1 checked, none failed\n");
}

TEST(CheckJson, FollowsTheContract) {
  const Json json = check_json(sample());
  EXPECT_EQ(*json.find("schema")->as<std::string>(), "shardsim.check/1");
  EXPECT_EQ(*json.find("checked")->as<std::int64_t>(), 4);
  EXPECT_EQ(*json.find("failed")->as<std::int64_t>(), 2);
  EXPECT_EQ(*json.find("cases.0.expected")->as<std::int64_t>(), 4000);
  EXPECT_EQ(*json.find("cases.1.ok")->as<bool>(), true);
  EXPECT_EQ(*json.find("cases.3.ok")->as<bool>(), false);
}

TEST(GithubAnnotations, PointAtTheLineAndEscape) {
  EXPECT_EQ(
      github_annotations(sample()),
      "::error file=a.yaml,line=31,col=5,title=traffic.total::traffic.total is 6,000, expected 4,000 = 4 * psi <within> 0.1 %25: +50 %25\n"
      "::error file=c.yaml,title=scenario::unknown key 'strategi'\x01, found\n");
}

TEST(Junit, CountsBySuiteAndEscapes) {
  const std::string xml = junit_xml(sample());
  EXPECT_THAT(xml, HasSubstr(R"(<testsuites name="shardsim check" tests="4" failures="1" errors="1" time="2.000">)"));
  EXPECT_THAT(xml, HasSubstr(R"(<testsuite name="a.yaml" tests="2" failures="1" errors="0" time="1.000">)"));
  EXPECT_THAT(xml, HasSubstr(R"(<testcase name="traffic.total = 4 * psi within 0.1 %" classname="a.yaml" file="a.yaml" time="0.500">)"));
  EXPECT_THAT(xml, HasSubstr("4 * psi &lt;within&gt; 0.1 %: +50 %"));
  EXPECT_THAT(xml, HasSubstr("unknown key 'strategi'?, found"));
}

TEST(Junit, PassesTheSchema) {
  if (std::system("command -v xmllint >/dev/null 2>&1") != 0) GTEST_SKIP() << "no xmllint (libxml2-utils)";
  const auto file = std::filesystem::temp_directory_path() / ("shardsim-junit-" + std::to_string(getpid()) + ".xml");
  for (const CheckCases& cases : {sample(), CheckCases{}}) {
    write_output(file.string(), junit_xml(cases));
    const std::string command =
        "xmllint --nonet --noout --schema " SHARDSIM_SOURCE_DIR "/tests/support/junit.xsd " + file.string() + " 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << junit_xml(cases);
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace shardsim
