// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks/transport.hpp"

namespace shardsim::execute {

std::span<const std::byte> Saboteur::next(std::span<const std::byte> out) {
  const std::int64_t begin = sent_;
  sent_ += static_cast<std::int64_t>(out.size());
  if (at_ < begin || at_ >= sent_) return out;
  tampered_.assign(out.begin(), out.end());
  tampered_[static_cast<std::size_t>(at_ - begin)] ^= std::byte{0x40};  // an exponent bit, in the high byte of a number
  return tampered_;
}

}  // namespace shardsim::execute
