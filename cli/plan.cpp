// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "cli/commands.hpp"
#include "cli/html_file.hpp"
#include "cli/parallel.hpp"
#include "cli/planner_report.hpp"
#include "cli/simulation_job.hpp"
#include "reports/output.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most_gpus = std::int64_t{1} << 24;

struct Range {
  std::int64_t least = 1, most = 1;
};

/// "1..64".
Range read_range(const std::string& text) {
  Range range;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.least);
  const bool dots = first.ec == std::errc{} && std::string_view(first.ptr, end).starts_with("..");
  const auto second = dots ? std::from_chars(first.ptr + 2, end, range.most) : first;
  if (!dots || second.ec != std::errc{} || second.ptr != end || range.least < 1 || range.most < range.least || range.most > most_gpus)
    throw InputError(fmt::format("--scaling takes a range of GPUs such as 1..64, not '{}'", text));
  return range;
}

/// Flags are short for keys of the plan: block.
std::vector<std::string> assignments(const Arguments& arguments) {
  std::vector<std::string> out = arguments.texts("--set");
  const auto add = [&](const std::string& flag, const std::string& key, bool list) {
    if (arguments.given(flag))
      out.push_back(list ? fmt::format("plan.{}=[{}]", key, arguments.text(flag)) : fmt::format("plan.{}={}", key, arguments.text(flag)));
  };
  add("--global-batch", "global_batch", false);
  add("--tokens", "tokens", false);
  add("--price", "price_per_gpu_hour", false);
  add("--nodes", "nodes", true);
  if (arguments.text("--strategies", "all") != "all") add("--strategies", "strategies", true);
  return out;
}

ExitCode run(const Arguments& arguments) {
  const Range range = arguments.given("--scaling") ? read_range(arguments.text("--scaling")) : Range{};
  const Scenario base = value_or_throw(load_scenario(arguments.text("SCENARIO"), assignments(arguments)));
  HtmlFile html(arguments);
  keep_freed_memory();
  Plan plan = make_plan(base);
  if (arguments.given("--scaling")) plan.scaling = scaling_study(base, range.least, range.most);
  if (html.wanted()) html.write(plan_page(plan));
  const std::string format = arguments.text("--format", html.replaces_report() ? "none" : "table");
  if (format == "json")
    write_output("-", plan_json(plan).text() + "\n");
  else if (format == "csv")
    write_output("-", plan_csv(plan));
  else if (format == "table")
    write_output("-", plan_table(plan));
  return plan.time ? ExitCode::done : ExitCode::no;
}

}  // namespace

Command plan_command() {
  return {
      .name = "plan",
      .summary = "search for the best way to run a job",
      .details =
          "Model, global batch, token budget and kind of machine are fixed; nodes, strategy, micro-batch and checkpointing are free. "
          "A plan: block of the scenario narrows the search; the flags are short for its keys. Exit code 1 if nothing fits.",
      .arguments =
          {{.name = "SCENARIO", .help = "scenario file (YAML)", .required = true},
           {.name = "--scaling", .value = "A..B", .help = "also study how the scenario scales from A to B GPUs"},
           {.name = "--global-batch", .value = "N", .help = "sequences of one optimizer step (default: the scenario's)"},
           {.name = "--tokens", .value = "N", .help = "tokens to train on (default: 20 a parameter)"},
           {.name = "--price", .value = "DOLLARS", .help = "price of one GPU-hour (default: the profile's)"},
           {.name = "--nodes", .value = "LIST", .help = "numbers of nodes, with commas between them (default: powers of two)"},
           {.name = "--strategies", .value = "LIST", .help = "names with commas between them, or all", .fallback = "all"},
           {.name = "--format", .value = "FORMAT", .help = "form of the report", .words = {"table", "json", "csv"}, .fallback = "table"},
           html_argument(),
           {.name = "--set", .value = "KEY=VALUE", .help = "override a key of the scenario", .many = true}},
      .run = run};
}

}  // namespace shardsim
