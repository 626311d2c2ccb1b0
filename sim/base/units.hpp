// SPDX-License-Identifier: Apache-2.0
// Quantities as types: exact counts, rates and durations with a dimension, and simulated time.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace shardsim {

/// An exact number of things of one kind. Kinds do not convert into each other; `bytes(Elements, DType)` is the one bridge.
template <class Kind>
class Count {
 public:
  constexpr Count() = default;
  constexpr explicit Count(std::int64_t value) : value_(value) {}

  [[nodiscard]] constexpr std::int64_t value() const { return value_; }
  constexpr auto operator<=>(const Count&) const = default;

  constexpr Count& operator+=(Count other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Count& operator-=(Count other) {
    value_ -= other.value_;
    return *this;
  }
  friend constexpr Count operator+(Count a, Count b) { return a += b; }
  friend constexpr Count operator-(Count a, Count b) { return a -= b; }
  friend constexpr Count operator*(Count a, std::int64_t n) { return Count{a.value_ * n}; }
  friend constexpr Count operator*(std::int64_t n, Count a) { return a * n; }
  /// How often `b` goes into `a`, rounded down.
  friend constexpr std::int64_t operator/(Count a, Count b) { return a.value_ / b.value_; }
  /// `a` split into `n` equal parts, rounded down.
  friend constexpr Count operator/(Count a, std::int64_t n) { return Count{a.value_ / n}; }
  friend constexpr Count operator%(Count a, Count b) { return Count{a.value_ % b.value_}; }

 private:
  std::int64_t value_ = 0;
};

using Bytes = Count<struct BytesKind>;
using Elements = Count<struct ElementsKind>;
using Tokens = Count<struct TokensKind>;

/// The smallest multiple of `step` that is not below `value`.
template <class Kind>
[[nodiscard]] constexpr Count<Kind> round_up(Count<Kind> value, std::int64_t step) {
  return Count<Kind>{(value.value() + step - 1) / step * step};
}

/// The smallest integer not below a/b, for a >= 0 and b > 0.
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A real quantity of dimension byte^B * second^S * FLOP^F, held in bytes, seconds and FLOPs.
template <int B, int S, int F>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double base) : base_(base) {}

  /// The number in base units (bytes, seconds, FLOP): for printing and storing only.
  [[nodiscard]] constexpr double base() const { return base_; }
  constexpr auto operator<=>(const Quantity&) const = default;

  constexpr Quantity& operator+=(Quantity other) {
    base_ += other.base_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    base_ -= other.base_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, double factor) { return Quantity{a.base_ * factor}; }
  friend constexpr Quantity operator*(double factor, Quantity a) { return a * factor; }
  friend constexpr Quantity operator/(Quantity a, double factor) { return Quantity{a.base_ / factor}; }
  /// Same dimension: the ratio, a plain number.
  friend constexpr double operator/(Quantity a, Quantity b) { return a.base_ / b.base_; }

 private:
  double base_ = 0;
};

using Seconds = Quantity<0, 1, 0>;
using ByteRate = Quantity<1, -1, 0>;
using FlopRate = Quantity<0, -1, 1>;
using Flops = Quantity<0, 0, 1>;

[[nodiscard]] constexpr Seconds operator/(Bytes amount, ByteRate rate) {
  return Seconds{static_cast<double>(amount.value()) / rate.base()};
}
[[nodiscard]] constexpr Seconds operator/(Flops amount, FlopRate rate) { return Seconds{amount.base() / rate.base()}; }
[[nodiscard]] constexpr ByteRate operator/(Bytes amount, Seconds time) {
  return ByteRate{static_cast<double>(amount.value()) / time.base()};
}
[[nodiscard]] constexpr FlopRate operator/(Flops amount, Seconds time) { return FlopRate{amount.base() / time.base()}; }

[[nodiscard]] constexpr Seconds microseconds(double us) { return Seconds{us * 1e-6}; }
[[nodiscard]] constexpr Bytes kibibytes(std::int64_t n) { return Bytes{n << 10}; }
[[nodiscard]] constexpr Bytes mebibytes(std::int64_t n) { return Bytes{n << 20}; }
[[nodiscard]] constexpr Bytes gibibytes(std::int64_t n) { return Bytes{n << 30}; }

/// A point or a span on the simulated clock, in whole picoseconds (range: 106 days). Only adding Seconds rounds.
class SimTime {
 public:
  constexpr SimTime() = default;
  constexpr explicit SimTime(std::int64_t picoseconds) : ps_(picoseconds) {}
  [[nodiscard]] static SimTime from(Seconds s) { return SimTime{std::llround(s.base() * 1e12)}; }

  [[nodiscard]] constexpr std::int64_t picoseconds() const { return ps_; }
  [[nodiscard]] constexpr Seconds seconds() const { return Seconds{static_cast<double>(ps_) * 1e-12}; }
  constexpr auto operator<=>(const SimTime&) const = default;
  constexpr SimTime& operator+=(SimTime other) {
    ps_ += other.ps_;
    return *this;
  }
  friend constexpr SimTime operator+(SimTime a, SimTime b) { return a += b; }
  friend constexpr SimTime operator-(SimTime a, SimTime b) { return SimTime{a.ps_ - b.ps_}; }

 private:
  std::int64_t ps_ = 0;
};

}  // namespace shardsim
