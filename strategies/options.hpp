// SPDX-License-Identifier: Apache-2.0
// Options of a strategy, under the library's own names: declared in the strategy's file, read from the scenario by one reader.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/config/node.hpp"

namespace shardsim {

enum class OptionKind : std::uint8_t { boolean, integer, number, size, word, list };

struct OptionSpec {
  std::string name{};
  OptionKind kind = OptionKind::boolean;
  std::string fallback{};            ///< as text, for `list strategies`; empty: the library decides
  std::string help{};                ///< one line
  std::vector<std::string> words{};  ///< allowed values of a word
  double minimum = 0;                ///< of an integer or number
};

/// Values given by the user; everything else is the library's default, chosen where it is used.
class Options {
 public:
  using Value = std::variant<bool, std::int64_t, double, Bytes, std::string, std::vector<std::string>>;

  [[nodiscard]] bool given(std::string_view name) const { return values_.contains(std::string(name)); }
  [[nodiscard]] bool boolean(std::string_view name, bool fallback) const { return get(name, fallback); }
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t fallback) const { return get(name, fallback); }
  [[nodiscard]] double number(std::string_view name, double fallback) const { return get(name, fallback); }
  [[nodiscard]] Bytes size(std::string_view name, Bytes fallback) const { return get(name, fallback); }
  [[nodiscard]] std::string word(std::string_view name, std::string fallback) const { return get(name, std::move(fallback)); }
  [[nodiscard]] std::vector<std::string> list(std::string_view name) const { return get(name, std::vector<std::string>{}); }

  void set(std::string name, Value value) { values_.insert_or_assign(std::move(name), std::move(value)); }
  [[nodiscard]] const std::map<std::string, Value>& values() const { return values_; }
  /// Where an option stands in the scenario, for messages.
  [[nodiscard]] Where where(std::string_view name) const;
  void set_where(std::string name, Where where) { where_.insert_or_assign(std::move(name), std::move(where)); }

 private:
  template <class T>
  T get(std::string_view name, T fallback) const {
    const auto found = values_.find(std::string(name));
    return found == values_.end() ? std::move(fallback) : std::get<T>(found->second);
  }
  std::map<std::string, Value> values_;
  std::map<std::string, Where> where_;
};

/// Reads the options that `specs` declare from the `strategy:` block; other keys are left to the reader's finish().
[[nodiscard]] Options read_options(MapReader& reader, const std::vector<OptionSpec>& specs);

}  // namespace shardsim
