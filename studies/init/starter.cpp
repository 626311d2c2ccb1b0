// SPDX-License-Identifier: Apache-2.0
// The first scenario of somebody's own.
#include "studies/init/starter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>

#include "models/architecture.hpp"
#include "scenarios/reader/profile_file.hpp"
#include "sim/base/units_text.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

struct Framework {
  std::string_view name, strategy, precision, checkpointing, note;
};

constexpr std::array<Framework, 9> frameworks{{
    {"torchtitan", "fsdp2", "{parameters: bf16, gradients: bf16, reduce: fp32, master: fp32}", "selective_ops",
     "torchtitan shards with fully_shard and reduces in fp32"},
    {"pytorch", "fsdp2", "mixed", "none", "fully_shard; ddp for models that fit whole on each GPU"},
    {"accelerate", "fsdp1", "mixed", "full", "accelerate's FSDP plugin, version 1; fsdp2 for fsdp_version: 2"},
    {"transformers", "fsdp1", "mixed", "full", "the Trainer runs accelerate's FSDP plugin"},
    {"deepspeed", "zero3", "mixed", "full", "ZeRO stage 3; zero2 where the parameters fit whole on each GPU"},
    {"megatron", "megatron", "mixed", "core_attention",
     "the distributed optimizer; tensor and pipeline parallelism are not in this scenario"},
    {"llm-foundry", "fsdp1", "mixed", "full", "Composer's FSDP"},
    {"litgpt", "fsdp1", "mixed", "full", "Lightning's FSDP strategy"},
    {"olmo-core", "fsdp2", "mixed", "none", "OLMo-core's data-parallel configuration of type fsdp"},
}};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Letters and digits alone: "RTX 4090" and "rtx-4090" are the same word.
std::string squeezed(const std::string& text) {
  std::string out;
  for (const char c : lower(text))
    if (std::isalnum(static_cast<unsigned char>(c))) out += c;
  return out;
}

Framework framework_named(const std::string& name) {
  for (const Framework& f : frameworks)
    if (f.name == lower(name)) return f;
  if (const StrategyInfo* info = find_strategy(lower(name)))
    return {"", info->name, "mixed", "none", info->summary};  // the table of strategies lives as long as the program
  std::vector<std::string> known = starter_frameworks();
  for (const StrategyInfo& info : strategies()) known.push_back(info.name);
  std::string message = fmt::format("unknown framework '{}'", name);
  for (const std::string& note : notes_for_unknown(name, known)) message += "\n  = " + note;
  throw InputError(message);
}

std::string model_line(const std::string& model) {
  const bool file = model.find('/') != std::string::npos || model.ends_with(".json") || std::filesystem::exists(model);
  return file ? fmt::format("  hf_config: {}", model) : fmt::format("  preset: {}            # or hf_config: path/to/config.json", model);
}

/// 2,048 tokens, or as many as the model has positions.
std::int64_t usual_length(const std::string& model) {
  constexpr std::int64_t usual = 2048;
  const auto names = preset_names();
  if (std::find(names.begin(), names.end(), model) == names.end()) return usual;
  const std::int64_t positions = value_or_throw(preset(model))->learned_positions;
  return positions > 0 ? std::min(usual, positions) : usual;
}

struct Shape {
  std::int64_t nodes, gpus_per_node;
};

Shape shape_of(std::int64_t gpus, const Profile& profile) {
  const std::int64_t whole = profile.node.gpus;
  if (gpus <= whole) return {1, gpus};
  if (gpus % whole != 0) throw InputError(fmt::format("{} GPUs are not a whole number of nodes of {} ({})", gpus, whole, profile.name));
  return {gpus / whole, whole};
}

/// Machines that are rented by these names have the GPUs of plain ones.
bool is_cloud(const std::string& name) {
  constexpr std::array<std::string_view, 4> clouds{"aws-", "gcp-", "azure-", "oci-"};
  return std::any_of(clouds.begin(), clouds.end(), [&](std::string_view cloud) { return name.starts_with(cloud); });
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out{""};
  for (const char c : lower(text)) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      out.back() += c;
    else if (!out.back().empty())
      out.emplace_back();
  }
  return out;
}

/// How many words two names share; the maker's is none, and a word of letters alone ("pcie", "sxm") only tells products apart.
int likeness(const std::string& a, const std::string& b) {
  int score = 0;
  bool product = false;
  const auto others = words_of(b);
  for (const std::string& word : words_of(a)) {
    if (word.empty() || word == "nvidia" || word == "amd" || std::find(others.begin(), others.end(), word) == others.end()) continue;
    score += 2;
    product = product || (std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c); }) && !word.ends_with("gb"));
  }
  return product ? score : 0;
}

