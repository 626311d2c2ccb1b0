// SPDX-License-Identifier: Apache-2.0
#include "sim/config/node.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace shardsim {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ConfigNode yaml(const std::string& text) {
  auto node = read_yaml({"s.yaml", text});
  EXPECT_TRUE(node) << node.error().text();
  return node.value_or(ConfigNode{});
}

std::string yaml_error(const std::string& text, const ReadLimits& limits = {}) {
  const auto node = read_yaml({"s.yaml", text}, limits);
  return node ? "read without a problem" : node.error().text();
}

std::string json_error(const std::string& text, const ReadLimits& limits = {}) {
  const auto node = read_json({"c.json", text}, limits);
  return node ? "read without a problem" : node.error().text();
}

std::string place(const Where& where) { return std::to_string(where.line) + ":" + std::to_string(where.column); }

TEST(Yaml, RemembersWhereEverythingStands) {
  const ConfigNode root = yaml("# comment\nmodel:\n  preset: 'llama'\n  layers: [1, {a: b}]\nnone:\n");
  ASSERT_EQ(root.entries.size(), 2u);
  EXPECT_EQ(place(root.entries[0].where), "2:1");
  const ConfigNode& model = *root.find("model");
  EXPECT_EQ(place(model.entries[0].where), "3:3");
  EXPECT_EQ(place(model.find("preset")->where), "3:11");
  EXPECT_TRUE(model.find("preset")->quoted);
  const ConfigNode& layers = *model.find("layers");
  EXPECT_EQ(place(layers.items[1].find("a")->where), "4:19");
  EXPECT_FALSE(layers.items[0].quoted);
  EXPECT_EQ(root.find("none")->kind, ConfigNode::Kind::null);
  EXPECT_EQ(root.find("absent"), nullptr);
}

TEST(Yaml, ExpandsAliases) {
  const ConfigNode root = yaml("a: &x {k: [1, 2]}\nb: *x\nc: &y 5\nd: *y\n");
  EXPECT_EQ(root.find("b")->find("k")->items[1].text, "2");
  EXPECT_EQ(root.find("d")->text, "5");
}

TEST(Yaml, EmptyIsNull) {
  EXPECT_EQ(yaml("").kind, ConfigNode::Kind::null);
  EXPECT_EQ(place(yaml("# nothing\n").where), "1:1");
  EXPECT_EQ(yaml("~\n").kind, ConfigNode::Kind::null);
}

TEST(Yaml, RefusesWhatReadersDisagreeOn) {
  EXPECT_THAT(yaml_error("a: 1\nb: 2\na: 3\n"), StartsWith("s.yaml:3:1: error: duplicate key 'a'"));
  EXPECT_THAT(yaml_error("a: &x {k: 1}\nb:\n  <<: *x\n"), StartsWith("s.yaml:3:3: error: merge keys"));
  EXPECT_THAT(yaml_error("a: !!int 5\n"), HasSubstr("tags are not supported"));
  EXPECT_THAT(yaml_error("a: !include x\n"), HasSubstr("s.yaml:1:4: error: tags are not supported: '!include'"));
  EXPECT_THAT(yaml_error("a: 1\n---\nb: 2\n"), HasSubstr("a second document starts here"));
  EXPECT_THAT(yaml_error("? [a]\n: 1\n"), HasSubstr("cannot be a key"));
  EXPECT_THAT(yaml_error("~: 1\n"), HasSubstr("a key must be a word"));
  EXPECT_THAT(yaml_error("a: &x [*x]\n"), HasSubstr("the alias stands inside"));
}

TEST(Yaml, TellsWhereTheSyntaxBreaks) {
  EXPECT_THAT(yaml_error("model: [\n"), StartsWith("s.yaml:"));
  EXPECT_THAT(yaml_error("a: *unknown\n"), StartsWith("s.yaml:1:4: error: not YAML: the referenced anchor"));
  EXPECT_THAT(yaml_error("strategy:\n\tname: ddp\n"), HasSubstr("YAML allows no tabs in indentation"));
}

