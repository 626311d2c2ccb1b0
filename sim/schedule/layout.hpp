// SPDX-License-Identifier: Apache-2.0
// Layouts taken apart: which elements of which parameters stand where in a buffer, and what two layouts share.
#pragma once

#include <span>
#include <vector>

#include "sim/schedule/schedule.hpp"

namespace shardsim {

/// A parameter as layouts see it: `rows` along dimension 0, each of `columns` elements.
struct ParameterShape {
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
};

/// `count` elements of a parameter from `first` (row-major), at `offset` of the buffer.
struct Piece {
  ParameterId parameter;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t offset = 0;
  auto operator<=>(const Piece&) const = default;
};

/// Elements that two buffers share: `count` of them, contiguous in both.
struct Overlap {
  ParameterId parameter;
  std::int64_t first = 0;  ///< in the parameter
  std::int64_t count = 0;
  std::int64_t source = 0;  ///< offset in the first buffer
  std::int64_t target = 0;  ///< offset in the second
  auto operator<=>(const Overlap&) const = default;
};

/// A layout taken apart for one rank. Pieces stand in the order of the buffer and leave padding out.
struct Expansion {
  std::vector<Piece> pieces;
  std::int64_t extent = 0;  ///< elements of the buffer, padding included
};

/// Takes `layout` apart for `rank`. `ids` are the parameters of its span; `shapes` are indexed by parameter id.
///   none, flat  one row of parameters, starts aligned to `align`, padded to a multiple of `multiple`; the slice [first, first + length) is
///               taken first, then a flat shard is cut out of it (parts differ by at most one element, the longer ones first)
///   each, rows  rank-major; every part is padded to the longest, unless `unpadded`; a slice counts elements of the stored buffer
/// Throws std::logic_error for a layout that cannot be (no parts, a slice beyond the end): a bug of the strategy.
[[nodiscard]] Expansion expand(const Layout& layout, std::span<const ParameterId> ids, std::span<const ParameterShape> shapes,
                               std::int64_t rank);
[[nodiscard]] Expansion expand(const Schedule& schedule, LayoutId layout, std::span<const ParameterShape> shapes);

/// The elements that stand in both, in the order of the second.
[[nodiscard]] std::vector<Overlap> overlaps(const std::vector<Piece>& source, const std::vector<Piece>& target);

}  // namespace shardsim
