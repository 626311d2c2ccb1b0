// SPDX-License-Identifier: Apache-2.0
#include "strategies/shared/bucketing.hpp"

#include <algorithm>

namespace shardsim {

std::vector<BucketRange> close_when_full(std::span<const std::int64_t> sizes, std::span<const std::int64_t> limits) {
  std::vector<BucketRange> buckets;
  std::size_t begin = 0;
  std::int64_t size = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    size += sizes[i];
    if (limits.empty() || size < limits[std::min(buckets.size(), limits.size() - 1)]) continue;
    buckets.push_back({begin, i + 1});
    begin = i + 1;
    size = 0;
  }
  if (begin < sizes.size()) buckets.push_back({begin, sizes.size()});
  return buckets;
}

std::vector<BucketRange> flush_before_exceeding(std::span<const std::int64_t> sizes, std::int64_t limit) {
  std::vector<BucketRange> buckets;
  std::size_t begin = 0;
  std::int64_t size = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i > begin && size + sizes[i] > limit) {
      buckets.push_back({begin, i});
      begin = i;
      size = 0;
    }
    size += sizes[i];
  }
  if (begin < sizes.size()) buckets.push_back({begin, sizes.size()});
  return buckets;
}

}  // namespace shardsim
