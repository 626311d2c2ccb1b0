// SPDX-License-Identifier: Apache-2.0
// What one simulated step came to. A value; reports read it and compute nothing. Field names follow the JSON contract.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/core/schedule.hpp"
#include "sim/core/units.hpp"

namespace shardsim {

struct CheckpointReport;   // sim/core/checkpoint_report.hpp
struct MemoryExplanation;  // sim/engine/memory_explanation.hpp

struct TrafficRow {
  std::string group;
  Collective collective = Collective::all_reduce;
  DType dtype = DType::bf16;
  Bytes payload;                 ///< of one call
  std::int64_t calls = 0;
  Bytes sent_per_rank;           ///< of all calls
  std::string algorithm;
  std::string cost_model;        ///< which model gave the time: "calibrated (H100 8 ranks ring)", "ring alpha-beta, 8 nodes" ...
  bool control = false;
  std::string bottleneck;        ///< link that holds it back: "node0.nic0 to leaf0"
  std::int32_t multiprocessors = 0;  ///< taken from compute while it runs
};

struct Traffic {
  std::array<Bytes, all_collectives.size()> sent_per_rank{};  ///< by collective
  Bytes total;
  Bytes by_rank_min, by_rank_max;
  double by_rank_mean = 0;
  std::vector<TrafficRow> by_group;
  Bytes control;
  double psi_units = 0;
  Bytes textbook;                ///< what the papers count for this job
  std::string textbook_differs_because;
};

using ByCategory = std::array<Bytes, category_count>;
[[nodiscard]] inline Bytes sum(const ByCategory& by) {
  Bytes s;
  for (Bytes b : by) s += b;
  return s;
}

/// What an op does to the allocated memory; of no op where a buffer is alive before the step.
struct AllocationChange {
  Bytes bytes;  ///< less than zero: freed
  OpId op{};
  std::int16_t pool = 0;  ///< stream whose pool it is
  Category category = Category::temporaries;
  bool host = false;  ///< pinned host memory
};
using AllocationChanges = std::shared_ptr<const std::vector<AllocationChange>>;

/// The changes are the schedule's, in host order; the times are the replay's, one for each change.
struct MemoryTimeline {
  AllocationChanges changes;
  std::vector<SimTime> times;  ///< when the default stream gets there
};

struct Memory {
  Bytes peak;
  OpId peak_op;                  ///< the allocation that reached it
  std::string peak_at;           ///< "FSDP::copy_out(model.layers.31), backward of micro-batch 1"
  Phase peak_phase = Phase::forward;
  Bytes capacity;
  bool fits = true;
  ByCategory persistent{};       ///< parameters, gradients and states alive together at the end of backward
  Bytes resident;                ///< allocated after the step
  ByCategory at_peak{};
  ByCategory before{};           ///< allocated when the step begins
  Bytes reserved_peak;
  Bytes overhead;
  Bytes device_peak;
  Bytes host_pinned;             ///< pinned host memory of the rank (offload)
  MemoryTimeline timeline;             ///< filled when asked for
};

/// Calls visit(time, op, allocated) after each change of device memory in the step.
template <class Visit>
void visit_states(const Memory& memory, Visit visit) {
  ByCategory allocated = memory.before;
  for (std::size_t i = 0; i < memory.timeline.times.size(); ++i) {
    const AllocationChange& change = (*memory.timeline.changes)[i];
    if (change.host || !change.op.valid()) continue;
    allocated[static_cast<std::size_t>(change.category)] += change.bytes;
    visit(memory.timeline.times[i], change.op, allocated);
  }
}

struct StepTime {
  Seconds time, compute, communication, exposed_communication;
  Seconds host_bound;  ///< nothing else runs: the host has not issued it, or copies to or from the host hold it up
  Seconds optimizer;   ///< compute, exposed_communication, host_bound and optimizer add up to the time
  double tokens_per_second = 0, tokens_per_second_per_gpu = 0;
  Flops model_flops, hardware_flops;   ///< per rank and step
  std::string flop_convention;
  double mfu = 0, hfu = 0;
  std::string bound_by;                ///< "compute", "communication: NIC (8 x 50 GB/s per node)", "host: kernel launches" ...
  std::string bottleneck_link;         ///< where bound by communication: the link by name
};

/// One op's run on its stream.
struct Slice {
  OpId op;
  StreamId stream;
  SimTime begin, end;
};

struct HostSlice {
  OpId op;
  SimTime begin, end;
};

struct Timeline {
  std::vector<Slice> slices;       ///< by begin, then op
  std::vector<HostSlice> host;     ///< when the host issued, or waited for, what; ops that took it no time are left out
  SimTime end;
};

struct SimulationResult {
  std::string scenario;            ///< file name as given
  std::string model_name;
  Elements parameters, trainable_parameters;
  std::int64_t world_size = 1;
  std::int64_t nodes = 1;
  std::shared_ptr<const Schedule> schedule;
  Traffic traffic;
  Memory memory;
  StepTime step;
  Timeline timeline;
  std::shared_ptr<const CheckpointReport> checkpoint;    ///< where the scenario asks for one
  std::shared_ptr<const MemoryExplanation> explanation;  ///< where the user asks for one
  std::vector<std::string> warnings;
};

}  // namespace shardsim
