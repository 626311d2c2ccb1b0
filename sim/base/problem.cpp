// SPDX-License-Identifier: Apache-2.0
#include "sim/base/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "sim/base/utf8.hpp"

namespace shardsim {
namespace {

constexpr std::size_t shown_problems = 20;
constexpr std::size_t shown_columns = 100;  // of a source line
constexpr std::size_t columns_before = 60;  // kept before the caret when a line is cut

std::string_view name_of(const Where& where) { return where.source ? std::string_view(where.source->name) : std::string_view(); }

/// Text for a terminal, with the number of columns it takes (wide characters count as one).
struct Shown {
  std::string text;
  std::size_t columns = 0;
};

/// Shows characters of `text` until `limit` columns or the end; returns the bytes used up.
std::size_t show(std::string_view text, std::size_t limit, Shown& out) {
  std::size_t at = 0;
  while (at < text.size() && out.columns < limit) {
    const std::size_t length = utf8_length(text.substr(at));
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool c1_control = length == 2 && byte == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0;
    if (byte == '\t') {
      out.text += ' ', ++out.columns, ++at;
    } else if (length == 0 || byte < 0x20 || byte == 0x7F || c1_control) {
      out.text += fmt::format("\\x{:02x}", byte), out.columns += 4, ++at;
    } else {
      out.text += text.substr(at, length), ++out.columns, at += length;
    }
  }
  return at;
}

std::string_view line_of(const Source& source, int line) {
  std::string_view rest = source.text;
  for (int i = 1; i < line; ++i) {
    const auto end = rest.find('\n');
    if (end == std::string_view::npos) return {};
    rest.remove_prefix(end + 1);
  }
  rest = rest.substr(0, rest.find('\n'));
  if (rest.ends_with('\r')) rest.remove_suffix(1);
  return rest;
}

/// The source line and a caret below the column; nothing where the source has no such line.
std::string excerpt(const Where& where) {
  const std::string_view line = line_of(*where.source, where.line);
  if (line.empty()) return {};
  const std::size_t caret = std::min(line.size(), static_cast<std::size_t>(std::max(0, where.column - 1)));
  std::size_t begin = caret > columns_before && line.size() > shown_columns ? caret - columns_before : 0;
  while (begin > 0 && (static_cast<unsigned char>(line[begin]) & 0xC0) == 0x80) --begin;  // never inside a character
  Shown before, after;
  if (begin > 0) before = {"...", 3};
  show(line.substr(begin, caret - begin), std::string_view::npos, before);
  const std::size_t used = show(line.substr(caret), shown_columns > before.columns ? shown_columns - before.columns : 8, after);
  if (caret + used < line.size()) after.text += "...";
  return fmt::format("{:5} | {}{}\n      | {:{}}^\n", where.line, before.text, after.text, "", before.columns);
}

std::string text_of(const Problem& problem) {
  const Where& where = problem.where;
  std::string out;
  if (where.source) out += shown_path(where.source->name) + ":";
  if (where.source && where.line > 0) out += fmt::format("{}:{}:", where.line, std::max(1, where.column));
  out += (out.empty() ? "error: " : " error: ") + printable(problem.message, 1000) + "\n";
  if (where.source && where.line > 0) out += excerpt(where);
  for (const std::string& note : problem.notes) out += "  note: " + printable(note, 1000) + "\n";
  return out;
}

/// Steps (insert, delete, replace, swap two neighbours) from one word to the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> older(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], older[j - 2] + 1);
    }
    older.swap(last), last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

void Problems::add(Where where, std::string message, std::vector<std::string> notes) {
  list_.push_back({std::move(where), std::move(message), std::move(notes)});
}

void Problems::append(const Problems& others) { list_.insert(list_.end(), others.list_.begin(), others.list_.end()); }

std::string Problems::text() const {
  std::vector<const Problem*> sorted;
  for (const Problem& problem : list_) sorted.push_back(&problem);
  const auto key = [](const Problem* p) { return std::make_tuple(name_of(p->where), p->where.line, p->where.column); };
  std::stable_sort(sorted.begin(), sorted.end(), [&](auto a, auto b) { return key(a) < key(b); });
  const auto same = [&](auto a, auto b) { return key(a) == key(b) && a->message == b->message; };
  sorted.erase(std::unique(sorted.begin(), sorted.end(), same), sorted.end());

  std::string out;
  for (std::size_t i = 0; i < std::min(sorted.size(), shown_problems); ++i) out += text_of(*sorted[i]);
  if (sorted.size() > shown_problems) out += fmt::format("error: {} more problems\n", sorted.size() - shown_problems);
  return out;
}

std::string printable(std::string_view text, std::size_t limit) {
  Shown out;
  const std::size_t used = show(text, limit, out);
  if (used < text.size()) out.text += "...";
  return out.text;
}

std::string in_quotes(std::string_view text) { return "'" + printable(text, 60) + "'"; }

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::string_view::npos;
  for (const std::string& candidate : known) {
    const std::size_t longer = std::max(word.size(), candidate.size());
    const std::size_t limit = std::max<std::size_t>(1, longer / 3);
    if (longer - std::min(word.size(), candidate.size()) > limit || longer > 200) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance <= limit && distance < best_distance && distance < longer) best = candidate, best_distance = distance;
  }
  return best;
}

std::vector<std::string> notes_for_unknown(std::string_view word, const std::vector<std::string>& known) {
  std::vector<std::string> notes;
  if (const std::string near = nearest(word, known); !near.empty()) notes.push_back("did you mean " + in_quotes(near) + "?");
  if (known.empty()) return notes;
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  notes.push_back("allowed: " + list);
  return notes;
}

}  // namespace shardsim
