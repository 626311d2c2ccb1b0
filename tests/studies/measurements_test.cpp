// SPDX-License-Identifier: Apache-2.0
// Files of published measurements: what a row becomes, which rows may be fitted to, and what is refused.
#include "studies/validate/measurements.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "studies/sweep/sweep_plan.hpp"

namespace shardsim {
namespace {

using testing::HasSubstr;

Result<MeasurementSource> read(const std::string& text) { return read_yaml({"rows.yaml", text}).and_then(read_measurements); }

const std::string head = R"(source: ABC
title: "a table"
where: "a repository"
date: 2024-01
software: torchtitan
error_bar: 2 %
fit: {every: 2}
scenario: {training: {precision: mixed}, strategy: {name: fsdp2, wrap: torchtitan}}
parts:
  small: {model: {preset: gpt2}}
  plain: {strategy: {wrap: null}}
  dark: {unstated: "the network", software: other}
columns: [id, with, [training.sequence_length, model.max], cluster.nodes, tokens_per_second_per_gpu, allocated]
rows:
)";

TEST(Measurements, RowsBecomeScenarios) {
  const auto source = read(head + "  - [ABC-1, [small, plain], 512, 2, 1000, 3 GiB]\n  - [ABC-2, small, 512, null, 1000, null]\n");
  ASSERT_TRUE(source) << source.error().text();
  EXPECT_EQ(source->name, "ABC");
  EXPECT_DOUBLE_EQ(source->error_bar, 0.02);
  ASSERT_EQ(source->rows.size(), 2U);
  const Measurement& row = source->rows[0];
  EXPECT_EQ(flow_text(row.scenario),
            "{training: {precision: mixed, sequence_length: 512}, strategy: {name: fsdp2}, model: {preset: gpt2, max: 512}, cluster: "
            "{nodes: 2}}");
  EXPECT_EQ(row.tokens_per_second_per_gpu, 1000);
  EXPECT_EQ(row.allocated, gibibytes(3));
  EXPECT_EQ(row.fits, true) << "a run that has a throughput did fit";
  EXPECT_EQ(row.software, "torchtitan");
  EXPECT_EQ(
      flow_text(source->rows[1].scenario),
      "{training: {precision: mixed, sequence_length: 512}, strategy: {name: fsdp2, wrap: torchtitan}, model: {preset: gpt2, max: 512}}");
}

TEST(Measurements, TheRuleSaysWhichRowsMayBeFitted) {
  const auto source =
      read(head +
           "  - [ABC-1, small, 512, 1, 1, null]\n  - [ABC-2, [small, dark], 512, 1, 1, null]\n  - [ABC-3, small, 512, 1, null, 1 GB]\n"
           "  - [ABC-4, small, 512, 1, 1, null]\n  - [ABC-5, small, 512, 1, 1, null]\n");
  ASSERT_TRUE(source) << source.error().text();
  std::vector<RowUse> uses;
  for (const Measurement& row : source->rows) uses.push_back(row.use);
  EXPECT_THAT(uses, testing::ElementsAre(RowUse::fit, RowUse::unstated, RowUse::memory_only, RowUse::held_out, RowUse::fit));
  EXPECT_EQ(source->rows[1].unstated, "the network");
  EXPECT_EQ(source->rows[1].software, "other");
}

TEST(Measurements, MistakesAreToldAtTheirPlace) {
  const auto said = [](const std::string& text) {
    const auto source = read(text);
    return source ? std::string("accepted") : source.error().text();
  };
  EXPECT_THAT(said(head + "  - [ABC-1, small, 512]\n"), HasSubstr("rows.yaml:15:5: error: expected a row of 6 cells"));
  EXPECT_THAT(said(head + "  - [ABC-1, smal, 512, 1, 1, null]\n"), HasSubstr("no part is named 'smal'"));
  EXPECT_THAT(said(head + "  - [ABC-1, small, 512, 1, 1, null]\n  - [ABC-1, small, 512, 1, 1, null]\n"), HasSubstr("a second row 'ABC-1'"));
  EXPECT_THAT(said(head + "  - [ABC-1, small, 512, 1, fast, null]\n"), HasSubstr("rows.yaml:15"));
  std::string column = head;
  column.replace(column.find("allocated]"), 10, "alocated]");
  EXPECT_THAT(said(column + "  - [ABC-1, small, 512, 1, 1, null]\n"), HasSubstr("did you mean 'allocated'?"));
  EXPECT_THAT(said("source: X\n"), HasSubstr("fit"));
}

}  // namespace
}  // namespace shardsim
