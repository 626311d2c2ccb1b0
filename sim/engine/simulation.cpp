// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "sim/base/units_text.hpp"
#include "sim/costs/checked_time.hpp"
#include "sim/engine/account.hpp"
#include "sim/engine/network_use.hpp"
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
    row.algorithm = name_of(costs.choose(row.collective, row.payload, group_named(schedule, row.group)).algorithm);
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

/// Of a step that runs out of memory: the replay with the least memory in which it does not, to a fifth of a percent. Its reserved peak is
/// what the job needs; what the replay reserved after the limit was dropped holds a cache that nobody emptied.
AllocatorReplay least_that_runs(const PreparedStep& step, const Timeline& timeline, AllocatorOptions options, Bytes workspace) {
  const auto with = [&](Bytes capacity) {
    options.capacity = capacity;
    return replay_allocations(*step.schedule, timeline, options, workspace);
  };
  options.capacity = Bytes{};
  AllocatorReplay unlimited = replay_allocations(*step.schedule, timeline, options, workspace), best = unlimited;
  Bytes low = unlimited.peak.allocated, high = unlimited.peak.reserved;   // at least what is in use, at most what no limit takes
  for (Bytes margin = low / 64; low + margin < high; margin += margin) {  // fragments are few percent
    AllocatorReplay replay = with(low + margin);
    if (replay.out_of_memory) continue;
    high = low + margin;
    best = std::move(replay);
    break;
  }
  while (high - low > high / 512) {
    const Bytes middle = low + (high - low) / 2;
    AllocatorReplay replay = with(middle);
    (replay.out_of_memory ? low : high) = middle;
    if (!replay.out_of_memory) best = std::move(replay);
  }
  best.out_of_memory = true;
  return best;
}

/// Replayed with as much memory as there is, or with as much as it takes.
AllocatorReplay replay_within(const PreparedStep& step, const Timeline& timeline, const AllocatorOptions& options, Bytes workspace) {
  AllocatorReplay replay = replay_allocations(*step.schedule, timeline, options, workspace);
  return replay.out_of_memory ? least_that_runs(step, timeline, options, workspace) : replay;
}

/// What the allocator's model makes of the step; known already where only speeds changed that do not bear on it.
AllocatorReplay reserved(const PreparedStep& step, const Timeline& timeline, const AllocatorOptions& options, Bytes workspace) {
  if (step.timed_allocations) return replay_within(step, timeline, options, workspace);
  const bool known = step.reserved && step.reserved->options == options && step.reserved->workspace == workspace;
  if (!known) step.reserved = {options, workspace, replay_within(step, timeline, options, workspace)};
  return step.reserved->replay;
}

/// Reserved memory as the allocator's model has it, for as much memory as the GPU has left. Returns how long the step stalls while the
/// cache goes back to the driver and is asked for again.
Seconds reserve(const PreparedStep& step, const Profile& profile, AllocatorOptions options, SimulationResult& result) {
  if (options.capacity == Bytes{} && profile.gpu.capacity > Bytes{})
    options.capacity = std::max(profile.gpu.capacity - result.memory.overhead, Bytes{1});
  const AllocatorReplay replay = reserved(step, result.timeline, options, profile.overheads.cublas_workspace);
  result.memory.reserved_peak = replay.peak.reserved;
  result.memory.allocator_retries = replay.retries;
  const Seconds stall = profile.overheads.driver_allocation * static_cast<double>(replay.driver_calls);
  if (replay.retries > 0 && !replay.out_of_memory)
    result.warnings.push_back("close to the limit: the caching allocator has to give its cache back to the driver, which stalls the step" +
                              (stall > Seconds{} ? " for " + to_text(stall) : std::string()));
  return replay.out_of_memory ? Seconds{} : stall;
}

bool is_textbook(const Schedule& schedule) { return schedule.semantics == "textbook"; }
/// The papers count bytes; only the library's schedule meets an allocator that rounds.
std::int64_t granularity(const Schedule& schedule) { return is_textbook(schedule) ? 1 : 512; }

