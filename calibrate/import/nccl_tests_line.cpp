// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/nccl_tests_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace shardsim::nccl_tests {
namespace {

// Longer names first: "reduce" is a part of two others.
using Test = std::pair<std::string_view, std::optional<Collective>>;
constexpr std::array<Test, 10> tests{{{"allreduce", Collective::all_reduce},
                                      {"allgather", Collective::all_gather},
                                      {"reducescatter", Collective::reduce_scatter},
                                      {"alltoall", Collective::all_to_all},
                                      {"sendrecv", std::nullopt},
                                      {"hypercube", std::nullopt},
                                      {"broadcast", Collective::broadcast},
                                      {"scatter", std::nullopt},
                                      {"gather", std::nullopt},
                                      {"reduce", Collective::reduce}}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string lower_letters(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '_' && c != '-') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

/// Length of "[12]" or "[1,0]<stdout>:" at the start of `text`, of "[1,mpirank:0,algo-1]<stdout>:", too; 0 if there is none.
std::size_t label_length(std::string_view text) {
  if (text.empty() || text[0] != '[') return 0;
  if (const std::size_t end = text.find(']'); end != std::string_view::npos && end < 80)
    for (const std::string_view stream : {"<stdout>:", "<stderr>:"})
      if (text.substr(end + 1).starts_with(stream)) return end + 1 + stream.size();
  std::size_t i = 1;
  while (i < text.size() && (is_digit(text[i]) || text[i] == ',')) ++i;
  if (i == 1 || i >= text.size() || text[i] != ']') return 0;
  ++i;
  for (const std::string_view stream : {"<stdout>:", "<stderr>:", "<stdout>", "<stderr>"})
    if (text.substr(i).starts_with(stream)) return i + stream.size();
  return i;
}

/// Length of "12: " at the start of `text`, spaces before it included.
std::size_t srun_label_length(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size() && is_space(text[i])) ++i;
  const std::size_t digits = i;
  while (i < text.size() && is_digit(text[i])) ++i;
  return i > digits && i < text.size() && text[i] == ':' && (i + 1 == text.size() || is_space(text[i + 1])) ? i + 1 : 0;
}

bool is_name(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_'; }

/// Length of a host's name, "node07: ", before a comment or a row.
std::size_t host_label_length(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size() && is_name(text[i])) ++i;
  if (i == 0 || i + 1 >= text.size() || text[i] != ':' || !is_space(text[i + 1])) return 0;
  std::size_t next = i + 1;
  while (next < text.size() && is_space(text[next])) ++next;
  return next < text.size() && (text[next] == '#' || is_digit(text[next])) ? i + 1 : 0;
}

/// Length of "2024-05-01T12:00:00.123Z " or "[pod/name/container] ".
std::size_t collector_label_length(std::string_view text) {
  if (text.size() > 20 && text[4] == '-' && text[7] == '-' && (text[10] == 'T' || text[10] == ' ') && text[13] == ':' &&
      is_digit(text[0])) {
    const std::size_t end = text.find(' ', 12);
    return end == std::string_view::npos ? 0 : end + 1;
  }
  const std::size_t end = text.find("] ");
  return text.starts_with("[pod/") && end != std::string_view::npos ? end + 2 : 0;
}

bool is_missing(std::string_view word) { return word == "N/A" || word == "nan" || word == "-nan" || word == "-"; }

NcclTestsTiming timing(const std::string_view* values) {
  NcclTestsTiming timing;
  if (const auto time = number(values[0]); time && *time > 0) timing.time = microseconds(*time);
  timing.algbw = number(values[1]);
  timing.busbw = number(values[2]);
  return timing;
}

/// The values after type and reduction, up to a time stamp or a word that is no value.
std::vector<std::string_view> values_after(const std::vector<std::string_view>& all, std::size_t from) {
  std::vector<std::string_view> values;
  for (std::size_t i = from; i < all.size() && (number(all[i]) || is_missing(all[i])); ++i) values.push_back(all[i]);
  return values;
}

}  // namespace

std::int64_t size_of_type(std::string_view type) {
  static constexpr std::array<std::pair<std::string_view, std::int64_t>, 20> types{
      {{"float", 4},  {"half", 2},   {"bfloat16", 2}, {"double", 8},  {"int8", 1},    {"uint8", 1},    {"int32", 4},
       {"uint32", 4}, {"int64", 8},  {"uint64", 8},   {"char", 1},    {"int", 4},     {"fp8_e4m3", 1}, {"fp8_e5m2", 1},
       {"f8e4m3", 1}, {"f8e5m2", 1}, {"float16", 2},  {"float32", 4}, {"float64", 8}, {"fp16", 2}}};
  const auto found = std::ranges::find(types, type, &std::pair<std::string_view, std::int64_t>::first);
  return found == types.end() ? 0 : found->second;
}

TestName test_named_in(std::string_view text) {
  const std::string letters = lower_letters(text);
  for (const auto& [name, collective] : tests)
    if (letters.find(name) != std::string::npos) return {collective, std::string(name)};
  return {};
}

TestName test_named_by_a_word_of(std::string_view text) {
  for (std::string_view word : words(text)) {
    while (!word.empty() && std::string_view(".,:;()\"'").find(word.back()) != std::string_view::npos) word.remove_suffix(1);
    const std::string letters = lower_letters(word);
    const auto found = std::ranges::find(tests, std::string_view(letters), &Test::first);
    if (found != tests.end()) return {found->second, letters};
  }
  return {};
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> result;
  std::size_t i = 0;
  while (i < line.size()) {
    while (i < line.size() && is_space(line[i])) ++i;
    const std::size_t begin = i;
    while (i < line.size() && !is_space(line[i])) ++i;
    if (i > begin) result.push_back(line.substr(begin, i - begin));
  }
  return result;
}

