// SPDX-License-Identifier: Apache-2.0
#include "studies/sweep/sweep_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "scenarios/reader/named_files.hpp"
#include "sim/config/node_edit.hpp"
#include "studies/sweep/table_check.hpp"

namespace shardsim {
namespace {

constexpr std::uint64_t most_rows = std::uint64_t{1} << 32;

/// "a.b: 1" and "a: {b: 1}" may both be meant by a map of assignments; only the dotted form is taken.
void check_key(const std::string& key, const Where& where, Problems& problems) {
  if (key.empty() || key.front() == '.' || key.back() == '.' || key.find("..") != std::string::npos)
    problems.add(where, fmt::format("'{}' is no key of a scenario", key), {"keys are dotted, such as training.micro_batch_size"});
}

std::vector<SweepAxis> read_grid(const ConfigNode& grid, Problems& problems) {
  std::vector<SweepAxis> axes;
  if (grid.kind != ConfigNode::Kind::map) problems.add(grid.where, "grid must be a map from keys to lists of values");
  for (const Entry& entry : grid.entries) {
    check_key(entry.key, entry.where, problems);
    SweepAxis axis{{entry.key}, {}};
    if (entry.value.kind != ConfigNode::Kind::list || entry.value.items.empty())
      problems.add(entry.value.where, fmt::format("'{}' needs a list of values", entry.key));
    for (const ConfigNode& value : entry.value.items) axis.rows.push_back({value});
    axes.push_back(std::move(axis));
  }
  return axes;
}

SweepAxis read_list(const ConfigNode& list, Problems& problems) {
  SweepAxis axis;
  if (list.kind != ConfigNode::Kind::list || list.items.empty()) problems.add(list.where, "list must be a list of maps");
  for (const ConfigNode& row : list.items) {
    if (row.kind != ConfigNode::Kind::map || row.entries.empty()) {
      problems.add(row.where, "a row of the list must be a map from keys to values");
      continue;
    }
    if (axis.keys.empty())
      for (const Entry& entry : row.entries) {
        check_key(entry.key, entry.where, problems);
        axis.keys.push_back(entry.key);
      }
    std::vector<ConfigNode> values;
    for (const std::string& key : axis.keys) {
      const ConfigNode* value = row.find(key);
      if (value == nullptr)
        problems.add(row.where, fmt::format("this row lacks the key '{}' of the first row", key));
      else
        values.push_back(*value);
    }
    if (row.entries.size() > axis.keys.size()) problems.add(row.where, "this row has keys that the first row lacks");
    axis.rows.push_back(std::move(values));
  }
  return axis;
}

std::vector<std::string> read_columns(const ConfigNode& list, const std::vector<std::string>& known, Problems& problems) {
  std::vector<std::string> columns;
  if (list.kind != ConfigNode::Kind::list || list.items.empty())
    problems.add(list.where, "columns must be a list of figures of `simulate`");
  for (const ConfigNode& item : list.items) {
    if (std::find(known.begin(), known.end(), item.text) == known.end())
      problems.add(item.where, fmt::format("'{}' is no figure of `simulate`", item.text), notes_for_unknown(item.text, known));
    columns.push_back(item.text);
  }
  return columns;
}

/// Where `key` stands in the sweep's file, in its grid or in the first row of its list.
Where place_of(const ConfigNode& root, const std::string& key) {
  const ConfigNode* list = root.find("list");
  for (const ConfigNode* map : {root.find("grid"), list == nullptr || list->items.empty() ? nullptr : list->items.data()})
    if (map != nullptr)
      for (const Entry& entry : map->entries)
        if (entry.key == key) return entry.where;
  return root.where;
}

/// A row is its own scenario, so two axes that set one key (or a key above the other) would undo each other.
void check_overlaps(const SweepPlan& plan, const ConfigNode& root, Problems& problems) {
  std::vector<std::string> keys = plan.keys();
  std::sort(keys.begin(), keys.end());
  for (std::size_t i = 0; i + 1 < keys.size(); ++i)
    if (keys[i + 1] == keys[i])
      problems.add(place_of(root, keys[i]), fmt::format("'{}' stands in the grid and in the list", keys[i]));
    else if (keys[i + 1].starts_with(keys[i] + "."))
      problems.add(place_of(root, keys[i + 1]),
                   fmt::format("'{}' and '{}' are varied independently of each other, but one sets the other", keys[i], keys[i + 1]));
}

void count_rows(SweepPlan& plan, const Where& where, Problems& problems) {
  for (const SweepAxis& axis : plan.axes) {
    plan.size *= std::max<std::size_t>(axis.rows.size(), 1);
    if (plan.size <= most_rows) continue;
    problems.add(where, fmt::format("a sweep of more than {} scenarios", most_rows));
    return;
  }
}

/// How much must be made anew where a key changes: the model, what one rank does, how large it is, or how fast the machine is.
int weight(const std::string& key) {
  const bool speed = key.starts_with("cluster.") && key != "cluster.nodes" && key != "cluster.gpus_per_node" && key != "cluster.profile";
  if (speed) return 0;
  if (key == "training.micro_batch_size" || key == "training.sequence_length") return 1;
  if (key.starts_with("cluster")) return 2;
  if (key.starts_with("strategy")) return 3;
  return key.starts_with("training") ? 4 : 5;
}

int weight(const SweepAxis& axis) {
  int most = 0;
  for (const std::string& key : axis.keys) most = std::max(most, weight(key));
  return most;
}

/// Whether a figure depends on the allocator's model.
bool is_reserved(const std::string& column) {
  return column == "memory.reserved_peak_bytes" || column == "memory.device_peak_bytes" || column == "memory.fits";
}

std::uint64_t hash(std::uint64_t seed, std::string_view text) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;  // FNV-1a
  return (seed ^ 0xff) * 0x100000001b3ULL;
}

std::uint64_t hash(std::uint64_t seed, const ConfigNode& node) { return hash(seed, flow_text(node)); }

/// Files that the base and the values of the axes name.
std::vector<std::string> files_of(const SweepPlan& plan) {
  std::vector<std::string> files{plan.file, plan.base_file};
  const auto add = [&](const ConfigNode& node) {
    for (std::string& file : named_files(node, plan.base_folder)) files.push_back(std::move(file));
  };
  add(plan.base);
  for (const SweepAxis& axis : plan.axes)
    for (const auto& row : axis.rows)
      for (const ConfigNode& value : row) add(value);
  std::sort(files.begin() + 2, files.end());
  files.erase(std::unique(files.begin() + 2, files.end()), files.end());
  return files;
}

}  // namespace

