// SPDX-License-Identifier: Apache-2.0
// Which rows of a sweep are still to be handed out, to threads of this process and to those of other ranks.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "shardsim/sweep.hpp"

namespace shardsim {

/// Rows of one hand-out, in the order in which they are to be simulated.
using RowNumbers = std::vector<std::uint64_t>;

class SweepQueue {
 public:
  /// Rows that `journal` holds already are left out.
  SweepQueue(const SweepPlan& plan, const SweepJournal& journal) : plan_(plan), journal_(journal) {}

  /// A few rows that nobody else has. Where none are left, waits for those that are out: their taker may die and give them back. Empty
  /// when every row is written or something failed.
  [[nodiscard]] RowNumbers take();
  /// Of what take() gave, `rest` was not done. To be called once for each hand-out.
  void put_back(RowNumbers rest);
  void fail(std::exception_ptr failure);
  [[nodiscard]] bool failed() const;
  /// Throws what failed.
  void check() const;

 private:
  const SweepPlan& plan_;
  const SweepJournal& journal_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t position_ = 0;  // in the plan's order of rows
  RowNumbers returned_;
  std::size_t out_ = 0;  // hand-outs not yet put back
  std::exception_ptr failure_;
};

}  // namespace shardsim
