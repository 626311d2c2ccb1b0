// SPDX-License-Identifier: Apache-2.0
#include "reports/check_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "reports/text.hpp"
#include "sim/base/units_text.hpp"
#include "sim/base/utf8.hpp"

namespace shardsim {
namespace {

using Outcome = CheckCase::Outcome;

std::string_view word_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return "ok";
    case Outcome::moved:
      return "moved";
    case Outcome::failed:
      return "FAILED";
    case Outcome::error:
      return "ERROR";
  }
  return "?";
}

std::string case_text(const CheckCase& c) {
  std::string out = fmt::format("  {:<8}{}{}{}\n", word_of(c.outcome), c.metric, c.moved.empty() ? "" : "  ", c.moved);
  const auto detail = [&](const std::string& text) { out += "          " + wrapped(text, 12, 10) + "\n"; };
  if (c.outcome == Outcome::error || c.expected.is_null()) {
    detail(c.message);
    return out;
  }
  detail(fmt::format("expected {} {}", figure_text(c.expected), c.expectation));
  detail(fmt::format("actual   {}", figure_text(c.actual)));
  return out;
}

std::string escaped(std::string_view text, bool property) {
  std::string out;
  for (const char c : text) {
    const bool special = c == '%' || static_cast<unsigned char>(c) < 0x20 || (property && (c == ':' || c == ','));
    out += special ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

/// The file as GitHub names it: from the root of the repository, wherever the command runs.
std::string from_root(const std::string& file, const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path relative =
      root.empty() ? fs::path() : fs::weakly_canonical(file, error).lexically_relative(fs::weakly_canonical(root, error));
  return error || relative.empty() || *relative.begin() == ".." ? file : relative.string();
}

}  // namespace

std::string check_table(const CheckCases& cases) {
  std::string out;
  std::string_view scenario;
  for (const CheckCase& c : cases) {
    if (c.outcome == Outcome::ok) continue;
    if (c.scenario != scenario) out += (out.empty() ? "" : "\n") + shown_path(c.scenario) + "\n";
    scenario = c.scenario;
    out += case_text(c);
  }
  if (!out.empty()) out += "\n";
  const std::size_t failed = failures(cases);
  return out + fmt::format("{} checked, {} failed\n", cases.size(), failed == 0 ? "none" : std::to_string(failed));
}

Json check_json(const CheckCases& cases) {
  Json::List list;
  for (const CheckCase& c : cases) {
    Json item(Json::Object{{"scenario", c.scenario}, {"metric", c.metric}, {"expected", c.expected}, {"actual", c.actual}, {"ok", c.ok()}});
    if (!c.expectation.empty()) item.add("expectation", c.expectation);
    if (!c.message.empty()) item.add("message", c.message);
    list.push_back(std::move(item));
  }
  return Json::Object{{"schema", "shardsim.check/1"},
                      {"checked", static_cast<std::int64_t>(cases.size())},
                      {"failed", static_cast<std::int64_t>(failures(cases))},
                      {"cases", std::move(list)}};
}

std::string github_annotations(const CheckCases& cases, const std::string& root) {
  std::string out;
  for (const CheckCase& c : cases) {
    if (c.ok()) continue;
    out += fmt::format("::error file={}", escaped(from_root(c.scenario, root), true));
    if (c.line > 0) out += fmt::format(",line={},col={}", c.line, c.column);
    out += fmt::format(",title={}::{}\n", escaped(c.metric, true), escaped(c.message, false));
  }
  return out;
}

}  // namespace shardsim
