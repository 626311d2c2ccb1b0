// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "cli/parallel.hpp"
#include "cli/progress.hpp"
#include "cli/simulation_job.hpp"
#include "cli/sweep_journal.hpp"
#include "cli/sweep_run.hpp"

namespace shardsim {
namespace {

// Rows handed to a thread at once: enough that handing out costs nothing, few enough that threads end together.
constexpr std::uint64_t block = 16;

RowFormat format_of(const std::string& output) {
  if (output.ends_with(".csv")) return RowFormat::csv;
  if (output.ends_with(".jsonl")) return RowFormat::json_lines;
  throw InputError(fmt::format("'{}': the output of a sweep is a .csv or a .jsonl file", output));
}

ExitCode run(const Arguments& arguments) {
  const std::string output = arguments.text("--output");
  const RowFormat format = format_of(output);
  const SweepPlan plan = value_or_throw(load_sweep(arguments.text("SWEEP"), simulate_columns()));
  const auto threads = static_cast<unsigned>(arguments.integer("--jobs", available_cores(), 1, 4096));

  SweepJournal journal(output, fingerprint(plan), plan.size, sweep_header(plan, format));
  if (journal.done_count() > 0)
    log_info(fmt::format("going on with {}: {} of {} rows are there", journal.place(), journal.done_count(), plan.size));
  Progress progress("sweep", plan.size, journal.done_count());
  parallel_for(static_cast<std::size_t>((plan.size + block - 1) / block), threads, [&](std::size_t b) {
    for (std::uint64_t row = b * block; row < std::min<std::uint64_t>(plan.size, (b + 1) * block); ++row) {
      if (journal.done(row)) continue;
      journal.append(sweep_row(plan, row, format));
      progress.advance();
    }
  });
  journal.finish();
  return ExitCode::done;
}

}  // namespace

Command sweep_command() {
  return {
      .name = "sweep",
      .summary = "simulate a grid or list of scenarios",
      .details =
          "SWEEP is a YAML file with base: (a scenario), grid: (keys with lists of values) or list: (rows of keys). Killed, it goes on "
          "where it was.",
      .arguments = {{.name = "SWEEP", .help = "sweep file (YAML)", .required = true},
                    {.name = "--output", .value = "FILE", .help = "table to write: .csv or .jsonl", .short_name = "-o", .required = true},
                    {.name = "--jobs", .value = "N", .help = "threads (default: one a core)"}},
      .run = run};
}

}  // namespace shardsim
