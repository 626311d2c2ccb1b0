// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"

namespace shardsim {
namespace {

std::string place(const Where& where) {
  const std::string name = where.source == nullptr ? "" : where.source->name;
  return where.line == 0 ? name : fmt::format("{}:{}:{}", name, where.line, where.column);
}

/// The profile as the scenario will find it: a file of the user's as seen from the scenario's folder, or a shipped one by its name.
std::string profile_path(const std::string& given, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_regular_file(given, error)) {
    const fs::path relative = fs::relative(given, folder.empty() ? "." : folder, error);
    return error || relative.empty() ? fs::absolute(given).string() : relative.string();
  }
  if (fs::is_regular_file(fs::path(shipped_folder()) / given, error)) return given;
  throw InputError(fmt::format("--cluster: '{}' is neither a file nor a shipped profile ('shardsim list clusters' names those)", given));
}

ExitCode run_import(const Arguments& arguments) {
  const std::string output = arguments.text("--output");
  ImportOptions options;
  options.model = arguments.text("--model");
  options.cluster = arguments.text("--cluster", options.cluster);
  options.nodes = arguments.integer("--nodes", 0, 1, 1 << 24);
  options.gpus_per_node = arguments.integer("--gpus-per-node", 0, 1, 1 << 16);
  if (output != "-") options.output_folder = std::filesystem::path(output).parent_path().string();
  if (arguments.given("--cluster")) options.cluster = profile_path(arguments.text("--cluster"), options.output_folder);
  const Imported imported = value_or_throw(import_file(arguments.text("FORMAT"), arguments.text("FILE"), options));
  for (const IgnoredKey& key : imported.ignored) log_warning(fmt::format("{}: '{}' ignored: {}", place(key.where), key.key, key.why));
  for (const std::string& note : imported.notes) log_warning("assumed: " + note);
  write_output(output, imported.yaml);
  return ExitCode::done;
}

}  // namespace

Command import_command() {
  return {
      .name = "import",
      .summary = "turn another tool's configuration into a scenario",
      .details =
          "\"auto\" values are resolved by Hugging Face's rule; keys without effect are listed on standard error and in the scenario.",
      .arguments = {{.name = "FORMAT", .help = "what wrote the file", .required = true, .words = import_formats()},
                    {.name = "FILE", .help = "DeepSpeed JSON, accelerate YAML, LLM Foundry YAML or torchtitan TOML", .required = true},
                    {.name = "--output",
                     .value = "SCENARIO",
                     .help = "scenario to write ('-': standard output)",
                     .short_name = "-o",
                     .required = true},
                    {.name = "--model", .value = "MODEL", .help = "preset or config.json (default: what the file names, else llama-3-8b)"},
                    {.name = "--cluster",
                     .value = "PROFILE",
                     .help = "cluster profile to put into the scenario",
                     .fallback = "clusters/h100-sxm.yaml"},
                    {.name = "--nodes", .value = "N", .help = "nodes, where the file does not say"},
                    {.name = "--gpus-per-node", .value = "N", .help = "GPUs of each node, where the file does not say"}},
      .run = run_import};
}

}  // namespace shardsim
