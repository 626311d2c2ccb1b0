// SPDX-License-Identifier: Apache-2.0
// init: a first scenario of somebody's own, from flags or questions.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "shardsim/machine.hpp"
#include "shardsim/report.hpp"

namespace shardsim {
namespace {

/// Asked on a terminal alone; an empty line takes what stands in brackets.
std::string asked(const std::string& question, const std::string& usual) {
  if (isatty(STDIN_FILENO) == 0) return usual;
  std::fputs(fmt::format("{} [{}]: ", question, usual).c_str(), stderr);
  std::string line;
  if (!std::getline(std::cin, line) || line.empty()) return usual;
  return line;
}

std::string given_or_asked(const Arguments& arguments, const std::string& flag, const std::string& question, const std::string& usual) {
  return arguments.given(flag) ? arguments.text(flag) : asked(question, usual);
}

/// A config.json as the scenario will find it: seen from the scenario's folder.
std::string seen_from(const std::string& output, const std::string& model) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (output == "-" || !fs::exists(model, error)) return model;
  const fs::path folder = fs::path(output).parent_path();
  const fs::path relative = fs::relative(model, folder.empty() ? "." : folder, error);
  return error || relative.empty() ? fs::absolute(model).string() : relative.string();
}

ExitCode run_init(const Arguments& arguments) {
  const StarterChoice usual;
  StarterChoice choice;
  choice.gpu_was_said = false;
  const std::string output = arguments.text("--output");
  choice.model =
      seen_from(output, given_or_asked(arguments, "--model", "Model (a name of `shardsim list models`, or a config.json)", usual.model));
  read_gpus(given_or_asked(arguments, "--gpus", "How many GPUs in all", std::to_string(usual.gpus)), choice);
  if (arguments.given("--gpu") || !choice.gpu_was_said) {
    choice.gpu = given_or_asked(arguments, "--gpu", "Which GPUs (as in `shardsim list gpus`)", usual.gpu);
    choice.gpu_was_said = arguments.given("--gpu") || isatty(STDIN_FILENO) != 0;
  }
  choice.framework =
      given_or_asked(arguments, "--framework", fmt::format("Framework ({})", fmt::join(starter_frameworks(), ", ")), usual.framework);
  write_output(output, starter_scenario(choice));
  if (output != "-") log_info(fmt::format("next: shardsim simulate {} --explain", output));
  return ExitCode::done;
}

}  // namespace

Command init_command() {
  return {
      .name = "init",
      .summary = "write a first scenario for a model and a machine of your own",
      .details = "What no flag says is asked on a terminal; elsewhere the defaults are taken and the scenario says so.",
      .arguments =
          {{.name = "--model", .value = "MODEL", .help = "a preset of 'shardsim list models', or a config.json", .fallback = "llama-3-8b"},
           {.name = "--gpus", .value = "N", .help = "GPUs in all, with or without their kind: 8, 8xH100", .fallback = "8"},
           {.name = "--gpu", .value = "NAME", .help = "kind of GPU or profile: H100, rtx-4090, aws-p5", .fallback = "h100-sxm"},
           {.name = "--framework",
            .value = "NAME",
            .help = "what trains: torchtitan, accelerate, deepspeed, ..., or a strategy",
            .fallback = "torchtitan"},
           {.name = "--output",
            .value = "SCENARIO",
            .help = "scenario to write ('-': standard output)",
            .short_name = "-o",
            .required = true}},
      .run = run_init};
}

}  // namespace shardsim
