// SPDX-License-Identifier: Apache-2.0
#include "shardsim/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "cli/commands.hpp"
#include "cli/html_file.hpp"
#include "cli/process_memory.hpp"
#include "cli/progress.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"
#include "shardsim/sweep.hpp"

namespace shardsim {
namespace {

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

/// "1,2,4", each a number of nodes.
void check_nodes(const std::string& text) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::int64_t nodes = 0;
    const auto [last, error] = std::from_chars(text.data() + begin, text.data() + end, nodes);
    if (error != std::errc{} || last != text.data() + end || nodes < 1 || nodes > most_gpus)
      throw InputError(fmt::format("--nodes takes numbers of nodes with commas between them, such as 1,2,4, not '{}'", text));
    begin = end + 1;
  }
}

/// Flags are short for keys of the plan: block. What is wrong with one is told by its own name here, not by that of the key.
std::vector<std::string> assignments(const Arguments& arguments) {
  std::vector<std::string> out = arguments.texts("--set");
  const auto add = [&](const std::string& flag, const std::string& key) {
    if (arguments.given(flag)) out.push_back(fmt::format("plan.{}={}", key, arguments.text(flag)));
  };
  static_cast<void>(arguments.integer("--global-batch", 1, 1, std::int64_t{1} << 32));
  static_cast<void>(arguments.number("--tokens", 1, 1, 1e18));
  static_cast<void>(arguments.number("--price", 0, 0, 1e9));
  static_cast<void>(arguments.number("--days", 1, 1e-6, 1e6));
  add("--global-batch", "global_batch");
  add("--tokens", "tokens");
  add("--price", "price_per_gpu_hour");
  add("--days", "days");
  static_cast<void>(arguments.integer("--epochs", 1, 1, 1'000'000));
  static_cast<void>(arguments.integer("--samples", 1, 1, std::int64_t{1} << 48));
  static_cast<void>(arguments.number("--headroom", 8, 0, 90));
  add("--epochs", "epochs");
  add("--samples", "samples");
  if (arguments.given("--headroom")) out.push_back(fmt::format("plan.headroom={} %", arguments.text("--headroom")));
  if (arguments.given("--nodes")) {
    check_nodes(arguments.text("--nodes"));
    out.push_back(fmt::format("plan.nodes=[{}]", arguments.text("--nodes")));
  }
  if (arguments.given("--strategies"))
    out.push_back(fmt::format("plan.strategies=[{}]", fmt::join(strategy_list(arguments.text("--strategies", "all")), ", ")));
  return out;
}

ExitCode run_plan(const Arguments& arguments) {
  const Range range = arguments.given("--scaling") ? read_range(arguments.text("--scaling")) : Range{};
  const Scenario base = value_or_throw(load_scenario(arguments.text("SCENARIO"), assignments(arguments)));
  HtmlFile html(arguments);
  html.keep_apart_from(input_files(base));
  keep_freed_memory();
  Plan plan;
  {
    std::optional<ProgressBar> bar;
    std::mutex lock;
    plan = make_plan(base, [&](std::size_t settled, std::size_t total) {
      const std::scoped_lock guard(lock);
      if (!bar) bar.emplace("plan", total);
      bar->advance(settled);
    });
  }
  if (arguments.given("--scaling")) plan.scaling = scaling_study(base, range.least, range.most);
  if (html.wanted()) html.write(plan_page(plan));
  const std::string format = arguments.text("--format", html.replaces_report() ? "none" : "table");
  if (format == "json")
    write_output("-", plan_json(plan).text() + "\n");
  else if (format == "csv")
    write_output("-", plan_csv(plan));
  else if (format == "table")
    write_output("-", plan_table(plan));
  return plan.is_yes() ? ExitCode::done : ExitCode::no;
}

}  // namespace

Command plan_command() {
  return {
      .name = "plan",
      .summary = "search for the best way to run a job",
      .details =
          "Model, global batch, token budget and kind of machine are fixed; nodes, strategy, micro-batch and checkpointing are free. "
          "Strategies are those of the library that the scenario's strategy is of. A plan: block of the scenario narrows the search; the "
          "flags are short for "
          "its keys. Exit code 1 if nothing fits, or nothing ends within the days.",
      .arguments =
          {{.name = "SCENARIO", .help = "scenario file (YAML)", .required = true},
           {.name = "--scaling", .value = "A..B", .help = "also study how the scenario scales from A to B GPUs"},
           {.name = "--global-batch", .value = "N", .help = "sequences of one optimizer step (default: the scenario's)"},
           {.name = "--tokens", .value = "N", .help = "tokens to train on (default: 20 a parameter; fine-tuning: epochs of samples)"},
           {.name = "--epochs", .value = "N", .help = "fine-tuning: how often the data set is gone over (default: 3)"},
           {.name = "--samples", .value = "N", .help = "fine-tuning: sequences of the data set (default: 52000)"},
           {.name = "--headroom", .value = "PERCENT", .help = "memory that stays free (default: 8)"},
           {.name = "--price", .value = "DOLLARS", .help = "price of one GPU-hour (default: the profile's)"},
           {.name = "--days", .value = "N", .help = "days within which training is to end: how many GPUs that takes"},
           {.name = "--nodes", .value = "LIST", .help = "numbers of nodes, with commas between them (default: powers of two)"},
           {.name = "--strategies",
            .value = "LIST",
            .help = "names with commas between them, or all (default: those of the scenario's library)"},
           {.name = "--format", .value = "FORMAT", .help = "form of the report", .words = {"table", "json", "csv"}, .fallback = "table"},
           html_argument(),
           {.name = "--set", .value = "KEY=VALUE", .help = "override a key of the scenario", .many = true}},
      .run = run_plan};
}

}  // namespace shardsim
