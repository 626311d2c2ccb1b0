// SPDX-License-Identifier: Apache-2.0
// Elements as they lie in memory and on the wire, and the arithmetic on them: always in fp32, rounded to nearest even when stored.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/dtype.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim::execute {

[[nodiscard]] inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// Round to nearest, ties to even; a NaN stays one.
[[nodiscard]] inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// What is left of `value` once it has been stored as `type` (bf16 or fp32).
[[nodiscard]] inline float rounded(float value, DType type) { return type == DType::bf16 ? from_bf16(to_bf16(value)) : value; }

/// Is `type` one that real payloads can have (bf16, fp32)?
[[nodiscard]] constexpr bool is_real(DType type) { return type == DType::bf16 || type == DType::fp32; }

/// Distance from 1 to the next number, halved: the largest relative error of one rounding.
[[nodiscard]] constexpr double unit_roundoff(DType type) { return type == DType::bf16 ? 0x1p-9 : 0x1p-24; }

/// Bytes to numbers and back; `bytes` holds values.size() elements. Throws std::logic_error for other dtypes than bf16 and fp32.
void decode(std::span<const std::byte> bytes, DType type, std::span<float> values);
void encode(std::span<const float> values, DType type, std::span<std::byte> bytes);

/// into = into (+|max) other, element by element; `average` adds. Both hold elements of `type`.
void combine(std::span<std::byte> into, std::span<const std::byte> other, DType type, Reduction reduction);

/// Every element times `factor`.
void scale(std::span<std::byte> bytes, DType type, float factor);

}  // namespace shardsim::execute