/// Returns how long the step stalls for it.
Seconds add_memory(const PreparedStep& step, const Cluster& cluster, const Detail& detail, SimulationResult& result) {
  const Profile& profile = cluster.profile;
  const Schedule& schedule = *step.schedule;
  Memory& memory = result.memory;
  memory = step.memory;
  if (detail.timeline) memory.timeline = memory_timeline(step.allocation_changes, result.timeline);
  add_workspace(profile.overheads.cublas_workspace, memory);
  memory.overhead = overhead(schedule, profile);
  const bool modelled = detail.allocator && !is_textbook(schedule);
  const Seconds stall = modelled ? reserve(step, profile, *detail.allocator, result) : Seconds{};
  memory.device_peak = memory.reserved_peak + memory.overhead;
  memory.capacity = profile.gpu.capacity;
  memory.host_pinned_node = memory.host_pinned * cluster.gpus_per_node;
  memory.host_capacity = profile.node.host_memory;
  const bool host_holds = memory.host_capacity == Bytes{} || memory.host_pinned_node <= memory.host_capacity;
  memory.fits = memory.device_peak <= memory.capacity && host_holds;
  return stall;
}

void add_memory_warnings(SimulationResult& result) {
  const Memory& memory = result.memory;
  if (memory.device_peak > memory.capacity)
    result.warnings.push_back(
        fmt::format("does not fit: {} of device memory needed, {} there", to_text(memory.device_peak), to_text(memory.capacity)));
  if (memory.host_capacity > Bytes{} && memory.host_pinned_node > memory.host_capacity)
    result.warnings.push_back(fmt::format("does not fit: {} of pinned host memory a node needed ({} a rank), {} there",
                                          to_text(memory.host_pinned_node), to_text(memory.host_pinned), to_text(memory.host_capacity)));
}

/// All FLOPs of the step, and the part of them in fp8.
std::pair<Flops, Flops> hardware_flops(const Schedule& schedule) {
  Flops all, fp8;
  const auto add = [&](WorkId id) {
    if (!id.valid()) return;
    const Work& work = schedule.at(id);
    all += work.flops();
    if (work.dtype == DType::fp8) fp8 += work.flops();
  };
  for (const Op& op : schedule.ops) {
    if (const auto* compute = std::get_if<Compute>(&op.action))
      add(compute->work);
    else if (const auto* update = std::get_if<Update>(&op.action))
      add(update->work);
  }
  return {all, fp8};
}

/// Time at the peak of the format that each product runs in.
Seconds at_peak(const Gpu& gpu, DType compute, Flops all, Flops fp8) {
  const Seconds wide = (all - fp8) / gpu.peak.at(compute);
  return fp8 > Flops{} ? wide + fp8 / peak_for(gpu, DType::fp8) : wide;
}

constexpr const char* bound_by_launches = "host: kernel launches";

/// What bounds a step, and where that is a link of the cluster's graph, its name.
struct Bound {
  std::string by, link = {};
};

/// The step is bound by what is at work longest: were anything else faster, that would still take its time.
Bound bound_by(const Schedule& schedule, const CostModel& costs, const TimeSplit& split) {
  // A CPU optimizer that nothing runs beside takes its time whatever else is faster.
  const bool updates_stand_alone =
      split.host_updates > SimTime{} && split.optimizer >= std::max({split.compute, split.exposed, split.link, split.idle});
  if (updates_stand_alone) return {"host: optimizer on the CPU"};
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
  return {by_updates ? "host: optimizer on the CPU" : bound_by_launches};
}

/// The clock counts picoseconds in 64 bits: the step must fit even if nothing in it ran at the same time as anything else, and all of it as
/// slowly as shared resources can make it.
void check_length(const RankProgram& program, double slowest) {
  constexpr double most = 50 * 86400.0;  // of the 106 days that the clock holds
  const auto seconds = [](const OpCost& cost) { return (cost.host + cost.device).seconds().base(); };
  const double stretch = slowest * static_cast<double>(std::max<std::size_t>(1, program.schedule().streams.size()));
  double longest = 0;
  for (const OpCost& price : program.prices) longest = std::max(longest, seconds(price));
  const auto ops = program.program->ops();
  if (longest * static_cast<double>(ops.size()) * stretch < most) return;
  double sum = 0;
  for (const ReplayOp& op : ops) sum += seconds(program.cost(op));
  if (sum * stretch > most)
    throw InputError(fmt::format("the step would take about {:.3g} days, which is more than is simulated", sum / 86400));
}

