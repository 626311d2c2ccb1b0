// SPDX-License-Identifier: Apache-2.0
#include "sim/base/problem.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardsim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Where at(const std::string& text, int line, int column, const std::string& name = "s.yaml") {
  return {std::make_shared<const Source>(Source{name, text}), line, column};
}

TEST(Problem, LooksLikeACompilersMessage) {
  Problems problems;
  problems.add(at("training:\n  micro_batch_sise: 1\n", 2, 3), "unknown key 'micro_batch_sise' in training",
               {"did you mean 'micro_batch_size'?"});
  EXPECT_EQ(problems.text(),
            "s.yaml:2:3: error: unknown key 'micro_batch_sise' in training\n"
            "    2 |   micro_batch_sise: 1\n"
            "      |   ^\n"
            "  note: did you mean 'micro_batch_size'?\n");
}

TEST(Problem, WithoutAPlaceNamesTheFileOnly) {
  Problems problems;
  problems.add(at("", 0, 0), "cannot read the file");
  problems.add({}, "no file given");
  EXPECT_EQ(problems.text(), "error: no file given\ns.yaml: error: cannot read the file\n");
}

TEST(Problem, AreSortedByPlaceAndToldOnce) {
  const Where late = at("a: 1\nb: 2\n", 2, 1);
  Problems problems;
  problems.add(late, "second");
  problems.add(at("a: 1\nb: 2\n", 1, 4), "first");
  problems.add(late, "second");
  EXPECT_EQ(problems.text(), "s.yaml:1:4: error: first\n    1 | a: 1\n      |    ^\ns.yaml:2:1: error: second\n    2 | b: 2\n      | ^\n");
}

TEST(Problem, CutsLongLinesAroundTheColumn) {
  Problems problems;
  problems.add(at(std::string(5000, 'a') + "!" + std::string(5000, 'b'), 1, 5001), "here");
  const std::string expected_line = "    1 | ..." + std::string(60, 'a') + "!" + std::string(36, 'b') + "...\n";
  EXPECT_EQ(problems.text(), "s.yaml:1:5001: error: here\n" + expected_line + "      | " + std::string(63, ' ') + "^\n");
}

TEST(Problem, EscapesWhatATerminalWouldObey) {
  Problems problems;
  problems.add(at("k\x1b[31m: \xff \xc3\xa9\n", 1, 10), "bad \x07");
  EXPECT_EQ(problems.text(), "s.yaml:1:10: error: bad \\x07\n    1 | k\\x1b[31m: \\xff \xc3\xa9\n      |                ^\n");
}

TEST(Problem, PrintsTwentyAndCountsTheRest) {
  Problems problems;
  for (int line = 1; line <= 25; ++line) problems.add(at("", line, 1), "problem");
  EXPECT_THAT(problems.text(), HasSubstr("s.yaml:20:1: error: problem\nerror: 5 more problems\n"));
}

TEST(Nearest, FindsTheWordThatWasMeant) {
  const std::vector<std::string> known{"zero1", "zero2", "ddp", "micro_batch_size"};
  EXPECT_EQ(nearest("micro_batch_sise", known), "micro_batch_size");
  EXPECT_EQ(nearest("dpd", known), "ddp");  // two neighbours swapped
  EXPECT_EQ(nearest("megatron", known), "");
  EXPECT_EQ(nearest(std::string(1 << 20, 'x'), known), "");
  EXPECT_EQ(nearest("", known), "");
}

TEST(Nearest, NotesNameWhatIsAllowed) {
  EXPECT_THAT(notes_for_unknown("zero4", {"zero1", "ddp"}), ElementsAre("did you mean 'zero1'?", "allowed: zero1, ddp"));
  EXPECT_THAT(notes_for_unknown("banana", {"zero1", "ddp"}), ElementsAre("allowed: zero1, ddp"));
}

}  // namespace
}  // namespace shardsim