TEST(Yaml, HostileTextEndsInAProblem) {
  EXPECT_THAT(yaml_error("a: " + std::string(100, '[') + std::string(100, ']')),
              StartsWith("s.yaml:1:67: error: nested more than 64 levels deep"));
  EXPECT_THAT(yaml_error("a: " + std::string(20000, '[')), HasSubstr("a bracket is never closed"));
  EXPECT_THAT(yaml_error(std::string(20000, '{')), HasSubstr("a bracket is never closed"));
  std::string dashes, indented;
  for (int i = 0; i < 20000; ++i) dashes += "- ";
  for (int i = 0; i < 300; ++i) indented += std::string(static_cast<std::size_t>(i), ' ') + "k:\n";
  EXPECT_THAT(yaml_error(dashes + "x"), HasSubstr("nested more than 64 levels deep"));
  EXPECT_THAT(yaml_error(indented), HasSubstr("nested more than 64 levels deep"));
  EXPECT_THAT(yaml_error(std::string(10'000'000, 'x')), HasSubstr("larger than 4.00 MiB"));
  EXPECT_THAT(yaml_error(std::string("a: b\0c", 6)), StartsWith("s.yaml:1:5: error: not a text: byte 0x00"));
  EXPECT_THAT(yaml_error("a: \xff"), HasSubstr("byte 0xff is not UTF-8"));
}

TEST(Yaml, AliasBombsAreCutByWhatTheyExpandTo) {
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c < 'm'; ++c) {
    bomb += std::string(1, c) + ": &" + c + " [";
    for (int i = 0; i < 9; ++i) bomb += std::string(i ? "," : "") + "*" + static_cast<char>(c - 1);
    bomb += "]\n";
  }
  EXPECT_THAT(yaml_error(bomb), HasSubstr("values once aliases are expanded"));
  std::string deep = "a0: &a0 [x]\n";
  for (int i = 1; i < 100; ++i) deep += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  EXPECT_THAT(yaml_error(deep), HasSubstr("nested more than 64 levels deep"));
}

TEST(Json, RemembersWhereEverythingStands) {
  const auto root = read_json({"c.json", "{\n  \"a\\\"b\": [1.50, -2e3, true],\n  \"n\": null, \"t\": \"x\\ny\"\n}"});
  ASSERT_TRUE(root) << root.error().text();
  EXPECT_EQ(place(root->where), "1:1");
  EXPECT_EQ(root->entries[0].key, "a\"b");
  EXPECT_EQ(place(root->entries[0].where), "2:3");
  const ConfigNode& list = root->entries[0].value;
  EXPECT_EQ(place(list.where), "2:11");
  EXPECT_EQ(list.items[0].text, "1.50");  // as written
  EXPECT_EQ(list.items[1].text, "-2e3");
  EXPECT_EQ(place(list.items[2].where), "2:24");
  EXPECT_EQ(root->find("n")->kind, ConfigNode::Kind::null);
  EXPECT_EQ(place(root->entries[2].where), "3:14");
  EXPECT_EQ(root->find("t")->text, "x\ny");
  EXPECT_TRUE(root->find("t")->quoted);
}

TEST(Json, RefusesWhatIsNotStrict) {
  EXPECT_THAT(json_error("{\"a\": 1,\n \"a\": 2}"), StartsWith("c.json:2:2: error: duplicate key 'a'"));
  EXPECT_THAT(json_error("{\"a\": 1,}"), StartsWith("c.json:1:9: error: not JSON: syntax error"));
  EXPECT_THAT(json_error("{'a': 1}"), HasSubstr("not JSON"));
  EXPECT_THAT(json_error("{\"a\": NaN}"), HasSubstr("not JSON"));
  EXPECT_THAT(json_error("{\"a\": 1e999}"), HasSubstr("not JSON"));
  EXPECT_THAT(json_error("{} {}"), HasSubstr("not JSON"));
  EXPECT_THAT(json_error(""), StartsWith("c.json:1:1: error: not JSON"));
  EXPECT_THAT(json_error(std::string(20000, '[')), HasSubstr("nested more than 64 levels deep"));
  EXPECT_THAT(json_error("[1, 2, 3]", {.bytes = 100, .depth = 4, .nodes = 3}), HasSubstr("more than 3 values"));
}

