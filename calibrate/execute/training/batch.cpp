// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/training/batch.hpp"

#include <cmath>
#include <string>

namespace shardsim::execute {
namespace {

/// splitmix64 (Steele, Lea, Flood 2014): a good hash of a counter, so that every value can be had without the ones before it.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c) { return mix(mix(mix(a) ^ b) ^ c); }

double unit_interval(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

constexpr std::uint64_t text_seed = 20231, weight_seed = 41443;

}  // namespace

std::vector<std::int32_t> sequence_tokens(std::int64_t step, std::int64_t index, std::int64_t length, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  const auto stream = mix(text_seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(index));
  auto token = static_cast<std::int64_t>(stream % static_cast<std::uint64_t>(vocabulary));
  for (std::int64_t i = 0; i <= length; ++i) {
    tokens.push_back(static_cast<std::int32_t>(token));
    const std::uint64_t dice = mix(stream, static_cast<std::uint64_t>(i), 1);
    const auto jump = static_cast<std::int64_t>(dice % 8 == 0 ? dice / 8 % static_cast<std::uint64_t>(vocabulary) : 1);
    token = (token + jump) % vocabulary;
  }
  return tokens;
}

std::vector<float> start_values(std::int64_t parameter, const std::string& name, const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (std::int64_t d : shape) count *= d;
  if (shape.size() < 2) return std::vector<float>(static_cast<std::size_t>(count), name.ends_with("bias") ? 0.0F : 1.0F);
  const double fan_in = static_cast<double>(count) / static_cast<double>(shape.front());
  const double range = std::sqrt(12.0) * 0.5 / std::sqrt(fan_in);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((unit_interval(mix(weight_seed, static_cast<std::uint64_t>(parameter), i)) - 0.5) * range);
  return values;
}

}  // namespace shardsim::execute
