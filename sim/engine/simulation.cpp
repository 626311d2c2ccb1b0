// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/base/units_text.hpp"
#include "sim/engine/account.hpp"
#include "sim/engine/prepared_step.hpp"
#include "sim/engine/time_split.hpp"
#include "sim/engine/unlike_ranks.hpp"
#include "sim/memory/allocator_replay.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t workspace_step = std::int64_t{2} << 20;

const Group& group_named(const Schedule& schedule, const std::string& name) {
  return *std::find_if(schedule.groups.begin(), schedule.groups.end(), [&](const Group& group) { return group.name == name; });
}

/// Bytes of rings are known before the cluster is; another algorithm sends others.
Traffic traffic(const PreparedStep& step, const CostModel& costs, Elements parameters) {
  if (costs.cluster().profile.network.all_reduce_algorithm == Network{}.all_reduce_algorithm) return step.traffic;
  return account(*step.schedule, parameters,
                 [&](Collective collective, Bytes payload, const Group& group) { return costs.choose(collective, payload, group); });
}

/// The model, and the protocol where one is known and not named yet.
std::string with_protocol(const CollectiveTime& timed) {
  const bool named = timed.protocol.empty() || timed.model.find(timed.protocol) != std::string::npos;
  return named ? timed.model : timed.model + ", " + timed.protocol;
}

/// Says for every row which algorithm and which model timed it, and warns once a group and collective where that left the measured range.
void add_cost_models(const Schedule& schedule, const CostModel& costs, SimulationResult& result) {
  std::vector<std::pair<std::string, Collective>> warned;
  for (TrafficRow& row : result.traffic.by_group) {
    const CollectiveTime timed = costs.collective(row.collective, row.payload, group_named(schedule, row.group));
    row.cost_model = with_protocol(timed);
    if (!timed.algorithm.empty()) row.algorithm = timed.algorithm;
    row.bottleneck = timed.link;
    row.multiprocessors = timed.multiprocessors;
    const auto key = std::pair(row.group, row.collective);
    if (!timed.extrapolated || row.control || std::find(warned.begin(), warned.end(), key) != warned.end()) continue;
    warned.push_back(key);
    result.warnings.push_back(fmt::format("{} over group {}: its time is extrapolated beyond what was measured ({})",
                                          name_of(row.collective), row.group, timed.model));
  }
}

/// cuBLAS takes its workspaces from the caching allocator at the first product and keeps them: they are allocated at every instant.
void add_workspace(Bytes workspace, Memory& memory) {
  const auto temporaries = static_cast<std::size_t>(Category::temporaries);
  memory.peak += workspace;
  memory.at_peak[temporaries] += workspace;
  memory.resident += workspace;
  memory.before[temporaries] += workspace;
  memory.reserved_peak += round_up(workspace, workspace_step);
}

/// What the driver counts beyond the allocator.
Bytes overhead(const Schedule& schedule, const Profile& profile) {
  const auto communicates = [&](const Communicator& c) { return schedule.groups[static_cast<std::size_t>(c.group.index)].size > 1; };
  const auto communicators = std::count_if(schedule.communicators.begin(), schedule.communicators.end(), communicates);
  return profile.overheads.context + profile.overheads.nccl_per_communicator * communicators;
}

/// What the allocator's model makes of the step; known already where only speeds changed that do not bear on it.
AllocatorReplay reserved(const PreparedStep& step, const Timeline& timeline, const AllocatorOptions& options, Bytes workspace) {
  if (step.timed_allocations) return replay_allocations(*step.schedule, timeline, options, workspace);
  const bool known = step.reserved && step.reserved->options == options && step.reserved->workspace == workspace;
  if (!known) step.reserved = {options, workspace, replay_allocations(*step.schedule, timeline, options, workspace)};
  return step.reserved->replay;
}

