// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_queue.hpp"

#include <utility>

namespace shardsim {
namespace {

// Rows handed out at once: enough that handing out costs nothing, few enough that all end together.
constexpr std::size_t at_once = 16;

}  // namespace

RowNumbers SweepQueue::take() {
  std::unique_lock lock(mutex_);
  while (!failure_) {
    RowNumbers rows = std::exchange(returned_, {});
    for (; rows.size() < at_once && position_ < plan_.size; ++position_) {
      const std::uint64_t row = plan_.row_at(position_);
      if (!journal_.done(row)) rows.push_back(row);
    }
    if (!rows.empty()) {
      ++out_;
      return rows;
    }
    if (out_ == 0) break;
    changed_.wait(lock);
  }
  return {};
}

void SweepQueue::put_back(RowNumbers rest) {
  const std::scoped_lock lock(mutex_);
  returned_.insert(returned_.end(), rest.begin(), rest.end());
  --out_;
  changed_.notify_all();
}

void SweepQueue::fail(std::exception_ptr failure) {
  const std::scoped_lock lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
  changed_.notify_all();
}

bool SweepQueue::failed() const {
  const std::scoped_lock lock(mutex_);
  return failure_ != nullptr;
}

void SweepQueue::check() const {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace shardsim
