// SPDX-License-Identifier: Apache-2.0
// What a real job did, as shardsim.torch.record() wrote it (schema shardsim.run/1): collectives of its steps, times, peaks of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/collective.hpp"
#include "sim/base/dtype.hpp"
#include "sim/base/problem.hpp"
#include "sim/base/units.hpp"

namespace shardsim {

/// A collective as ranks see it: `elements` of the whole buffer with its padding, over `ranks` ranks that stand `stride` apart.
struct CollectiveShape {
  Collective kind = Collective::all_reduce;
  DType dtype = DType::fp32;
  std::int64_t elements = 0, ranks = 1, stride = 1;
  auto operator<=>(const CollectiveShape&) const = default;
  [[nodiscard]] Bytes payload() const { return bytes(Elements{elements}, dtype); }
};

struct RecordedCollective {
  CollectiveShape shape;
  std::optional<Seconds> time;
};

struct RecordedStep {
  std::vector<RecordedCollective> collectives;  ///< in the order of issue; scalars and flags are left out
  std::optional<Seconds> time;
  std::optional<Bytes> peak, reserved;
};

struct RunRecord {
  std::string library;     ///< "torch 2.15.0"
  std::int64_t ranks = 1;  ///< of the job
  std::vector<RecordedStep> steps;

  /// The step that is compared: the last, which is steady. Its time is the median over all but the first.
  [[nodiscard]] RecordedStep steady() const;
};

/// Reductions of at most so many elements are norms, flags and counters: control traffic, in predictions as in recordings.
inline constexpr std::int64_t most_control_elements = 64;

[[nodiscard]] Result<RunRecord> read_run(const Source& source);

}  // namespace shardsim
