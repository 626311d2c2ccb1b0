// SPDX-License-Identifier: Apache-2.0
#include "reports/table.hpp"

#include <gmock/gmock.h>

#include <sstream>

#include "reports/text.hpp"
#include "sample_result.hpp"

namespace shardsim {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SimulateTable, AnswersTheQuestionsOfOneScreen) {
  const std::string table = simulate_table(sample_result());
  EXPECT_THAT(table, HasSubstr("fsdp2, framework semantics, on 4 GPUs\n"));
  EXPECT_THAT(table, HasSubstr("1,000,000 parameters, 250,000 trainable"));
  EXPECT_THAT(table, ContainsRegex("all-gather +3.00 MB"));
  EXPECT_THAT(table, ContainsRegex("total +4.50 MB  6.00 Ψ"));
  EXPECT_THAT(table, ContainsRegex("textbook +4.40 MB  dimension 0 is padded"));
  EXPECT_THAT(table, Not(HasSubstr("broadcast")));  // nothing was sent by it
  EXPECT_THAT(table, ContainsRegex("activations +66.76 MiB"));
  EXPECT_THAT(table, ContainsRegex("on the device +972.00 MiB  fits 80.00 GiB"));
  EXPECT_THAT(table, ContainsRegex("exposed communication +250 ms  12.5 %"));
  EXPECT_THAT(table, ContainsRegex("hidden communication +500 ms"));
  EXPECT_THAT(table, ContainsRegex("step +2.00 s  bound by compute"));
  EXPECT_THAT(table, ContainsRegex("MFU +30.0 %"));
  EXPECT_THAT(table, HasSubstr("  - a warning\n"));
}

TEST(SimulateTable, FitsTheScreen) {
  SimulationResult result = sample_result();
  result.memory.fits = false;
  result.memory.peak_at = "FSDP::post_backward_reduce(model.layers.31.feed_forward.experts), backward of micro-batch 17";
  result.traffic.textbook_differs_because = "parameters are padded to a multiple of the shard group along dimension 0, and the root stays unsharded";
  result.warnings = {"the sequence is longer than the pretraining of the model, and so is this sentence, which goes on for more than a line"};
  std::istringstream lines(simulate_table(result));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(columns(line), line_width) << line;
  EXPECT_LE(count, 45U);
  EXPECT_THAT(simulate_table(result), HasSubstr("DOES NOT FIT 80.00 GiB"));
}

TEST(Text, WrapsAtSpacesAndCountsCharacters) {
  EXPECT_EQ(columns("6 Ψ"), 3U);
  EXPECT_EQ(pad_left("Ψ", 3), "  Ψ");
  const std::string word(30, 'x');
  EXPECT_EQ(wrapped(word + " " + word + " " + word, 4, 10), word + " " + word + "\n    " + word);
  EXPECT_EQ(wrapped("", 2, 2), "");
  EXPECT_EQ(wrapped(std::string(100, 'x'), 10, 10), std::string(70, 'x') + "\n" + std::string(10, ' ') + std::string(30, 'x'));
}

TEST(Text, GridAlignsColumns) {
  const TextGrid grid{.header = {"Name", "Bytes"}, .right = {false, true}, .rows = {{"a", "5"}, {"longer", "1,000"}}};
  EXPECT_EQ(grid.text(), "Name    Bytes\na           5\nlonger  1,000\n");
}

}  // namespace
}  // namespace shardsim
