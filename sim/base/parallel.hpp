// SPDX-License-Identifier: Apache-2.0
// The same work on many items, on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace shardsim {

/// Cores that this process may use.
[[nodiscard]] unsigned available_cores();

/// Calls work(i) once for each i in [0, count), on up to `threads` threads, in no particular order. The first exception stops the hand-out
/// of further items and is thrown again here.
void parallel_for(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work);

}  // namespace shardsim
