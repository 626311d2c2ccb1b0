// SPDX-License-Identifier: Apache-2.0
// A number that stays an exact fraction as long as 128 bits hold it, so that byte counts can be compared to the last byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardsim {

class ExactNumber {
 public:
  ExactNumber() = default;
  ExactNumber(std::int64_t value) : top_(value) {}
  /// The double itself, not the decimal it came from: never equal to an exact count by accident of rounding.
  [[nodiscard]] static ExactNumber inexact(double value);
  /// "12", "0.25", "7.5e9" as the exact decimal; nothing if the text is no number.
  [[nodiscard]] static std::optional<ExactNumber> parse(std::string_view text);

  [[nodiscard]] bool exact() const { return exact_; }
  [[nodiscard]] std::optional<std::int64_t> integer() const;  ///< if it is exactly one that 64 bits hold
  [[nodiscard]] double value() const;
  /// An integer in full, anything else with as few digits as give the same double.
  [[nodiscard]] std::string text() const;

  friend ExactNumber operator+(const ExactNumber& a, const ExactNumber& b);
  friend ExactNumber operator-(const ExactNumber& a, const ExactNumber& b);
  friend ExactNumber operator*(const ExactNumber& a, const ExactNumber& b);
  friend ExactNumber operator/(const ExactNumber& a, const ExactNumber& b);  ///< by zero: infinite or not a number, inexact
  friend bool operator<(const ExactNumber& a, const ExactNumber& b);
  friend bool operator==(const ExactNumber& a, const ExactNumber& b);

  [[nodiscard]] ExactNumber floor() const;
  [[nodiscard]] ExactNumber power(const ExactNumber& exponent) const;  ///< exact for small integer exponents

 private:
  using Wide = __int128;
  [[nodiscard]] static ExactNumber fraction(Wide top, Wide bottom);

  bool exact_ = true;
  Wide top_ = 0;  // in lowest terms, with a positive bottom
  Wide bottom_ = 1;
  double real_ = 0;  // if not exact
};

}  // namespace shardsim