/// Replays the step into `result.timeline`, and returns the program whose timeline it is: of all ranks, or of the class that sets the pace.
RankProgram replay(const PreparedStep& step, const CostModel& costs, SimulationResult& result) {
  const double slowdown = costs.cluster().profile.gpu.overlap_slowdown;
  if (!costs.cluster().states.empty()) {
    double slowest = 1;
    for (const RankState& state : costs.cluster().states.states)
      slowest = std::max({slowest, state.compute, state.host, state.collectives, 1 / state.nic});
    check_length({.program = step.program, .prices = costs.prices(*step.program)}, (1 + slowdown) * slowest);
    UnlikeReplay unlike = replay_unlike(step.program, costs);
    result.timeline = std::move(unlike.timeline);
    result.differences = std::move(unlike.differences);
    return std::move(unlike.program);
  }
  RankProgram program{.program = step.program, .prices = costs.prices(*step.program)};
  check_length(program, 1 + slowdown);
  result.timeline = std::move(simulate({&program, 1}, {.overlap_slowdown = slowdown}).front());
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
  if (const Gpu& gpu = costs.cluster().profile.gpu; gpu.peak.contains(job.compute)) {
    step.mfu = at_peak(gpu, job.compute, step.model_flops, job.fp8_flops_per_step) / step.time;
    step.hfu = at_peak(gpu, job.compute, step.hardware_flops, prepared.hardware_fp8_flops) / step.time;
  }
  return step;
}

/// What no machine does. A model of ours that says so is wrong; a time that somebody measured is believed.
void check_laws(const Schedule& schedule, const CostModel& costs, SimulationResult& result) {
  if (!costs.cluster().states.empty()) return;  // ranks may be faster than the profile
  if (result.step.hfu > 0 && result.step.time * result.step.hfu <= result.step.compute)
    return;  // without the discount for causal attention
  const Gpu& gpu = costs.cluster().profile.gpu;
  FlopRate fastest{};  // products of one step may run in several formats
  for (const auto& [format, peak] : gpu.peak) fastest = std::max(fastest, peak);
  if (fastest <= FlopRate{}) return;
  Flops computed;  // of causal attention, what is really computed
  const auto add = [&](WorkId id) {
    if (!id.valid()) return;
    const Work& work = schedule.at(id);
    for (const MatrixProduct& product : work.products) computed += product.flops();
    for (const FlashAttention& attention : work.attention) computed += attention.flops * attention.density;
  };
  for (const Op& op : schedule.ops)
    if (const auto* compute = std::get_if<Compute>(&op.action)) add(compute->work);
  const Seconds least = computed / fastest;
  if (result.step.compute >= least * (1 - 1e-6)) return;
  const std::string what = fmt::format("the step computes in {} what takes {} at the fastest peak of {}", to_text(result.step.compute),
                                       to_text(least), gpu.name);
  const bool measured = !gpu.gemm.table.empty() || !gpu.attention.table.empty();
  if (!measured) throw std::logic_error(what);
  result.warnings.push_back(what + ": what was measured in the profile is faster than its peak");
}

}  // namespace

PreparedStep prepare_step(std::shared_ptr<const Schedule> schedule, Elements parameters) {
  PreparedStep step{.schedule = schedule,
                    .program = std::make_shared<const ReplayProgram>(*schedule),
                    .traffic = account(*schedule, parameters),
                    .allocation_changes = {},
                    .memory = {},
                    .hardware_flops = {},
                    .hardware_fp8_flops = {},
                    .timed_allocations = allocations_depend_on_time(*schedule),
                    .reserved = {}};
  refresh_sizes(step);
  return step;
}

void refresh_sizes(PreparedStep& step) {
  const Schedule& schedule = *step.schedule;
  step.allocation_changes = std::make_shared<const std::vector<AllocationChange>>(allocation_changes(schedule, granularity(schedule)));
  step.memory = fold_memory(schedule, *step.allocation_changes);
  std::tie(step.hardware_flops, step.hardware_fp8_flops) = hardware_flops(schedule);
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

  TimeSplit split = split_time(program, result.timeline);
  const SimTime stall = checked_time(add_memory(step, cluster, detail, result));
  split.idle += stall;
  result.step = step_time(step, costs, job, split, result.timeline.end + stall);
  if (result.step.bound_by == bound_by_launches)
    result.warnings.push_back(
        "the host issues more slowly than the GPU runs: larger micro-batches, compile: true, a leaner stack or a faster core help");

  result.traffic = traffic(step, costs, job.parameters);
  result.traffic.textbook = job.textbook_bytes;
  result.traffic.textbook_differs_because = schedule.differs_because;
  add_cost_models(schedule, costs, result);
  add_network_use(schedule, cluster, result.timeline, result.traffic);

  add_memory_warnings(result);
  check_laws(schedule, costs, result);

  if (!detail.timeline) result.timeline = {.slices = {}, .host = {}, .end = result.timeline.end};
  result.schedule = step.schedule;
  return result;
}

SimulationResult run_simulation(std::shared_ptr<const Schedule> schedule, const CostModel& costs, const JobFacts& job, Detail detail) {
  return run_simulation(prepare_step(std::move(schedule), job.parameters), costs, job, detail);
}

}  // namespace shardsim
