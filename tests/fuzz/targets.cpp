// SPDX-License-Identifier: Apache-2.0
#include "targets.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "scenarios/importers/import.hpp"
#include "scenarios/reader/scenario.hpp"
#include "sim/base/journal.hpp"
#include "sim/base/units_text.hpp"
#include "sim/config/toml.hpp"
#include "sim/machine/cluster_graph.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {
namespace {

/// Problems must be there to be told, and in a form that a terminal can show.
void require_told(const Problems& problems) {
  const std::string text = problems.text();
  if (problems.empty() || text.empty() || text.back() != '\n') std::abort();
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') std::abort();
}

template <class Q>
void require_value_or_error(const Parsed<Q>& parsed) {
  if (parsed.value.has_value() == !parsed.error.empty()) std::abort();
  if (parsed.value && to_text(*parsed.value).empty()) std::abort();
}

}  // namespace

void fuzz_scenario(std::string_view text) {
  const auto root = read_yaml({"fuzz.yaml", std::string(text)});
  if (!root) return require_told(root.error());
  const auto scenario = read_scenario(*root, "fuzz.yaml", shipped_folder());
  if (!scenario) require_told(scenario.error());
}

void fuzz_config(std::string_view text) {
  const auto root = read_json({"config.json", std::string(text)});
  if (!root) return require_told(root.error());
  const auto architecture = read_hf_config(*root);
  if (!architecture) return require_told(architecture.error());
  Training training;
  training.sequence_length = 16;
  const auto model = build_model(*architecture, training);
  if (!model) require_told(model.error());
}

void fuzz_toml(std::string_view text) {
  const auto root = read_toml({"fuzz.toml", std::string(text)});
  if (!root) require_told(root.error());
}

void fuzz_import(std::string_view text) {
  if (text.empty()) return;
  const auto& formats = import_formats();
  const ImportFormat& format = formats[static_cast<unsigned char>(text.front()) % formats.size()];
  ImportOptions options;
  options.model = "gpt2";
  const auto imported = format.read({"fuzz", std::string(text.substr(1))}, options);
  if (!imported) return require_told(imported.error());
  if (imported->yaml.empty() || imported->summary.empty()) std::abort();
}

void fuzz_units(std::string_view text) {
  require_value_or_error(parse_bytes(text));
  require_value_or_error(parse_byte_rate(text));
  require_value_or_error(parse_flop_rate(text));
  require_value_or_error(parse_seconds(text));
}

void fuzz_profile(std::string_view text) {
  const auto root = read_yaml({"profile.yaml", std::string(text)});
  if (!root) return require_told(root.error());
  const auto profile = read_profile(*root, Completeness::part);
  if (!profile) return require_told(profile.error());
  const std::string written = to_yaml(*profile);
  const auto again =
      read_yaml({"profile.yaml", written}).and_then([](const ConfigNode& node) { return read_profile(node, Completeness::part); });
  if (!again || to_yaml(*again) != written) std::abort();
}

void fuzz_topology(std::string_view text) {
  const auto block = read_yaml({"topology.yaml", std::string(text)});
  if (!block) return require_told(block.error());
  Problems problems;
  Cluster cluster;
  cluster.profile.topology = read_topology_block(*block, problems);
  if (!problems.empty()) return require_told(problems);
  cluster.profile.node.ring_bandwidth = cluster.profile.network.nic_bandwidth = ByteRate{1e9};
  cluster.nodes = 2;
  for (const std::int64_t gpus : {1, 8}) {
    cluster.gpus_per_node = cluster.nics_per_node = gpus;
    const auto graph = ClusterGraph::expand(cluster);
    if (!graph && graph.error().empty()) std::abort();
  }
}

void fuzz_journal(std::string_view text) {
  namespace fs = std::filesystem;
  const fs::path path = fs::temp_directory_path() / ("shardsim-fuzz-journal-" + std::to_string(::getpid()));
  std::ofstream(path, std::ios::binary) << text;
  try {
    std::size_t found = 0;
    {
      Journal journal(path.string(), "fuzz", Journal::Pace::each_line, [&](std::string_view, std::int64_t) { ++found; });
      journal.add("new");
    }
    const JournalReader reader(path.string(), "fuzz");
    if (!reader.valid()) std::abort();
    std::string last;
    std::size_t again = 0;
    (void)reader.each_line([&](std::string_view line, std::int64_t offset) {
      if (reader.line_at(offset) != std::string(line)) std::abort();
      last = line;
      ++again;
    });
    if (again != found + 1 || last != "new") std::abort();
  } catch (const EnvironmentError&) {  // not a journal: left alone
  }
  fs::remove(path);
}

}  // namespace shardsim
