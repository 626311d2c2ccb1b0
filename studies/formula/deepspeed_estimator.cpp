// SPDX-License-Identifier: Apache-2.0
#include "studies/formula/deepspeed_estimator.hpp"

#include <algorithm>

namespace shardsim {
namespace {

/// Half as much again: the estimators' additional_buffer_factor of 1.5.
Bytes with_buffers(std::int64_t bytes) { return Bytes{bytes + bytes / 2}; }

}  // namespace

std::vector<EstimatorRow> deepspeed_estimates(const EstimatorInput& input) {
  const std::int64_t p = input.parameters.value(), largest = 4 * input.largest_layer.value();
  const std::int64_t gpus = input.gpus_per_node * input.nodes;
  const auto shard = [&](std::int64_t bytes) { return bytes * p / gpus; };
  const auto same = [](int stage, std::string offload, std::int64_t gpu, Bytes cpu, std::string rule) {
    return EstimatorRow{stage, std::move(offload), Bytes{gpu}, Bytes{gpu}, cpu, rule, rule};
  };
  return {
      {2, "none", Bytes{2 * p + shard(18)}, Bytes{4 * p + shard(16)}, with_buffers(4 * p * input.gpus_per_node), "2P + 18P/n",
       "4P + 16P/n"},
      same(2, "optimizer", 2 * p, with_buffers(p * std::max<std::int64_t>(4 * gpus, 16)), "2P"),
      same(3, "none", largest + shard(18), with_buffers(largest * input.gpus_per_node), "4L + 18P/n"),
      same(3, "optimizer", largest + shard(2), with_buffers(16 * p / input.nodes), "4L + 2P/n"),
      same(3, "optimizer, parameters", largest, with_buffers(18 * p / input.nodes), "4L"),
  };
}

}  // namespace shardsim
