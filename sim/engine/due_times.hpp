// SPDX-License-Identifier: Apache-2.0
// When each of many things is due, and which is next: a scan while they are few, a winner tree when they are many (a change and a question
// cost the logarithm of their number). Ties go to the lower number.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace shardsim {

class DueTimes {
 public:
  using Time = std::int64_t;
  static constexpr Time never = std::numeric_limits<Time>::max();

  /// What is due next, and when the next of the others is.
  struct Next {
    std::size_t index = 0;
    Time time = never, others = never;
  };

  explicit DueTimes(std::size_t count = 0)
      : times_(count, never), leaves_(count > few ? std::bit_ceil(count) : 0), winners_(2 * leaves_, 0) {
    for (std::size_t i = 0; i < leaves_; ++i) winners_[leaves_ + i] = static_cast<std::uint32_t>(i < count ? i : count - 1);
    for (std::size_t i = leaves_; i-- > 1;) winners_[i] = winners_[2 * i];
  }

  [[nodiscard]] bool are_few() const { return leaves_ == 0; }
  [[nodiscard]] std::size_t size() const { return times_.size(); }
  [[nodiscard]] Time operator[](std::size_t i) const { return times_[i]; }

  void set(std::size_t i, Time time) {
    times_[i] = time;
    for (std::size_t node = (leaves_ + i) / 2; leaves_ > 0 && node >= 1; node /= 2)
      winners_[node] = earlier(winners_[2 * node], winners_[2 * node + 1]);
  }

  [[nodiscard]] Next next() const { return leaves_ == 0 ? scan() : top(); }

 private:
  static constexpr std::size_t few = 48;

  [[nodiscard]] std::uint32_t earlier(std::uint32_t a, std::uint32_t b) const { return times_[b] < times_[a] ? b : a; }

  [[nodiscard]] Next scan() const {
    Next next;
    for (std::size_t i = 0; i < times_.size(); ++i) {
      if (times_[i] >= next.time) {
        if (times_[i] < next.others) next.others = times_[i];
        continue;
      }
      next.others = next.time;
      next.time = times_[i];
      next.index = i;
    }
    return next;
  }

  [[nodiscard]] Next top() const {
    Next next{winners_[1], times_[winners_[1]], never};
    for (std::size_t node = leaves_ + next.index; node > 1; node /= 2) {
      const std::uint32_t sibling = winners_[node ^ 1];  // the winner of the match that the path's winner won here
      if (sibling != next.index && times_[sibling] < next.others) next.others = times_[sibling];
    }
    return next;
  }

  std::vector<Time> times_;
  std::size_t leaves_;                  // 0: few enough to scan
  std::vector<std::uint32_t> winners_;  // winners_[1] is the earliest of all
};

}  // namespace shardsim
