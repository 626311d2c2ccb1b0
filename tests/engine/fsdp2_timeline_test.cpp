// SPDX-License-Identifier: Apache-2.0
// A hand-made schedule with FSDP2's gates: three equal blocks, an empty root, a host that costs nothing. Forward 10, backward 20,
// copy-in, copy-out and chunk_cat 1 each. The expected times were derived by hand from the event list of fully_shard.
#include <gtest/gtest.h>

#include <array>

#include "hand_made.hpp"

namespace shardsim {
namespace {

struct Variant {
  std::int64_t all_gather, reduce_scatter;
  std::size_t retained = 1;  ///< reduce_scatter_max_input_buffers
  bool separate = false;     ///< set_separate_reduce_scatter_group
  std::int64_t forward_end, step_end;
};

struct ThreeBlocks {
  HandMade h;
  StreamId compute = ScheduleBuilder::compute_stream();
  StreamId copy_in = h.builder.stream("copy_in"), gather = h.builder.stream("all_gather"), reduce = h.builder.stream("reduce_scatter");
  CommunicatorId shard = h.builder.communicator("shard", "shard", 8);
  CommunicatorId reduce_group;
  Variant variant;
  std::array<OpId, 3> gather_forward, gather_backward, copy_out_forward, reduced, chunk_cat;
  OpId last_forward;
  std::vector<OpId> retained;

  explicit ThreeBlocks(const Variant& v) : reduce_group(v.separate ? h.builder.communicator("reduce", "shard", 8) : shard), variant(v) {
    for (std::size_t j = 0; j < 3; ++j) forward(j);
    hold_gathers(copy_out_forward[2]);
    gather_backward[2] = unshard("ag_b");
    for (std::size_t i = 3; i-- > 0;) backward(i);
    for (OpId op : retained) h.builder.wait(compute, op);
    h.compute("end", 0);
  }

  void hold_gathers(OpId op) {
    h.builder.wait(copy_in, op);
    h.builder.wait(gather, op);
  }

  OpId unshard(const char* verb) {
    h.copy(copy_in, "copy_in", 1);
    h.builder.wait_stream(gather, copy_in);
    return h.collective(gather, shard, verb, variant.all_gather);
  }

  OpId copy_out(OpId gathered) {
    h.builder.wait(compute, gathered);
    return h.compute("copy_out", 1);
  }

  void forward(std::size_t j) {
    gather_forward[j] = unshard("ag_f");
    if (j > 0) hold_gathers(copy_out_forward[j - 1]);
    copy_out_forward[j] = copy_out(gather_forward[j]);
    last_forward = h.compute("forward", 10);
  }

  void backward(std::size_t i) {
    hold_gathers(copy_out(gather_backward[i]));
    if (i > 0) gather_backward[i - 1] = unshard("ag_b");
    h.compute("backward", 20);
    if (retained.size() >= variant.retained) {
      h.builder.wait(compute, retained.front());
      retained.erase(retained.begin());
    }
    chunk_cat[i] = h.compute("chunk_cat", 1);
    h.builder.wait_stream(reduce, compute);
    reduced[i] = h.collective(reduce, reduce_group, "rs", variant.reduce_scatter, 0, 0, Collective::reduce_scatter);
    retained.push_back(reduced[i]);
  }
};

void expect_ends(ThreeBlocks& blocks, const Timeline& t) {
  EXPECT_EQ(ran(t, blocks.last_forward).end, static_cast<double>(blocks.variant.forward_end));
  EXPECT_EQ(t.end, ticks(blocks.variant.step_end));
}

TEST(Fsdp2Timeline, FastCollectives) {
  ThreeBlocks blocks({.all_gather = 8, .reduce_scatter = 12, .forward_end = 42, .step_end = 120});
  const Timeline t = blocks.h.replay();
  expect_ends(blocks, t);
  EXPECT_EQ(ran(t, blocks.gather_forward[2]), (Ran{17, 25}));
  EXPECT_EQ(ran(t, blocks.gather_backward[2]), (Ran{33, 41}));  // overlaps the forward of block 2
  EXPECT_EQ(ran(t, blocks.gather_backward[1]), (Ran{44, 52}));
  EXPECT_EQ(ran(t, blocks.reduced[2]), (Ran{64, 76}));
  EXPECT_EQ(ran(t, blocks.gather_backward[0]), (Ran{76, 84}));  // queued behind the reduce-scatter of block 2
  EXPECT_EQ(ran(t, blocks.reduced[1]), (Ran{86, 98}));
  EXPECT_EQ(ran(t, blocks.reduced[0]), (Ran{108, 120}));
}

TEST(Fsdp2Timeline, SlowCollectivesStallTheCopyInOfTheNextBlock) {
  ThreeBlocks blocks({.all_gather = 15, .reduce_scatter = 30, .forward_end = 57, .step_end = 191});
  const Timeline t = blocks.h.replay();
  expect_ends(blocks, t);
  EXPECT_EQ(ran(t, blocks.reduced[2]), (Ran{85, 115}));
  EXPECT_EQ(ran(t, blocks.gather_backward[0]), (Ran{115, 130}));
  EXPECT_EQ(ran(t, blocks.chunk_cat[1]).begin, 115);
  EXPECT_EQ(ran(t, blocks.reduced[1]), (Ran{130, 160}));
  EXPECT_EQ(ran(t, blocks.reduced[0]), (Ran{161, 191}));
}

TEST(Fsdp2Timeline, TwoRetainedInputs) {
  ThreeBlocks blocks({.all_gather = 15, .reduce_scatter = 30, .retained = 2, .forward_end = 57, .step_end = 190});
  const Timeline t = blocks.h.replay();
  expect_ends(blocks, t);
  EXPECT_EQ(ran(t, blocks.chunk_cat[1]).begin, 106);
}

TEST(Fsdp2Timeline, SeparateReduceScatterGroup) {
  ThreeBlocks blocks({.all_gather = 15, .reduce_scatter = 30, .separate = true, .forward_end = 57, .step_end = 177});
  const Timeline t = blocks.h.replay();
  expect_ends(blocks, t);
  EXPECT_EQ(ran(t, blocks.gather_backward[0]), (Ran{87, 102}));
  EXPECT_EQ(ran(t, blocks.reduced[1]), (Ran{116, 146}));
  EXPECT_EQ(ran(t, blocks.reduced[0]), (Ran{147, 177}));
}

}  // namespace
}  // namespace shardsim
