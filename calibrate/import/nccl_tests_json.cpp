// SPDX-License-Identifier: Apache-2.0
// nccl-tests -J: {version, args, nccl_version, config{devices[...]}, results[{size, count, type, redop, root, out_of_place{...}, ...}]}.
// The file is written as the run goes on, so that a cut file ends in the middle of it: results are taken object by object.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "calibrate/import/nccl_tests_line.hpp"
#include "calibrate/import/nccl_tests_text.hpp"
#include "sim/config/node.hpp"

namespace shardsim::nccl_tests {
namespace {

/// The balanced object that starts at `begin` (a '{'); empty if the text ends before it does.
std::string_view object_at(std::string_view text, std::size_t begin) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        quoted = false;
    } else if (text[i] == '"') {
      quoted = true;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}' && --depth == 0) {
      return text.substr(begin, i + 1 - begin);
    }
  }
  return {};
}

/// Where the value of `key` begins; npos if the key is not there.
std::size_t value_of(std::string_view text, std::string_view key) {
  const std::string quoted = '"' + std::string(key) + '"';
  const std::size_t at = text.find(quoted);
  return at == std::string_view::npos ? at : text.find_first_not_of(" \t\r\n:", at + quoted.size());
}

std::optional<double> number_in(const ConfigNode& map, std::string_view key) {
  const ConfigNode* node = map.find(key);
  if (!node || node->kind != ConfigNode::Kind::scalar) return std::nullopt;
  const auto parts = words(node->text);  // nccl-tests pads some numbers to a column: "    -1"
  return parts.empty() ? std::nullopt : number(parts[0]);
}

std::string text_in(const ConfigNode& map, std::string_view key) {
  const ConfigNode* node = map.find(key);
  if (!node || node->kind != ConfigNode::Kind::scalar) return {};
  const auto parts = words(node->text);
  return parts.empty() ? std::string() : std::string(parts[0]);
}

NcclTestsTiming timing(const ConfigNode& result, std::string_view side) {
  NcclTestsTiming timing;
  const ConfigNode* node = result.find(side);
  if (!node || node->kind != ConfigNode::Kind::map) return timing;
  const auto time = number_in(*node, "time") ? number_in(*node, "time") : number_in(*node, "cpu_time");
  if (time && *time > 0) timing.time = microseconds(*time);
  timing.algbw = number_in(*node, "alg_bw");
  timing.busbw = number_in(*node, "bus_bw");
  return timing;
}

std::optional<NcclTestsRow> row_of(const ConfigNode& result, int line) {
  const auto size = number_in(result, "size"), count = number_in(result, "count");
  NcclTestsRow row;
  row.type = text_in(result, "type");
  if (!size || !count || *size < 0 || *size > 1e18 || size_of_type(row.type) == 0) return std::nullopt;
  row.line = line;
  row.size = Bytes{static_cast<std::int64_t>(*size)};
  row.count = static_cast<std::int64_t>(*count);
  row.reduction = text_in(result, "redop");
  row.out_of_place = timing(result, "out_of_place");
  row.in_place = timing(result, "in_place");
  return row;
}

void read_results(const Source& source, NcclTestsLog& log, NcclTestsTable& table) {
  const auto shared = std::make_shared<const Source>(source);
  const std::string_view text = source.text;
  std::size_t at = value_of(text, "results");
  if (at == std::string_view::npos || at >= text.size() || text[at] != '[') return;
  for (++at; at < text.size(); ++at) {
    at = text.find_first_of("{]", at);
    if (at == std::string_view::npos || text[at] == ']') return;
    const int line = 1 + static_cast<int>(std::ranges::count(text.substr(0, at), '\n'));
    const std::string_view object = object_at(text, at);
    const auto node = object.empty() ? Result<ConfigNode>(tl::unexpected(Problems{})) : read_json(Source{source.name, std::string(object)});
    const auto row = node ? row_of(*node, line) : std::nullopt;
    if (row)
      table.rows.push_back(*row);
    else
      log.warn(shared, line, object.empty() ? "the file is cut off in this result" : "result without size, count and type");
    if (object.empty()) return;
    at += object.size() - 1;
  }
}

std::int64_t integer_after(std::string_view text, std::string_view key, std::int64_t otherwise) {
  const std::size_t at = value_of(text, key);
  if (at == std::string_view::npos) return otherwise;
  return integer(text.substr(at, text.find_first_not_of("0123456789", at) - at)).value_or(otherwise);
}

/// nccl-tests lists one device a process, however many GPUs the process drives (-g, -t): ranks then rise by that many from entry to entry.
void read_devices(std::string_view text, NcclTestsTable& table) {
  std::size_t at = value_of(text, "devices");
  if (at == std::string_view::npos || at >= text.size() || text[at] != '[') return;
  std::int64_t entries = 0, last_rank = 0;
  std::map<std::int64_t, std::set<std::string>> hosts_of_group;
  for (++at; at < text.size(); ++at) {
    at = text.find_first_of("{]", at);
    if (at == std::string_view::npos || text[at] == ']') break;
    const std::string_view object = object_at(text, at);
    const auto node = object.empty() ? Result<ConfigNode>(tl::unexpected(Problems{})) : read_json(Source{"device", std::string(object)});
    if (!node) break;
    ++entries;
    last_rank = std::max(last_rank, static_cast<std::int64_t>(number_in(*node, "rank").value_or(0)));
    const auto group = static_cast<std::int64_t>(number_in(*node, "group").value_or(0));
    for (const char* key : {"host", "hostname"})
      if (const std::string host = text_in(*node, key); !host.empty()) hosts_of_group[group].insert(host);
    for (const char* key : {"device_info", "name"})
      if (const ConfigNode* name = node->find(key)) table.gpu = name->text;
    at += object.size() - 1;
  }
  const std::int64_t gpus = integer_after(text, "ngpus", 1) * integer_after(text, "nthreads", 1);
  const bool one_a_rank = entries > 1 && last_rank + 1 == entries;
  const auto groups = std::max<std::int64_t>(1, static_cast<std::int64_t>(hosts_of_group.size()));
  table.ranks = (one_a_rank ? entries : entries * gpus) / groups;
  for (const auto& [group, hosts] : hosts_of_group) table.nodes = std::max(table.nodes, static_cast<std::int64_t>(hosts.size()));
}

}  // namespace

NcclTestsLog tables_of_json(const Source& source) {
  NcclTestsLog log;
  NcclTestsTable table;
  const std::string_view text = source.text;
  const std::string_view preamble = text.substr(0, text.find("\"results\""));
  table.test = test_named_in(preamble.substr(0, std::min(preamble.find("\"env\""), preamble.size()))).name;
  if (const auto at = value_of(preamble, "nccl_version"); at != std::string_view::npos)
    table.nccl_version = version_text(preamble.substr(at, preamble.find_first_of(",}\n", at) - at));
  read_devices(preamble, table);
  read_results(source, log, table);
  if (!table.rows.empty()) log.tables.push_back(std::move(table));
  return log;
}

}  // namespace shardsim::nccl_tests
