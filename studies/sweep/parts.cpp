// SPDX-License-Identifier: Apache-2.0
#include "studies/sweep/parts.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

constexpr int offset_bits = 44;  // 16 TiB a journal, a million journals
constexpr std::size_t fingerprint_digits = 16;

bool is_fingerprint(std::string_view text) {
  return text.size() == fingerprint_digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::int64_t row_number(std::string_view line) {
  constexpr std::string_view json = "{\"index\":";
  if (line.starts_with(json)) line.remove_prefix(json.size());
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc{} && end != line.data() + line.size() && *end == ',' ? number : -1;
}

SweepParts::SweepParts(const SweepPlan& plan, std::string output, RowFormat format)
    : stem_(fmt::format("{}.{:016x}", output, fingerprint(plan))),
      title_(fmt::format("sweep 1, {} rows as {}", plan.size, format == RowFormat::csv ? "csv" : "json lines")),
      header_(sweep_header(plan, format)),
      places_(static_cast<std::size_t>(plan.size), nowhere) {}

std::string SweepParts::place(const Shard& shard) const {
  return shard.whole() ? stem_ + ".part" : fmt::format("{}.{}-of-{}.part", stem_, shard.index + 1, shard.count);
}

/// Journals next to the output, of this sweep or of others.
std::vector<std::string> SweepParts::files(bool own) const {
  const fs::path stem(stem_);
  const fs::path folder = stem.has_parent_path() ? stem.parent_path() : fs::path(".");
  const std::string name = stem.filename().string(), output = name.substr(0, name.size() - fingerprint_digits);
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string file = at->path().filename().string();
    if (!file.ends_with(".part") || !file.starts_with(output) || file.size() < name.size() + 5) continue;
    if (!is_fingerprint(std::string_view(file).substr(output.size(), fingerprint_digits)) || file[name.size()] != '.') continue;
    if (file.starts_with(name) == own) found.push_back((stem.parent_path() / file).string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> SweepParts::of_other_sweeps() const { return files(false); }

void SweepParts::note(std::string_view entry, std::size_t journal, std::int64_t offset) {
  const std::int64_t row = entry.empty() ? -1 : row_number(entry.substr(1));
  if (row < 0 || static_cast<std::uint64_t>(row) >= places_.size() || done(static_cast<std::uint64_t>(row))) return;
  places_[static_cast<std::size_t>(row)] = static_cast<std::uint64_t>(journal) << offset_bits | static_cast<std::uint64_t>(offset);
  ++done_count_;
}

void SweepParts::read() {
  std::fill(places_.begin(), places_.end(), nowhere);
  done_count_ = 0;
  damaged_ = 0;
  journals_.clear();
  paths_.clear();
  for (const std::string& path : files(true)) {
    auto journal = std::make_unique<JournalReader>(path, title_);
    if (!journal->valid()) continue;
    damaged_ += journal->each_line([&](std::string_view entry, std::int64_t offset) { note(entry, journals_.size(), offset); });
    journals_.push_back(std::move(journal));
    paths_.push_back(path);
  }
}

FailedRows SweepParts::write_table(Output& output) const {
  constexpr std::size_t at_once = std::size_t{1} << 18;
  FailedRows failed;
  std::string text = header_.empty() ? "" : header_ + "\n";
  for (const std::uint64_t place : places_) {
    const auto entry = journals_[static_cast<std::size_t>(place >> offset_bits)]->line_at(
        static_cast<std::int64_t>(place & ((std::uint64_t{1} << offset_bits) - 1)));
    if (!entry) throw EnvironmentError(fmt::format("a journal of {} has changed while its rows were collected", stem_));
    if (entry->front() == '-' && failed.count++ == 0) failed.first = entry->substr(1);
    text.append(*entry, 1).append(1, '\n');
    if (text.size() < at_once) continue;
    output.write(text);
    text.clear();
  }
  output.write(text);
  return failed;
}

void SweepParts::remove() const {
  for (const std::string& path : paths_) ::unlink(path.c_str());
}

}  // namespace shardsim
