// SPDX-License-Identifier: Apache-2.0
#include "sim/config/toml.hpp"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

ConfigNode read_text(const std::string& text) {
  auto result = read_toml({"t.toml", text});
  if (!result) ADD_FAILURE() << result.error().text();
  return result ? *result : ConfigNode{};
}

/// "LINE:COLUMN message" of the one problem.
std::string refused(const std::string& text) {
  const auto result = read_toml({"t.toml", text});
  if (result) return "accepted";
  const Problem& problem = result.error().list().front();
  return std::to_string(problem.where.line) + ":" + std::to_string(problem.where.column) + " " + problem.message;
}

const ConfigNode& at(const ConfigNode& node, const std::string& a, const std::string& b = "") {
  static const ConfigNode missing;
  const ConfigNode* found = node.find(a);
  if (found != nullptr && !b.empty()) found = found->find(b);
  return found == nullptr ? missing : *found;
}

TEST(Toml, TablesHoldTheirKeysWithPositions) {
  const ConfigNode root = read_text("# comment\ntop = 1\n\n[training]\nseq_len = 4_096  # tail\nlr = 3e-4\n[training.inner]\nx = true\n");
  EXPECT_EQ(at(root, "top").text, "1");
  EXPECT_EQ(at(root, "training", "seq_len").text, "4096");
  EXPECT_EQ(at(root, "training", "seq_len").where.line, 5);
  EXPECT_EQ(at(root, "training", "seq_len").where.column, 11);
  EXPECT_EQ(at(root, "training", "lr").text, "3e-4");
  EXPECT_EQ(at(at(root, "training"), "inner", "x").text, "true");
}

TEST(Toml, StringsKeepWhatWasQuoted) {
  const ConfigNode root = read_text("a = \"tab\\t \\u00e9\"\nb = 'raw \\n'\nc = \"\"\"\nfirst\nsecond\"\"\"\nd = '''\nx'''\n");
  EXPECT_EQ(at(root, "a").text, "tab\t \xc3\xa9");
  EXPECT_TRUE(at(root, "a").quoted);
  EXPECT_EQ(at(root, "b").text, "raw \\n");
  EXPECT_EQ(at(root, "c").text, "first\nsecond");
  EXPECT_EQ(at(root, "d").text, "x");
}

TEST(Toml, ArraysInlineTablesAndArraysOfTables) {
  const ConfigNode root =
      read_text("a = [1, 2,\n  # why\n  3,\n]\np = {x = 1, y.z = \"w\"}\n[[run]]\nn = 1\n[[run]]\nn = 2\n[run.sub]\nm = 3\n");
  ASSERT_EQ(at(root, "a").items.size(), 3U);
  EXPECT_EQ(at(root, "a").items[2].text, "3");
  EXPECT_EQ(at(at(root, "p"), "y", "z").text, "w");
  ASSERT_EQ(at(root, "run").items.size(), 2U);
  EXPECT_EQ(at(at(root, "run").items[1], "sub", "m").text, "3");
}

TEST(Toml, IntegersOfOtherBasesBecomeDecimal) {
  const ConfigNode root = read_text("a = 0xff\nb = 0b101\nc = -17\nd = 1979-05-27T07:32:00Z\n");
  EXPECT_EQ(at(root, "a").text, "255");
  EXPECT_EQ(at(root, "b").text, "5");
  EXPECT_EQ(at(root, "c").text, "-17");
  EXPECT_EQ(at(root, "d").text, "1979-05-27T07:32:00Z");
}

TEST(Toml, ProblemsStandWhereTheyAre) {
  const auto place = [](const std::string& text) { return refused(text).substr(0, refused(text).find(' ')); };
  EXPECT_EQ(refused("a = 1\na = 2\n").substr(0, 14), "2:1 not TOML: ");
  EXPECT_EQ(place("a = \"x\n"), "1:7");
  EXPECT_EQ(place("from typing import cast\n"), "1:6");
  for (const char* wrong : {"12abc", "1__2", "012", "_1", "1_", "0x", "yes", "1979-13-01", "25:00:00", ""})
    EXPECT_NE(refused(std::string("a = ") + wrong + "\n").find(" not TOML"), std::string::npos) << wrong;
}

TEST(Toml, WholeNumbersAndDatesAsTheSpecificationSays) {
  EXPECT_EQ(at(read_text("a = +4\n"), "a").text, "4");
  EXPECT_EQ(at(read_text("a = 1_0\n"), "a").text, "10");
  for (const char* when : {"1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "1979-05-27 07:32:00.5-07:00"})
    EXPECT_EQ(at(read_text(std::string("a = ") + when + "  # c\n"), "a").text, when);
}

TEST(Toml, ColumnsAreBytesAndKeysKeepTheirOrder) {
  const ConfigNode root = read_text("z = \"\xc3\xa9\xc3\xa9\"\na = { y = 1, b = \"\xc3\xa9\", c = 2 }\n");
  ASSERT_EQ(root.entries.size(), 2U);
  EXPECT_EQ(root.entries[0].key, "z");
  EXPECT_EQ(at(root, "a", "c").where.column, 27);
}

TEST(Toml, HostileInputStops) {
  EXPECT_NE(refused("a = " + std::string(5000, '[')).find("not TOML"), std::string::npos);
  std::string parts = "a";
  for (int i = 0; i < 100000; ++i) parts += ".a";
  EXPECT_NE(refused("[" + parts + "]\n").find("more than 64 parts"), std::string::npos);
  EXPECT_NE(refused(parts + " = 1\n").find("more than 64 parts"), std::string::npos);
  EXPECT_EQ(refused("s = \"\"\"\n" + parts + "\"\"\"\n"), "accepted");
  ReadLimits small;
  small.bytes = 8;
  EXPECT_FALSE(read_toml({"t.toml", "a = 123456\n"}, small).has_value());
  small = {};
  small.nodes = 3;
  EXPECT_FALSE(read_toml({"t.toml", "a = [1, 2, 3, 4]\n"}, small).has_value());
}

}  // namespace
}  // namespace shardsim
