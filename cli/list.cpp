// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/commands.hpp"
#include "shardsim/machine.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"

namespace shardsim {
namespace {

std::string models_text() {
  TextGrid grid{.header = {"Preset", "Parameters"}, .right = {false, true}, .rows = {}};
  Training training;
  training.sequence_length = 128;  // short enough for every preset; the count of parameters does not depend on it
  for (const std::string& name : preset_names()) {
    const auto model = value_or_throw(build_model(value_or_throw(preset(name)), training));
    grid.rows.push_back({name, grouped(model->total().value())});
  }
  std::string families;
  for (const std::string& family : family_names()) families += (families.empty() ? "" : ", ") + family;
  return grid.text() + "\n" + wrapped("hf_config: reads the config.json of these families: " + families, 0, 0) + "\n";
}

std::string option_text(const OptionSpec& option) {
  std::string help = option.help;
  for (std::size_t i = 0; i < option.words.size(); ++i) help += (i == 0 ? ": " : ", ") + option.words[i];
  if (!option.fallback.empty()) help += " (default: " + option.fallback + ")";
  return beside("  " + option.name, help, 30) + "\n";
}

/// Releases that strategy.version tells apart; the newest is the default.
std::string releases_text(const StrategyInfo& info) {
  std::string text;
  for (const Release& release : info.releases) text += beside("  version " + release.version, release.changes, 30) + "\n";
  return text;
}

std::string strategies_text() {
  std::string out;
  for (const StrategyInfo& info : strategies()) {
    out += (out.empty() ? "" : "\n") + info.name + "\n  " + wrapped(info.summary, 2, 2) + "\n  " +
           wrapped("framework: " + with_version(info.library, info.releases, ""), 2, 2) + "\n" + releases_text(info);
    for (const OptionSpec& option : info.options) out += option_text(option);
  }
  return out;
}

std::vector<Profile> profiles() {
  std::vector<Profile> out;
  for (const std::string& file : shipped_profiles()) {
    Profile profile = value_or_throw(load_profile(file));
    profile.file = file;
    out.push_back(std::move(profile));
  }
  return out;
}

std::string clusters_text() {
  TextGrid grid{.header = {"Profile", "GPUs", "Ring", "NICs", "Network"}, .right = {false, false, true, true, true}, .rows = {}};
  std::string descriptions;
  for (const Profile& p : profiles()) {
    grid.rows.push_back({p.file, fmt::format("{} x {}", p.node.gpus, p.gpu.name), to_text(p.node.ring_bandwidth),
                         std::to_string(p.network.nics_per_node),
                         to_text(p.network.nic_bandwidth * static_cast<double>(p.network.nics_per_node))});
    descriptions += beside("  " + p.name, p.description, 24) + "\n";
  }
  return grid.text() + "\n" + wrapped("Ring: bus bandwidth inside a node. Network: of all NICs of a node, one direction.", 0, 0) + "\n\n" +
         descriptions;
}

std::string stacks_text() {
  TextGrid grid{.header = {"Stack", "us a kernel", "What"}, .right = {false, true, false}, .rows = {}};
  for (const std::string& name : shipped_stacks()) {
    const auto source = value_or_throw(read_source(shipped_folder() + "/stacks/" + name + ".yaml"));
    const Stack stack = value_or_throw(read_stack(value_or_throw(read_yaml(source))));
    grid.rows.push_back({name, fmt::format("{:.0f}", stack.kernel.base() * 1e6), stack.description});
  }
  return grid.text() + "\n" +
         wrapped("training.stack: one of these, or a file. Without it each strategy is priced with its usual stack.", 0, 0) + "\n";
}

std::string gpu_names_text() {
  TextGrid grid{.header = {"GPU", "Memory", "HBM", "bf16, dense", "Profile"}, .right = {false, true, true, true, false}, .rows = {}};
  for (const Profile& p : profiles()) {
    const auto peak = p.gpu.peak.find(DType::bf16);
    grid.rows.push_back({p.gpu.name, to_text(p.gpu.capacity), to_text(p.gpu.memory_bandwidth),
                         peak == p.gpu.peak.end() ? "" : to_text(peak->second), p.file});
  }
  return grid.text();
}

std::string optimizers_text() {
  // The names that scenarios use; the bytes are those of PyTorch's state tensors (bitsandbytes for adamw_8bit, Keller Jordan's for muon).
  const TextGrid grid{.header = {"Optimizer", "States per parameter"},
                      .right = {},
                      .rows = {{"sgd", "none"},
                               {"momentum", "one moment"},
                               {"adam", "two moments"},
                               {"adamw", "two moments"},
                               {"adamw_8bit", "two moments of one byte, scales for each block of 256"},
                               {"lion", "one moment"},
                               {"adafactor", "one row and one column of each matrix"},
                               {"muon", "one moment for matrices, adamw for the rest"}}};
  return grid.text() + "\n" + wrapped("A master copy of the parameters comes on top where the precision asks for one.", 0, 0) + "\n";
}

struct ListSubject {
  const char* name;
  std::string (*text)();
};
constexpr std::array<ListSubject, 6> subjects{{{"models", models_text},
                                               {"strategies", strategies_text},
                                               {"clusters", clusters_text},
                                               {"stacks", stacks_text},
                                               {"optimizers", optimizers_text},
                                               {"gpus", gpu_names_text}}};

ExitCode run_list(const Arguments& arguments) {
  const std::string wanted = arguments.text("WHAT");
  for (const ListSubject& subject : subjects)
    if (wanted == subject.name) write_output("-", subject.text());
  return ExitCode::done;
}

}  // namespace

Command list_command() {
  std::vector<std::string> words;
  for (const ListSubject& subject : subjects) words.emplace_back(subject.name);
  return {.name = "list",
          .summary = "print what scenarios can name",
          .arguments = {{.name = "WHAT", .help = "what to list", .required = true, .words = std::move(words)}},
          .run = run_list};
}

}  // namespace shardsim
