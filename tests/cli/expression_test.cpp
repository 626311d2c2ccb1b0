// SPDX-License-Identifier: Apache-2.0
#include "studies/check/expression.hpp"

#include <gmock/gmock.h>

namespace shardsim {
namespace {

const Symbols symbols{{"psi", 8'030'261'248}, {"n", 64}, {"root", 1'050'677'248}, {"e_p", 2}};

ExactNumber value(std::string_view formula) {
  const auto result = evaluate(formula, {}, symbols);
  if (!result) throw std::runtime_error(result.error().text());
  return *result;
}

/// Column and message of the problems, for a formula that begins at column 10.
std::vector<std::pair<int, std::string>> problems(std::string_view formula) {
  const auto source = std::make_shared<const Source>(Source{"f.yaml", "equals: \"" + std::string(formula) + "\""});
  const auto result = evaluate(formula, Where{source, 1, 10}, symbols);
  std::vector<std::pair<int, std::string>> out;
  if (!result)
    for (const Problem& problem : result.error().list()) out.emplace_back(problem.where.column, problem.message);
  return out;
}

TEST(Expression, FollowsTheRulesOfArithmetic) {
  EXPECT_EQ(value("2 + 3 * 4").integer(), 14);
  EXPECT_EQ(value("(2 + 3) * 4").integer(), 20);
  EXPECT_EQ(value("10 - 4 - 3").integer(), 3);
  EXPECT_EQ(value("-2 ^ 2").integer(), -4);
  EXPECT_EQ(value("2 ^ 3 ^ 2").integer(), 512);
  EXPECT_EQ(value("2 ^ -1").value(), 0.5);
  EXPECT_EQ(value("max(1, 7, 3) - min(2, 5)").integer(), 5);
  EXPECT_EQ(value("ceil(7 / 2) + floor(-7 / 2) + ceil(-7 / 2)").integer(), 4 - 4 - 3);
}

TEST(Expression, IsExactWhereDoublesAreNot) {
  // (8 psi - 2 root) (n - 1) / n for Llama-3-8B on 64 ranks: 62,140,735,488 * 63 / 64.
  EXPECT_EQ(value("(8 * psi - 2 * root) * (n - 1) / n").integer(), 61'169'786'496);
  EXPECT_EQ(value("9007199254740993 * 3 / 3").integer(), 9'007'199'254'740'993);
  EXPECT_EQ(value("0.1 + 0.2").text(), "0.3");
  EXPECT_EQ(value("7.5e9 / 64 * 64").integer(), 7'500'000'000);
  EXPECT_FALSE(value("psi / 3").integer());
}

TEST(Expression, KnowsSizes) {
  EXPECT_EQ(value("25 MiB + 1 kB").integer(), 26'215'400);
  EXPECT_THAT(problems("25 M"), testing::ElementsAre(std::pair(13, "'M' is not a unit of size")));
}

TEST(Expression, PutsProblemsWhereTheyAre) {
  using testing::ElementsAre;
  EXPECT_THAT(problems("6 * psy * (m - 1) / n"),
              ElementsAre(std::pair(14, "unknown name 'psy' in the formula"), std::pair(21, "unknown name 'm' in the formula")));
  EXPECT_THAT(problems("6 * (n - 1"), ElementsAre(std::pair(14, "this '(' is not closed")));
  EXPECT_THAT(problems("6 * "), ElementsAre(std::pair(14, "the formula ends too early")));
  EXPECT_THAT(problems("6 * ) + 1"), ElementsAre(std::pair(14, "unexpected ')' in the formula")));
  EXPECT_THAT(problems("6 n"), ElementsAre(std::pair(12, "'n' is not a unit of size")));
  EXPECT_THAT(problems("n / (2 - 2)"), ElementsAre(std::pair(12, "division by zero in the formula")));
  EXPECT_THAT(problems("log(n)"), ElementsAre(std::pair(10, "unknown function 'log'")));
  EXPECT_THAT(problems(""), ElementsAre(std::pair(10, "the formula ends too early")));
  EXPECT_THAT(problems("1..2"), testing::SizeIs(1));
  EXPECT_THAT(problems(std::string(100'000, '(')), ElementsAre(std::pair(210, "the formula is nested too deeply")));
}

TEST(ExactNumber, ParsesDecimalsExactlyAndFallsBackToDoubles) {
  EXPECT_EQ(ExactNumber::parse("-12.50")->text(), "-12.5");
  EXPECT_EQ(ExactNumber::parse("9223372036854775807")->integer(), 9'223'372'036'854'775'807);
  EXPECT_FALSE(ExactNumber::parse("1e300")->exact());
  EXPECT_EQ(ExactNumber::parse("1e300")->value(), 1e300);
  EXPECT_FALSE(ExactNumber::parse("12x"));
  EXPECT_FALSE(ExactNumber::parse("nan"));
  EXPECT_FALSE(ExactNumber::parse(""));
}

}  // namespace
}  // namespace shardsim
