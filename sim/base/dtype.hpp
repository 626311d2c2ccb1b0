// SPDX-License-Identifier: Apache-2.0
// Number formats and their sizes.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/base/units.hpp"

namespace shardsim {

enum class DType : std::uint8_t { bf16, fp16, fp32, fp64, fp8, int8, int32, int64 };

inline constexpr std::array<std::pair<std::string_view, DType>, 8> dtype_names{{{"bf16", DType::bf16},
                                                                                {"fp16", DType::fp16},
                                                                                {"fp32", DType::fp32},
                                                                                {"fp64", DType::fp64},
                                                                                {"fp8", DType::fp8},
                                                                                {"int8", DType::int8},
                                                                                {"int32", DType::int32},
                                                                                {"int64", DType::int64}}};

/// Bytes of one element.
[[nodiscard]] constexpr std::int64_t size_of(DType type) {
  switch (type) {
    case DType::fp8:
    case DType::int8:
      return 1;
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::fp32:
    case DType::int32:
      return 4;
    case DType::fp64:
    case DType::int64:
      return 8;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view name_of(DType type) {
  for (const auto& [name, value] : dtype_names)
    if (value == type) return name;
  return "?";
}

[[nodiscard]] constexpr std::optional<DType> dtype_from(std::string_view name) {
  for (const auto& [known, value] : dtype_names)
    if (known == name) return value;
  return std::nullopt;
}

/// The one bridge from elements to bytes.
[[nodiscard]] constexpr Bytes bytes(Elements count, DType type) { return Bytes{count.value() * size_of(type)}; }

}  // namespace shardsim
