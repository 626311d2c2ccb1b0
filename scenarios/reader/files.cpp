// SPDX-License-Identifier: Apache-2.0
// Where files are looked for, and each read once.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "scenarios/reader/named_files.hpp"
#include "scenarios/reader/reading.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// A folder that holds a Hugging Face config.json stands for it.
fs::path as_file(const fs::path& path) { return is_folder(path) ? path / "config.json" : path; }

Result<std::shared_ptr<const ConfigNode>> read_tree(const std::string& path, FileFormat format) {
  const auto source = read_source(path);
  if (!source) return tl::make_unexpected(source.error());
  return (format == FileFormat::yaml ? read_yaml(*source) : read_json(*source)).map([](ConfigNode node) {
    return std::make_shared<const ConfigNode>(std::move(node));
  });
}

/// A file as it was read: what has been written since is another file.
struct ReadFile {
  fs::file_time_type written;
  std::uintmax_t size = 0;
  std::shared_ptr<const ConfigNode> tree;
};

/// Sweeps and plans name the same files thousands of times, from several threads; a program that goes on sees files that were edited.
Result<std::shared_ptr<const ConfigNode>> read_tree_once(const std::string& path, FileFormat format) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, FileFormat>, ReadFile> files;
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  const auto size = fs::file_size(path, error);
  const std::lock_guard lock(mutex);
  ReadFile& known = files[{path, format}];
  if (known.tree && known.written == written && known.size == size) return known.tree;
  const auto tree = read_tree(path, format);
  if (tree) known = {written, size, *tree};
  return tree;
}

}  // namespace

FoundFile find_file(const std::string& written, const std::string& folder) {
  FoundFile found;
  std::vector<fs::path> candidates{fs::path(folder) / written};  // an absolute path replaces the folder
  if (!fs::path(written).is_absolute()) candidates.push_back(fs::path(shipped_folder()) / written);
  for (const fs::path& candidate : candidates) {
    const fs::path path = as_file(candidate).lexically_normal();
    std::error_code error;
    if (fs::exists(path, error)) {
      found.path = path.string();
      return found;
    }
    found.looked.push_back(path.string());
  }
  return found;
}

std::vector<std::string> named_files(const ConfigNode& tree, const std::string& folder) {
  std::vector<std::string> files;
  if (tree.kind == ConfigNode::Kind::scalar && !tree.text.empty() && tree.text.size() < 4096) {
    const std::string path = find_file(tree.text, folder).path;
    std::error_code error;
    if (fs::is_regular_file(path, error)) files.push_back(path);
  }
  const auto add = [&](const ConfigNode& inner) {
    for (std::string& file : named_files(inner, folder)) files.push_back(std::move(file));
  };
  for (const ConfigNode& item : tree.items) add(item);
  for (const Entry& entry : tree.entries) add(entry.value);
  return files;
}

std::vector<std::string> input_files(const Scenario& scenario) {
  std::vector<std::string> files = named_files(scenario.root, fs::path(scenario.file).parent_path().string());
  files.push_back(scenario.file);
  return files;
}

std::shared_ptr<const ConfigNode> read_named_file(const ConfigNode& name, const std::string& folder, FileFormat format,
                                                  Problems& problems) {
  const auto written = as_text(name, problems);
  if (!written) return nullptr;
  const FoundFile found = find_file(*written, folder);
  if (found.path.empty()) {
    std::vector<std::string> notes;
    for (const std::string& path : found.looked) notes.push_back("looked for " + path);
    problems.add(name.where, "cannot read " + in_quotes(*written) + ": there is no such file", std::move(notes));
    return nullptr;
  }
  const auto tree = read_tree_once(found.path, format);
  if (tree) return *tree;
  for (const Problem& problem : tree.error().list()) {
    if (problem.where.line > 0)
      problems.add(problem.where, problem.message, problem.notes);
    else
      problems.add(name.where, "cannot read " + in_quotes(found.path) + ": " + problem.message, problem.notes);
  }
  return nullptr;
}

void append_at(Problems& problems, const Problems& others, const Where& where) {
  for (const Problem& problem : others.list()) problems.add(problem.where.source ? problem.where : where, problem.message, problem.notes);
}

std::string shipped_folder() {
  if (const char* folder = std::getenv("SHARDSIM_DATA"); folder && *folder) return folder;
  if (is_folder(SHARDSIM_SOURCE_DATA)) return SHARDSIM_SOURCE_DATA;
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  const fs::path beside = executable.parent_path().parent_path() / "share/shardsim/scenarios";
  if (!error && is_folder(beside)) return beside.string();
  return SHARDSIM_INSTALL_DATA;
}

}  // namespace shardsim
