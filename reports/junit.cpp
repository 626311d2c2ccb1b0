// SPDX-License-Identifier: Apache-2.0
// JUnit XML, in the dialect that all readers share: suites, suite, case, failure, error.
#include <fmt/format.h>

#include <algorithm>

#include "reports/check_report.hpp"
#include "reports/html/markup.hpp"

namespace shardsim {
namespace {

using Outcome = CheckCase::Outcome;

struct Totals {
  std::size_t tests = 0, failures = 0, errors = 0;
  double seconds = 0;

  void add(const CheckCase& c) {
    ++tests;
    failures += c.outcome == Outcome::failed;
    errors += c.outcome == Outcome::error;
    seconds += c.seconds;
  }
  [[nodiscard]] std::string attributes() const {
    return fmt::format(R"(tests="{}" failures="{}" errors="{}" time="{:.3f}")", tests, failures, errors, seconds);
  }
};

std::string case_element(const CheckCase& c) {
  const std::string name = c.expectation.empty() ? c.metric : c.metric + " " + c.expectation;
  std::string out = fmt::format(R"(    <testcase name="{}" classname="{}" file="{}" time="{:.3f}")", markup(name), markup(c.scenario),
                                markup(c.scenario), c.seconds);
  if (c.ok()) return out + "/>\n";
  const std::string_view element = c.outcome == Outcome::failed ? "failure" : "error";
  const std::string place = c.line > 0 ? fmt::format("{}:{}:{}: ", c.scenario, c.line, c.column) : c.scenario + ": ";
  out += fmt::format(">\n      <{} message=\"{}\" type=\"{}\">{}</{}>\n    </testcase>\n", element, markup(c.message),
                     c.outcome == Outcome::failed ? "expectation" : "input", markup(place + c.message), element);
  return out;
}

}  // namespace

std::string junit_xml(const CheckCases& cases) {
  Totals all;
  std::string suites;
  for (auto begin = cases.begin(); begin != cases.end();) {
    const auto end = std::find_if(begin, cases.end(), [&](const CheckCase& c) { return c.scenario != begin->scenario; });
    Totals totals;
    std::string body;
    for (auto it = begin; it != end; ++it) {
      totals.add(*it);
      all.add(*it);
      body += case_element(*it);
    }
    suites += fmt::format("  <testsuite name=\"{}\" {}>\n{}  </testsuite>\n", markup(begin->scenario), totals.attributes(), body);
    begin = end;
  }
  return fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"shardsim check\" {}>\n{}</testsuites>\n",
                     all.attributes(), suites);
}

}  // namespace shardsim
