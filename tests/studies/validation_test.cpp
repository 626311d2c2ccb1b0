// SPDX-License-Identifier: Apache-2.0
// The shipped measurements: every row is predicted, and no figure is worse than what is recorded.
#include "studies/validate/validation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scenarios/reader/scenario.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

const ValidationReport& shipped() {
  static const ValidationReport report = validate(value_or_throw(load_measurements(shipped_folder() + "/validation")));
  return report;
}

TEST(Validation, EveryRowIsPredicted) {
  EXPECT_GT(shipped().rows.size(), 200U);
  for (const ValidatedRow& row : shipped().rows) {
    EXPECT_EQ(row.problem, "") << row.row->id;
    EXPECT_TRUE(row.row->id.starts_with(row.source->name + "-")) << row.row->id;
    if (row.row->parameters) { EXPECT_EQ(row.parameters, *row.row->parameters) << row.row->id << ": the published count"; }
  }
}

TEST(Validation, NoFigureIsWorseThanRecorded) {
  const auto recorded = value_or_throw(
      read_source(shipped_folder() + "/validation/figures.json").and_then([](const Source& source) { return read_json(source); }));
  const auto figures = figures_of(shipped());
  for (const std::string& line : worse_than_recorded(figures, recorded))
    ADD_FAILURE() << line << " (scripts/accuracy.sh records anew what is meant to change)";
  EXPECT_EQ(recorded.entries.size(), figures.size());
}

TEST(Validation, AWorseFigureIsNoticed) {
  const auto recorded = [](double median) {
    return value_or_throw(read_json({"recorded.json", "{\"held_out.median\": " + std::to_string(median) + "}"}));
  };
  const std::vector<Figure> figures{{"held_out.median", 0.05}};
  EXPECT_TRUE(worse_than_recorded(figures, recorded(0.05)).empty());
  EXPECT_TRUE(worse_than_recorded(figures, recorded(0.06)).empty());
  EXPECT_EQ(worse_than_recorded(figures, recorded(0.04)).size(), 1U);
  EXPECT_THROW((void)worse_than_recorded({}, recorded(0.04)), InputError);
}

TEST(Validation, TheBaselineIsTheMedianShareOfThePeakOfFitRows) {
  std::vector<double> errors;
  for (const ValidatedRow& row : shipped().rows)
    if (row.timed(RowUse::fit) && row.gpu == "NVIDIA A100 SXM4 80GB") errors.push_back(row.baseline_error);
  ASSERT_GT(errors.size(), 20U);
  const auto below = std::count_if(errors.begin(), errors.end(), [](double error) { return error < 0; });
  EXPECT_NEAR(static_cast<double>(below), static_cast<double>(errors.size()) / 2, 1.0);
}

TEST(Validation, ErrorsAreOfSizes) {
  const std::vector<double> errors{-0.1, 0.02, 0.04};
  const Errors e = errors_of(errors);
  EXPECT_EQ(e.rows, 3U);
  EXPECT_DOUBLE_EQ(e.median, 0.04);
  EXPECT_NEAR(e.mean, 0.16 / 3, 1e-12);
  EXPECT_DOUBLE_EQ(e.bias, 0.02);
}

TEST(Validation, PairsOfStrategiesAndSeriesOfNodesAreFound) {
  EXPECT_GE(shipped().order.size(), 10U);
  EXPECT_GE(shipped().scaling.size(), 4U);
  for (const ScalingLoss& loss : shipped().scaling) EXPECT_LT(loss.from, loss.to);
  EXPECT_GE(shipped().memory.size(), 25U);
}

TEST(Validation, ReportsHoldEveryRow) {
  const Json json = validation_json(shipped());
  EXPECT_EQ(json.find("rows")->as<Json::List>()->size(), shipped().rows.size());
  EXPECT_EQ(json.find("held_out.rows")->as<std::int64_t>() != nullptr, true);
  const std::string csv = validation_csv(shipped());
  EXPECT_GE(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')), shipped().rows.size() + 1);
}

}  // namespace
}  // namespace shardsim
