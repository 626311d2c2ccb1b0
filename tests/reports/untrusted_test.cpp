// SPDX-License-Identifier: Apache-2.0
// Names that are not meant to be shown: escapes of a terminal, commands of a CI runner, markup, formulas of a spreadsheet, bytes that are
// not UTF-8.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "reports/check_report.hpp"
#include "reports/html/html.hpp"
#include "reports/html/markup.hpp"
#include "reports/text.hpp"
#include "sim/base/csv.hpp"
#include "sim/base/problem.hpp"
#include "sim/base/utf8.hpp"

namespace shardsim {
namespace {

using testing::HasSubstr;
using testing::Not;

CheckCases failing(const std::string& file) {
  CheckCase c;
  c.scenario = file;
  c.line = 3;
  c.column = 5;
  c.metric = "memory.peak_bytes";
  c.expected = std::int64_t{1};
  c.actual = std::int64_t{2};
  c.outcome = CheckCase::Outcome::failed;
  c.message = "memory.peak_bytes is 2, expected at most 1";
  return {c};
}

TEST(Untrusted, NoNameSpeaksToARunner) {
  for (const std::string name :
       {"::error::x.yaml", "  ::stop-commands::x", "a\n::error::x.yaml", "a\r::warning::x", "##[error]x", "x\u2028::y"}) {
    const std::string table = check_table(failing(name));
    EXPECT_FALSE(table.starts_with("::")) << name;
    EXPECT_THAT(table, Not(HasSubstr("\n::"))) << name;
    EXPECT_THAT(table, Not(HasSubstr("##["))) << name;
    const std::string annotation = github_annotations(failing(name));
    EXPECT_EQ(std::count(annotation.begin(), annotation.end(), '\n'), 1) << name;
    EXPECT_TRUE(annotation.starts_with("::error file=")) << name;
  }
  EXPECT_EQ(shown_path("a/b.yaml"), "a/b.yaml");
  EXPECT_EQ(shown_path(""), "");
  Problems problems;
  problems.add({std::make_shared<Source>(Source{"::error::x.yaml", "a"}), 1, 1}, "wrong");
  EXPECT_TRUE(problems.text().starts_with("./::error::x.yaml:1:1: error: wrong"));
}

TEST(Untrusted, AnnotationsNameFilesFromTheRoot) {
  const std::string root = std::filesystem::temp_directory_path().string();
  EXPECT_THAT(github_annotations(failing(root + "/training/fit.yaml"), root), HasSubstr("::error file=training/fit.yaml,line=3,col=5,"));
  EXPECT_THAT(github_annotations(failing("/elsewhere/fit.yaml"), root), HasSubstr("file=/elsewhere/fit.yaml,"));
}

TEST(Untrusted, NoEscapeReachesTheTerminal) {
  const std::string name = "a\x1b[31mred\x07";
  EXPECT_EQ(wrapped(name, 2, 0), "a\\x1b[31mred\\x07");
  const TextGrid grid{.header = {"Name"}, .right = {}, .rows = {{name}}};
  EXPECT_THAT(grid.text(), Not(HasSubstr("\x1b")));
  EXPECT_THAT(check_table(failing(name)), Not(HasSubstr("\x1b")));
}

TEST(Untrusted, NoNameIsAFormula) {
  const auto row = [](const std::string& field) { return csv_row(std::array<std::string, 1>{field}); };
  for (const std::string name : {"=cmd", "+1+1", "@SUM(1)", "-2+3", "\tx", "-", "=1"})
    EXPECT_TRUE(row(name).starts_with("'") || row(name).starts_with("\"'")) << name;
  for (const std::string number : {"-1.5", "-1e-07", "0", "-3"}) EXPECT_EQ(row(number), number + "\n");
  EXPECT_EQ(row("a\xff"), "a\\xff\n");
}

TEST(Untrusted, NoNameEndsAnElementOfThePage) {
  HtmlPage page{.title = "</title><b>", .lines = {"<!--<script>"}};
  page.data = Json::Object{{"name", "<!--<script>"}, {"other", "</script><b>"}};
  const std::string html = html_page(page);
  EXPECT_THAT(html, Not(HasSubstr("<!--<script>")));
  EXPECT_THAT(html, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(html, HasSubstr("\\u003c!--\\u003cscript>"));
  EXPECT_EQ(markup("a\xff\xc3\xa9<"), "a\\xff\xc3\xa9&lt;");
}

TEST(Untrusted, JUnitIsWellFormedWhateverTheName) {
  const std::string xml = junit_xml(failing("a\x01\xff&\"<.yaml"));
  for (const char c : xml)
    EXPECT_TRUE(static_cast<unsigned char>(c) < 0x80 && (static_cast<unsigned char>(c) >= 0x20 || c == '\n')) << static_cast<int>(c);
  EXPECT_THAT(xml, HasSubstr("\\xff&amp;&quot;&lt;.yaml"));
}

}  // namespace
}  // namespace shardsim
