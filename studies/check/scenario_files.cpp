// SPDX-License-Identifier: Apache-2.0
#include "studies/check/scenario_files.hpp"

#include <algorithm>
#include <filesystem>

#include "sim/config/node.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

/// Whether the file means to be a scenario: one that cannot be read, or misspells a key, must not be passed over silently.
bool looks_like_scenario(const std::string& file) {
  const auto source = read_source(file);
  if (!source) return true;
  const auto root = read_yaml(*source);
  if (!root) return true;
  const auto has = [&](const char* key) { return root->find(key) != nullptr; };
  if (has("sweep")) return false;
  return has("model") || has("training") || has("strategy") || has("expect");
}

void collect(const fs::path& folder, std::vector<std::string>& files, const PassedOver& passed_over) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (path.filename().string().starts_with('.')) continue;
    std::error_code error;  // a link that leads nowhere
    if (entry.is_directory(error) && !entry.is_symlink(error)) {
      collect(path, files, passed_over);
    } else if (entry.is_regular_file(error) && (path.extension() == ".yaml" || path.extension() == ".yml")) {
      if (looks_like_scenario(path.string()))
        files.push_back(path.string());
      else if (passed_over)
        passed_over(path.string());
    }
  }
}

}  // namespace

std::vector<std::string> scenario_files(const std::vector<std::string>& paths, const PassedOver& passed_over) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code unreadable;
    if (!fs::is_directory(path, unreadable)) {  // what is wrong with it is said when it is read
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    try {
      collect(path, found, passed_over);
    } catch (const fs::filesystem_error& error) { throw InputError(std::string(error.what())); }
    if (found.empty()) throw InputError("no scenario in the folder " + path);
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

}  // namespace shardsim
