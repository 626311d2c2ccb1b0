// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's gradient buckets (ipg: independent parameter gradient): which gradients are reduced together, and the contiguous buffers
// they are copied into. Source: DeepSpeed runtime/zero/stage_1_and_2.py (IPGBucket, setup_buckets).
#pragma once

#include <array>
#include <vector>

#include "strategies/deepspeed/zero12.hpp"

namespace shardsim {

/// Gradients reduced together, one after another in the order in which they joined. May span param groups.
struct IpgBucket {
  std::int32_t index = 0;
  UnitId name{};
  std::vector<ParameterId> parameters{};
  ParameterSpan span{};
  Elements elements{};
  bool extra_large = false;  ///< one parameter above reduce_bucket_size: reduced from its own gradient
};

class IpgBuckets {
 public:
  /// Buckets that the flush rule makes out of gradients that come in this order.
  IpgBuckets(Program& program, const Zero12Config& config, const std::vector<ParameterId>& order);

  [[nodiscard]] const IpgBucket& bucket_of(ParameterId p) const {
    return buckets_[static_cast<std::size_t>(bucket_of_[static_cast<std::size_t>(p.index)])];
  }

  /// setup_buckets, on the first gradient of a backward: always the full bucket size, twice under overlap_comm. Nothing without
  /// contiguous_gradients.
  void setup();
  /// Where the bucket's gradients are copied: a view of the ipg buffer that it fills.
  BufferId view(const IpgBucket& bucket);
  /// _release_ipg_buffers.
  void release();

 private:
  struct Tensor {
    BufferId buffer, view;
    std::int32_t bucket = -1;
  };

  Program& program_;
  const Zero12Config& config_;
  std::vector<IpgBucket> buckets_;
  std::vector<std::int32_t> bucket_of_;  // by parameter
  std::array<Tensor, 2> tensors_;        // the second under overlap_comm: one fills while the other is reduced
  bool ready_for_gradients_ = false;
};

}  // namespace shardsim
