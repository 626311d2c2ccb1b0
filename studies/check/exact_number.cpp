// SPDX-License-Identifier: Apache-2.0
#include "studies/check/exact_number.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace shardsim {
namespace {

using Wide = __int128;

Wide greatest_common_divisor(Wide a, Wide b) {
  if (a < 0) a = -a;
  while (b != 0) {
    const Wide rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

bool multiply(Wide a, Wide b, Wide& out) { return !__builtin_mul_overflow(a, b, &out); }

}  // namespace

ExactNumber ExactNumber::inexact(double value) {
  ExactNumber out;
  out.exact_ = false;
  out.real_ = value;
  return out;
}

ExactNumber ExactNumber::fraction(Wide top, Wide bottom) {
  const Wide divisor = greatest_common_divisor(top, bottom);
  ExactNumber out;
  out.top_ = top / divisor;
  out.bottom_ = bottom / divisor;
  return out;
}

std::optional<ExactNumber> ExactNumber::parse(std::string_view text) {
  double rounded = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rounded);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(rounded)) return std::nullopt;

  ExactNumber out;
  std::int64_t exponent = 0;
  bool fraction_part = false, negative = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '-')
      negative = true;
    else if (c == '.')
      fraction_part = true;
    else if (c == 'e' || c == 'E') {
      const std::size_t from = i + (text[i + 1] == '+' ? 2 : 1);
      std::int64_t power = 0;
      std::from_chars(text.data() + from, text.data() + text.size(), power);
      exponent += power;
      break;
    } else {
      out = out * ExactNumber(10) + ExactNumber(c - '0');
      if (fraction_part) --exponent;
    }
  }
  const ExactNumber scale = ExactNumber(10).power(ExactNumber(exponent < 0 ? -exponent : exponent));
  out = exponent < 0 ? out / scale : out * scale;
  if (!out.exact()) return inexact(rounded);
  return negative ? ExactNumber(0) - out : out;
}

std::optional<std::int64_t> ExactNumber::integer() const {
  if (!exact_ || bottom_ != 1) return std::nullopt;
  if (top_ > std::numeric_limits<std::int64_t>::max() || top_ < std::numeric_limits<std::int64_t>::min()) return std::nullopt;
  return static_cast<std::int64_t>(top_);
}

double ExactNumber::value() const { return exact_ ? static_cast<double>(top_) / static_cast<double>(bottom_) : real_; }

std::string ExactNumber::text() const {
  if (const auto whole = integer()) return fmt::format("{}", *whole);
  return fmt::format("{}", value());
}

ExactNumber operator+(const ExactNumber& a, const ExactNumber& b) {
  Wide left = 0, right = 0, top = 0, bottom = 0;
  if (a.exact_ && b.exact_ && multiply(a.top_, b.bottom_, left) && multiply(b.top_, a.bottom_, right) &&
      !__builtin_add_overflow(left, right, &top) && multiply(a.bottom_, b.bottom_, bottom))
    return ExactNumber::fraction(top, bottom);
  return ExactNumber::inexact(a.value() + b.value());
}

ExactNumber operator-(const ExactNumber& a, const ExactNumber& b) { return a + b * ExactNumber(-1); }

ExactNumber operator*(const ExactNumber& a, const ExactNumber& b) {
  Wide top = 0, bottom = 0;
  if (a.exact_ && b.exact_) {
    // Cancelled crosswise first, so that 2^60 * n / n stays exact.
    const Wide one = greatest_common_divisor(a.top_, b.bottom_), other = greatest_common_divisor(b.top_, a.bottom_);
    if (multiply(a.top_ / one, b.top_ / other, top) && multiply(a.bottom_ / other, b.bottom_ / one, bottom))
      return ExactNumber::fraction(top, bottom);
  }
  return ExactNumber::inexact(a.value() * b.value());
}

ExactNumber operator/(const ExactNumber& a, const ExactNumber& b) {
  if (!b.exact_ || b.top_ == 0) return ExactNumber::inexact(a.value() / b.value());
  ExactNumber turned;
  turned.top_ = b.top_ < 0 ? -b.bottom_ : b.bottom_;
  turned.bottom_ = b.top_ < 0 ? -b.top_ : b.top_;
  return a * turned;
}

bool operator<(const ExactNumber& a, const ExactNumber& b) {
  const ExactNumber difference = a - b;
  return difference.exact_ ? difference.top_ < 0 : difference.real_ < 0;
}

bool operator==(const ExactNumber& a, const ExactNumber& b) {
  if (a.exact_ && b.exact_) return a.top_ == b.top_ && a.bottom_ == b.bottom_;
  return a.value() == b.value();
}

ExactNumber ExactNumber::floor() const {
  if (!exact_) return inexact(std::floor(real_));
  const Wide whole = top_ / bottom_ - (top_ % bottom_ < 0 ? 1 : 0);
  return fraction(whole, 1);
}

ExactNumber ExactNumber::power(const ExactNumber& exponent) const {
  const auto whole = exponent.integer();
  if (!whole || *whole < -128 || *whole > 128) return inexact(std::pow(value(), exponent.value()));
  ExactNumber out(1);
  for (std::int64_t i = 0; i < std::abs(*whole); ++i) out = out * *this;
  return *whole < 0 ? ExactNumber(1) / out : out;
}

}  // namespace shardsim
