// SPDX-License-Identifier: Apache-2.0
// How long one evaluation takes, part by part: a Llama-3-8B step under FSDP2 on 64 GPUs. Sweeps and plans do this thousands of times.
#include <benchmark/benchmark.h>

#include <memory>
#include <stdexcept>

#include "models/families/hf_config.hpp"
#include "sim/config/node.hpp"
#include "sim/engine/account.hpp"
#include "sim/engine/prepared_step.hpp"
#include "sim/engine/simulation.hpp"
#include "sim/memory/memory.hpp"
#include "strategies/strategy.hpp"

namespace shardsim {
namespace {

template <class T>
T required(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().text());
  return *std::move(result);
}

Cluster h100_nodes(std::int64_t nodes) {
  Cluster cluster;
  const Source source = required(read_source(SHARDSIM_SOURCE_DIR "/scenarios/clusters/h100-sxm.yaml"));
  cluster.profile = required(read_profile(required(read_yaml(source))));
  cluster.nodes = nodes;
  return cluster;
}

struct Llama {
  Training training;
  std::shared_ptr<const Model> model;
  Job job;
  CostModel costs{h100_nodes(8)};

  Llama() {
    training.sequence_length = 8192;
    training.checkpointing = {.kind = Checkpointing::full};
    model = required(build_model(required(preset("llama-3-8b")), training));
    job = {.model = model.get(), .training = training, .strategy = {.name = "fsdp2"}, .world_size = 64};
  }

  [[nodiscard]] RankProgram program(const Schedule& schedule) const {
    RankProgram program{std::make_shared<const ReplayProgram>(schedule), {}};
    program.prices = costs.prices(*program.program);
    return program;
  }

  [[nodiscard]] JobFacts facts() const {
    return {.model_name = model->name,
            .parameters = model->total(),
            .trainable_parameters = model->trainable(),
            .tokens_per_step_per_rank = model->tokens_per_micro_batch,
            .model_flops_per_step = model->model_flops_per_micro_batch,
            .flop_convention = model->flop_convention,
            .textbook_bytes = {}};
  }
};

const Llama& llama() {
  static const Llama instance;
  return instance;
}

void build_a_model(benchmark::State& state) {
  const auto architecture = required(preset("llama-3-8b"));
  for (auto _ : state) benchmark::DoNotOptimize(build_model(architecture, llama().training));
}
BENCHMARK(build_a_model)->Unit(benchmark::kMicrosecond);

void emit_a_schedule(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(emit(llama().job));
}
BENCHMARK(emit_a_schedule)->Unit(benchmark::kMicrosecond);

/// What no replay changes: the program, the account, the peak. Once for a schedule.
void prepare_a_step(benchmark::State& state) {
  const auto schedule = std::make_shared<const Schedule>(emit(llama().job));
  for (auto _ : state) benchmark::DoNotOptimize(prepare_step(schedule, llama().model->total()));
}
BENCHMARK(prepare_a_step)->Unit(benchmark::kMicrosecond);

void price_the_ops(benchmark::State& state) {
  const Schedule schedule = emit(llama().job);
  const ReplayProgram program(schedule);
  for (auto _ : state) benchmark::DoNotOptimize(llama().costs.prices(program));
  state.counters["prices"] = static_cast<double>(program.examples().size());
}
BENCHMARK(price_the_ops)->Unit(benchmark::kMicrosecond);

/// The engine, and every allocation and release at its time: the part that 100 microseconds are meant for.
void replay(benchmark::State& state) {
  const Schedule schedule = emit(llama().job);
  const RankProgram program = llama().program(schedule);
  const auto changes = std::make_shared<const std::vector<AllocationChange>>(allocation_changes(schedule));
  for (auto _ : state) {
    const auto timelines = simulate({&program, 1}, {.overlap_slowdown = 0.15});
    benchmark::DoNotOptimize(memory_timeline(changes, timelines.front()));
  }
  state.counters["ops"] = static_cast<double>(schedule.ops.size());
  state.counters["points"] = static_cast<double>(changes->size());
}
BENCHMARK(replay)->Unit(benchmark::kMicrosecond);

void fold_the_memory(benchmark::State& state) {
  const Schedule schedule = emit(llama().job);
  for (auto _ : state) benchmark::DoNotOptimize(fold_memory(schedule));
}
BENCHMARK(fold_the_memory)->Unit(benchmark::kMicrosecond);

void account_the_bytes(benchmark::State& state) {
  const Schedule schedule = emit(llama().job);
  for (auto _ : state) benchmark::DoNotOptimize(account(schedule, llama().model->total()));
}
BENCHMARK(account_the_bytes)->Unit(benchmark::kMicrosecond);

void simulate_a_step(benchmark::State& state) {
  const auto schedule = std::make_shared<const Schedule>(emit(llama().job));
  const JobFacts facts = llama().facts();
  for (auto _ : state) benchmark::DoNotOptimize(run_simulation(schedule, llama().costs, facts));
}
BENCHMARK(simulate_a_step)->Unit(benchmark::kMicrosecond);

/// The step on another machine: what a sweep over speeds does for each row.
void simulate_a_prepared_step(benchmark::State& state) {
  const JobFacts facts = llama().facts();
  const PreparedStep step = prepare_step(std::make_shared<const Schedule>(emit(llama().job)), facts.parameters);
  for (auto _ : state) benchmark::DoNotOptimize(run_simulation(step, llama().costs, facts, {.allocator = std::nullopt}));
}
BENCHMARK(simulate_a_prepared_step)->Unit(benchmark::kMicrosecond);

/// Programs that meet at every collective, as for stragglers.
void replay_several_ranks(benchmark::State& state) {
  const Schedule schedule = emit(llama().job);
  const std::vector<RankProgram> programs(static_cast<std::size_t>(state.range(0)), llama().program(schedule));
  for (auto _ : state) benchmark::DoNotOptimize(simulate(programs, {.overlap_slowdown = 0.15}));
}
BENCHMARK(replay_several_ranks)->Arg(2)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shardsim

BENCHMARK_MAIN();
