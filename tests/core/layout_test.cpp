// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardsim {
namespace {

using testing::ElementsAre;

// Three parameters: 5 rows of 2, a vector of 3, 4 rows of 1.
const std::vector<ParameterShape> shapes{{5, 2}, {3, 1}, {4, 1}};
const std::vector<ParameterId> all{ParameterId{0}, ParameterId{1}, ParameterId{2}};

Piece piece(int parameter, std::int64_t first, std::int64_t count, std::int64_t offset) {
  return {ParameterId{parameter}, first, count, offset};
}

TEST(Layout, NoneAlignsStartsAndPadsTheWhole) {
  const Layout layout{.align = 4, .multiple = 7};
  const Expansion e = expand(layout, all, shapes, 0);
  EXPECT_THAT(e.pieces, ElementsAre(piece(0, 0, 10, 0), piece(1, 0, 3, 12), piece(2, 0, 4, 16)));
  EXPECT_EQ(e.extent, 21);  // 20 elements up to a multiple of 7
}

TEST(Layout, FlatShardsDifferByAtMostOneElement) {
  Layout layout{.partition = Layout::Partition::flat, .shard = true, .n = 3};
  // 17 elements: 6, 6, 5.
  EXPECT_THAT(expand(layout, all, shapes, 0).pieces, ElementsAre(piece(0, 0, 6, 0)));
  EXPECT_THAT(expand(layout, all, shapes, 1).pieces, ElementsAre(piece(0, 6, 4, 0), piece(1, 0, 2, 4)));
  EXPECT_THAT(expand(layout, all, shapes, 2).pieces, ElementsAre(piece(1, 2, 1, 0), piece(2, 0, 4, 1)));
  EXPECT_EQ(expand(layout, all, shapes, 2).extent, 5);
  layout.multiple = 6;  // 18 elements: the last one is padding
  EXPECT_EQ(expand(layout, all, shapes, 2).extent, 6);
}

TEST(Layout, ASliceIsCutBeforeItIsSharded) {
  Layout layout{.partition = Layout::Partition::flat, .n = 2, .first = 8, .length = 6};  // p0[8..9], p1[0..2], p2[0]
  EXPECT_THAT(expand(layout, all, shapes, 0).pieces, ElementsAre(piece(0, 8, 2, 0), piece(1, 0, 3, 2), piece(2, 0, 1, 5)));
  layout.shard = true;
  EXPECT_THAT(expand(layout, all, shapes, 1).pieces, ElementsAre(piece(1, 1, 2, 0), piece(2, 0, 1, 2)));
  layout.length = 10;
  EXPECT_THROW((void)expand(layout, all, shapes, 0), std::logic_error);
}

TEST(Layout, EachIsStoredRankByRank) {
  Layout layout{.partition = Layout::Partition::each, .n = 3};
  // Parts of ceil(10/3) = 4, ceil(3/3) = 1, ceil(4/3) = 2 elements: 7 a rank, 21 in all.
  const Expansion whole = expand(layout, all, shapes, 0);
  EXPECT_EQ(whole.extent, 21);
  EXPECT_THAT(whole.pieces, ElementsAre(piece(0, 0, 4, 0), piece(1, 0, 1, 4), piece(2, 0, 2, 5), piece(0, 4, 4, 7), piece(1, 1, 1, 11),
                                        piece(2, 2, 2, 12), piece(0, 8, 2, 14), piece(1, 2, 1, 18)));
  layout.shard = true;
  EXPECT_THAT(expand(layout, all, shapes, 2).pieces, ElementsAre(piece(0, 8, 2, 0), piece(1, 2, 1, 4)));
  EXPECT_EQ(expand(layout, all, shapes, 2).extent, 7);
  layout.unpadded = true;
  EXPECT_EQ(expand(layout, all, shapes, 2).extent, 3);
  EXPECT_THAT(expand(layout, all, shapes, 2).pieces, ElementsAre(piece(0, 8, 2, 0), piece(1, 2, 1, 2)));
}

TEST(Layout, RowsFollowTorchChunk) {
  Layout layout{.partition = Layout::Partition::rows, .shard = true, .n = 4};
  // ceil(5/4) = 2 rows, ceil(3/4) = 1, ceil(4/4) = 1: rank 2 holds the fifth row, rank 3 nothing of p0 and p1.
  EXPECT_THAT(expand(layout, all, shapes, 2).pieces, ElementsAre(piece(0, 8, 2, 0), piece(1, 2, 1, 4), piece(2, 2, 1, 5)));
  EXPECT_THAT(expand(layout, all, shapes, 3).pieces, ElementsAre(piece(2, 3, 1, 5)));
  EXPECT_EQ(expand(layout, all, shapes, 3).extent, 6);
  layout.unpadded = true;
  EXPECT_EQ(expand(layout, all, shapes, 3).extent, 1);
}

TEST(Layout, StrideSelectsThePartOfRanksThatAreNotNeighbours) {
  const Layout layout{.partition = Layout::Partition::flat, .shard = true, .n = 2, .stride = 2};
  EXPECT_EQ(expand(layout, all, shapes, 1).pieces, expand(layout, all, shapes, 0).pieces);
  EXPECT_EQ(expand(layout, all, shapes, 2).pieces.front(), piece(0, 9, 1, 0));
}

TEST(Layout, OverlapsAreTheIntersection) {
  const Layout flat{.partition = Layout::Partition::flat, .shard = true, .n = 2};  // rank 0: p0[0..8]
  const Layout rows{.partition = Layout::Partition::rows, .shard = true, .n = 2};  // rank 1: p0[6..9], p1[2], p2[2..3]
  const auto found = overlaps(expand(flat, all, shapes, 0).pieces, expand(rows, all, shapes, 1).pieces);
  EXPECT_THAT(found, ElementsAre(Overlap{ParameterId{0}, 6, 3, 6, 0}));
}

// Every element of every parameter is owned once, whatever the partition.
TEST(Layout, ShardsCoverEveryElementOnce) {
  for (auto partition : {Layout::Partition::flat, Layout::Partition::each, Layout::Partition::rows})
    for (int n : {1, 2, 3, 4, 7}) {
      const Layout layout{.partition = partition, .shard = true, .n = n};
      std::vector<std::vector<int>> owners{std::vector<int>(10), std::vector<int>(3), std::vector<int>(4)};
      for (int rank = 0; rank < n; ++rank)
        for (const Piece& p : expand(layout, all, shapes, rank).pieces)
          for (std::int64_t i = 0; i < p.count; ++i)
            ++owners[static_cast<std::size_t>(p.parameter.index)][static_cast<std::size_t>(p.first + i)];
      for (const auto& parameter : owners) EXPECT_THAT(parameter, testing::Each(1)) << n;
    }
}

}  // namespace
}  // namespace shardsim