std::optional<double> number(std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || !(value < 1e300) || !(value > -1e300)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> integer(std::string_view word) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::string without_labels(std::string_view line) {
  for (const auto length : {collector_label_length, srun_label_length, host_label_length}) line.remove_prefix(length(line));
  std::string out;
  bool comment = false;  // device lines hold brackets of their own: labels are taken off before the '#' only
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t label = comment ? 0 : label_length(line.substr(i));
    comment = comment || line[i] == '#';
    out += label > 0 ? ' ' : line[i];
    i += label > 0 ? label : 1;
  }
  return out;
}

std::optional<Device> device_in(std::string_view line) {
  const auto w = words(line);
  const auto rank = std::ranges::find(w, "Rank");
  const auto on = std::ranges::find(w, "on");
  const auto device = std::ranges::find(w, "device");
  if (rank == w.end() || on == w.end() || device == w.end() || w.end() - device < 3 || w.end() - on < 2 || w.end() - rank < 2)
    return std::nullopt;
  const auto number_of_rank = integer(rank[1]);
  const auto index = integer(device[1]);
  if (!number_of_rank || !index || *number_of_rank < 0 || *index < 0) return std::nullopt;
  Device result{*number_of_rank, 0, *index, std::string(on[1]), std::string(device[2]), ""};
  if (const auto group = std::ranges::find(w, "Group"); group != w.end()) result.group = integer(group[1]).value_or(0);
  for (auto word = device + 3; word != w.end(); ++word) result.name += (result.name.empty() ? "" : " ") + std::string(*word);
  return result;
}

std::string version_text(std::string_view code) {
  while (!code.empty() && !is_digit(code.back())) code.remove_suffix(1);
  while (!code.empty() && !is_digit(code.front())) code.remove_prefix(1);
  const std::int64_t value = integer(code).value_or(0);
  if (value < 1000) return {};
  const std::int64_t major = value < 10000 ? 1000 : 10000;  // the coding changed with 2.9
  return fmt::format("{}.{}.{}", value / major, value % major / 100, value % 100);
}

Header header_in(std::string_view line) {
  const auto w = words(line);
  const auto has = [&](std::string_view word) { return std::ranges::find(w, word) != w.end(); };
  if (!(has("size") || has("bytes")) || !has("busbw")) return {};
  const auto is_time = [](std::string_view word) { return word == "time" || word == "cputime"; };
  const auto first = std::ranges::find_if(w, is_time);
  if (first == w.end()) return {};
  const auto second = std::find_if(first + 1, w.end(), is_time);
  return {static_cast<int>(second - first), second == w.end() ? 1 : 2};
}

std::optional<InfoLine> info_in(std::string_view line) {
  const std::size_t info = line.find("NCCL INFO ");
  const std::size_t colon = line.find(':');
  if (info == std::string_view::npos || colon == std::string_view::npos || colon > info) return std::nullopt;
  InfoLine result;
  std::size_t begin = colon;
  while (begin > 0 && is_name(line[begin - 1])) --begin;
  result.host = std::string(line.substr(begin, colon - begin));
  const auto w = words(line.substr(info));
  for (std::size_t i = 0; i + 1 < w.size(); ++i) {
    const std::int64_t value = integer(w[i + 1]).value_or(0);
    if (w[i] == "nranks" || w[i] == "nRanks") result.ranks = value;
    if (w[i] == "nNodes") result.nodes = value;
    if (w[i] == "via" && w[i + 1].starts_with("NET/")) result.network = std::string(w[i + 1].substr(4, w[i + 1].find('/', 4) - 4));
  }
  return result;
}

std::variant<NoRow, CutRow, NcclTestsRow> row_in(std::string_view line, const Header& header) {
  const auto w = words(line);
  if (w.empty() || w[0].starts_with('#')) return NoRow{};
  const auto type = std::ranges::find_if(w, [](std::string_view word) { return size_of_type(word) > 0; });
  if (type == w.end()) {
    const bool values_only =
        w.size() >= 3 && std::ranges::all_of(w, [](std::string_view word) { return number(word) || is_missing(word); });
    if (values_only) return CutRow{"no size and type in front of the values"};
    return NoRow{};
  }
  const auto at = type - w.begin();
  if (at < 2) return at == 1 && integer(w[0]) ? std::variant<NoRow, CutRow, NcclTestsRow>(CutRow{"size or count is missing"}) : NoRow{};
  const auto size = integer(type[-2]), count = integer(type[-1]);
  if (!size || !count || *size < 0 || *count < 0) return NoRow{};
  NcclTestsRow row;
  row.size = Bytes{*size};
  row.count = *count;
  row.type = std::string(*type);
  if (at > 2) row.leading = integer(w[0]).value_or(0);
  auto next = static_cast<std::size_t>(at) + 1;
  if (next < w.size() && !number(w[next]) && !is_missing(w[next])) row.reduction = std::string(w[next++]);
  const auto values = values_after(w, next);
  const auto sides = static_cast<std::size_t>(header.sides), columns = static_cast<std::size_t>(header.columns);
  // Both sides have as many columns, so an odd number means that a root stands in front; of a single side the header tells.
  const std::size_t root = sides == 2 ? values.size() % 2 : values.size() > columns ? 1 : 0;
  const std::size_t side = (values.size() - root) / sides;
  if (side < 4 || (columns > 0 && side != columns)) return CutRow{"values are missing at the end"};
  row.out_of_place = timing(&values[root]);
  if (sides == 2) row.in_place = timing(&values[root + side]);
  return row;
}

}  // namespace shardsim::nccl_tests
