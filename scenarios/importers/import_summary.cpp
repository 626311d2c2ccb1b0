// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/import_summary.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shardsim {
namespace {

constexpr std::size_t summary_width = 116;

std::string place_of(const Where& where) { return where.line == 0 ? std::string() : fmt::format(" (line {})", where.line); }

/// "Without effect on a step: a, b, c" over as many lines as it takes.
void append_list(std::vector<std::string>& lines, const std::string& title, const std::vector<std::string>& words) {
  std::string line = title;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i] + (i + 1 < words.size() ? "," : "");
    if (line.size() + 1 + word.size() > summary_width) {
      lines.push_back(line);
      line = " ";
    }
    line += " " + word;
  }
  lines.push_back(line);
}

std::string precision_text(const Precision& precision) {
  std::string text = fmt::format("parameters {}", name_of(precision.parameters));
  if (precision.compute != precision.parameters) text += fmt::format(", compute {}", name_of(precision.compute));
  text += fmt::format(", gradients {}", name_of(precision.gradients));
  if (precision.reduce) text += fmt::format(", reduce {}", name_of(*precision.reduce));
  return text + fmt::format(", master {}", precision.master ? name_of(*precision.master) : "none");
}

std::string options_text(const ConfigNode& root) {
  const ConfigNode* block = root.find("strategy");
  std::string text;
  if (block == nullptr) return text;
  for (const auto& entry : block->entries)
    if (entry.key != "name" && entry.value.kind == ConfigNode::Kind::scalar) text += fmt::format(", {} {}", entry.key, entry.value.text);
  return text;
}

}  // namespace

std::vector<std::string> account_of(const std::vector<IgnoredKey>& keys) {
  std::vector<std::string> lines, without_effect;
  for (const IgnoredKey& key : keys)
    if (key.effect == Effect::changes) lines.push_back(fmt::format("Not modelled: {}{}: {}", key.key, place_of(key.where), key.why));
  for (const IgnoredKey& key : keys)
    if (key.effect == Effect::unknown) lines.push_back(fmt::format("Unknown: {}{}: {}", key.key, place_of(key.where), key.why));
  for (const IgnoredKey& key : keys)
    if (key.effect == Effect::none && std::find(without_effect.begin(), without_effect.end(), key.key) == without_effect.end())
      without_effect.push_back(key.key);
  if (!without_effect.empty()) append_list(lines, "Without effect on a step:", without_effect);
  return lines;
}

std::string summary_of(const Imported& imported, const std::string& origin, const Scenario& s) {
  const Training& t = s.training;
  const std::int64_t ranks = s.cluster.world_size();
  std::string out = fmt::format("Understood from {}:\n", origin);
  const auto line = [&](std::string_view what, const std::string& text) { out += fmt::format("  {:<10} {}\n", what, text); };
  line("model", fmt::format("{}, {:.2f} billion parameters{}", s.model->name, static_cast<double>(s.model->total().value()) / 1e9,
                            s.model->trainable() == s.model->total()
                                ? ""
                                : fmt::format(", {:.2f} million of them train", static_cast<double>(s.model->trainable().value()) / 1e6)));
  line("ranks", fmt::format("{}: {} node{} of {} GPUs ({})", ranks, s.cluster.nodes, s.cluster.nodes == 1 ? "" : "s",
                            s.cluster.gpus_per_node, s.cluster.profile.gpu.name));
  line("batch", fmt::format("{} sequence{} of {} tokens a rank x {} accumulation step{} x {} ranks = global batch {:.0f}",
                            t.micro_batch_size, t.micro_batch_size == 1 ? "" : "s", t.sequence_length, t.gradient_accumulation_steps,
                            t.gradient_accumulation_steps == 1 ? "" : "s", ranks,
                            static_cast<double>(t.micro_batch_size) * t.gradient_accumulation_steps * static_cast<double>(ranks)));
  line("precision", precision_text(t.precision));
  line("strategy", s.strategy.name + options_text(s.root));
  for (const std::string& note : imported.notes) line("assumed", note);
  for (const std::string& text : account_of(imported.ignored)) out += "  " + text + "\n";
  return out;
}

}  // namespace shardsim
