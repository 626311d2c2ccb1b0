// SPDX-License-Identifier: Apache-2.0
#include "shardsim/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/commands.hpp"
#include "cli/launch.hpp"
#include "cli/log.hpp"
#include "cli/process_memory.hpp"
#include "cli/progress.hpp"
#include "cli/sweep_queue.hpp"
#include "cli/sweep_ranks.hpp"
#include "shardsim/scenario.hpp"

namespace shardsim {
namespace {

RowFormat format_of(const std::string& output) {
  if (output.ends_with(".csv")) return RowFormat::csv;
  if (output.ends_with(".jsonl")) return RowFormat::json_lines;
  throw InputError(fmt::format("'{}': the output of a sweep is a .csv or a .jsonl file", output));
}

/// Simulates what the queue hands out, on all threads of this process.
void simulate_rows(const SweepPlan& plan, RowFormat format, unsigned threads, SweepQueue& queue, SweepJournal& journal,
                   ProgressBar& progress) {
  parallel_for(threads, threads, [&](std::size_t) {
    try {
      SweepRows lines(plan, format);
      for (RowNumbers rows = queue.take(); !rows.empty(); rows = queue.take()) {
        for (const std::uint64_t row : rows) {
          journal.append(lines.line(row));
          progress.advance();
        }
        queue.put_back({});
      }
    } catch (...) { queue.fail(std::current_exception()); }
  });
  queue.check();
}

/// Rows that a sweep of the same output left which is not this one: its file, its base or the program has changed since.
void tell_other_sweeps(const std::string& output, const std::string& own) {
  namespace fs = std::filesystem;
  const fs::path file(output);
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::vector<std::string> others;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool part = name.starts_with(file.filename().string() + ".") && name.ends_with(".part");
    if (part && name != fs::path(own).filename().string()) others.push_back((file.parent_path() / name).string());
  }
  std::sort(others.begin(), others.end());
  for (const std::string& other : others)
    log_warning(fmt::format(
        "{} holds rows of a sweep that was not this one (the sweep's file, its base or the program has changed); they are not used",
        other));
}

/// A table without figures should not look like a success.
void tell_failed_rows(const std::string& output, const SweepPlan& plan) {
  const FailedRows failed = failed_rows(output, plan);
  if (failed.count > 0) log_warning(fmt::format("{} of {} rows could not run, the first: {}", failed.count, plan.size, failed.first));
}

ExitCode run_sweep(const Arguments& arguments) {
  const std::string output = arguments.text("--output");
  const RowFormat format = format_of(output);
  const SweepPlan plan = value_or_throw(load_sweep(arguments.text("SWEEP"), simulate_columns()));
  const LaunchedRank launch = launched();
  const auto usual = launch.size > 1 ? 1 : available_cores();
  const auto threads = static_cast<unsigned>(arguments.integer("--jobs", usual, 1, 4096));
  const std::string rank_0 = fmt::format("{}.{:016x}.rank0", output, fingerprint(plan));
  keep_freed_memory();
  if (launch.rank > 0) {
    help_with_sweep(rank_0, output, plan, format, threads);
    return ExitCode::done;
  }

  SweepJournal journal(output, fingerprint(plan), plan.size, sweep_header(plan, format));
  tell_other_sweeps(output, journal.place());
  if (journal.done_count() > 0)
    log_info(fmt::format("going on with {}: {} of {} rows are there", journal.place(), journal.done_count(), plan.size));
  {
    ProgressBar progress("sweep", plan.size, journal.done_count());
    SweepQueue queue(plan, journal);
    std::optional<SweepServer> server;
    if (launch.size > 1) server.emplace(rank_0, queue, journal, progress);
    simulate_rows(plan, format, threads, queue, journal, progress);
  }
  journal.finish();
  tell_failed_rows(output, plan);
  return ExitCode::done;
}

}  // namespace

Command sweep_command() {
  return {
      .name = "sweep",
      .summary = "simulate a grid or list of scenarios",
      .details =
          "SWEEP is a YAML file with base: (a scenario), grid: (keys with lists of values) or list: (rows of keys). Killed, it goes on "
          "where it was. Under mpirun or srun all ranks share the work; rank 0 writes the table.",
      .arguments = {{.name = "SWEEP", .help = "sweep file (YAML)", .required = true},
                    {.name = "--output", .value = "FILE", .help = "table to write: .csv or .jsonl", .short_name = "-o", .required = true},
                    {.name = "--jobs", .value = "N", .help = "threads (default: one a core; one a rank under mpirun or srun)"}},
      .run = run_sweep};
}

}  // namespace shardsim
