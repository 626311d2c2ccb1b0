// SPDX-License-Identifier: Apache-2.0
// Golden recordings of the real libraries as values: README.md of this folder says how a file reads.
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace shardsim {

struct Recording {
  std::string scenario;          ///< YAML: the head of the file
  std::string library, version;  ///< whose strategy it is: "torch", "2.15.0"
  std::int64_t parameters = 0, trainable = 0;
  bool has_collectives = false;
  std::string collectives;                                            ///< a line each: "backward 0: all_gather 729444 fp32 over 3"
  std::map<std::string, std::map<std::string, std::int64_t>> memory;  ///< phase: bytes by category where the phase holds most
  std::map<std::string, std::vector<std::int64_t>> checkpoint;        ///< what: bytes by rank
};

inline std::vector<std::filesystem::path> recording_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(SHARDSIM_SOURCE_DIR) / "tests" / "recordings"))
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

namespace recording_text {

/// "all_gather 729444 fp32 over 3 x4": how often it comes, and the line without that.
inline std::pair<int, std::string> repeated(const std::string& line) {
  const std::size_t at = line.rfind(" x");
  if (at == std::string::npos) return {1, line};
  return {std::stoi(line.substr(at + 2)), line.substr(0, at)};
}

inline void read_library(Recording& recording, const std::string& list) {
  std::istringstream words(list);
  words >> recording.library >> recording.version;
  if (!recording.version.empty() && recording.version.back() == ',') recording.version.pop_back();
}

inline void read_parameters(Recording& recording, const std::string& text) {
  recording.parameters = std::stoll(text);
  recording.trainable = std::stoll(text.substr(text.find("trainable ") + 10));
}

inline void read_indented(Recording& recording, const std::string& section, const std::string& line) {
  std::istringstream words(line);
  std::string name;
  if (section == "checkpoint") {
    words >> name;
    recording.checkpoint[name].assign(std::istream_iterator<std::int64_t>(words), {});
  } else if (section.starts_with("memory ")) {
    std::int64_t size = 0;
    words >> name >> size;
    recording.memory[section.substr(7)][name] = size;
  } else {
    const auto [count, what] = repeated(line);
    for (int i = 0; i < count; ++i) recording.collectives += section + ": " + what + "\n";
  }
}

}  // namespace recording_text

inline Recording read_recording(const std::filesystem::path& path) {
  std::ifstream file(path);
  Recording recording;
  std::string line, section;
  while (std::getline(file, line) && line != "---") recording.scenario += line + "\n";
  while (std::getline(file, line)) {
    if (line.starts_with("library: ")) {
      recording_text::read_library(recording, line.substr(9));
    } else if (line.starts_with("parameters: ")) {
      recording_text::read_parameters(recording, line.substr(12));
    } else if (line.starts_with("  ")) {
      recording_text::read_indented(recording, section, line.substr(2));
    } else if (line.ends_with(":")) {
      section = line.substr(0, line.size() - 1);
      recording.has_collectives = recording.has_collectives || (section != "checkpoint" && !section.starts_with("memory "));
    } else if (!line.starts_with("backend: ")) {
      throw std::runtime_error(path.string() + ": not a line of a recording: " + line);
    }
  }
  if (recording.version.empty()) throw std::runtime_error(path.string() + ": no library");
  return recording;
}

}  // namespace shardsim
