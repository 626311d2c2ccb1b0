// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "sim/base/csv.hpp"
#include "sim/base/json_value.hpp"

namespace shardsim {
namespace {

TEST(Json, KeepsOrderAndTellsIntegersFromNumbers) {
  Json json;
  json.add("z", std::int64_t{9007199254740993});  // 2^53 + 1: no double holds it
  json.add("a", 4.0);
  json.add("list", Json::List{1, "two", true, Json()});
  EXPECT_EQ(json.line(), R"({"z":9007199254740993,"a":4.0,"list":[1,"two",true,null]})");
}

TEST(Json, WritesWhatIsNotFiniteAsNull) { EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).line(), "null"); }

TEST(Json, EscapesAndReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(Json("a\"b\n").line(), R"("a\"b\n")");
  EXPECT_EQ(Json("\xff").line(), "\"\xEF\xBF\xBD\"");
}

TEST(Json, FindsDottedPaths) {
  const Json json(Json::Object{{"memory", Json::Object{{"peak_bytes", 12}}}, {"rows", Json::List{Json::Object{{"calls", 3}}}}});
  ASSERT_NE(json.find("memory.peak_bytes"), nullptr);
  EXPECT_EQ(*json.find("memory.peak_bytes")->as<std::int64_t>(), 12);
  EXPECT_EQ(*json.find("rows.0.calls")->as<std::int64_t>(), 3);
  EXPECT_EQ(json.find("rows.1.calls"), nullptr);
  EXPECT_EQ(json.find("rows.0x.calls"), nullptr);
  EXPECT_EQ(json.find("memory.nothing"), nullptr);
  EXPECT_EQ(leaf_paths(json), std::vector<std::string>{"memory.peak_bytes"});
}

TEST(Json, RefusesToMixObjectsAndLists) {
  Json list(Json::List{1});
  EXPECT_THROW(list.add("key", 2), std::logic_error);
  Json object(Json::Object{});
  EXPECT_THROW(object.add(Json(2)), std::logic_error);
}

TEST(Csv, QuotesWhatNeedsIt) {
  const std::vector<std::string> fields{"plain", "a,b", "say \"x\"", "two\nlines", ""};
  EXPECT_EQ(csv_row(fields), "plain,\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",\n");
  EXPECT_EQ(csv_field(Json(1.5)), "1.5");
  EXPECT_EQ(csv_field(Json("x")), "x");
  EXPECT_EQ(csv_field(Json()), "");
}

}  // namespace
}  // namespace shardsim
