// SPDX-License-Identifier: Apache-2.0
#include "studies/sweep/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <utility>

#include "sim/base/parallel.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

/// One maker of rows a thread, with what it has learned from the rows before.
class RowMakers {
 public:
  RowMakers(const SweepPlan& plan, RowFormat format) : plan_(plan), format_(format) {}

  std::unique_ptr<SweepRows> take() {
    const std::scoped_lock lock(mutex_);
    if (idle_.empty()) return std::make_unique<SweepRows>(plan_, format_);
    auto rows = std::move(idle_.back());
    idle_.pop_back();
    return rows;
  }
  void give_back(std::unique_ptr<SweepRows> rows) {
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(rows));
  }

 private:
  const SweepPlan& plan_;
  RowFormat format_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<SweepRows>> idle_;
};

/// Whether the table at `path` has a line for each row, in order: what a merge that found all rows leaves.
bool has_every_row(const std::string& path, const SweepPlan& plan, RowFormat format) {
  std::ifstream in(path);
  std::string line;
  if (!in || (format == RowFormat::csv && (!std::getline(in, line) || line != sweep_header(plan, format)))) return false;
  std::int64_t expected = 0;
  while (std::getline(in, line))
    if (row_number(line) != expected++) return false;
  return static_cast<std::uint64_t>(expected) == plan.size;
}

/// The table from what `parts` has read. The journals go once it is on the disk.
SweepOutcome write_complete(const SweepParts& parts, const std::string& path) {
  Output output(path);
  SweepOutcome outcome{.table = true, .rows = parts.done_count(), .failed = parts.write_table(output)};
  output.synchronize();
  output.commit();
  parts.remove();
  return outcome;
}

}  // namespace

SweepRun::SweepRun(const SweepPlan& plan, std::string output, RowFormat format, const Shard& shard)
    : plan_(plan),
      output_(std::move(output)),
      format_(format),
      shard_(shard),
      block_size_(block_size(plan.size, shard.count)),
      parts_(plan, output_, format) {
  // Opened first: what was cut is cut off, and nobody else adds to it.
  journal_ = std::make_unique<Journal>(parts_.place(shard), parts_.title(), Journal::Pace::batches, [](std::string_view, std::int64_t) {});
  parts_.read();
  for (std::uint64_t block = shard_.index; block < blocks(); block += shard_.count)
    for (std::uint64_t at = block * block_size_; at < std::min(plan.size, (block + 1) * block_size_); ++at) {
      ++rows_;
      done_before_ += parts_.done(plan.row_at(at)) ? 1 : 0;
    }
  for (const std::string& other : parts_.of_other_sweeps())
    notes_.push_back(
        fmt::format("{} holds rows of a sweep that was not this one (the sweep's file, a file that it reads or the program has changed); "
                    "they are not used",
                    other));
  if (parts_.damaged() > 0)
    notes_.push_back(fmt::format("{} lines of the journal were damaged; their rows are simulated again", parts_.damaged()));
}

std::uint64_t SweepRun::blocks() const { return (plan_.size + block_size_ - 1) / block_size_; }

void SweepRun::simulate_block(std::uint64_t block, SweepRows& rows, const std::function<void()>& row_done) {
  for (std::uint64_t at = block * block_size_; at < std::min(plan_.size, (block + 1) * block_size_); ++at) {
    const std::uint64_t row = plan_.row_at(at);
    if (parts_.done(row)) continue;
    journal_->add(SweepParts::entry(rows.row(row)));
    row_done();
  }
}

void SweepRun::simulate(unsigned threads, const std::function<void()>& row_done) {
  RowMakers makers(plan_, format_);
  const std::uint64_t own = blocks() > shard_.index ? (blocks() - shard_.index - 1) / shard_.count + 1 : 0;
  parallel_for(static_cast<std::size_t>(own), threads, [&](std::size_t i) {
    auto rows = makers.take();
    simulate_block(shard_.index + i * shard_.count, *rows, row_done);
    makers.give_back(std::move(rows));
  });
}

SweepOutcome SweepRun::finish() {
  journal_->close();  // before others are read: of the shards that end last, one must see all
  parts_.read();
  if (parts_.complete()) return write_complete(parts_, output_);
  // Where this shard's journal is gone, another has found all rows and made the table.
  std::error_code error;
  const bool merged = !std::filesystem::exists(parts_.place(shard_), error) && has_every_row(output_, plan_, format_);
  return {.table = merged, .rows = merged ? plan_.size : parts_.done_count(), .failed = {}};
}

SweepOutcome merge_sweep(const SweepPlan& plan, const std::string& output, RowFormat format) {
  SweepParts parts(plan, output, format);
  parts.read();
  if (parts.complete()) return write_complete(parts, output);
  const bool merged = parts.done_count() == 0 && has_every_row(output, plan, format);
  return {.table = merged, .rows = merged ? plan.size : parts.done_count(), .failed = {}};
}

}  // namespace shardsim
