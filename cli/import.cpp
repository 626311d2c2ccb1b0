// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>

#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"

namespace shardsim {
namespace {

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const ImportFormat& format : import_formats()) names.emplace_back(format.name);
  return names;
}

/// One line a format: what it reads.
std::string format_list() {
  std::string text;
  for (const ImportFormat& format : import_formats()) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", format.name, format.reads);
  return text;
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

/// The file itself, and what it names: a DeepSpeed configuration in one of accelerate's.
std::vector<std::string> files_read(const Arguments& arguments) {
  const std::string file = arguments.text("FILE");
  std::vector<std::string> files{file, arguments.text("--model"), arguments.text("--cluster")};
  const auto tree = read_source(file).and_then([](const Source& source) { return read_yaml(source); });
  if (!tree) return files;
  for (std::string& named : named_files(*tree, std::filesystem::path(file).parent_path().string())) files.push_back(std::move(named));
  return files;
}

ExitCode run_import(const Arguments& arguments) {
  const std::string name = arguments.text("--output");
  Output output(name);
  output.keep_apart_from(files_read(arguments));
  ImportOptions options;
  options.model = arguments.text("--model");
  options.cluster = arguments.text("--cluster", options.cluster);
  options.nodes = arguments.integer("--nodes", 0, 1, 1 << 24);
  options.gpus_per_node = arguments.integer("--gpus-per-node", 0, 1, 1 << 16);
  if (name != "-") options.output_folder = std::filesystem::path(name).parent_path().string();
  if (arguments.given("--cluster")) options.cluster = profile_path(arguments.text("--cluster"), options.output_folder);
  const Imported imported = value_or_throw(import_file(arguments.text("FORMAT"), arguments.text("FILE"), options));
  log_note(imported.summary);
  output.write(imported.yaml);
  output.commit();
  return ExitCode::done;
}

}  // namespace

Command import_command() {
  return {
      .name = "import",
      .summary = "turn another tool's configuration into a scenario",
      .details =
          "What was understood and assumed, and every key that changes the step and is not modelled, is said on standard error and in the "
          "scenario; \"auto\" values are resolved by Hugging Face's rule. Formats: " +
          format_list() + ".",
      .arguments = {{.name = "FORMAT", .help = "what wrote the file", .required = true, .words = format_names()},
                    {.name = "FILE", .help = "configuration, saved arguments or command line", .required = true},
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
