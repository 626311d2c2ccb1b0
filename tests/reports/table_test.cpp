// SPDX-License-Identifier: Apache-2.0
#include "reports/table.hpp"

#include <gmock/gmock.h>

#include <sstream>
#include <vector>

#include "reports/text.hpp"
#include "sample_result.hpp"
#include "sim/memory/memory_explanation.hpp"

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
  result.traffic.textbook_differs_because =
      "parameters are padded to a multiple of the shard group along dimension 0, and the root stays unsharded";
  result.warnings = {
      "the sequence is longer than the pretraining of the model, and so is this sentence, which goes on for more than a line"};
  std::istringstream lines(simulate_table(result));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(columns(line), line_width) << line;
  EXPECT_LE(count, 45U);
  EXPECT_THAT(simulate_table(result), HasSubstr("DOES NOT FIT 80.00 GiB"));
}

// 4,000,000 bytes are held at the end of backward, 3,500,000 of them at the peak; 72 MiB - 73,502,048 bytes are reserved and free.
TEST(SimulateTable, SaysWhatStandsBetweenTheFormulaAndThePeak) {
  SimulationResult result = sample_result();
  result.explanation = std::make_shared<const MemoryExplanation>();
  std::istringstream in(simulate_table(result));
  std::string text;
  for (std::string word; in >> word;) text += word + " ";
  EXPECT_THAT(
      text,
      HasSubstr(
          "The formula, parameters + gradients + optimizer states, comes to 3.81 MiB; the device needs 972.00 MiB. On top: outside "
          "the allocator 900.00 MiB, activations 66.76 MiB, held free by the allocator 1.90 MiB, unsharded parameters 2.00 KiB. Of the "
          "formula 488.28 KiB are not there at the peak."));
}

/// Reports of one test for a narrow terminal.
class Narrow {
 public:
  explicit Narrow(std::size_t columns) { narrow_to(columns); }
  ~Narrow() { narrow_to(line_width); }
  Narrow(const Narrow&) = delete;
  Narrow& operator=(const Narrow&) = delete;
};

// A label, its value and its remark each have room in 40 columns, the last below the others; nothing is dropped.
TEST(SimulateTable, FitsNarrowTerminals) {
  const std::string wide = simulate_table(sample_result());
  for (const std::size_t width : {40U, 60U, 79U}) {
    const Narrow narrow(width);
    const std::string table = simulate_table(sample_result());
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), width) << line;
    std::istringstream in_wide(wide), in_table(table);
    std::vector<std::string> words, kept;
    for (std::string word; in_wide >> word;) words.push_back(word);
    for (std::string word; in_table >> word;) kept.push_back(word);
    EXPECT_EQ(kept, words) << width;
  }
}

TEST(Text, WidthIsThatOfTheTerminalWithinLimits) {
  narrow_to(10);
  EXPECT_EQ(text_width(), least_line_width);
  narrow_to(200);
  EXPECT_EQ(text_width(), line_width);
}

TEST(Text, StandsBesideOrBelow) {
  EXPECT_EQ(beside("  --jobs N", "threads", 28), "  --jobs N" + std::string(18, ' ') + "threads");
  EXPECT_EQ(beside("  " + std::string(26, 'x'), "threads", 28), "  " + std::string(26, 'x') + "\n" + std::string(28, ' ') + "threads");
  const Narrow narrow(40);
  EXPECT_EQ(beside("  --jobs N", "threads", 28), "  --jobs N\n      threads");  // 12 columns are too few for a sentence
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

// Columns of 38, 4 and 4 take 48 with single gaps: too many for 40.
TEST(Text, AGridThatIsTooWideBecomesAList) {
  const std::string name(38, 'n');
  const TextGrid grid{.header = {"Name", "Step", "Fits"}, .right = {false, true, false}, .rows = {{name, "1 s", "yes"}, {"b", "20 s", ""}}};
  const Narrow narrow(40);
  EXPECT_EQ(grid.text(), "Name\n  " + name + "\n  Step 1 s, Fits yes\nName b\n  Step 20 s\n");
}

TEST(Text, AGridCloseToTheWidthHasNarrowerGaps) {
  const TextGrid grid{.header = {std::string(39, 'a'), std::string(40, 'b')}, .right = {false, false}, .rows = {}};
  EXPECT_EQ(grid.text(), std::string(39, 'a') + " " + std::string(40, 'b') + "\n");
}

}  // namespace
}  // namespace shardsim