/// Reserved memory as the allocator's model has it, for as much memory as the GPU has left.
void reserve(const PreparedStep& step, const Profile& profile, AllocatorOptions options, SimulationResult& result) {
  if (options.capacity == Bytes{} && profile.gpu.capacity > Bytes{})
    options.capacity = std::max(profile.gpu.capacity - result.memory.overhead, Bytes{1});
  const AllocatorReplay replay = reserved(step, result.timeline, options, profile.overheads.cublas_workspace);
  result.memory.reserved_peak = replay.peak.reserved;
  if (replay.retries > 0 && !replay.out_of_memory)
    result.warnings.push_back("close to the limit: the caching allocator has to give its cache back to the driver, which stalls the step");
}

bool is_textbook(const Schedule& schedule) { return schedule.semantics == "textbook"; }
/// The papers count bytes; only the library's schedule meets an allocator that rounds.
std::int64_t granularity(const Schedule& schedule) { return is_textbook(schedule) ? 1 : 512; }

void add_memory(const PreparedStep& step, const Profile& profile, const Detail& detail, SimulationResult& result) {
  const Schedule& schedule = *step.schedule;
  Memory& memory = result.memory;
  memory = step.memory;
  if (detail.timeline) memory.timeline = memory_timeline(step.allocation_changes, result.timeline);
  add_workspace(profile.overheads.cublas_workspace, memory);
  memory.overhead = overhead(schedule, profile);
  if (detail.allocator && !is_textbook(schedule)) reserve(step, profile, *detail.allocator, result);
  memory.device_peak = memory.reserved_peak + memory.overhead;
  memory.capacity = profile.gpu.capacity;
  memory.fits = memory.device_peak <= memory.capacity;
}

void add_memory_warnings(const Cluster& cluster, SimulationResult& result) {
  const Memory& memory = result.memory;
  if (!memory.fits)
    result.warnings.push_back(
        fmt::format("does not fit: {} of device memory needed, {} there", to_text(memory.device_peak), to_text(memory.capacity)));
  const Bytes pinned = memory.host_pinned * cluster.gpus_per_node;
  if (cluster.profile.node.host_memory > Bytes{} && pinned > cluster.profile.node.host_memory)
    result.warnings.push_back(fmt::format("does not fit: {} of pinned host memory a node needed, {} there", to_text(pinned),
                                          to_text(cluster.profile.node.host_memory)));
}

Flops hardware_flops(const Schedule& schedule) {
  Flops sum;
  const auto add = [&](WorkId work) {
    if (work.valid()) sum += schedule.at(work).flops();
  };
  for (const Op& op : schedule.ops) {
    if (const auto* compute = std::get_if<Compute>(&op.action))
      add(compute->work);
    else if (const auto* update = std::get_if<Update>(&op.action))
      add(update->work);
  }
  return sum;
}

/// What bounds a step, and where that is a link of the cluster's graph, its name.
struct Bound {
  std::string by, link = {};
};

/// The step is bound by what is at work longest: were anything else faster, that would still take its time.
Bound bound_by(const Schedule& schedule, const CostModel& costs, const TimeSplit& split) {
  const SimTime most = std::max({split.kernels_busy, split.communication_busy, split.host_busy, split.link_busy});
  if (most == split.kernels_busy) return {"compute"};
  if (most == split.communication_busy) {
    const auto& longest = std::get<Communicate>(schedule.at(split.longest_collective).action);
    const Group& group = schedule.group_of(longest.communicator);
    const CollectiveTime timed = costs.collective(longest.kind, bytes(longest.payload, longest.dtype), group);
    return {"communication: " + timed.bottleneck, timed.link};
  }
  if (most == split.link_busy) return {"host link: copies between device and host memory"};
  const bool by_updates = split.host_updates + split.host_updates > split.host_busy;
  return {by_updates ? "host: optimizer on the CPU" : "host: kernel launches"};
}

/// Replays the step into `result.timeline`, and returns the program whose timeline it is: of all ranks, or of the class that sets the pace.
RankProgram replay(const PreparedStep& step, const CostModel& costs, SimulationResult& result) {
  if (!costs.cluster().states.empty()) {
    UnlikeReplay unlike = replay_unlike(step.program, costs);
    result.timeline = std::move(unlike.timeline);
    result.differences = std::move(unlike.differences);
    return std::move(unlike.program);
  }
  RankProgram program{.program = step.program, .prices = costs.prices(*step.program)};
  result.timeline = std::move(simulate({&program, 1}, {.overlap_slowdown = costs.cluster().profile.gpu.overlap_slowdown}).front());
  return program;
}

