// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/training/element.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace shardsim::execute {
namespace {

constexpr std::size_t block = 1024;  // elements converted at a time, so that conversions stay in the cache

template <class F>
void by_blocks(std::size_t count, F&& f) {
  for (std::size_t begin = 0; begin < count; begin += block) f(begin, std::min(block, count - begin));
}

void check(std::size_t bytes, DType type, std::size_t count) {
  if (!is_real(type)) throw std::logic_error("no arithmetic on " + std::string(name_of(type)));
  if (bytes != count * static_cast<std::size_t>(size_of(type))) throw std::logic_error("a buffer and its element count disagree");
}

/// Flags, maps of parameters and norms: scalars that travel as they are.
template <class T>
void combine_as(std::span<std::byte> into, std::span<const std::byte> other, Reduction reduction) {
  for (std::size_t at = 0; at + sizeof(T) <= into.size(); at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, into.data() + at, sizeof a);
    std::memcpy(&b, other.data() + at, sizeof b);
    a = reduction == Reduction::max ? std::max(a, b) : static_cast<T>(a + b);
    std::memcpy(into.data() + at, &a, sizeof a);
  }
}

}  // namespace

void decode(std::span<const std::byte> bytes, DType type, std::span<float> values) {
  check(bytes.size(), type, values.size());
  if (type == DType::fp32) {
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    values[i] = from_bf16(bits);
  }
}

void encode(std::span<const float> values, DType type, std::span<std::byte> bytes) {
  check(bytes.size(), type, values.size());
  if (type == DType::fp32) {
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = to_bf16(values[i]);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
}

void combine(std::span<std::byte> into, std::span<const std::byte> other, DType type, Reduction reduction) {
  switch (type) {
    case DType::int8:
      return combine_as<std::int8_t>(into, other, reduction);
    case DType::int32:
      return combine_as<std::int32_t>(into, other, reduction);
    case DType::int64:
      return combine_as<std::int64_t>(into, other, reduction);
    case DType::fp64:
      return combine_as<double>(into, other, reduction);
    default:
      break;
  }
  const auto size = static_cast<std::size_t>(size_of(type));
  float a[block], b[block];
  by_blocks(into.size() / size, [&](std::size_t begin, std::size_t count) {
    const auto target = into.subspan(begin * size, count * size);
    decode(target, type, {a, count});
    decode(other.subspan(begin * size, count * size), type, {b, count});
    for (std::size_t i = 0; i < count; ++i) a[i] = reduction == Reduction::max ? std::max(a[i], b[i]) : a[i] + b[i];
    encode({a, count}, type, target);
  });
}

void scale(std::span<std::byte> bytes, DType type, float factor) {
  const auto size = static_cast<std::size_t>(size_of(type));
  float a[block];
  by_blocks(bytes.size() / size, [&](std::size_t begin, std::size_t count) {
    const auto target = bytes.subspan(begin * size, count * size);
    decode(target, type, {a, count});
    for (std::size_t i = 0; i < count; ++i) a[i] *= factor;
    encode({a, count}, type, target);
  });
}

}  // namespace shardsim::execute
