// SPDX-License-Identifier: Apache-2.0
// A model of PyTorch's CUDA caching allocator: which blocks it hands out, what it reserves from the driver, what stays cached.
// Source: c10/cuda/CUDACachingAllocator.cpp (get_free_block, should_split, get_allocation_size, release_cached_blocks, ExpandableSegment).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/ids.hpp"
#include "sim/base/units.hpp"

namespace shardsim {

/// PYTORCH_CUDA_ALLOC_CONF, as far as it changes what is reserved.
struct AllocatorOptions {
  Bytes capacity;                       ///< what the driver can give; zero: no limit
  std::optional<Bytes> max_split_size;  ///< blocks at least this large are not split, and serve only requests as large
  Bytes large_segment = mebibytes(20);  ///< asked of the driver for requests above 1 MiB and below 10 MiB
  bool expandable_segments = false;     ///< one growing segment for each stream and pool instead of many
  bool operator==(const AllocatorOptions&) const = default;
};

/// As torch.cuda.memory_stats() counts them: allocated <= active <= reserved.
struct AllocatorBytes {
  Bytes allocated;  ///< in blocks handed out; a block whose rest is not split off counts whole
  Bytes active;     ///< and in freed blocks that another stream may still use
  Bytes reserved;   ///< in segments
  auto operator<=>(const AllocatorBytes&) const = default;
};

class CachingAllocator {
 public:
  using Handle = std::int32_t;
  enum class State : std::uint8_t { free, allocated, awaiting, unmapped };
  struct Block {
    std::int64_t address = 0, size = 0;
    std::size_t pool = 0;             ///< twice its stream, plus one if small
    Handle previous = -1, next = -1;  ///< neighbours in its segment
    State state = State::free;
    SimTime ready;  ///< of an awaiting block: when the streams that use it have passed
  };

  CachingAllocator(std::size_t streams, const AllocatorOptions& options);

  /// Blocks whose streams have passed at the host's time `now` are returned first, as in every call of the real allocator. Where the
  /// driver has no more even after the cache was emptied, the limit is dropped and out_of_memory() tells.
  Handle allocate(Bytes request, StreamId stream, SimTime now);
  void free(Handle block);
  /// Of a block that other streams use (record_stream): back in its pool at the first allocation after they have passed.
  void free_after(Handle block, SimTime ready);

  [[nodiscard]] Bytes size(Handle block) const { return Bytes{blocks_[index(block)].size}; }
  [[nodiscard]] const AllocatorBytes& now() const { return now_; }
  [[nodiscard]] const AllocatorBytes& peak() const { return peak_; }
  /// How often the driver had no more and the cache was emptied (num_alloc_retries).
  [[nodiscard]] std::int64_t retries() const { return retries_; }
  /// How often a segment was asked of the driver or given back to it.
  [[nodiscard]] std::int64_t driver_calls() const { return driver_calls_; }
  [[nodiscard]] bool out_of_memory() const { return out_of_memory_; }
  /// All blocks there are, by address; without the address space that expandable segments have not mapped.
  [[nodiscard]] std::vector<Block> blocks() const;

 private:
  static constexpr std::int64_t min_block = 512;                      // kMinBlockSize: sizes are multiples of it
  static constexpr std::int64_t small_limit = std::int64_t{1} << 20;  // kSmallSize: requests up to here come from the small pool

  struct Cached {
    std::int64_t size, address;
    Handle block;
    auto operator<=>(const Cached&) const = default;
  };
  struct Pool {
    std::vector<Cached> free, unmapped;  // by size, then address: the order of best fit
  };

  static std::size_t index(Handle block) { return static_cast<std::size_t>(block); }
  Block& at(Handle block) { return blocks_[index(block)]; }
  static bool is_small(std::size_t pool) { return pool % 2 == 1; }
  [[nodiscard]] const Block& at(Handle block) const { return blocks_[index(block)]; }
  [[nodiscard]] std::int64_t page(std::size_t pool) const;
  [[nodiscard]] std::int64_t segment_size(std::int64_t size) const;
  [[nodiscard]] bool is_oversize(std::int64_t size) const { return options_.max_split_size && size >= options_.max_split_size->value(); }
  [[nodiscard]] bool can_reserve(std::int64_t size) const;

  // Blocks and the lists of those that are free or unmapped (allocator.cpp).
  Handle new_block(const Block& block);
  void erase(Handle block);
  std::vector<Cached>& list_of(const Block& block);
  void list(Handle block, State state);
  Handle list_merged(Handle block, State state);
  void unlist(Handle block);
  void merge_with_next(Handle block);           // of two that are in no list
  Handle cut(Handle block, std::int64_t size);  // a block that is in no list; returns the rest, in no list
  void cache(Handle block);
  void process_events(SimTime now);
  [[nodiscard]] std::int64_t expandable_size(Handle block) const;
  [[nodiscard]] Handle find_free(std::size_t pool, std::int64_t size) const;
  [[nodiscard]] bool should_split(std::size_t pool, std::int64_t size, std::int64_t rest) const;

  // What is asked of the driver and given back to it (allocator_segments.cpp). A handle below 0: it has no more.
  Handle reserve(std::size_t pool, std::int64_t size);
  Handle new_segment(std::size_t pool, std::int64_t size);
  Handle expand(std::size_t pool, std::int64_t size);
  [[nodiscard]] Handle find_expandable(std::size_t pool, std::int64_t size) const;
  Handle map_front(Handle block, std::int64_t size);
  bool release_oversize(std::size_t pool, std::int64_t size);
  void empty_cache();
  void release_segment(Handle block);
  void unmap(Handle block);

  AllocatorOptions options_;
  std::vector<Block> blocks_;
  std::vector<Handle> spare_;  // slots of blocks_ to be used again
  std::vector<Pool> pools_;
  std::vector<Handle> awaiting_;
  std::int64_t next_address_ = 0;
  AllocatorBytes now_, peak_;
  std::int64_t retries_ = 0, driver_calls_ = 0;
  bool out_of_memory_ = false;
};

}  // namespace shardsim