std::vector<std::string> SweepPlan::keys() const {
  std::vector<std::string> all;
  for (const SweepAxis& axis : axes) all.insert(all.end(), axis.keys.begin(), axis.keys.end());
  return all;
}

std::vector<const ConfigNode*> SweepPlan::values(std::uint64_t index) const {
  std::vector<std::size_t> rows(axes.size());
  for (std::size_t a = axes.size(); a-- > 0;) {
    rows[a] = static_cast<std::size_t>(index % axes[a].rows.size());
    index /= axes[a].rows.size();
  }
  std::vector<const ConfigNode*> all;
  for (std::size_t a = 0; a < axes.size(); ++a)
    for (const ConfigNode& value : axes[a].rows[rows[a]]) all.push_back(&value);
  return all;
}

std::uint64_t SweepPlan::row_at(std::uint64_t position) const {
  std::vector<std::size_t> order(axes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weight(axes[a]) > weight(axes[b]); });
  std::vector<std::uint64_t> step(axes.size());  // between rows that differ by one in an axis
  std::uint64_t rows = 1;
  for (std::size_t a = axes.size(); a-- > 0; rows *= axes[a].rows.size()) step[a] = rows;
  std::uint64_t row = 0;
  for (auto a = order.rbegin(); a != order.rend(); ++a) {
    const std::uint64_t values = axes[*a].rows.size();
    row += position % values * step[*a];
    position /= values;
  }
  return row;
}

ConfigNode SweepPlan::scenario(std::uint64_t index) const {
  ConfigNode root = base;
  const auto names = keys();
  const auto row = values(index);
  for (std::size_t i = 0; i < names.size(); ++i) put(root, names[i], *row[i]);
  return root;
}

