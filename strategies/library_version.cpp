// SPDX-License-Identifier: Apache-2.0
#include "strategies/library_version.hpp"

#include <algorithm>
#include <charconv>

namespace shardsim {
namespace {

/// The numbers between dots; none if a part is not a number.
std::vector<int> numbers_of(std::string_view text) {
  std::vector<int> numbers;
  while (true) {
    const std::size_t dot = text.find('.');
    const std::string_view part = text.substr(0, dot);
    int number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc{} || end != part.data() + part.size() || number < 0) return {};
    numbers.push_back(number);
    if (dot == std::string_view::npos) return numbers;
    text.remove_prefix(dot + 1);
  }
}

}  // namespace

bool older(std::string_view version, std::string_view than) {
  std::vector<int> a = numbers_of(version), b = numbers_of(than);
  const std::size_t shared = std::min(a.size(), b.size());
  a.resize(shared);
  b.resize(shared);
  return a < b;
}

bool is_version(std::string_view text) { return !numbers_of(text).empty(); }

std::string with_version(std::string text, const std::vector<Release>& releases, std::string_view version) {
  const std::size_t at = text.find("{}");
  if (at == std::string::npos || releases.empty()) return text;
  const Release* chosen = &releases.front();
  for (const Release& release : releases)
    if (version.empty() || !older(version, release.version)) chosen = &release;
  return text.replace(at, 2, chosen->version);
}

std::string outside_range(std::string_view strategy, const std::vector<Release>& releases, std::string_view version) {
  if (version.empty()) return {};
  const std::string begin = std::string(strategy) + ": version " + std::string(version) + " ";
  if (releases.empty()) return begin + "has no effect: one version is modelled";
  const std::string& oldest = releases.front().version;
  const std::string& newest = releases.back().version;
  if (older(version, oldest)) return begin + "is older than " + oldest + ", the oldest that is modelled, and is simulated as that";
  if (older(newest, version)) return begin + "is newer than " + newest + ", the newest that is recorded, and is simulated as that";
  return {};
}

}  // namespace shardsim