TEST(Source, SaysWhyAFileCannotBeRead) {
  EXPECT_EQ(read_source("/no/such/file.yaml").error().text(),
            "/no/such/file.yaml: error: cannot read the file: No such file or directory\n");
  EXPECT_THAT(read_source("/").error().text(), HasSubstr("it is a folder"));
  EXPECT_THAT(read_source("/dev/zero").error().text(), HasSubstr("it is larger than 4.00 MiB"));
  const std::string path = testing::TempDir() + "source_test.txt";
  std::ofstream(path) << "a: 1\n";
  EXPECT_EQ(read_source(path)->text, "a: 1\n");
  std::remove(path.c_str());
}

TEST(Override, PutsAValueAtAPath) {
  const ConfigNode root = yaml("training: {micro_batch_size: 1}\nlayers: [{a: 1}, {a: 2}]\n");
  const auto changed = with_override(root, "training.micro_batch_size=2");
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->find("training")->find("micro_batch_size")->text, "2");
  EXPECT_EQ(changed->find("training")->find("micro_batch_size")->where.source->name, "--set");
  EXPECT_EQ(place(changed->find("training")->find("micro_batch_size")->where), "1:27");
  EXPECT_EQ(with_override(root, "layers.1.a=7")->find("layers")->items[1].find("a")->text, "7");
  EXPECT_EQ(with_override(root, "new.map.key=[1, 2]")->find("new")->find("map")->find("key")->items.size(), 2u);
  EXPECT_EQ(with_override(root, "model.path=a=b.c")->find("model")->find("path")->text, "a=b.c");
  EXPECT_EQ(with_override(root, "training=")->find("training")->kind, ConfigNode::Kind::null);
}

