// SPDX-License-Identifier: Apache-2.0
// A JSON value that keeps the order of its keys and tells integers from numbers: what reports and subcommands compose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace shardsim {

class Json {
 public:
  using List = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;  ///< null
  Json(bool value) : value_(value) {}
  Json(std::int64_t value) : value_(value) {}
  Json(int value) : value_(std::int64_t{value}) {}
  Json(double value) : value_(value) {}  ///< not finite: written as null
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(List value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  template <class T>
  [[nodiscard]] const T* as() const {
    return std::get_if<T>(&value_);
  }

  void add(std::string key, Json value);                        ///< to an object (or null, which becomes one)
  void add(Json value);                                         ///< to a list (or null, which becomes one)
  [[nodiscard]] const Json* find(std::string_view path) const;  ///< "memory.at_peak_bytes.logits"; numbers reach into lists

  /// Indented by two spaces a level, without a newline at the end.
  [[nodiscard]] std::string text() const;
  /// On one line.
  [[nodiscard]] std::string line() const;

  using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, List, Object>;
  [[nodiscard]] const Value& value() const { return value_; }

 private:
  Value value_;
};

/// Dotted paths of all leaves, in order: what `find` accepts. Lists are not entered.
[[nodiscard]] std::vector<std::string> leaf_paths(const Json& json);

}  // namespace shardsim
