// SPDX-License-Identifier: Apache-2.0
#include "studies/check/expectations.hpp"

#include <gmock/gmock.h>

namespace shardsim {
namespace {

using testing::HasSubstr;
using Outcome = CheckCase::Outcome;

const Symbols psi_and_n{{"psi", 1000}, {"n", 8}};
const Json result(Json::Object{{"traffic", Json::Object{{"total", 3500}}},
                               {"memory", Json::Object{{"fits", true}, {"peak_phase", "backward"}}},
                               {"step", Json::Object{{"time_s", 3.3}}}});

Expectation expect(std::string metric) {
  Expectation e;
  e.where = {std::make_shared<const Source>(Source{"s.yaml", "- x"}), 1, 3};
  e.metric = std::move(metric);
  return e;
}

Expectation equals(std::string metric, std::string formula) {
  Expectation e = expect(std::move(metric));
  e.equals = std::move(formula);
  e.equals_where = e.where;
  return e;
}

CheckCase checked(const Expectation& e) {
  const auto out = check_expectation(e, result, psi_and_n);
  if (!out) throw std::runtime_error(out.error().text());
  return *out;
}

std::string problem(const Expectation& e) {
  const auto out = check_expectation(e, result, psi_and_n);
  return out ? "none" : out.error().text();
}

TEST(Expectation, EqualsIsExactOnIntegers) {
  EXPECT_EQ(checked(equals("traffic.total", "4 * psi * (n - 1) / n")).outcome, Outcome::ok);
  const CheckCase off = checked(equals("traffic.total", "4 * psi * (n - 1) / n + 1"));
  EXPECT_EQ(off.outcome, Outcome::failed);
  EXPECT_EQ(off.message, "traffic.total is 3,500, expected 3,501 = 4 * psi * (n - 1) / n + 1: -0.0286 %");
}

TEST(Expectation, ToleranceMakesADifferenceAMove) {
  Expectation e = equals("step.time_s", "3.2");
  EXPECT_THAT(problem(e), HasSubstr("without a tolerance, but 3.3 is no integer"));
  e.relative = 0.05;
  EXPECT_EQ(checked(e).outcome, Outcome::moved);
  EXPECT_EQ(checked(e).expectation, "= 3.2 within 5 %");
  e.relative = 0.01;
  EXPECT_EQ(checked(e).outcome, Outcome::failed);
  e.absolute = 0.2;
  EXPECT_EQ(checked(e).outcome, Outcome::moved);
}

TEST(Expectation, BoundsHoldOrFail) {
  Expectation e = expect("step.time_s");
  e.at_most = 3.3;
  e.at_least = 3.0;
  EXPECT_EQ(checked(e).outcome, Outcome::ok);
  e.at_most = 3.2;
  EXPECT_EQ(checked(e).outcome, Outcome::failed);
  EXPECT_THAT(checked(e).message, HasSubstr("step.time_s is 3.3, expected at most 3.2"));
  e.at_most = 4;
  e.at_least = 3.5;
  EXPECT_THAT(checked(e).message, HasSubstr("expected at least 3.5"));
}

TEST(Expectation, BaselinesCompareAsFormulasDo) {
  Expectation e = expect("traffic.total");
  e.baseline = 3500;
  EXPECT_EQ(checked(e).outcome, Outcome::ok);
  e.baseline = 3499;
  EXPECT_EQ(checked(e).outcome, Outcome::failed);
  e.relative = 0.01;
  EXPECT_EQ(checked(e).outcome, Outcome::moved);
}

TEST(Expectation, ComparesWordsAndFlags) {
  EXPECT_EQ(checked(equals("memory.peak_phase", "backward")).outcome, Outcome::ok);
  EXPECT_EQ(checked(equals("memory.fits", "true")).outcome, Outcome::ok);
  EXPECT_EQ(checked(equals("memory.fits", "false")).outcome, Outcome::failed);
  Expectation e = expect("memory.peak_phase");
  e.at_most = 1;
  EXPECT_THAT(problem(e), HasSubstr("only equals can be asked of it"));
}

TEST(Expectation, RefusesUnknownMetrics) {
  EXPECT_THAT(problem(equals("traffic.totl", "1")), HasSubstr("unknown metric 'traffic.totl'"));
  EXPECT_THAT(problem(equals("traffic.totl", "1")), HasSubstr("did you mean 'traffic.total'?"));
  EXPECT_THAT(problem(equals("traffic", "1")), HasSubstr("unknown metric"));
}

}  // namespace
}  // namespace shardsim
