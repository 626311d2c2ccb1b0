// SPDX-License-Identifier: Apache-2.0
// Sequences worked by hand from the rules of the CUDA caching allocator. Sizes in MiB unless told otherwise.
#include "sim/memory/allocator.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <map>

#include "hand_made.hpp"
#include "sim/memory/allocator_replay.hpp"

namespace shardsim {
namespace {

using Handle = CachingAllocator::Handle;

constexpr StreamId main_stream{0}, side_stream{1};

struct Pools {
  CachingAllocator allocator;
  explicit Pools(const AllocatorOptions& options = {}) : allocator(2, options) {}
  Handle take(double mib, StreamId stream = main_stream, std::int64_t at = 0) {
    return allocator.allocate(Bytes{static_cast<std::int64_t>(mib * (1 << 20))}, stream, ticks(at));
  }
  [[nodiscard]] double allocated() const { return mib(allocator.now().allocated); }
  [[nodiscard]] double active() const { return mib(allocator.now().active); }
  [[nodiscard]] double reserved() const { return mib(allocator.now().reserved); }
  [[nodiscard]] double size(Handle block) const { return mib(allocator.size(block)); }
  static double mib(Bytes bytes) { return static_cast<double>(bytes.value()) / (1 << 20); }
};

TEST(Allocator, SmallRequestsShareSegmentsOfTwo) {
  Pools p;
  const Handle one = p.allocator.allocate(Bytes{1}, main_stream, {});
  const Handle two = p.allocator.allocate(Bytes{513}, main_stream, {});
  EXPECT_EQ(p.allocator.size(one), Bytes{512});
  EXPECT_EQ(p.allocator.size(two), Bytes{1024});
  EXPECT_EQ(p.reserved(), 2);
  p.take(1);  // the largest small one
  EXPECT_EQ(p.reserved(), 2);
  p.take(1);  // 1 MiB less 1.5 KiB are left
  EXPECT_EQ(p.reserved(), 4);
}

TEST(Allocator, RequestsBelowTenShareSegmentsOfTwenty) {
  Pools p;
  EXPECT_EQ(p.size(p.take(9.5)), 9.5);
  EXPECT_EQ(p.reserved(), 20);
  EXPECT_EQ(p.size(p.take(9.5)), 10.5);  // a rest of 1 is not split off: the block counts whole
  EXPECT_EQ(p.allocated(), 20);
  EXPECT_EQ(p.reserved(), 20);
}

TEST(Allocator, RequestsFromTenOnGetSegmentsOfTheirSize) {
  Pools p;
  EXPECT_EQ(p.size(p.take(10.5)), 10.5);  // 12 reserved, a rest of 1.5 split off
  EXPECT_EQ(p.reserved(), 12);
  EXPECT_EQ(p.size(p.take(11.5)), 12);  // a rest of 0.5 is not
  EXPECT_EQ(p.reserved(), 24);
  EXPECT_EQ(p.size(p.take(1.25)), 1.5);  // from the rest of the first
  EXPECT_EQ(p.reserved(), 24);
}

TEST(Allocator, TakesTheBestFit) {
  Pools p;
  const Handle large = p.take(40), medium = p.take(14), other = p.take(40);
  p.allocator.free(large);
  p.allocator.free(medium);
  p.allocator.free(other);
  EXPECT_EQ(p.size(p.take(13.5)), 14);
  EXPECT_EQ(p.size(p.take(30)), 30);  // split from one of the two of 40, the rest is 10
  EXPECT_EQ(p.size(p.take(9)), 10);   // the rest fits better than the other 40
  EXPECT_EQ(p.size(p.take(39)), 40);
  EXPECT_EQ(p.reserved(), 94);
}

TEST(Allocator, FragmentsWhereFreeBlocksAreNotNeighbours) {
  Pools p;
  const Handle a = p.take(6), b = p.take(6), c = p.take(6);  // and 2 left over in the segment of 20
  EXPECT_EQ(p.reserved(), 20);
  p.allocator.free(a);
  p.allocator.free(c);  // merges with the 2 behind it
  EXPECT_EQ(p.size(p.take(8)), 8);
  EXPECT_EQ(p.reserved(), 20);
  p.take(7);  // 6 are free
  EXPECT_EQ(p.reserved(), 40);
  p.allocator.free(b);  // 6 and 6 merge
  EXPECT_EQ(p.size(p.take(11.5)), 12);
  EXPECT_EQ(p.reserved(), 40);
}

TEST(Allocator, FreeBlocksServeTheirOwnStreamOnly) {
  Pools p;
  p.allocator.free(p.take(30));
  p.take(30, side_stream);
  EXPECT_EQ(p.reserved(), 60);
  p.take(30);
  EXPECT_EQ(p.reserved(), 60);
}

TEST(Allocator, BlocksThatAnotherStreamUsesComeBackLate) {
  Pools p;
  const Handle first = p.take(30);
  p.allocator.free_after(first, ticks(10));
  EXPECT_EQ(p.allocated(), 0);
  EXPECT_EQ(p.active(), 30);
  const Handle second = p.take(30, main_stream, 9);  // the other stream has not passed
  EXPECT_EQ(p.reserved(), 60);
  EXPECT_EQ(p.active(), 60);
  p.take(30, main_stream, 10);
  EXPECT_EQ(p.reserved(), 60);
  EXPECT_NE(second, first);
  EXPECT_EQ(p.allocated(), 60);
}

TEST(Allocator, EmptiesTheCacheWhereTheDriverHasNoMore) {
  Pools p({.capacity = mebibytes(50), .max_split_size = {}});
  p.allocator.free(p.take(20));
  p.take(30);
  EXPECT_EQ(p.reserved(), 50);
  EXPECT_EQ(p.allocator.retries(), 0);
  p.take(12, side_stream);
  EXPECT_EQ(p.reserved(), 42);  // the cached 20 went back
  EXPECT_EQ(p.allocator.retries(), 1);
  EXPECT_FALSE(p.allocator.out_of_memory());
}

TEST(Allocator, WaitsForOtherStreamsBeforeItGivesUp) {
  Pools p({.capacity = mebibytes(50), .max_split_size = {}});
  p.allocator.free_after(p.take(40), ticks(1000));
  p.take(30, main_stream, 1);
  EXPECT_EQ(p.allocator.retries(), 1);
  EXPECT_EQ(p.reserved(), 30);  // the 40 were waited for and given back, then 30 taken
  EXPECT_EQ(p.active(), 30);
  EXPECT_FALSE(p.allocator.out_of_memory());
}

TEST(Allocator, SegmentsInUseCannotGoBack) {
  Pools p({.capacity = mebibytes(50), .max_split_size = {}});
  const Handle large = p.take(30);
  p.allocator.free(large);
  p.take(4);  // sits in the segment of 30
  p.take(28, side_stream);
  EXPECT_TRUE(p.allocator.out_of_memory());
  EXPECT_EQ(p.reserved(), 58);  // what would have been needed
}

TEST(Allocator, OversizeBlocksAreNeitherSplitNorGivenToSmallRequests) {
  Pools p({.capacity = mebibytes(300), .max_split_size = mebibytes(100)});
  p.allocator.free(p.take(200));
  p.take(50);
  EXPECT_EQ(p.reserved(), 250);
  const Handle near = p.take(190);
  EXPECT_EQ(p.size(near), 200);
  p.allocator.free(near);
  p.take(150);  // more than 20 below 200; the cached 200 goes back first
  EXPECT_EQ(p.reserved(), 200);
  EXPECT_EQ(p.allocator.retries(), 0);
}

TEST(Allocator, ExpandableSegmentsGrow) {
  for (const bool expandable : {false, true}) {
    Pools p({.capacity = {}, .max_split_size = {}, .expandable_segments = expandable});
    p.allocator.free(p.take(30));
    p.take(50);
    EXPECT_EQ(p.reserved(), expandable ? 60 : 80);  // pages of 20: 40, then 60
    EXPECT_EQ(p.size(p.take(9.5)), 9.5);
    EXPECT_EQ(p.reserved(), expandable ? 60 : 80);
    p.take(0.75, side_stream);
    EXPECT_EQ(p.reserved(), expandable ? 62 : 82);
  }
}

TEST(Allocator, ExpandableSegmentsGiveBackPagesInTheMiddle) {
  Pools p({.capacity = mebibytes(100), .max_split_size = {}, .expandable_segments = true});
  const Handle a = p.take(30), b = p.take(30), c = p.take(30);
  EXPECT_EQ(p.reserved(), 100);
  p.allocator.free(b);  // from 30 to 60: the page from 40 to 60 is wholly free, and the rest behind 90 is not a page
  p.take(15, side_stream);
  EXPECT_EQ(p.allocator.retries(), 1);
  EXPECT_EQ(p.reserved(), 100);  // 80 + 20
  EXPECT_FALSE(p.allocator.out_of_memory());
  p.allocator.free(a);
  p.allocator.free(c);
  EXPECT_EQ(p.allocated(), 15);
}

// Properties -------------------------------------------------------------------------------------------------------------------------

struct Call {
  int kind, stream, size, which, delay;
};
std::ostream& operator<<(std::ostream& out, const Call& c) {
  return out << "{" << c.kind << " " << c.stream << " " << c.size << " " << c.which << " " << c.delay << "}";
}

rc::Gen<std::vector<Call>> calls() {
  return rc::gen::container<std::vector<Call>>(
      rc::gen::build<Call>(rc::gen::set(&Call::kind, rc::gen::inRange(0, 5)), rc::gen::set(&Call::stream, rc::gen::inRange(0, 3)),
                           rc::gen::set(&Call::size, rc::gen::inRange(1, 1000)), rc::gen::set(&Call::which, rc::gen::inRange(0, 1000)),
                           rc::gen::set(&Call::delay, rc::gen::inRange(0, 20))));
}

void check_blocks(const CachingAllocator& allocator, bool expandable) {
  using State = CachingAllocator::State;
  Bytes allocated, awaiting, mapped;
  const std::vector<CachingAllocator::Block> blocks = allocator.blocks();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    mapped += Bytes{blocks[i].size};
    if (blocks[i].state == State::allocated) allocated += Bytes{blocks[i].size};
    if (blocks[i].state == State::awaiting) awaiting += Bytes{blocks[i].size};
    if (i == 0) continue;
    RC_ASSERT(blocks[i - 1].address + blocks[i - 1].size <= blocks[i].address);  // no two overlap
    const bool neighbours = blocks[i].previous >= 0 && (!expandable || blocks[i - 1].address + blocks[i - 1].size == blocks[i].address);
    RC_ASSERT(!(neighbours && blocks[i - 1].state == State::free && blocks[i].state == State::free));
  }
  RC_ASSERT(allocated == allocator.now().allocated);
  RC_ASSERT(allocated + awaiting == allocator.now().active);
  RC_ASSERT(mapped == allocator.now().reserved);
}

RC_GTEST_PROP(Allocator, BlocksNeverOverlapAndAllocatedIsAtMostActiveIsAtMostReserved, ()) {
  const AllocatorOptions options{.capacity = *rc::gen::element(Bytes{}, mebibytes(200), mebibytes(2000)),
                                 .max_split_size = *rc::gen::element(std::optional<Bytes>{}, std::optional<Bytes>{mebibytes(64)}),
                                 .expandable_segments = *rc::gen::arbitrary<bool>()};
  CachingAllocator allocator(3, options);
  std::vector<Handle> live;
  std::int64_t now = 0;
  for (const Call& call : *calls()) {
    ++now;
    if (call.kind <= 2 || live.empty()) {
      const Bytes size = call.kind == 0 ? Bytes{call.size * 997} : Bytes{call.size * 99'991};  // up to 1 MB and up to 100 MB
      live.push_back(allocator.allocate(size, StreamId{call.stream}, ticks(now)));
      RC_ASSERT(allocator.size(live.back()) >= size);
    } else {
      const auto block = live.begin() + call.which % static_cast<int>(live.size());
      if (call.kind == 3)
        allocator.free(*block);
      else
        allocator.free_after(*block, ticks(now + call.delay));
      live.erase(block);
    }
    RC_ASSERT(allocator.now().allocated <= allocator.now().active);
    RC_ASSERT(allocator.now().active <= allocator.now().reserved);
    if (options.capacity > Bytes{} && !allocator.out_of_memory()) RC_ASSERT(allocator.now().reserved <= options.capacity);
    check_blocks(allocator, options.expandable_segments);
  }
}

// Schedules --------------------------------------------------------------------------------------------------------------------------

Buffer megabytes(std::int64_t mib, Category category, StreamId pool = {}) {
  return {.label = {"buffer", {}}, .category = category, .dtype = DType::int8, .pool = pool, .elements = Elements{mib << 20}};
}

TEST(AllocatorReplay, RecordedStreamsDelayReuse) {
  for (const bool recorded : {false, true}) {
    HandMade h;
    const StreamId gather = h.builder.stream("gather");
    const BufferId first = h.builder.allocate(megabytes(30, Category::communication_buffers, gather));
    h.compute("use", 10, 1);
    h.builder.free(first, recorded ? ScheduleBuilder::compute_stream() : StreamId{});
    h.compute("more", 1, 2);  // the host is at 3, the first kernel ends at 11
    const BufferId second = h.builder.allocate(megabytes(30, Category::communication_buffers, gather));
    h.builder.free(second);
    const AllocatorReplay replay = replay_allocations(h.builder.schedule(), h.replay(), {}, {}, 1);
    EXPECT_EQ(replay.peak.allocated, mebibytes(30));
    EXPECT_EQ(replay.peak.active, mebibytes(recorded ? 60 : 30));
    EXPECT_EQ(replay.peak.reserved, mebibytes(recorded ? 60 : 30));
  }
}

TEST(AllocatorReplay, WaitsCountAsPartOfTheStream) {
  HandMade h;
  const StreamId side = h.builder.stream("side");
  const BufferId first = h.builder.allocate(megabytes(30, Category::temporaries));
  h.builder.wait(side, h.compute("use", 10));
  h.builder.free(first, side);  // the event on `side` stands behind the wait
  const BufferId second = h.builder.allocate(megabytes(30, Category::temporaries));
  h.builder.free(second);
  EXPECT_EQ(replay_allocations(h.builder.schedule(), h.replay(), {}, {}, 1).peak.reserved, mebibytes(60));
}

TEST(AllocatorReplay, ASecondStepMeetsAFilledCache) {
  HandMade h;
  Buffer weights = megabytes(100, Category::parameters);
  weights.persistent = true;
  h.builder.buffer(weights);
  const BufferId a = h.builder.allocate(megabytes(12, Category::activations));
  const BufferId b = h.builder.allocate(megabytes(40, Category::activations));
  h.builder.free(a);
  h.builder.free(b);
  const BufferId c = h.builder.allocate(megabytes(30, Category::activations));
  const BufferId d = h.builder.allocate(megabytes(20, Category::activations));
  h.builder.free(c);
  h.builder.free(d);
  const Timeline timeline = h.replay();
  // First step: 12 and 40; 30 out of the 40; a new segment of 20. Second: 12, 40, 30 out of the 40, 20: nothing new.
  EXPECT_EQ(replay_allocations(h.builder.schedule(), timeline, {}, {}, 1).peak.reserved, mebibytes(172));
  EXPECT_EQ(replay_allocations(h.builder.schedule(), timeline, {}, {}, 2).peak.reserved, mebibytes(172));
  const AllocatorReplay with_workspace = replay_allocations(h.builder.schedule(), timeline, {}, mebibytes(64));
  EXPECT_EQ(with_workspace.peak.reserved, mebibytes(236));
  EXPECT_EQ(with_workspace.peak.allocated, mebibytes(100 + 52 + 64));
  EXPECT_EQ(sum(with_workspace.at_peak), with_workspace.peak.allocated);
  EXPECT_EQ(with_workspace.at_peak[static_cast<std::size_t>(Category::activations)], mebibytes(52));
  EXPECT_EQ(with_workspace.at_peak[static_cast<std::size_t>(Category::temporaries)], mebibytes(64));
}

}  // namespace
}  // namespace shardsim
