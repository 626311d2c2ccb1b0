// SPDX-License-Identifier: Apache-2.0
// DDP's communication hooks: what goes over the wire instead of a bucket.
// Source: torch/distributed/algorithms/ddp_comm_hooks/{default_hooks,powerSGD_hook}.py.
#pragma once

#include <memory>
#include <vector>

#include "strategies/hooks.hpp"

namespace shardsim {

/// A bucket as a hook sees it. Gradients are not divided by the number of ranks before a hook.
struct HookedBucket {
  UnitId name;
  BufferId buffer;
  Elements elements;
  DType dtype = DType::fp32;
  const std::vector<ParameterId>* parameters = nullptr;
};

class CommHook {
 public:
  CommHook() = default;
  CommHook(const CommHook&) = delete;
  CommHook& operator=(const CommHook&) = delete;
  virtual ~CommHook() = default;
  /// Called when the bucket is complete; the last collective is what its future waits for.
  virtual OpId reduce(const HookedBucket& bucket) = 0;
  /// The future's value goes back into the bucket, on the compute stream.
  virtual void decompress(const HookedBucket& bucket) = 0;
};

/// The hook of `comm_hook`, or of a `precision.reduce` narrower than the gradients; none: plain all-reduce.
[[nodiscard]] std::unique_ptr<CommHook> make_comm_hook(Program& program, CommunicatorId communicator, StreamId process_group);
void check_comm_hook(const Job& job, Problems& problems);
[[nodiscard]] std::vector<OptionSpec> comm_hook_options();

}  // namespace shardsim
