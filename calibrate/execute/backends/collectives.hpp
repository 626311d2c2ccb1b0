// SPDX-License-Identifier: Apache-2.0
// Collectives on real payloads: what a backend offers to the interpreter of schedules.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/ranks/mesh.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim::execute {

/// Ranks of one process group that holds the caller, in ring order, and the caller's place.
struct Members {
  std::vector<int> ranks;
  int index = 0;
  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
};

/// The members of `group` around `rank`: r0, r0 + stride, ... (see Group).
[[nodiscard]] Members members_of(const Group& group, int rank);

/// One collective. `full` is the whole payload. All-gather reads `shard` (or, if empty, the own part of `full`); reduce-scatter writes
/// `shard` (or, if empty, the own part of `full`) and leaves the rest of `full` alone; the others work on `full` in place.
/// Parts are ring_segments() of the payload.
struct CollectiveCall {
  Collective kind = Collective::all_reduce;
  DType dtype = DType::fp32;
  Reduction reduction = Reduction::sum;
  int root = 0;
  std::span<std::byte> full{};
  std::span<std::byte> shard{};
};

class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual void run(const Members& members, const CollectiveCall& call) = 0;
  /// Payload bytes sent so far, as something outside this program counted them.
  [[nodiscard]] virtual Bytes sent() const = 0;
  [[nodiscard]] virtual std::string counted_by() const = 0;
  /// Of what went over the wire in this program's own hands; null where a library moves the bytes.
  [[nodiscard]] virtual const WireDigests* digests() const { return nullptr; }
};

/// The ring algorithms (NCCL's order: rank r ends a reduce-scatter owning segment r).
/// Sums in fp32, rounded to the dtype at every hop, as a ring with that wire format does; averages divide once, at the end.
void run_ring(Transport& transport, const Members& members, const CollectiveCall& call);

/// Rings over TCP.
class RingCollectives final : public Collectives {
 public:
  explicit RingCollectives(Mesh& mesh) : mesh_(mesh) {}
  void run(const Members& members, const CollectiveCall& call) override { run_ring(mesh_, members, call); }
  [[nodiscard]] Bytes sent() const override { return mesh_.acknowledged(); }
  [[nodiscard]] std::string counted_by() const override { return "kernel: TCP_INFO tcpi_bytes_acked"; }
  [[nodiscard]] const WireDigests* digests() const override { return &mesh_.digests(); }

 private:
  Mesh& mesh_;
};

}  // namespace shardsim::execute
