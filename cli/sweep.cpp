// SPDX-License-Identifier: Apache-2.0
// The command `sweep`.
#include "shardsim/sweep.hpp"

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "cli/process_memory.hpp"
#include "cli/progress.hpp"
#include "shardsim/scenario.hpp"

namespace shardsim {
namespace {

RowFormat format_of(const std::string& output) {
  if (output.ends_with(".csv")) return RowFormat::csv;
  if (output.ends_with(".jsonl")) return RowFormat::json_lines;
  throw InputError(fmt::format("{}: the output of a sweep is a .csv or a .jsonl file", in_quotes(output)));
}

/// A table without figures should not look like a success.
ExitCode report_table(const SweepOutcome& outcome, const std::string& output, const SweepPlan& plan) {
  if (outcome.failed.count > 0)
    log_warning(
        fmt::format("{} of {} rows could not run, the first: {}", outcome.failed.count, plan.size, printable(outcome.failed.first)));
  else
    log_info(fmt::format("{} holds all {} rows", output, plan.size));
  return outcome.failed.count == plan.size ? ExitCode::no : ExitCode::done;
}

ExitCode run_sweep(const Arguments& arguments) {
  const std::string output = arguments.text("--output");
  const RowFormat format = format_of(output);
  const SweepPlan plan = value_or_throw(load_sweep(arguments.text("SWEEP"), simulate_columns()));
  Output(output).keep_apart_from(plan.inputs);
  if (arguments.flag("--merge")) {
    if (arguments.given("--shard")) throw InputError("--merge collects the rows of all shards: it takes no --shard");
    const SweepOutcome outcome = merge_sweep(plan, output, format);
    if (outcome.table) return report_table(outcome, output, plan);
    log_warning(fmt::format("{} of {} rows are there: nothing is written before the shards have made the others", outcome.rows, plan.size));
    return ExitCode::no;
  }

  const Shard shard = arguments.given("--shard") ? parse_shard(arguments.text("--shard")) : shard_of(process_environment());
  const bool launched = !arguments.given("--shard") && launch_of(process_environment()).value_or(Launch{}).ranks > 1;
  const auto threads = static_cast<unsigned>(arguments.integer("--jobs", launched ? 1 : available_cores(), 1, 4096));
  keep_freed_memory();
  SweepRun run(plan, output, format, shard);
  for (const std::string& note : run.notes()) log_warning(note);
  if (run.done_before() > 0) log_info(fmt::format("going on: {} of {} rows are there", run.done_before(), run.rows()));
  {
    ProgressBar progress("sweep", run.rows(), run.done_before());
    run.simulate(threads, [&] { progress.advance(); });
  }
  const SweepOutcome outcome = run.finish();
  if (outcome.table) return report_table(outcome, output, plan);
  log_info(fmt::format("shard {} of {} is done; {} of {} rows are there, and {} is written when all are", shard.index + 1, shard.count,
                       outcome.rows, plan.size, output));
  return ExitCode::done;
}

}  // namespace

Command sweep_command() {
  return {
      .name = "sweep",
      .summary = "simulate a grid or list of scenarios",
      .details =
          "SWEEP is a YAML file with base: (a scenario), grid: (keys with lists of values) or list: (rows of keys). Killed, it goes on "
          "where it was. Shards share the work without a word between them: each keeps its rows next to the output, and the one that finds "
          "all of them writes the table. Ranks of srun, mpirun and torchrun and tasks of a job array are shards by themselves.",
      .arguments = {{.name = "SWEEP", .help = "sweep file (YAML)", .required = true},
                    {.name = "--output", .value = "FILE", .help = "table to write: .csv or .jsonl", .short_name = "-o", .required = true},
                    {.name = "--jobs", .value = "N", .help = "threads (default: one a core; one a rank under mpirun, srun or torchrun)"},
                    {.name = "--shard",
                     .value = "I/N",
                     .help = "simulate the I-th of N parts, 1 to N (default: from the launcher's or job array's variables)"},
                    {.name = "--merge", .help = "write the table of the rows that all shards have left, and simulate nothing"}},
      .run = run_sweep};
}

}  // namespace shardsim
