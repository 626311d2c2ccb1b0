// SPDX-License-Identifier: Apache-2.0
#include "scenarios/reader/scenario.hpp"

#include <filesystem>

#include "scenarios/reader/scenario_cache.hpp"

namespace shardsim {

Job Scenario::job() const {
  Job job;
  job.model = model.get();
  job.training = training;
  job.strategy = strategy;
  job.world_size = cluster.world_size();
  job.gpus_per_node = cluster.gpus_per_node;
  return job;
}

Result<Scenario> read_scenario(ConfigNode root, const std::string& file, const std::string& folder) {
  return ScenarioCache(file, folder, 0).read(std::move(root));
}

Result<Scenario> load_scenario(const std::string& path, const std::vector<std::string>& assignments) {
  // A shipped scenario goes by its name: "llama3-8b-fsdp2-64xh100".
  std::error_code error;
  std::string file = path;
  if (!std::filesystem::exists(path, error))
    for (const std::string& name : {path, path + ".yaml"})
      if (const auto shipped = std::filesystem::path(shipped_folder()) / name; std::filesystem::is_regular_file(shipped, error)) {
        file = shipped.string();
        break;
      }
  const auto source = read_source(file);
  if (!source) return tl::make_unexpected(source.error());
  Result<ConfigNode> root = read_yaml(*source);
  if (!root) return tl::make_unexpected(root.error());
  Problems problems;
  for (const std::string& assignment : assignments) {
    Result<ConfigNode> changed = with_override(*root, assignment);
    if (changed)
      root = std::move(changed);
    else
      problems.append(changed.error());
  }
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  return read_scenario(std::move(*root), file, std::filesystem::path(file).parent_path().string());
}

}  // namespace shardsim
