// SPDX-License-Identifier: Apache-2.0
// Scenarios a second, from the tree of a scenario to its line in the table.
#include <benchmark/benchmark.h>

#include "cli/process_memory.hpp"
#include "studies/simulate/simulation_job.hpp"
#include "studies/sweep/rows.hpp"

namespace shardsim {
namespace {

SweepPlan mixed_sweep() {
  keep_freed_memory();
  return value_or_throw(load_sweep(SHARDSIM_SOURCE_DIR "/tests/benchmarks/mixed_sweep.yaml", simulate_columns()));
}

void run_rows(benchmark::State& state, const SweepPlan& plan) {
  SweepRows rows(plan, RowFormat::csv);
  std::uint64_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(rows.row(plan.row_at(position)).line);
    position = (position + 1) % plan.size;
  }
  state.SetItemsProcessed(state.iterations());
}

/// Seven strategies of four models at three micro-batches, each at eight network speeds.
void sweep_at_eight_speeds(benchmark::State& state) { run_rows(state, mixed_sweep()); }
BENCHMARK(sweep_at_eight_speeds)->Unit(benchmark::kMicrosecond)->Iterations(4 * 672);

/// The same at one speed: every row needs a schedule of its own.
void sweep_of_schedules(benchmark::State& state) {
  SweepPlan plan = mixed_sweep();
  plan.axes.back().rows.resize(1);
  plan.size /= 8;
  run_rows(state, plan);
}
BENCHMARK(sweep_of_schedules)->Unit(benchmark::kMicrosecond)->Iterations(10 * 84);

/// With the allocator's model.
void sweep_with_the_allocator(benchmark::State& state) {
  SweepPlan plan = mixed_sweep();
  plan.allocator = true;
  run_rows(state, plan);
}
BENCHMARK(sweep_with_the_allocator)->Unit(benchmark::kMicrosecond)->Iterations(672);

}  // namespace
}  // namespace shardsim
