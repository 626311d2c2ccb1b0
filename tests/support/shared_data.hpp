// SPDX-License-Identifier: Apache-2.0
// Published measurements that lie beside the project where somebody put them there; tests that read them skip by name otherwise.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace shardsim {

namespace fs = std::filesystem;

inline const fs::path& data() {
  static const fs::path folder = fs::path(SHARDSIM_SOURCE_DIR) / ".." / "shared" / "data";
  return folder;
}

inline std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> result(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      result.emplace_back();
    else
      result.back() += c;
  }
  return result;
}

/// Cells of all rows but the header.
inline std::vector<std::vector<std::string>> csv(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) rows.push_back(cells(line));
  return rows;
}

}  // namespace shardsim
