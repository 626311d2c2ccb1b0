// SPDX-License-Identifier: Apache-2.0
// Cluster profiles as files: found by name, and one built on another.
#include "scenarios/reader/profile_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/reader/reading.hpp"

namespace shardsim {
namespace {

constexpr int deepest_chain = 8;  // of profiles that build on each other: more is a circle

/// A shipped profile goes by its name, too: "h100-sxm" is clusters/h100-sxm.yaml.
ConfigNode spelled_out(const ConfigNode& name, const std::string& folder) {
  ConfigNode file = name;
  const bool plain = name.kind == ConfigNode::Kind::scalar && name.text.find('/') == std::string::npos;
  if (!plain || !find_file(name.text, folder).path.empty()) return file;
  for (const std::string& guess : {"clusters/" + name.text + ".yaml", "clusters/" + name.text})
    if (!find_file(guess, folder).path.empty()) {
      file.text = guess;
      break;
    }
  return file;
}

std::optional<ProfileTree> read_chain(const ConfigNode& name, const std::string& folder, int depth, Problems& problems) {
  if (depth > deepest_chain) {
    problems.add(name.where, "profiles build on each other in a circle");
    return std::nullopt;
  }
  const ConfigNode file = spelled_out(name, folder);
  const auto tree = read_named_file(file, folder, FileFormat::yaml, problems);
  if (!tree) return std::nullopt;
  const ConfigNode* base = tree->find("base");
  if (base == nullptr) return ProfileTree{*tree, {}};
  const std::string own_folder = std::filesystem::path(find_file(file.text, folder).path).parent_path().string();
  auto built = read_chain(*base, own_folder, depth + 1, problems);
  if (!built) return std::nullopt;
  std::erase_if(built->root.entries, [](const Entry& entry) { return entry.key == "price_per_gpu_hour"; });
  built->root.where = tree->where;
  for (const Entry& entry : tree->entries)
    if (entry.key != "base") merge_entry(built->root, entry, "", built->changed);
  return built;
}

}  // namespace

void drop_outdated_fits(Profile& profile, const std::vector<std::string>& changed) {
  if (std::find(changed.begin(), changed.end(), "collectives") != changed.end()) return;
  const auto touches = [&](const CollectiveFit& fit, const std::string& key) {
    if (key == "network.base_latency") return true;
    if (key == "network.all_reduce_algorithm" || key == "network.ring_model") return false;
    if (key.starts_with("topology.node_links")) return true;
    if (key.starts_with("topology.")) return fit.nodes > 1;
    if (key.starts_with("network.")) return fit.nodes > 1;
    return key == "node.ring_bandwidth" || key == "node.intra_latency";
  };
  for (const std::string& key : changed) std::erase_if(profile.collectives, [&](const CollectiveFit& fit) { return touches(fit, key); });
}

std::optional<ProfileTree> read_profile_file(const ConfigNode& name, const std::string& folder, Problems& problems) {
  return read_chain(name, folder, 0, problems);
}

Result<Profile> load_profile(const std::string& path, Completeness completeness) {
  Problems problems;
  ConfigNode name;
  name.kind = ConfigNode::Kind::scalar;
  name.text = path;
  const auto tree = read_profile_file(name, ".", problems);
  if (!tree) return tl::make_unexpected(std::move(problems));
  auto profile = read_profile(tree->root, completeness);
  if (profile) drop_outdated_fits(*profile, tree->changed);
  return profile;
}

std::vector<std::string> shipped_profiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(shipped_folder()) / "clusters"))
    if (entry.path().extension() == ".yaml") files.push_back("clusters/" + entry.path().filename().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace shardsim