TEST(Override, RefusesAPathThatLeadsNowhere) {
  const ConfigNode root = yaml("precision: mixed\nlayers: [1]\n");
  const auto error = [&](const char* assignment) {
    const auto changed = with_override(root, assignment);
    return changed ? "set without a problem" : changed.error().text();
  };
  EXPECT_THAT(error("precision.reduce=fp32"), StartsWith("--set:1:11: error: cannot set 'reduce' of the single value 'mixed'"));
  EXPECT_THAT(error("layers.5=1"), HasSubstr("'5' is no item of a list of 1"));
  EXPECT_THAT(error("layers.x=1"), HasSubstr("'x' is no item"));
  EXPECT_THAT(error("precision"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(error("=1"), HasSubstr("expected KEY=VALUE"));
  EXPECT_THAT(error("a..b=1"), StartsWith("--set:1:3: error: a key of the path is empty"));
  EXPECT_THAT(error("a=[1"), StartsWith("--set:1:"));
}

class Scalars : public testing::Test {
 protected:
  ConfigNode value(const std::string& text) { return *yaml("k: " + text).find("k"); }
  std::string error() const { return problems.text(); }
  Problems problems;
};

TEST_F(Scalars, AreReadAsWhatTheyAre) {
  EXPECT_EQ(as_integer(value("-7"), problems, -10, 10), -7);
  EXPECT_EQ(as_integer(value("+7"), problems, -10, 10), 7);
  EXPECT_EQ(as_integer(value("5e8"), problems, 0, 1'000'000'000), 500'000'000);
  EXPECT_EQ(as_number(value("1e-5"), problems, 0, 1), 1e-5);
  EXPECT_EQ(as_boolean(value("true"), problems), true);
  EXPECT_EQ(as_text(value("'5'"), problems), "5");
  EXPECT_EQ(as_bytes(value("25 MiB"), problems), mebibytes(25));
  EXPECT_TRUE(problems.empty()) << error();
}

TEST_F(Scalars, ThatAreSomethingElseAreProblems) {
  for (const char* text : {"1.5", ".nan", "99999999999999999999", "'1'", "[1]", "0x10", "1e2", "1.5e0", "1e99", "nan", "0", "65"}) {
    const std::size_t before = problems.size();
    EXPECT_FALSE(as_integer(value(text), problems, 1, 64)) << text;
    EXPECT_EQ(problems.size(), before + 1) << text;
  }
  EXPECT_THAT(error(), HasSubstr("s.yaml:1:4: error: expected a whole number from 1 to 64, got '1.5'"));
  EXPECT_THAT(error(), HasSubstr("got the text '1'"));
  problems = {};
  for (const char* text : {"nan", ".inf", "1e999", "x", "{a: 1}", "2", "1 "})
    EXPECT_EQ(as_number(value(text), problems, 0, 1.5).has_value(), text == std::string("1 ")) << text;
  problems = {};
  for (const char* text : {"yes", "'true'", "1", "[]"}) EXPECT_FALSE(as_boolean(value(text), problems)) << text;
  EXPECT_EQ(problems.size(), 4u);
  problems = {};
  EXPECT_FALSE(as_byte_rate(value("400"), problems));
  EXPECT_THAT(error(), HasSubstr("s.yaml:1:4: error: '400' has no unit"));
}

TEST(MapReader, ReportsUnknownKeysWithTheNearest) {
  const ConfigNode root = yaml("micro_batch_sise: 1\nnodes: null\nname: x\n");
  Problems problems;
  MapReader reader(root, problems, "training");
  EXPECT_EQ(reader.integer("micro_batch_size", 3, 1), 3);
  EXPECT_FALSE(reader.has("nodes"));
  EXPECT_EQ(reader.text("name", ""), "x");
  EXPECT_EQ(reader.require("absent"), nullptr);
  reader.finish();
  EXPECT_EQ(problems.size(), 2u);
  EXPECT_THAT(problems.text(), HasSubstr("s.yaml:1:1: error: unknown key 'micro_batch_sise' in training"));
  EXPECT_THAT(problems.text(), HasSubstr("note: did you mean 'micro_batch_size'?"));
  EXPECT_THAT(problems.text(), HasSubstr("training needs a key 'absent'"));
}

TEST(MapReader, AChoiceIsOneOfItsWords) {
  const ConfigNode root = yaml("good: full\nbad: ful\nworse: [full]\n");
  Problems problems;
  MapReader reader(root, problems, "training");
  EXPECT_EQ(reader.choice("good", {"none", "full"}, "none"), "full");
  EXPECT_EQ(reader.choice("bad", {"none", "full"}, "none"), "none");
  EXPECT_EQ(reader.choice("worse", {"none", "full"}, "none"), "none");
  EXPECT_THAT(problems.text(), HasSubstr("s.yaml:2:6: error: bad cannot be 'ful'"));
  EXPECT_THAT(problems.text(), HasSubstr("did you mean 'full'?"));
  EXPECT_THAT(problems.text(), HasSubstr("worse cannot be a list"));
}

TEST(MapReader, AListIsNoMap) {
  const ConfigNode root = yaml("[1, 2]");
  Problems problems;
  MapReader reader(root, problems, "strategy");
  EXPECT_EQ(reader.require("name"), nullptr);
  reader.finish();
  EXPECT_EQ(problems.text(), "s.yaml:1:1: error: strategy must be a map of keys and values, not a list\n    1 | [1, 2]\n      | ^\n");
}

}  // namespace
}  // namespace shardsim
