// SPDX-License-Identifier: Apache-2.0
// What one simulated step came to. A value; reports read it and compute nothing. Field names follow the JSON contract.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/memory/memory.hpp"
#include "sim/schedule/schedule.hpp"
#include "sim/schedule/timeline.hpp"

namespace shardsim {

struct RankDifferences;    // sim/engine/unlike_ranks.hpp
struct CheckpointReport;   // sim/schedule/checkpoint_report.hpp
struct MemoryExplanation;  // sim/memory/memory_explanation.hpp
struct Assumption;         // sim/engine/assumption.hpp
struct MeasuredRun;        // sim/engine/measured_run.hpp

struct TrafficRow {
  std::string group;
  Collective collective = Collective::all_reduce;
  DType dtype = DType::bf16;
  Bytes payload;  ///< of one call
  std::int64_t calls = 0;
  Bytes sent_per_rank;  ///< of all calls
  std::string algorithm;
  std::string cost_model;  ///< which model gave the time: "calibrated (H100 8 ranks ring)", "ring alpha-beta, 8 nodes" ...
  bool control = false;
  std::string bottleneck;            ///< link that holds it back: "node0.nic0 to leaf0"
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
  Bytes textbook;  ///< what the papers count for this job
  std::string textbook_differs_because;
  Bytes sent_inside_node;          ///< of all, by the ranks of one node to each other
  Bytes sent_between_nodes;        ///< by one node to others
  Bytes sent_by_nic;               ///< by each NIC in use
  ByteRate nic_mean, nic_busiest;  ///< over the step, and over its busiest second
};

struct StepTime {
  Seconds time, compute, communication, exposed_communication;
  Seconds host_bound;  ///< nothing else runs: the host has not issued it, or copies to or from the host hold it up
  Seconds optimizer;   ///< compute, exposed_communication, host_bound and optimizer add up to the time
  double tokens_per_second = 0, tokens_per_second_per_gpu = 0;
  Flops model_flops, hardware_flops;  ///< per rank and step
  std::string flop_convention;
  double mfu = 0, hfu = 0;
  std::string bound_by;         ///< "compute", "communication: NIC (8 x 50 GB/s per node)", "host: kernel launches" ...
  std::string bottleneck_link;  ///< where bound by communication: the link by name
};

struct SimulationResult {
  std::string scenario;  ///< file name as given
  std::string stack;     ///< whose software costs were counted
  std::string model_name;
  Elements parameters, trainable_parameters;
  std::int64_t world_size = 1;
  std::int64_t nodes = 1;
  std::shared_ptr<const Schedule> schedule;
  Traffic traffic;
  Memory memory;
  StepTime step;
  Timeline timeline;
  std::shared_ptr<const CheckpointReport> checkpoint;      ///< where the scenario asks for one
  std::shared_ptr<const MemoryExplanation> explanation;    ///< where the user asks for one
  std::shared_ptr<const std::vector<Assumption>> assumed;  ///< where the user reads it
  std::shared_ptr<const MeasuredRun> measured;             ///< where the scenario tells of one
  std::shared_ptr<const RankDifferences> differences;      ///< where ranks are not all alike
  std::vector<std::string> warnings;
};

}  // namespace shardsim
