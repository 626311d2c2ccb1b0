// SPDX-License-Identifier: Apache-2.0
// From a file of published measurements to rows.
#include "studies/validate/measurements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "sim/config/node_edit.hpp"

namespace shardsim {
namespace {

using Kind = ConfigNode::Kind;
constexpr std::array<std::string_view, 9> plain_columns{"id",        "with",     "parameters", "tokens_per_second_per_gpu", "step_time",
                                                        "allocated", "reserved", "fits",       "largest_micro_batch"};
constexpr std::int64_t most_count = std::int64_t{1} << 50;

/// The keys that one column sets.
struct Column {
  std::vector<std::string> keys;
  [[nodiscard]] bool is(std::string_view name) const { return keys.size() == 1 && keys.front() == name; }
};

std::vector<const ConfigNode*> one_or_many(const ConfigNode& node) {
  if (node.kind != Kind::list) return {&node};
  std::vector<const ConfigNode*> items;
  for (const ConfigNode& item : node.items) items.push_back(&item);
  return items;
}

std::vector<Column> read_columns(const ConfigNode& node, Problems& problems) {
  std::vector<Column> columns;
  if (node.kind != Kind::list) problems.add(node.where, "expected a list of columns");
  for (const ConfigNode& item : node.items) {
    Column column;
    for (const ConfigNode* key : one_or_many(item)) {
      const auto text = as_text(*key, problems);
      if (!text) continue;
      const bool known = std::find(plain_columns.begin(), plain_columns.end(), *text) != plain_columns.end();
      if (!known && text->find('.') == std::string::npos)
        problems.add(key->where, "unknown column " + in_quotes(*text),
                     notes_for_unknown(*text, {plain_columns.begin(), plain_columns.end()}));
      column.keys.push_back(*text);
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

/// "0.5 %" as 0.005.
double read_percent(const ConfigNode& node, Problems& problems) {
  const auto text = as_text(node, problems);
  if (!text) return 0;
  char* end = nullptr;
  const double value = std::strtod(text->c_str(), &end);
  if (std::string_view(end) != " %" || value < 0) problems.add(node.where, "expected a percentage such as 2 %");
  return value / 100;
}

class RowReader {
 public:
  RowReader(const ConfigNode& shared, const ConfigNode* parts, const std::vector<Column>& columns, const std::string& software,
            Problems& problems)
      : shared_(shared), parts_(parts), columns_(columns), software_(software), problems_(problems) {}

  std::optional<Measurement> read(const ConfigNode& node) {
    if (node.kind != Kind::list || node.items.size() != columns_.size()) {
      problems_.add(node.where, fmt::format("expected a row of {} cells", columns_.size()));
      return std::nullopt;
    }
    Measurement row;
    row.scenario = shared_;
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].is("with")) add_parts(node.items[i], row.scenario);
    for (std::size_t i = 0; i < columns_.size(); ++i)
      if (node.items[i].kind != Kind::null) read_cell(columns_[i], node.items[i], row);
    row.software = word(row.scenario, "software", software_);
    row.unstated = word(row.scenario, "unstated", "");
    return row;
  }

 private:
  void add_parts(const ConfigNode& cell, ConfigNode& scenario) {
    for (const ConfigNode* name : one_or_many(cell)) {
      const ConfigNode* part = parts_ == nullptr ? nullptr : parts_->find(name->text);
      if (part != nullptr)
        lay_over(scenario, *part);
      else
        problems_.add(name->where, fmt::format("no part is named {}", in_quotes(name->text)));
    }
  }

  void read_cell(const Column& column, const ConfigNode& cell, Measurement& row) {
    if (column.is("id"))
      row.id = as_text(cell, problems_).value_or("");
    else if (column.is("parameters"))
      row.parameters = as_integer(cell, problems_, 1, most_count);
    else if (column.is("tokens_per_second_per_gpu"))
      row.tokens_per_second_per_gpu = as_number(cell, problems_, 0, 1e12);
    else if (column.is("step_time"))
      row.step_time = as_seconds(cell, problems_);
    else if (column.is("allocated"))
      row.allocated = as_bytes(cell, problems_);
    else if (column.is("reserved"))
      row.reserved = as_bytes(cell, problems_);
    else if (column.is("fits"))
      row.fits = as_boolean(cell, problems_);
    else if (column.is("largest_micro_batch"))
      row.largest_micro_batch = as_integer(cell, problems_, 1, most_count);
    else if (!column.is("with"))
      for (const std::string& key : column.keys) put(row.scenario, key, cell);
  }

  std::string word(ConfigNode& scenario, std::string_view key, std::string fallback) {
    const auto value = take(scenario, key);
    return value ? as_text(*value, problems_).value_or("") : std::move(fallback);
  }

  const ConfigNode& shared_;
  const ConfigNode* parts_;
  const std::vector<Column>& columns_;
  const std::string& software_;
  Problems& problems_;
};

/// The rule of the file: of the rows that state everything and have a time, one in `every` may be fitted to.
void share_out(MeasurementSource& source) {
  std::int64_t timed = 0;
  for (Measurement& row : source.rows) {
    if (!row.tokens_per_second_per_gpu && !row.step_time) continue;
    if (!row.unstated.empty())
      row.use = RowUse::unstated;
    else
      row.use = source.fit_every > 0 && timed++ % source.fit_every == 0 ? RowUse::fit : RowUse::held_out;
    if (!row.fits) row.fits = true;
  }
}

}  // namespace

std::string_view name_of(RowUse use) {
  switch (use) {
    case RowUse::fit:
      return "fit";
    case RowUse::held_out:
      return "held out";
    case RowUse::unstated:
      return "unstated";
    case RowUse::memory_only:
      return "memory";
  }
  return "?";
}

Result<MeasurementSource> read_measurements(const ConfigNode& root) {
  Problems problems;
  MeasurementSource source;
  source.file = root.where.source ? root.where.source->name : "";
  MapReader reader(root, problems, "the measurements");
  source.name = reader.text("source", "");
  source.title = reader.text("title", "");
  source.where = reader.text("where", "");
  source.date = reader.text("date", "");
  source.inferred = reader.text("inferred", "");
  source.unexplained = reader.text("unexplained", "");
  const std::string software = reader.text("software", "");
  if (const ConfigNode* bar = reader.find("error_bar")) source.error_bar = read_percent(*bar, problems);
  if (const ConfigNode* fit = reader.require("fit"); fit != nullptr && fit->text != "none") {
    MapReader rule(*fit, problems, "fit");
    source.fit_every = rule.integer("every", 1, 1);
    rule.finish();
  }
  const ConfigNode* shared = reader.require("scenario");
  const ConfigNode* parts = reader.find("parts");
  const ConfigNode* header = reader.require("columns");
  const ConfigNode* rows = reader.require("rows");
  reader.finish();
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));

  const std::vector<Column> columns = read_columns(*header, problems);
  RowReader read(*shared, parts, columns, software, problems);
  std::set<std::string> ids;
  for (const ConfigNode& item : rows->items) {
    auto row = read.read(item);
    if (!row) continue;
    if (!ids.insert(row->id).second) problems.add(item.where, "a second row " + in_quotes(row->id));
    source.rows.push_back(std::move(*row));
  }
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  share_out(source);
  return source;
}

Result<std::vector<MeasurementSource>> load_measurements(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  Problems problems;
  if (files.empty()) problems.add({}, fmt::format("no measurements in {}", in_quotes(folder)));
  std::sort(files.begin(), files.end());
  std::vector<MeasurementSource> sources;
  for (const std::string& file : files) {
    auto source = read_source(file).and_then([](const Source& text) { return read_yaml(text); }).and_then(read_measurements);
    if (source)
      sources.push_back(std::move(*source));
    else
      problems.append(source.error());
  }
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  return sources;
}

}  // namespace shardsim