std::string nearest_profile(const std::string& gpu) {
  std::string best;
  int most = 0;
  for (const std::string& file : shipped_profiles()) {
    const std::string name = std::filesystem::path(file).stem().string();
    if (is_cloud(name)) continue;
    const int score = likeness(gpu, value_or_throw(load_profile(file)).gpu.name + " " + name);
    const int preferred = 2 * score + (name.find("-sxm") != std::string::npos ? 1 : 0);  // of "H100" alone the common one
    if (score == 0 || preferred <= most) continue;
    most = preferred;
    best = file;
  }
  return best;
}

}  // namespace

std::vector<std::string> starter_frameworks() {
  std::vector<std::string> names;
  for (const Framework& f : frameworks) names.emplace_back(f.name);
  return names;
}

std::string profile_for_gpu(const std::string& driver_name) {
  const std::string found = nearest_profile(driver_name);
  if (found.empty()) throw InputError("no profile for '" + driver_name + "'");
  return found;
}

std::string profile_meant(const std::string& gpu) {
  if (std::filesystem::is_regular_file(gpu)) return gpu;
  std::vector<std::string> names;
  for (const std::string& file : shipped_profiles()) {
    names.push_back(std::filesystem::path(file).stem().string());
    if (squeezed(names.back()) == squeezed(std::filesystem::path(gpu).stem().string()) || gpu == file) return file;
  }
  if (const std::string found = nearest_profile(gpu); !found.empty()) return found;
  std::string message = fmt::format("no profile for '{}'", gpu);
  for (const std::string& note : notes_for_unknown(gpu, names)) message += "\n  = " + note;
  throw InputError(message + "\n  = 'shardsim list clusters' shows all of them");
}

void read_gpus(const std::string& text, StarterChoice& choice) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{}) {
    choice.gpu = text;
    choice.gpu_was_said = true;
    return;
  }
  if (number < 1 || number > (std::int64_t{1} << 24)) throw InputError(fmt::format("--gpus: {} is not a number of GPUs", number));
  choice.gpus = number;
  std::string rest(after, end);
  rest.erase(0, std::min(rest.find_first_not_of(" xX*"), rest.size()));
  if (rest.empty()) return;
  choice.gpu = rest;
  choice.gpu_was_said = true;
}

std::string starter_scenario(const StarterChoice& choice) {
  const Framework framework = framework_named(choice.framework);
  const std::string file = profile_meant(choice.gpu);
  const Profile profile = value_or_throw(load_profile(file));
  const Shape shape = shape_of(choice.gpus, profile);
  const std::int64_t nics = std::min<std::int64_t>(profile.network.nics_per_node, shape.gpus_per_node);
  std::string out = "# Written by `shardsim init`. Every key is described in docs/scenario.md; what is not written has a default.\n";
  out += "#   shardsim simulate THIS.yaml --explain      does it fit, what bounds it, what would lower it\n";
  out += "#   shardsim plan THIS.yaml                    nodes, strategy, micro-batch, days and money\n";
  out += "model:\n" + model_line(choice.model) + "\n";
  out += fmt::format("cluster:\n  profile: {}   # {}{}\n", file,
                     choice.gpu_was_said ? "" : "assumed, say yours with --gpu: ", profile.description);
  out += fmt::format("  nodes: {}\n  gpus_per_node: {}\n", shape.nodes, shape.gpus_per_node);
  out += fmt::format("  # nics_per_node: {}                         # the profile's; say how many yours has\n", nics);
  out +=
      fmt::format("  # nic_bandwidth: {:.0f} Gbit/s               # of each, one direction\n", profile.network.nic_bandwidth.base() * 8e-9);
  out += fmt::format("training:\n  sequence_length: {}                     # tokens of one sequence\n", usual_length(choice.model));
  out += "  micro_batch_size: 1                       # sequences of a GPU at once\n";
  out += "  gradient_accumulation_steps: 1            # micro-batches of one optimizer step\n";
  out += fmt::format("  precision: {}\n", framework.precision);
  out +=
      fmt::format("  activation_checkpointing: {}              # none | core_attention | selective_ops | full\n", framework.checkpointing);
  out += fmt::format("strategy:\n  name: {}   # {}\n", framework.strategy, framework.note);
  out +=
      "# plan:                                       # what `shardsim plan` holds fixed\n#   global_batch: 512                         # "
      "sequences of one optimizer step\n#   tokens: 300e9\n";
  return out;
}

}  // namespace shardsim