StepTime step_time(const PreparedStep& prepared, const CostModel& costs, const JobFacts& job, const TimeSplit& split, SimTime end) {
  const Schedule& schedule = *prepared.schedule;
  StepTime step;
  step.time = end.seconds();
  step.compute = split.compute.seconds();
  step.communication = split.communication.seconds();
  step.exposed_communication = split.exposed.seconds();
  step.host_bound = (split.idle + split.link).seconds();
  step.optimizer = split.optimizer.seconds();
  step.model_flops = job.model_flops_per_step;
  step.hardware_flops = prepared.hardware_flops;
  step.flop_convention = job.flop_convention;
  Bound bound = bound_by(schedule, costs, split);
  step.bound_by = std::move(bound.by);
  step.bottleneck_link = std::move(bound.link);
  if (end == SimTime{}) return step;
  step.tokens_per_second_per_gpu = static_cast<double>(job.tokens_per_step_per_rank.value()) / step.time.base();
  step.tokens_per_second = step.tokens_per_second_per_gpu * static_cast<double>(schedule.world_size);
  const auto& peaks = costs.cluster().profile.gpu.peak;
  if (const auto peak = peaks.find(job.compute); peak != peaks.end()) {
    step.mfu = (step.model_flops / peak->second) / step.time;
    step.hfu = (step.hardware_flops / peak->second) / step.time;
  }
  return step;
}

}  // namespace

PreparedStep prepare_step(std::shared_ptr<const Schedule> schedule, Elements parameters) {
  PreparedStep step{.schedule = schedule,
                    .program = std::make_shared<const ReplayProgram>(*schedule),
                    .traffic = account(*schedule, parameters),
                    .allocation_changes = {},
                    .memory = {},
                    .hardware_flops = {},
                    .timed_allocations = allocations_depend_on_time(*schedule),
                    .reserved = {}};
  refresh_sizes(step);
  return step;
}

void refresh_sizes(PreparedStep& step) {
  const Schedule& schedule = *step.schedule;
  step.allocation_changes = std::make_shared<const std::vector<AllocationChange>>(allocation_changes(schedule, granularity(schedule)));
  step.memory = fold_memory(schedule, *step.allocation_changes);
  step.hardware_flops = hardware_flops(schedule);
  step.reserved.reset();
}

SimulationResult run_simulation(const PreparedStep& step, const CostModel& costs, const JobFacts& job, Detail detail) {
  const Cluster& cluster = costs.cluster();
  const Schedule& schedule = *step.schedule;
  SimulationResult result;
  const RankProgram program = replay(step, costs, result);
  result.model_name = job.model_name;
  result.parameters = job.parameters;
  result.trainable_parameters = job.trainable_parameters;
  result.world_size = schedule.world_size;
  result.nodes = cluster.nodes;
  result.warnings = schedule.warnings;

  const TimeSplit split = split_time(program, result.timeline);
  result.step = step_time(step, costs, job, split, result.timeline.end);

  result.traffic = traffic(step, costs, job.parameters);
  result.traffic.textbook = job.textbook_bytes;
  result.traffic.textbook_differs_because = schedule.differs_because;
  add_cost_models(schedule, costs, result);

  add_memory(step, cluster.profile, detail, result);
  add_memory_warnings(cluster, result);

  if (!detail.timeline) result.timeline = {.slices = {}, .host = {}, .end = result.timeline.end};
  result.schedule = step.schedule;
  return result;
}

SimulationResult run_simulation(std::shared_ptr<const Schedule> schedule, const CostModel& costs, const JobFacts& job, Detail detail) {
  return run_simulation(prepare_step(std::move(schedule), job.parameters), costs, job, detail);
}

}  // namespace shardsim
