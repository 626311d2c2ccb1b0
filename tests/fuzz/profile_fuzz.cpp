// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  shardsim::fuzz_profile({reinterpret_cast<const char*>(data), size});
  return 0;
}
