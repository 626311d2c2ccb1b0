// SPDX-License-Identifier: Apache-2.0
// Private to the readers of sim/core: places in a text, and what every reader refuses.
#pragma once

#include <memory>

#include "sim/config/node.hpp"

namespace shardsim {

/// Line and column (in bytes, from 1) of offsets that only grow: one pass over the text in all.
class PlaceFinder {
 public:
  explicit PlaceFinder(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  [[nodiscard]] Where at(std::size_t offset);

 private:
  std::shared_ptr<const Source> source_;
  std::size_t offset_ = 0, line_start_ = 0;
  int line_ = 1;
};

/// A text above the limit, control characters and bytes that are not UTF-8 are problems: what is left is safe to parse and to print.
[[nodiscard]] Problems check_text(const std::shared_ptr<const Source>& source, const ReadLimits& limits);

}  // namespace shardsim
