// SPDX-License-Identifier: Apache-2.0
// The rows of a sweep that are on disk so far, whichever process wrote them, and the table that they become.
//
// Each process of a sweep adds to a journal of its own, OUTPUT.<fingerprint>.part or, in shards, OUTPUT.<fingerprint>.2-of-16.part. Rows of
// all of them count, so that a sweep can go on with another number of shards than it began with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/journal.hpp"
#include "sim/base/output.hpp"
#include "studies/sweep/rows.hpp"
#include "studies/sweep/shard.hpp"

namespace shardsim {

/// The number at the start of a row: `17,...` in CSV, `{"index":17,...` in JSON lines; -1 if there is none.
[[nodiscard]] std::int64_t row_number(std::string_view line);

struct FailedRows {
  std::uint64_t count = 0;
  std::string first;  ///< the line of the first of them in the table
};

class SweepParts {
 public:
  SweepParts(const SweepPlan& plan, std::string output, RowFormat format);

  /// Where the journal of a shard is.
  [[nodiscard]] std::string place(const Shard& shard) const;
  /// The first line of every journal of this sweep.
  [[nodiscard]] const std::string& title() const { return title_; }
  /// What a journal holds for a row.
  [[nodiscard]] static std::string entry(const SweepRow& row) { return (row.failed ? '-' : '+') + row.line; }

  /// Reads all journals of this sweep, what was read before forgotten.
  void read();
  [[nodiscard]] bool done(std::uint64_t row) const { return places_[static_cast<std::size_t>(row)] != nowhere; }
  [[nodiscard]] std::uint64_t done_count() const { return done_count_; }
  [[nodiscard]] bool complete() const { return done_count_ == places_.size(); }
  /// Lines that did not match their checksum.
  [[nodiscard]] std::int64_t damaged() const { return damaged_; }
  /// Journals next to the output that are not of this sweep: its file, something that it reads or the program has changed since.
  [[nodiscard]] std::vector<std::string> of_other_sweeps() const;

  /// All rows in order of their number; how many hold an error in place of figures.
  FailedRows write_table(Output& output) const;
  /// Removes the journals that were read.
  void remove() const;

 private:
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};
  [[nodiscard]] std::vector<std::string> files(bool own) const;
  void note(std::string_view entry, std::size_t journal, std::int64_t offset);

  std::string stem_, title_, header_;
  std::vector<std::string> paths_;
  std::vector<std::unique_ptr<JournalReader>> journals_;
  std::vector<std::uint64_t> places_;  // of each row: journal and offset in it
  std::uint64_t done_count_ = 0;
  std::int64_t damaged_ = 0;
};

}  // namespace shardsim
