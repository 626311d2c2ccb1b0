// SPDX-License-Identifier: Apache-2.0
#include "studies/check/baselines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace shardsim {
namespace {

std::string value_text(const ExactNumber& actual, const Expectation& expectation) {
  if (const auto integer = actual.integer()) return fmt::format("{}", *integer);
  const bool fine = expectation.relative.value_or(0) < 1e-5;
  return fine ? fmt::format("{}", actual.value()) : fmt::format("{:.6g}", actual.value());
}

/// Offset of a place in the text; lines and columns count from 1.
std::size_t offset_of(std::string_view text, const Where& where) {
  std::size_t at = 0;
  for (int line = 1; line < where.line; ++line) {
    at = text.find('\n', at);
    if (at == std::string_view::npos) throw std::logic_error(fmt::format("baseline beyond the end of the file at line {}", where.line));
    ++at;
  }
  return at + static_cast<std::size_t>(where.column) - 1;
}

}  // namespace

std::optional<BaselineEdit> baseline_edit(const Scenario& scenario, std::size_t index, const ExactNumber& actual) {
  const ConfigNode* list = scenario.root.find("expect");
  if (!list || index >= list->items.size()) return std::nullopt;
  const ConfigNode* baseline = list->items[index].find("baseline");
  if (!baseline) return std::nullopt;
  std::string to = value_text(actual, scenario.expect[index]);
  if (to == baseline->text) return std::nullopt;
  return BaselineEdit{baseline->where, baseline->text, std::move(to)};
}

std::string with_edits(std::string text, std::vector<BaselineEdit> edits) {
  // From the last to the first, so that an edit does not move the places of those still to come.
  std::sort(edits.begin(), edits.end(), [](const BaselineEdit& a, const BaselineEdit& b) {
    return std::pair(a.where.line, a.where.column) > std::pair(b.where.line, b.where.column);
  });
  for (const BaselineEdit& edit : edits) {
    const std::size_t at = offset_of(text, edit.where);
    if (text.compare(std::min(at, text.size()), edit.from.size(), edit.from) != 0)
      throw std::logic_error(fmt::format("no '{}' at {}:{}", edit.from, edit.where.line, edit.where.column));
    text.replace(at, edit.from.size(), edit.to);
  }
  return text;
}

}  // namespace shardsim
