// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule/layout.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "sim/base/collective.hpp"

namespace shardsim {
namespace {

const ParameterShape& shape_of(ParameterId id, std::span<const ParameterShape> shapes) {
  if (!id.valid() || static_cast<std::size_t>(id.index) >= shapes.size())
    throw std::logic_error("a layout names a parameter that the model does not have");
  return shapes[static_cast<std::size_t>(id.index)];
}

std::int64_t align_up(std::int64_t value, std::int64_t step) { return ceil_div(value, step) * step; }

/// Keeps what lies in [begin, end) of the buffer and moves it to the front.
Expansion window(const Expansion& whole, std::int64_t begin, std::int64_t end) {
  Expansion cut{{}, end - begin};
  for (const Piece& piece : whole.pieces) {
    const std::int64_t from = std::max(piece.offset, begin);
    const std::int64_t to = std::min(piece.offset + piece.count, end);
    if (from < to) cut.pieces.push_back({piece.parameter, piece.first + from - piece.offset, to - from, from - begin});
  }
  return cut;
}

Expansion slice(Expansion whole, const Layout& layout) {
  if (layout.length == 0) return whole;
  if (layout.first < 0 || layout.first + layout.length > whole.extent) throw std::logic_error("a layout's slice reaches beyond its end");
  return window(whole, layout.first, layout.first + layout.length);
}

Expansion one_after_another(const Layout& layout, std::span<const ParameterId> ids, std::span<const ParameterShape> shapes) {
  Expansion flat;
  for (ParameterId id : ids) {
    const std::int64_t offset = align_up(flat.extent, layout.align);
    const std::int64_t count = shape_of(id, shapes).elements();
    if (count > 0) flat.pieces.push_back({id, 0, count, offset});
    flat.extent = offset + count;
  }
  flat.extent = align_up(flat.extent, layout.multiple);
  return flat;
}

Expansion flat_shard(const Expansion& whole, std::int64_t n, std::int64_t part) {
  const auto parts = ring_segments(whole.extent, n);
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < part; ++i) begin += parts[static_cast<std::size_t>(i)];
  return window(whole, begin, begin + parts[static_cast<std::size_t>(part)]);
}

/// Appends what part `part` of n holds of every parameter. Parts of `each` are rounded up to multiples of `align` elements.
void append_part(Expansion& out, const Layout& layout, std::span<const ParameterId> ids, std::span<const ParameterShape> shapes,
                 std::int64_t part, bool padded) {
  for (ParameterId id : ids) {
    const ParameterShape& shape = shape_of(id, shapes);
    const bool rows = layout.partition == Layout::Partition::rows;
    const std::int64_t unit = rows ? shape.columns : 1;
    const std::int64_t chunks = std::max<std::int64_t>(1, layout.padded_for / layout.n);  // in a part
    const std::int64_t chunk = rows ? ceil_div(shape.rows, layout.n * chunks) * chunks * unit
                                    : align_up(ceil_div(shape.elements(), layout.n * chunks) * chunks, layout.align);
    const std::int64_t first = std::min(part * chunk, shape.elements());
    const std::int64_t count = std::min(chunk, shape.elements() - first);
    if (count > 0) out.pieces.push_back({id, first, count, out.extent});
    out.extent += padded ? chunk : count;
  }
}

Expansion rank_major(const Layout& layout, std::span<const ParameterId> ids, std::span<const ParameterShape> shapes, std::int64_t part) {
  Expansion out;
  if (layout.shard) {
    append_part(out, layout, ids, shapes, part, !layout.unpadded);
  } else {
    for (std::int64_t i = 0; i < layout.n; ++i) append_part(out, layout, ids, shapes, i, true);
  }
  out.extent = align_up(out.extent, layout.multiple);
  return out;
}

}  // namespace

Expansion expand(const Layout& layout, std::span<const ParameterId> ids, std::span<const ParameterShape> shapes, std::int64_t rank) {
  if (layout.n < 1 || layout.stride < 1 || layout.align < 1 || layout.multiple < 1) throw std::logic_error("a layout without parts");
  const std::int64_t part = (rank / layout.stride) % layout.n;
  switch (layout.partition) {
    case Layout::Partition::none:
      return slice(one_after_another(layout, ids, shapes), layout);
    case Layout::Partition::flat: {
      const Expansion whole = slice(one_after_another(layout, ids, shapes), layout);
      return layout.shard ? flat_shard(whole, layout.n, part) : whole;
    }
    case Layout::Partition::each:
    case Layout::Partition::rows:
      return slice(rank_major(layout, ids, shapes, part), layout);
  }
  throw std::logic_error("a layout of no known partition");
}

Expansion expand(const Schedule& schedule, LayoutId id, std::span<const ParameterShape> shapes) {
  const Layout& layout = schedule.at(id);
  const std::span pool(schedule.parameter_pool);
  const auto ids = pool.subspan(static_cast<std::size_t>(layout.parameters.begin), static_cast<std::size_t>(layout.parameters.count));
  return expand(layout, ids, shapes, schedule.rank);
}

std::vector<Overlap> overlaps(const std::vector<Piece>& source, const std::vector<Piece>& target) {
  std::multimap<ParameterId, const Piece*> by_parameter;
  for (const Piece& piece : source) by_parameter.emplace(piece.parameter, &piece);
  std::vector<Overlap> found;
  for (const Piece& to : target) {
    const auto [begin, end] = by_parameter.equal_range(to.parameter);
    for (auto it = begin; it != end; ++it) {
      const Piece& from = *it->second;
      const std::int64_t first = std::max(from.first, to.first);
      const std::int64_t last = std::min(from.first + from.count, to.first + to.count);
      if (first < last)
        found.push_back({to.parameter, first, last - first, from.offset + first - from.first, to.offset + first - to.first});
    }
  }
  return found;
}

}  // namespace shardsim
