// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks/transport.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace shardsim::execute {
namespace {

/// Each step can be undone: of two streams of one length that differ in one word, the digests differ.
std::uint64_t mixed(std::uint64_t digest, std::uint64_t word) { return (std::rotl(digest, 29) ^ word) * 0x9e3779b97f4a7c15ULL; }

}  // namespace

void StreamDigest::add(std::span<const std::byte> bytes) {
  constexpr std::size_t word = sizeof(std::uint64_t);
  while (!bytes.empty()) {
    const std::size_t place = size_ % word;
    if (place == 0 && bytes.size() >= word) {
      std::uint64_t whole = 0;
      std::memcpy(&whole, bytes.data(), word);
      digest_ = mixed(digest_, whole);
      size_ += word;
      bytes = bytes.subspan(word);
      continue;
    }
    const std::size_t count = std::min(bytes.size(), word - place);
    std::memcpy(reinterpret_cast<std::byte*>(&rest_) + place, bytes.data(), count);
    size_ += count;
    bytes = bytes.subspan(count);
    if (size_ % word == 0) digest_ = mixed(digest_, std::exchange(rest_, 0));
  }
}

std::uint64_t StreamDigest::value() const { return mixed(mixed(digest_, rest_), size_); }

std::vector<std::uint64_t> WireDigests::values(const std::vector<StreamDigest>& digests) {
  std::vector<std::uint64_t> list;
  for (const StreamDigest& digest : digests) list.push_back(digest.value());
  return list;
}

std::span<const std::byte> Saboteur::next(std::span<const std::byte> out) {
  const std::int64_t begin = sent_;
  sent_ += static_cast<std::int64_t>(out.size());
  if (at_ < begin || at_ >= sent_) return out;
  tampered_.assign(out.begin(), out.end());
  tampered_[static_cast<std::size_t>(at_ - begin)] ^= std::byte{0x40};  // an exponent bit, in the high byte of a number
  return tampered_;
}

}  // namespace shardsim::execute
