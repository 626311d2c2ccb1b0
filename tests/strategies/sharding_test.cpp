// SPDX-License-Identifier: Apache-2.0
#include "strategies/shared/sharding.hpp"

#include <gtest/gtest.h>

#include "jobs.hpp"
#include "strategies/shared/bucketing.hpp"

namespace shardsim::testing {
namespace {

// Toy T: root {embed, norm, head} = 1,624 elements, two blocks of 178.
struct Padded {
  std::int64_t n, rows_root, rows_block, each_total, flat_2n;
};

class ToyPadding : public ::testing::TestWithParam<Padded> {};

TEST_P(ToyPadding, FollowsEachLibrarysRule) {
  const Padded expected = GetParam();
  const OwnedJob owned = make_job(toy(), "ddp");
  const Model& model = *owned.model;
  std::int64_t root = 0, block = 0, each = 0;
  for (const Parameter& p : *model.parameters) {
    each += each_padded(p, expected.n).value();
    const bool in_block = p.name.starts_with("block");
    if (!in_block) root += rows_padded(p, expected.n).value();
    if (p.name.starts_with("block.0")) block += rows_padded(p, expected.n).value();
  }
  EXPECT_EQ(root, expected.rows_root);
  EXPECT_EQ(block, expected.rows_block);
  EXPECT_EQ(each, expected.each_total);
  EXPECT_EQ(flat_layout(model, all_parameters(model), 1, 2 * expected.n).elements.value(), expected.flat_2n);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ToyPadding,
                         ::testing::Values(Padded{2, 1640, 178, 1980, 1980}, Padded{4, 1672, 196, 1984, 1984},
                                           Padded{8, 1672, 232, 1992, 1984}));

TEST(FlatLayout, AlignsEachTensorAndPadsTheTail) {
  const OwnedJob owned = make_job(toy(), "ddp");
  std::vector<ParameterId> block;
  for (ParameterId p : all_parameters(*owned.model))
    if (owned.model->at(p).name.starts_with("block.0")) block.push_back(p);
  EXPECT_EQ(flat_layout(*owned.model, block, 1, 8).elements.value(), 184);
  EXPECT_EQ(flat_layout(*owned.model, block, 4, 2).elements.value(), 180);  // 80, 92 (10 padded to 12), 172, 180
  EXPECT_EQ(flat_layout(*owned.model, block, 8, 4).elements.value(), 184);
  EXPECT_EQ(flat_layout(*owned.model, block, 4, 4).starts, (std::vector<std::int64_t>{0, 80, 92, 172}));
}

// d0 = 10 over 4 ranks: chunks of ceil(10 / 4) = 3 rows: 3, 3, 3, 1; over 8: 2, 2, 2, 2, 2, 0, 0, 0.
TEST(RowsOwned, LastRanksOwnLessDownToNothing) {
  const Parameter p{.name = "w", .shape = {10, 8}, .elements = Elements{80}};
  std::vector<std::int64_t> four, eight;
  for (int r = 0; r < 4; ++r) four.push_back(rows_owned(p, 4, r).value());
  for (int r = 0; r < 8; ++r) eight.push_back(rows_owned(p, 8, r).value());
  EXPECT_EQ(four, (std::vector<std::int64_t>{24, 24, 24, 8}));
  EXPECT_EQ(eight, (std::vector<std::int64_t>{16, 16, 16, 16, 16, 0, 0, 0}));
}

std::vector<std::vector<std::int64_t>> grouped_sizes(const std::vector<std::int64_t>& sizes, const std::vector<BucketRange>& ranges) {
  std::vector<std::vector<std::int64_t>> groups;
  for (const BucketRange& r : ranges)
    groups.emplace_back(sizes.begin() + static_cast<std::ptrdiff_t>(r.begin), sizes.begin() + static_cast<std::ptrdiff_t>(r.end));
  return groups;
}
using Groups = std::vector<std::vector<std::int64_t>>;

TEST(Bucketing, DdpClosesWhenFull) {  // tenths of MiB: 0.5 0.6 20 4 2 30 with caps 1, then 25
  const std::vector<std::int64_t> sizes{5, 6, 200, 40, 20, 300}, limits{10, 250};
  EXPECT_EQ(grouped_sizes(sizes, close_when_full(sizes, limits)), (Groups{{5, 6}, {200, 40, 20}, {300}}));
  EXPECT_EQ(close_when_full(sizes, {}).size(), 1u);
}

TEST(Bucketing, MegatronClosesWhenFull) {
  const std::vector<std::int64_t> sizes{4, 4, 4, 12, 3}, limits{10};
  EXPECT_EQ(grouped_sizes(sizes, close_when_full(sizes, limits)), (Groups{{4, 4, 4}, {12}, {3}}));
}

TEST(Bucketing, DeepSpeedFlushesBeforeExceeding) {
  const std::vector<std::int64_t> sizes{4, 4, 4, 12, 3};
  EXPECT_EQ(grouped_sizes(sizes, flush_before_exceeding(sizes, 10)), (Groups{{4, 4}, {4}, {12}, {3}}));
}

}  // namespace
}  // namespace shardsim::testing
