// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.hpp"

#include <gmock/gmock.h>

#include <sstream>

#include "cli/commands.hpp"
#include "cli/help.hpp"
#include "reports/text.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Command sample{.name = "tool",
                     .summary = "does things",
                     .subcommands = {{.name = "simulate",
                                      .summary = "simulate",
                                      .arguments = {{.name = "SCENARIO", .help = "file", .required = true, .many = true},
                                                    {.name = "--format", .value = "FORMAT", .help = "form", .words = {"table", "json"}},
                                                    {.name = "--set", .value = "KEY=VALUE", .help = "override", .many = true},
                                                    {.name = "--jobs", .value = "N", .help = "jobs", .short_name = "-j"},
                                                    {.name = "--update", .help = "flag"}},
                                      .run = [](const Arguments&) { return ExitCode::done; }},
                                     {.name = "calibrate",
                                      .summary = "measure",
                                      .subcommands = {{.name = "show",
                                                       .summary = "print",
                                                       .arguments = {{.name = "PROFILE", .help = "file", .required = true}},
                                                       .run = [](const Arguments&) { return ExitCode::done; }}}}}};

ParsedLine parse(std::vector<std::string> words) { return parse_arguments(sample, words); }

std::string refusal(std::vector<std::string> words) {
  try {
    parse(std::move(words));
  } catch (const InputError& error) { return error.what(); }
  return "accepted";
}

TEST(Arguments, ReadsOptionsAndPositionals) {
  const ParsedLine line =
      parse({"simulate", "--set", "a=1", "one.yaml", "--format=json", "two.yaml", "--set", "b=2", "-j4", "--update", "-"});
  EXPECT_THAT(line.path, ElementsAre("tool", "simulate"));
  EXPECT_THAT(line.arguments.texts("SCENARIO"), ElementsAre("one.yaml", "two.yaml", "-"));
  EXPECT_THAT(line.arguments.texts("--set"), ElementsAre("a=1", "b=2"));
  EXPECT_EQ(line.arguments.text("--format", "table"), "json");
  EXPECT_EQ(line.arguments.integer("--jobs", 1, 1, 64), 4);
  EXPECT_TRUE(line.arguments.flag("--update"));
}

TEST(Arguments, ReadsNestedCommandsAndCommonOptions) {
  const ParsedLine line = parse({"-v", "calibrate", "show", "-v", "p.yaml"});
  EXPECT_THAT(line.path, ElementsAre("tool", "calibrate", "show"));
  EXPECT_EQ(line.arguments.text("PROFILE"), "p.yaml");
  EXPECT_EQ(line.verbosity, 2);
  EXPECT_TRUE(parse({"simulate", "--help"}).help);
  EXPECT_TRUE(parse({"--version"}).version);
}

TEST(Arguments, AFileMayBeCalledLikeACommand) {
  EXPECT_THAT(parse({"simulate", "calibrate"}).arguments.texts("SCENARIO"), ElementsAre("calibrate"));
}

TEST(Arguments, SuggestsWhatWasMeant) {
  EXPECT_THAT(refusal({"simulat", "x"}), HasSubstr("error: 'tool' has no command 'simulat'\n  = did you mean 'simulate'?"));
  EXPECT_THAT(refusal({"simulate", "x", "--frmat", "json"}),
              HasSubstr("'tool simulate' has no option '--frmat'\n  = did you mean '--format'?"));
  EXPECT_THAT(refusal({"simulate", "x", "--format", "jsn"}), HasSubstr("--format: unknown value 'jsn'\n  = did you mean 'json'?"));
  EXPECT_THAT(refusal({"calibrate", "shwo", "x"}), HasSubstr("'tool calibrate' has no command 'shwo'"));
}

TEST(Arguments, RefusesWhatIsMissingOrTooMuch) {
  EXPECT_THAT(refusal({}), HasSubstr("a command is missing"));
  EXPECT_THAT(refusal({"simulate"}), HasSubstr("SCENARIO is missing"));
  EXPECT_THAT(refusal({"calibrate", "show", "a", "b"}), HasSubstr("takes no further argument: 'b'"));
  EXPECT_THAT(refusal({"simulate", "x", "--format", "json", "--format", "json"}), HasSubstr("--format is given 2 times"));
  EXPECT_THAT(refusal({"simulate", "x", "--format"}), HasSubstr("--format"));
  EXPECT_THROW((void)parse({"simulate", "x", "-j", "4x"}).arguments.integer("--jobs", 1, 1, 64), InputError);
  EXPECT_THROW((void)parse({"simulate", "x", "-j", "65"}).arguments.integer("--jobs", 1, 1, 64), InputError);
}

void expect_narrow(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), line_width) << line;
}

TEST(Help, NamesEveryArgumentInEightyColumns) {
  const std::string help = help_text(sample.subcommands.front(), {"tool", "simulate"});
  EXPECT_THAT(help, HasSubstr("Usage: tool simulate SCENARIO... [--format FORMAT]"));
  EXPECT_THAT(help, HasSubstr("  --format FORMAT           form: table, json\n"));
  EXPECT_THAT(help, HasSubstr("  -j, --jobs N              jobs\n"));
  expect_narrow(help);
  for (const Command& command : program().subcommands) {
    EXPECT_FALSE(command.summary.empty()) << command.name;
    expect_narrow(help_text(command, {"shardsim", command.name}));
  }
}

}  // namespace
}  // namespace shardsim
