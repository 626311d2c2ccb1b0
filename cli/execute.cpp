// SPDX-License-Identifier: Apache-2.0
#include "shardsim/execute.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "cli/commands.hpp"
#include "cli/html_file.hpp"
#include "shardsim/calibrate.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"

namespace shardsim {
namespace {

using execute::ExecutionOptions;

/// SHARDSIM_FAULT is the tests' sabotage: "flip:RANK:BYTE" flips one bit of a payload byte on the wire, "kill:RANK:STEP" kills a rank.
void read_fault(ExecutionOptions& options) {
  const char* text = std::getenv("SHARDSIM_FAULT");
  if (text == nullptr || *text == '\0') return;
  int rank = 0;
  long long at = 0;
  char word[8] = {};
  if (std::sscanf(text, "%7[a-z]:%d:%lld", word, &rank, &at) != 3)
    throw InputError(fmt::format("SHARDSIM_FAULT '{}' is neither flip:RANK:BYTE nor kill:RANK:STEP", text));
  if (std::string_view(word) == "flip")
    options.network.fault = execute::WireFault{rank, at};
  else if (std::string_view(word) == "kill")
    options.kill = ExecutionOptions::Kill{rank, static_cast<int>(at)};
  else
    throw InputError(fmt::format("SHARDSIM_FAULT '{}' is neither flip:RANK:BYTE nor kill:RANK:STEP", text));
}

void use_ranks(Scenario& scenario, std::int64_t ranks) {
  scenario.cluster.nodes = 1;
  scenario.cluster.gpus_per_node = ranks;
}

/// In the form that the file's name or --format asks for.
std::string report_text(const Arguments& arguments, const ExecutionSummary& summary) {
  const std::string file = arguments.text("--report");
  if (file.ends_with(".html")) return html_page(execution_page(summary));
  if (file.ends_with(".json") || arguments.text("--format", "table") == "json") return execution_json(summary).text() + "\n";
  return execution_table(summary);
}

/// The machine as --calibrate wants it measured: rings between as many ranks as will run.
std::optional<Profile> calibrated(const Arguments& arguments, int ranks) {
  if (!arguments.given("--calibrate")) return std::nullopt;
  if (arguments.text("--backend", "local") != "local")
    throw InputError(
        "--calibrate measures the local backend; for others give the scenario a profile of the machine (calibrate mpi, cuda, nccl)");
  LocalOptions options{.ranks = std::max(ranks, 2), .budget = Seconds{arguments.number("--calibrate", 10, 1, 3600)}};
  return calibrate_local(options, [](double, const std::string&) {});
}

ExitCode run_on(execute::Platform& platform, const Arguments& arguments) {
  const Scenario base = value_or_throw(load_scenario(arguments.text("SCENARIO"), arguments.texts("--set")));
  const std::string backend = arguments.text("--backend", "local");
  std::optional<HtmlFile> html;
  std::optional<Output> output;
  if (platform.reports()) {
    html.emplace(arguments);
    html->keep_apart_from(input_files(base));
    if (!html->replaces_report() || arguments.given("--report")) output.emplace(arguments.text("--report", "-"));
    if (output) output->keep_apart_from(input_files(base));
  }
  ExecutionOptions options;
  options.steps = static_cast<int>(arguments.integer("--steps", 3, 1, 10'000));
  read_fault(options);
  ExecutionSummary summary{.backend = backend,
                           .scenario = base.file,
                           .ranks = platform.launched().value_or(static_cast<int>(base.job().world_size)),
                           .strategies = {}};
  if (arguments.given("--ranks")) summary.ranks = arguments.integer("--ranks", 1, 1, 64);
  std::vector<Scenario> scenarios{base};
  if (arguments.given("--strategies")) {
    scenarios.clear();
    for (const std::string& name : strategy_list(arguments.text("--strategies")))
      scenarios.push_back(value_or_throw(vary(base, choose_strategy(base, name))));
  }
  const std::optional<Profile> machine = calibrated(arguments, static_cast<int>(summary.ranks));
  summary.calibrated = machine.has_value();
  bool agree = true;
  for (Scenario& scenario : scenarios) {
    use_ranks(scenario, summary.ranks);
    if (machine)
      scenario = on_this_machine(
          scenario, *machine, [](const Execution& e) { return e.measured_step(); }, std::max(options.steps, 5));
    Execution execution = execute_scenario(platform, scenario, options);
    if (arguments.given("--time-tolerance")) execution.time_tolerance = arguments.number("--time-tolerance", 0, 0, 1e6);
    agree = agree && execution.agree();
    summary.strategies.push_back(std::move(execution));
  }
  platform.close();
  if (html && html->wanted()) html->write(execution_page(summary));
  if (output) {
    output->write(report_text(arguments, summary));
    output->commit();
  }
  // A launcher ends the job when a rank says no, with what the others have not printed yet: only the rank that reports says it.
  return agree || !html ? ExitCode::done : ExitCode::no;
}

/// Of the ranks that a launcher has started, one tells what is wrong with the input.
ExitCode run_execute(const Arguments& arguments) {
  const std::string backend = arguments.text("--backend", "local"), transport = arguments.text("--transport", "auto");
  const std::unique_ptr<execute::Platform> platform = execute::open_platform(backend, transport);
  try {
    return run_on(*platform, arguments);
  } catch (const InputError&) {
    if (platform->reports()) throw;
    return ExitCode::bad_input;
  }
}

}  // namespace

Command execute_command() {
  return {
      .name = "execute",
      .summary = "run the schedule on real memory and a real network, and compare",
      .details =
          "Trains a small transformer for a few steps on N processes, with the very operations that simulate replays. local: processes of "
          "this machine, "
          "bytes counted by the kernel; mpi: ranks that mpirun -n N or srun --mpi=pmix -n N started, bytes counted by OpenMPI's monitoring "
          "component; cuda: GPUs of this machine, several ranks on one if need be, bytes counted by NCCL's profiler or NVLink's counters. "
          "They must equal the prediction, as must the peak of allocated memory; losses and gradients must equal those of one rank with "
          "the "
          "whole batch, up to the order of sums. Exit code 1 if anything differs; 3 if a rank dies or cannot be reached.",
      .arguments =
          {{.name = "SCENARIO", .help = "scenario file (YAML) of a small model", .required = true},
           {.name = "--ranks",
            .value = "N",
            .help = "processes; under a launcher it knows how many",
            .fallback = "the scenario's world size"},
           {.name = "--backend", .value = "BACKEND", .help = "where to run", .words = {"local", "mpi", "cuda"}, .fallback = "local"},
           {.name = "--transport",
            .value = "WAY",
            .help = "of cuda: how payload travels; auto is network, whose bytes NCCL's profiler counts exactly",
            .words = {"auto", "network", "nvlink", "host"},
            .fallback = "auto"},
           {.name = "--strategies", .value = "LIST", .help = "names with commas between them, or all", .fallback = "the scenario's"},
           {.name = "--steps", .value = "N", .help = "optimizer steps", .fallback = "3"},
           {.name = "--calibrate", .value = "SECONDS", .help = "first measure this machine for so long, and predict on it (local)"},
           {.name = "--time-tolerance", .value = "X", .help = "largest relative difference of step times; without it time decides nothing"},
           {.name = "--report",
            .value = "FILE",
            .help = "where the report goes; NAME.json is written as JSON, NAME.html as a page",
            .fallback = "-"},
           {.name = "--format", .value = "FORMAT", .help = "form of the report", .words = {"table", "json"}, .fallback = "table"},
           html_argument(),
           {.name = "--set", .value = "KEY=VALUE", .help = "override a key of the scenario", .many = true}},
      .run = run_execute};
}

}  // namespace shardsim
