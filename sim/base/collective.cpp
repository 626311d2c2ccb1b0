// SPDX-License-Identifier: Apache-2.0
#include "sim/base/collective.hpp"

#include <numeric>

namespace shardsim {

std::vector<std::int64_t> ring_segments(std::int64_t count, std::int64_t n) {
  std::vector<std::int64_t> segments(static_cast<std::size_t>(n), count / n);
  for (std::int64_t i = 0; i < count % n; ++i) ++segments[static_cast<std::size_t>(i)];
  return segments;
}

std::int64_t ring_sent_elements(Collective c, const std::vector<std::int64_t>& segments, std::int64_t r, std::int64_t root) {
  const auto n = static_cast<std::int64_t>(segments.size());
  if (n <= 1) return 0;
  const std::int64_t count = std::accumulate(segments.begin(), segments.end(), std::int64_t{0});
  const std::int64_t own = segments[static_cast<std::size_t>(r)];
  const std::int64_t next = segments[static_cast<std::size_t>((r + 1) % n)];
  switch (c) {
    case Collective::all_gather:
      return count - next;
    case Collective::reduce_scatter:
      return count - own;
    case Collective::all_reduce:
      return 2 * count - own - next;
    case Collective::all_to_all:
      return count - own;
    case Collective::broadcast:
      return (r + 1) % n == root ? 0 : count;  // the tail of the chain stands just before the root
    case Collective::reduce:
      return r == root ? 0 : count;
  }
  return 0;
}

}  // namespace shardsim
