// SPDX-License-Identifier: Apache-2.0
// Reading measured steps: CSV becomes the tree that YAML gives, so that one reader checks both.
#include <fmt/format.h>

#include <filesystem>

#include "studies/fit/runs.hpp"

namespace shardsim {
namespace {

struct RunField {
  std::string text;
  int column = 1;
};

/// The fields of one line (RFC 4180, without line breaks inside of quotes).
std::vector<RunField> fields_of(std::string_view line) {
  std::vector<RunField> fields;
  std::size_t at = 0;
  while (true) {
    RunField field;
    field.column = static_cast<int>(at) + 1;
    bool quoted = at < line.size() && line[at] == '"';
    if (quoted) ++at;
    for (; at < line.size() && (quoted || line[at] != ','); ++at) {
      if (line[at] != '"' || !quoted)
        field.text += line[at];
      else if (at + 1 < line.size() && line[at + 1] == '"')
        field.text += line[++at];
      else
        quoted = false;
    }
    const auto first = field.text.find_first_not_of(" \t"), last = field.text.find_last_not_of(" \t");
    field.text = first == std::string::npos ? "" : field.text.substr(first, last - first + 1);
    fields.push_back(std::move(field));
    if (at >= line.size()) return fields;
    ++at;
  }
}

ConfigNode run_scalar(const RunField& field, const Where& where) {
  ConfigNode node;
  node.kind = field.text.empty() ? ConfigNode::Kind::null : ConfigNode::Kind::scalar;
  node.text = field.text;
  node.where = where;
  return node;
}

/// A list of maps: one for each line below the header.
Result<ConfigNode> read_run_csv(const Source& source) {
  const auto shared = std::make_shared<const Source>(source);
  Problems problems;
  ConfigNode list;
  list.kind = ConfigNode::Kind::list;
  list.where = {shared, 1, 1};
  std::vector<RunField> header;
  int number = 0;
  for (std::size_t begin = 0; begin < source.text.size();) {
    const std::size_t end = std::min(source.text.find('\n', begin), source.text.size());
    std::string_view line(source.text.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t") == std::string_view::npos || line.starts_with('#')) continue;
    const auto fields = fields_of(line);
    if (header.empty()) {
      header = fields;
      continue;
    }
    if (fields.size() != header.size()) {
      problems.add({shared, number, 1}, fmt::format("{} fields under a header of {}", fields.size(), header.size()));
      continue;
    }
    ConfigNode map;
    map.kind = ConfigNode::Kind::map;
    map.where = {shared, number, 1};
    for (std::size_t i = 0; i < fields.size(); ++i) {
      Entry entry;
      entry.key = header[i].text;
      entry.where = {shared, 1, header[i].column};
      entry.value = run_scalar(fields[i], {shared, number, fields[i].column});
      map.entries.push_back(std::move(entry));
    }
    list.items.push_back(std::move(map));
  }
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  return list;
}

TimedRun read_run(const ConfigNode& node, const std::filesystem::path& folder, Problems& problems) {
  TimedRun run;
  run.where = node.where;
  MapReader reader(node, problems, "the run");
  if (const ConfigNode* scenario = reader.require("scenario")) {
    run.where = scenario->where;
    run.scenario = (folder / as_text(*scenario, problems).value_or("")).string();
  }
  constexpr double longest = 1e9, most = 1e12;
  const auto number = [&](std::string_view key, double largest) -> std::optional<double> {
    const ConfigNode* value = reader.find(key);
    const auto read = value == nullptr ? std::nullopt : as_number(*value, problems, 0, largest);
    if (read && *read <= 0) problems.add(value->where, fmt::format("'{}' must be above 0", key));
    return read;
  };
  if (const auto seconds = number("step_time_s", longest)) run.step_time = Seconds{*seconds};
  if (const ConfigNode* time = reader.find("step_time")) run.step_time = as_seconds(*time, problems);
  run.tokens_per_second_per_gpu = number("tokens_per_second_per_gpu", most);
  if (const ConfigNode* peak = reader.find("peak_bytes"))
    if (const auto bytes = as_integer(*peak, problems, 1, std::int64_t{1} << 50)) run.peak = Bytes{*bytes};
  reader.finish();
  if (!run.step_time && !run.tokens_per_second_per_gpu && problems.empty())
    problems.add(node.where, "a run needs its time", {"give step_time_s (seconds), step_time (with a unit) or tokens_per_second_per_gpu"});
  return run;
}

}  // namespace

Result<std::vector<TimedRun>> load_runs(const std::string& path) {
  const auto source = read_source(path);
  if (!source) return tl::make_unexpected(source.error());
  const std::filesystem::path file(path);
  const auto tree = file.extension() == ".csv" ? read_run_csv(*source) : read_yaml(*source);
  if (!tree) return tl::make_unexpected(tree.error());
  const ConfigNode* list = tree->kind == ConfigNode::Kind::map ? tree->find("runs") : &*tree;
  Problems problems;
  if (list == nullptr || list->kind != ConfigNode::Kind::list || list->items.empty()) {
    problems.add(tree->where, "no runs",
                 {"a CSV with the columns scenario,step_time_s, or YAML: runs: [{scenario: job.yaml, step_time_s: 1.9}]"});
    return tl::make_unexpected(std::move(problems));
  }
  std::vector<TimedRun> runs;
  for (const ConfigNode& item : list->items) runs.push_back(read_run(item, file.parent_path(), problems));
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  return runs;
}

}  // namespace shardsim
