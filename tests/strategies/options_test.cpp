// SPDX-License-Identifier: Apache-2.0
#include "strategies/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardsim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<OptionSpec> specs{
    {.name = "overlap_comm", .kind = OptionKind::boolean, .fallback = "", .help = "", .words = {}},
    {.name = "reduce_bucket_size", .kind = OptionKind::integer, .fallback = "", .help = "", .words = {}, .minimum = 1},
    {.name = "bucket_cap_mb", .kind = OptionKind::number, .fallback = "", .help = "", .words = {}, .minimum = 0.5},
    {.name = "bucket", .kind = OptionKind::size, .fallback = "", .help = "", .words = {}},
    {.name = "backward_prefetch", .kind = OptionKind::word, .fallback = "", .help = "", .words = {"BACKWARD_PRE", "BACKWARD_POST"}},
    {.name = "reshard_after_forward", .kind = OptionKind::word, .fallback = "", .help = "", .words = {}},
    {.name = "wrap", .kind = OptionKind::list, .fallback = "", .help = "", .words = {}}};

struct Read {
  Options options;
  std::string problems;
};

Read read(const std::string& text) {
  const ConfigNode root = read_yaml({"s.yaml", text}).value();
  Problems problems;
  MapReader reader(root, problems, "strategy");
  Options options = read_options(reader, specs);
  reader.finish();
  return {std::move(options), problems.text()};
}

TEST(Options, HoldWhatWasGivenInItsKind) {
  const auto [options, problems] = read(
      "overlap_comm: true\nreduce_bucket_size: 5e8\nbucket_cap_mb: 25\nbucket: 25 MiB\nbackward_prefetch: BACKWARD_POST\n"
      "reshard_after_forward: 8\nwrap: [block, head]\n");
  EXPECT_EQ(problems, "");
  EXPECT_TRUE(options.boolean("overlap_comm", false));
  EXPECT_EQ(options.integer("reduce_bucket_size", 0), 500'000'000);
  EXPECT_EQ(options.number("bucket_cap_mb", 0), 25.0);
  EXPECT_EQ(options.size("bucket", {}), mebibytes(25));
  EXPECT_EQ(options.word("backward_prefetch", ""), "BACKWARD_POST");
  EXPECT_EQ(options.word("reshard_after_forward", ""), "8");
  EXPECT_THAT(options.list("wrap"), ElementsAre("block", "head"));
  EXPECT_EQ(options.where("bucket").line, 4);
}

TEST(Options, LeaveTheRestToTheLibrary) {
  const auto [options, problems] = read("wrap: block\nbucket_cap_mb: null\n");
  EXPECT_EQ(problems, "");
  EXPECT_FALSE(options.given("bucket_cap_mb"));
  EXPECT_EQ(options.number("bucket_cap_mb", 25), 25);
  EXPECT_EQ(options.where("bucket_cap_mb").source, nullptr);
  EXPECT_THAT(options.list("wrap"), ElementsAre("block"));  // one word alone is a list of one
}

TEST(Options, BadValuesAreProblemsAndNotGiven) {
  const auto [options, problems] = read(
      "overlap_comm: yes\nreduce_bucket_size: 0\nbucket_cap_mb: 0.1\nbucket: 25\nbackward_prefetch: BACKWARD_PRO\nwrap: [[a], b]\nno_such: "
      "1\n");
  EXPECT_TRUE(options.values().empty());
  EXPECT_THAT(problems, HasSubstr("s.yaml:1:15: error: expected true or false, got 'yes'"));
  EXPECT_THAT(problems, HasSubstr("s.yaml:2:21: error: expected a whole number of at least 1, got '0'"));
  EXPECT_THAT(problems, HasSubstr("s.yaml:3:16: error: expected a number of at least 0.5, got '0.1'"));
  EXPECT_THAT(problems, HasSubstr("s.yaml:4:9: error: '25' has no unit"));
  EXPECT_THAT(problems, HasSubstr("s.yaml:5:20: error: backward_prefetch cannot be 'BACKWARD_PRO'"));
  EXPECT_THAT(problems, HasSubstr("s.yaml:6:8: error: expected text, got a list"));
  EXPECT_THAT(problems, HasSubstr("s.yaml:7:1: error: unknown key 'no_such' in strategy"));
}

}  // namespace
}  // namespace shardsim
