// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/allocator.hpp"

#include <algorithm>

namespace shardsim {

// Calls ----------------------------------------------------------------------------------------------------------------------------

CachingAllocator::Handle CachingAllocator::allocate(Bytes request, StreamId stream, SimTime now) {
  process_events(now);
  const std::int64_t size = std::max(min_block, round_up(request, min_block).value());
  const std::size_t pool = 2 * static_cast<std::size_t>(stream.index) + (size <= small_limit ? 1 : 0);
  Handle block = find_free(pool, size);
  if (block < 0) block = reserve(pool, size);
  unlist(block);
  if (should_split(pool, size, at(block).size - size)) list(cut(block, size), State::free);
  at(block).state = State::allocated;
  now_.allocated += this->size(block);
  now_.active += this->size(block);
  peak_.allocated = std::max(peak_.allocated, now_.allocated);
  peak_.active = std::max(peak_.active, now_.active);
  peak_.reserved = std::max(peak_.reserved, now_.reserved);
  return block;
}

void CachingAllocator::free(Handle block) {
  now_.allocated -= size(block);
  cache(block);
}

void CachingAllocator::free_after(Handle block, SimTime ready) {
  now_.allocated -= size(block);
  at(block).state = State::awaiting;
  at(block).ready = ready;
  awaiting_.push_back(block);
}

void CachingAllocator::process_events(SimTime now) {
  const auto first = std::stable_partition(awaiting_.begin(), awaiting_.end(), [&](Handle block) { return at(block).ready > now; });
  for (auto block = first; block != awaiting_.end(); ++block) cache(*block);
  awaiting_.erase(first, awaiting_.end());
}

std::vector<CachingAllocator::Block> CachingAllocator::blocks() const {
  std::vector<Block> mapped;
  for (const Block& block : blocks_)
    if (block.size > 0 && block.state != State::unmapped) mapped.push_back(block);
  std::sort(mapped.begin(), mapped.end(), [](const Block& a, const Block& b) { return a.address < b.address; });
  return mapped;
}

// Best fit -------------------------------------------------------------------------------------------------------------------------

/// What a block can grow to: large for the last of an expandable segment, so that best fit prefers the others.
std::int64_t CachingAllocator::expandable_size(Handle block) const {
  const Handle next = at(block).next;
  return at(block).size + (next >= 0 && at(next).state == State::unmapped ? at(next).size : 0);
}

/// The smallest block of the pool that is large enough; of several the one at the lowest address.
CachingAllocator::Handle CachingAllocator::find_free(std::size_t pool, std::int64_t size) const {
  const std::vector<Cached>& free = pools_[pool].free;
  auto found = std::lower_bound(free.begin(), free.end(), Cached{size, 0, -1});
  if (found == free.end()) return -1;
  for (auto next = found + 1; next != free.end() && expandable_size(next->block) < expandable_size(found->block); ++next) found = next;
  if (!is_small(pool) && is_oversize(found->size)) {
    if (!is_oversize(size) || found->size >= size + options_.large_segment.value()) return -1;
  }
  return found->block;
}

bool CachingAllocator::should_split(std::size_t pool, std::int64_t size, std::int64_t rest) const {
  if (is_small(pool) || options_.expandable_segments) return rest >= min_block;
  return !is_oversize(size) && rest > small_limit;
}

// Blocks ---------------------------------------------------------------------------------------------------------------------------

CachingAllocator::Handle CachingAllocator::new_block(const Block& block) {
  if (spare_.empty()) {
    blocks_.push_back(block);
    return static_cast<Handle>(blocks_.size()) - 1;
  }
  const Handle handle = spare_.back();
  spare_.pop_back();
  at(handle) = block;
  return handle;
}

void CachingAllocator::erase(Handle block) {
  at(block) = {};
  spare_.push_back(block);
}

std::vector<CachingAllocator::Cached>& CachingAllocator::list_of(const Block& block) {
  return block.state == State::unmapped ? pools_[block.pool].unmapped : pools_[block.pool].free;
}

void CachingAllocator::list(Handle block, State state) {
  at(block).state = state;
  std::vector<Cached>& list = list_of(at(block));
  const Cached entry{at(block).size, at(block).address, block};
  list.insert(std::lower_bound(list.begin(), list.end(), entry), entry);
}

void CachingAllocator::unlist(Handle block) {
  std::vector<Cached>& list = list_of(at(block));
  list.erase(std::lower_bound(list.begin(), list.end(), Cached{at(block).size, at(block).address, block}));
}

void CachingAllocator::merge_with_next(Handle block) {
  const Handle next = at(block).next;
  at(block).size += at(next).size;
  at(block).next = at(next).next;
  if (at(block).next >= 0) at(at(block).next).previous = block;
  erase(next);
}

CachingAllocator::Handle CachingAllocator::cut(Handle block, std::int64_t size) {
  Block rest = at(block);
  rest.address += size;
  rest.size -= size;
  rest.previous = block;
  const Handle handle = new_block(rest);
  if (rest.next >= 0) at(rest.next).previous = handle;
  at(block).size = size;
  at(block).next = handle;
  return handle;
}

/// Lists a block that is in no list, merged with its neighbours in the same state. Returns the block that it is part of then.
CachingAllocator::Handle CachingAllocator::list_merged(Handle block, State state) {
  const auto is_alike = [&](Handle other) { return other >= 0 && at(other).state == state; };
  if (const Handle next = at(block).next; is_alike(next)) {
    unlist(next);
    merge_with_next(block);
  }
  if (const Handle previous = at(block).previous; is_alike(previous)) {
    unlist(previous);
    merge_with_next(previous);
    block = previous;
  }
  list(block, state);
  return block;
}

void CachingAllocator::cache(Handle block) {
  now_.active -= size(block);
  list_merged(block, State::free);
}

}  // namespace shardsim
