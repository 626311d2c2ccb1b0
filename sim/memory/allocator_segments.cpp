// SPDX-License-Identifier: Apache-2.0
// The allocator's side towards the driver: segments by cudaMalloc, or pages mapped into expandable segments.
#include <algorithm>
#include <utility>

#include "sim/memory/allocator.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t small_segment = std::int64_t{2} << 20;  // kSmallBuffer
constexpr std::int64_t large_limit = std::int64_t{10} << 20;   // kMinLargeAlloc: requests from here get segments of their own size
constexpr std::int64_t large_step = std::int64_t{2} << 20;     // kRoundLarge
constexpr std::int64_t address_space = std::int64_t{1} << 46;  // of one expandable segment: more than any device has

std::int64_t up(std::int64_t value, std::int64_t step) { return ceil_div(value, step) * step; }

}  // namespace

CachingAllocator::CachingAllocator(std::size_t streams, const AllocatorOptions& options) : options_(options), pools_(2 * streams) {
  if (!options_.expandable_segments) return;
  for (std::size_t p = 0; p < pools_.size(); ++p) {
    const auto address = static_cast<std::int64_t>(p) * address_space;
    list(new_block({.address = address, .size = address_space, .pool = p, .ready = {}}), State::unmapped);
  }
}

std::int64_t CachingAllocator::page(std::size_t pool) const { return is_small(pool) ? small_segment : options_.large_segment.value(); }

std::int64_t CachingAllocator::segment_size(std::int64_t size) const {
  if (size <= small_limit) return small_segment;
  return size < large_limit ? options_.large_segment.value() : up(size, large_step);
}

bool CachingAllocator::can_reserve(std::int64_t size) const {
  return options_.capacity == Bytes{} || out_of_memory_ || now_.reserved + Bytes{size} <= options_.capacity;
}

/// Takes more from the driver; where it has no more, gives back what is cached and tries again.
CachingAllocator::Handle CachingAllocator::reserve(std::size_t pool, std::int64_t size) {
  const auto attempt = [&] { return options_.expandable_segments ? expand(pool, size) : new_segment(pool, size); };
  Handle block = attempt();
  if (block < 0 && release_oversize(pool, size)) block = attempt();
  if (block >= 0) return block;
  ++retries_;
  empty_cache();
  block = attempt();
  if (block >= 0) return block;
  out_of_memory_ = true;
  return attempt();
}

CachingAllocator::Handle CachingAllocator::new_segment(std::size_t pool, std::int64_t size) {
  const std::int64_t segment = segment_size(size);
  if (!can_reserve(segment)) return -1;
  ++driver_calls_;
  now_.reserved += Bytes{segment};
  const std::int64_t address = std::exchange(next_address_, next_address_ + segment);
  const Handle block = new_block({.address = address, .size = segment, .pool = pool, .ready = {}});
  list(block, State::free);
  return block;
}

// Expandable segments --------------------------------------------------------------------------------------------------------------

/// Grows the free block before unmapped address space, or starts one there.
CachingAllocator::Handle CachingAllocator::expand(std::size_t pool, std::int64_t size) {
  Handle block = find_expandable(pool, size);
  if (at(block).state == State::unmapped) block = map_front(block, size);
  while (block >= 0 && at(block).size < size) block = map_front(at(block).next, size - at(block).size);
  return block;
}

/// The first run of free and unmapped blocks that is long enough.
CachingAllocator::Handle CachingAllocator::find_expandable(std::size_t pool, std::int64_t size) const {
  for (const Cached& unmapped : pools_[pool].unmapped) {
    const Handle previous = at(unmapped.block).previous;
    const Handle first = previous >= 0 && at(previous).state == State::free ? previous : unmapped.block;
    std::int64_t length = 0;
    for (Handle b = first; b >= 0 && (at(b).state == State::free || at(b).state == State::unmapped) && length < size; b = at(b).next)
      length += at(b).size;
    if (length >= size) return first;
  }
  return -1;  // not reached: the end of the address space is never used up
}

/// Maps pages for `size` bytes at the front of unmapped space. Returns the free block that they are part of then.
CachingAllocator::Handle CachingAllocator::map_front(Handle block, std::int64_t size) {
  ++driver_calls_;
  const std::int64_t mapped = std::min(up(size, page(at(block).pool)), at(block).size);
  if (!can_reserve(mapped)) return -1;
  now_.reserved += Bytes{mapped};
  unlist(block);
  if (mapped < at(block).size) list(cut(block, mapped), State::unmapped);
  return list_merged(block, State::free);
}

/// Gives back the pages that lie wholly inside a free block.
void CachingAllocator::unmap(Handle block) {
  ++driver_calls_;
  const std::int64_t base = static_cast<std::int64_t>(at(block).pool) * address_space, step = page(at(block).pool);
  const std::int64_t begin = base + up(at(block).address - base, step);
  const std::int64_t end = base + (at(block).address + at(block).size - base) / step * step;
  if (end <= begin) return;
  now_.reserved -= Bytes{end - begin};
  unlist(block);
  if (begin > at(block).address) {
    const Handle rest = cut(block, begin - at(block).address);
    list(block, State::free);
    block = rest;
  }
  if (end < at(block).address + at(block).size) list(cut(block, end - begin), State::free);
  list_merged(block, State::unmapped);
}

// Giving back ----------------------------------------------------------------------------------------------------------------------

void CachingAllocator::release_segment(Handle block) {
  ++driver_calls_;
  now_.reserved -= size(block);
  unlist(block);
  erase(block);
}

/// release_available_cached_blocks: one cached oversize block that is large enough, or the largest ones until they add up.
bool CachingAllocator::release_oversize(std::size_t pool, std::int64_t size) {
  if (!options_.max_split_size || options_.expandable_segments) return false;
  const std::vector<Cached>& free = pools_[pool].free;
  const std::int64_t wanted = std::max(size, options_.max_split_size->value());
  const auto enough = std::lower_bound(free.begin(), free.end(), Cached{wanted, 0, -1});
  if (enough != free.end()) {
    release_segment(enough->block);
    return true;
  }
  std::int64_t released = 0;
  while (released < wanted && !free.empty() && is_oversize(free.back().size)) {
    released += free.back().size;
    release_segment(free.back().block);
  }
  return released >= wanted;
}

/// Waits for all streams, then gives back every segment that holds no block in use.
void CachingAllocator::empty_cache() {
  for (Handle block : std::exchange(awaiting_, {})) cache(block);
  for (Pool& pool : pools_) {
    const std::vector<Cached> cached = pool.free;
    for (const Cached& entry : cached) {
      if (options_.expandable_segments)
        unmap(entry.block);
      else if (at(entry.block).previous < 0 && at(entry.block).next < 0)
        release_segment(entry.block);
    }
  }
}

}  // namespace shardsim