Result<SweepPlan> load_sweep(const std::string& path, const std::vector<std::string>& columns) {
  const auto root = read_source(path).and_then([](const Source& source) { return read_yaml(source); });
  if (!root) return tl::make_unexpected(root.error());
  Problems problems;
  SweepPlan plan;
  plan.file = path;
  MapReader reader(*root, problems, "the sweep");
  const ConfigNode* base = reader.require("base");
  const ConfigNode* set = reader.find("set");
  if (const ConfigNode* grid = reader.find("grid")) plan.axes = read_grid(*grid, problems);
  if (const ConfigNode* list = reader.find("list")) plan.axes.insert(plan.axes.begin(), read_list(*list, problems));
  plan.columns = columns;
  if (const ConfigNode* wanted = reader.find("columns")) plan.columns = read_columns(*wanted, columns, problems);
  plan.says_which_rule = !reader.boolean("allocator", true);
  plan.allocator = !plan.says_which_rule && std::any_of(plan.columns.begin(), plan.columns.end(), is_reserved);
  reader.finish();
  if (plan.axes.empty() && problems.empty()) problems.add(root->where, "a sweep needs a grid or a list");
  const auto written = base == nullptr ? std::nullopt : as_text(*base, problems);
  if (!problems.empty()) return tl::make_unexpected(problems);

  const auto folder = std::filesystem::path(path).parent_path();
  plan.base_file = (folder / *written).string();
  plan.base_folder = std::filesystem::path(plan.base_file).parent_path().string();
  auto tree = read_source(plan.base_file).and_then([](const Source& source) { return read_yaml(source); });
  if (!tree) {
    for (const Problem& problem : tree.error().list())
      problems.add(problem.where.line > 0 ? problem.where : base->where,
                   problem.where.line > 0 ? problem.message : fmt::format("cannot read '{}': {}", plan.base_file, problem.message));
    return tl::make_unexpected(problems);
  }
  plan.base = std::move(*tree);
  // What the rows are not judged by.
  std::erase_if(plan.base.entries, [](const Entry& entry) { return entry.key == "expect" || entry.key == "plan"; });
  if (set != nullptr)
    for (const Entry& entry : set->entries) put(plan.base, entry.key, entry.value);
  check_overlaps(plan, *root, problems);
  count_rows(plan, root->where, problems);
  if (problems.empty()) problems = unknown_keys(plan);
  if (!problems.empty()) return tl::make_unexpected(problems);
  plan.inputs = files_of(plan);
  return plan;
}

std::string flow_text(const ConfigNode& node) {
  if (node.kind == ConfigNode::Kind::null) return "null";
  if (node.kind == ConfigNode::Kind::scalar) return node.text;
  std::string out;
  for (const ConfigNode& item : node.items) out += (out.empty() ? "" : ", ") + flow_text(item);
  for (const Entry& entry : node.entries) out += (out.empty() ? "" : ", ") + entry.key + ": " + flow_text(entry.value);
  return node.kind == ConfigNode::Kind::list ? "[" + out + "]" : "{" + out + "}";
}

std::uint64_t fingerprint(const SweepPlan& plan) {
  std::uint64_t seed = hash(0xcbf29ce484222325ULL, SHARDSIM_VERSION);
  seed = hash(seed, plan.base_file);
  seed = hash(seed, plan.base);
  for (std::size_t i = 2; i < plan.inputs.size(); ++i) {  // the sweep and its base are hashed as what they say
    const auto content = read_source(plan.inputs[i]);
    seed = hash(hash(seed, plan.inputs[i]), content ? content->text : "unreadable");
  }
  for (const std::string& column : plan.columns) seed = hash(seed, column);
  seed = hash(seed, plan.says_which_rule ? "pools" : "allocator");
  for (const SweepAxis& axis : plan.axes) {
    for (const std::string& key : axis.keys) seed = hash(seed, key);
    for (const auto& row : axis.rows)
      for (const ConfigNode& value : row) seed = hash(seed, value);
    seed = hash(seed, "/");
  }
  return seed;
}

}  // namespace shardsim
