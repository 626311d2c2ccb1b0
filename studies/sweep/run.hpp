// SPDX-License-Identifier: Apache-2.0
// Runs a sweep, or the shard of it that is this process's, and makes the table once all rows are there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "studies/sweep/parts.hpp"

namespace shardsim {

struct SweepOutcome {
  bool table = false;      ///< written, by this process or by another shard
  std::uint64_t rows = 0;  ///< that are there, of all shards
  FailedRows failed;       ///< of the table that this process wrote
};

/// One process of a sweep: rows are simulated, kept in the shard's journal, and become the table in the process that finds all of them.
class SweepRun {
 public:
  /// What an earlier process left is read. Files that are not journals, or that another process adds to, are EnvironmentErrors.
  SweepRun(const SweepPlan& plan, std::string output, RowFormat format, const Shard& shard);

  /// Rows of this shard, and how many of them were there before.
  [[nodiscard]] std::uint64_t rows() const { return rows_; }
  [[nodiscard]] std::uint64_t done_before() const { return done_before_; }
  /// What the user should know of files that were found.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  /// Simulates what is missing; `row_done` is called after each row, from any thread.
  void simulate(unsigned threads, const std::function<void()>& row_done);
  /// The table, if the rows of all shards are there.
  [[nodiscard]] SweepOutcome finish();

 private:
  void simulate_block(std::uint64_t block, SweepRows& rows, const std::function<void()>& row_done);
  [[nodiscard]] std::uint64_t blocks() const;

  const SweepPlan& plan_;
  std::string output_;
  RowFormat format_;
  Shard shard_;
  std::uint64_t block_size_, rows_ = 0, done_before_ = 0;
  SweepParts parts_;
  std::unique_ptr<Journal> journal_;
  std::vector<std::string> notes_;
};

/// The table of rows that all shards have left; SweepOutcome::table is false where some are missing.
[[nodiscard]] SweepOutcome merge_sweep(const SweepPlan& plan, const std::string& output, RowFormat format);

}  // namespace shardsim
