// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/account.hpp"

#include <gtest/gtest.h>

#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {
namespace {

struct World {
  ScheduleBuilder builder;
  explicit World(std::int64_t size) { builder.schedule().world_size = size; }

  void send(CommunicatorId communicator, Collective kind, std::int64_t elements, DType dtype = DType::bf16, std::int32_t root = 0,
            bool control = false) {
    builder.communicate(
        {"send", {}}, ScheduleBuilder::compute_stream(),
        {.kind = kind, .communicator = communicator, .dtype = dtype, .control = control, .root = root, .payload = Elements{elements}});
  }
  [[nodiscard]] Traffic traffic(std::int64_t psi) { return account(builder.schedule(), Elements{psi}); }
};

Bytes of(const Traffic& traffic, Collective c) { return traffic.sent_per_rank[static_cast<std::size_t>(c)]; }

TEST(Account, RingCollectives) {
  World w(8);
  const CommunicatorId shard = w.builder.communicator("shard", "shard", 8);
  w.send(shard, Collective::all_gather, 800);  // 1600 B: 7/8 = 1400
  w.send(shard, Collective::all_gather, 800);
  w.send(shard, Collective::reduce_scatter, 800, DType::fp32);  // 3200 B: 2800
  w.send(shard, Collective::all_reduce, 80);                    // 160 B: 2 * 140
  const Traffic t = w.traffic(800);
  EXPECT_EQ(of(t, Collective::all_gather), Bytes{2800});
  EXPECT_EQ(of(t, Collective::reduce_scatter), Bytes{2800});
  EXPECT_EQ(of(t, Collective::all_reduce), Bytes{280});
  EXPECT_EQ(t.total, Bytes{5880});
  EXPECT_EQ(t.by_rank_min, Bytes{5880});
  EXPECT_EQ(t.by_rank_max, Bytes{5880});
  EXPECT_EQ(t.by_rank_mean, 5880);
  EXPECT_DOUBLE_EQ(t.psi_units, (2 * 1600 + 3200 + 2 * 160) / 800.0);
}

TEST(Account, OneRowForCallsAlike) {
  World w(8);
  const CommunicatorId shard = w.builder.communicator("gather", "shard", 8), other = w.builder.communicator("reduce", "shard", 8);
  w.send(shard, Collective::reduce_scatter, 8);
  w.send(shard, Collective::all_gather, 8);
  w.send(other, Collective::all_gather, 8);  // another communicator, the same group
  w.send(shard, Collective::all_gather, 16);
  w.send(shard, Collective::all_gather, 8, DType::fp32);  // as many bytes as the one before, another dtype
  const Traffic t = w.traffic(8);
  ASSERT_EQ(t.by_group.size(), 4u);
  EXPECT_EQ(t.by_group[0].payload, Bytes{32});
  EXPECT_EQ(t.by_group[0].calls, 1);
  EXPECT_EQ(t.by_group[1].payload, Bytes{16});
  EXPECT_EQ(t.by_group[1].calls, 2);
  EXPECT_EQ(t.by_group[1].sent_per_rank, Bytes{28});
  EXPECT_EQ(t.by_group[1].group, "shard");
  EXPECT_EQ(t.by_group[1].algorithm, "ring");
  EXPECT_EQ(t.by_group[2].dtype, DType::fp32);
  EXPECT_EQ(t.by_group[3].collective, Collective::reduce_scatter);
}

// 3 ranks, 10 bytes: 2 * 2/3 * 10 = 13.33 each time. Rounded once: 40 for three calls, where three roundings would give 42.
TEST(Account, RoundsUpOnce) {
  World w(3);
  const CommunicatorId all = w.builder.communicator("all", "all", 3);
  for (int i = 0; i < 3; ++i) w.send(all, Collective::all_reduce, 10, DType::int8);
  w.send(all, Collective::all_gather, 10, DType::int8);      // 6.67
  w.send(all, Collective::reduce_scatter, 10, DType::int8);  // 6.67
  const Traffic t = w.traffic(10);
  EXPECT_EQ(of(t, Collective::all_reduce), Bytes{40});
  EXPECT_EQ(of(t, Collective::all_gather), Bytes{7});
  EXPECT_EQ(of(t, Collective::reduce_scatter), Bytes{7});
  EXPECT_EQ(t.total, Bytes{54});  // 53.33
}

TEST(Account, GroupsOfOneSendNothing) {
  World w(1);
  const CommunicatorId alone = w.builder.communicator("alone", "alone", 1);
  w.send(alone, Collective::all_reduce, 100);
  w.send(alone, Collective::broadcast, 100);
  EXPECT_EQ(w.traffic(100).total, Bytes{});
  EXPECT_DOUBLE_EQ(w.traffic(100).psi_units, 0);
  w.builder.schedule().semantics = "textbook";
  EXPECT_DOUBLE_EQ(w.traffic(100).psi_units, 2 * 2 + 2);  // the papers' formulas are defined for every n
}

TEST(Account, TwoLevels) {
  World w(32);
  w.send(w.builder.communicator("shard", "shard", 8), Collective::reduce_scatter, 1024, DType::fp32);        // 4096 * 7/8 = 3584
  w.send(w.builder.communicator("replicate", "replicate", 4, 8), Collective::all_reduce, 128, DType::fp32);  // 512 * 2 * 3/4 = 768
  const Traffic t = w.traffic(1024);
  EXPECT_EQ(t.total, Bytes{4352});
  EXPECT_EQ(t.by_group[1].group, "replicate");
}

TEST(Account, TailOfABroadcastSendsNothing) {
  World w(4);
  const CommunicatorId all = w.builder.communicator("all", "all", 4);
  w.send(all, Collective::broadcast, 50, DType::bf16, 1);  // 100 B; rank 0 is the tail
  w.send(all, Collective::broadcast, 5, DType::bf16, 0);   // 10 B; rank 3 is the tail
  const Traffic t = w.traffic(50);
  EXPECT_EQ(t.total, Bytes{110});  // ranks 1 and 2
  EXPECT_EQ(t.by_rank_max, Bytes{110});
  EXPECT_EQ(t.by_rank_min, Bytes{10});     // rank 0
  EXPECT_DOUBLE_EQ(t.by_rank_mean, 82.5);  // (10 + 110 + 110 + 100) / 4
  EXPECT_EQ(t.by_group[0].algorithm, "chain");
  EXPECT_EQ(t.by_group[0].sent_per_rank, Bytes{100});
}

TEST(Account, RootOfAReductionSendsNothing) {
  World w(4);
  const CommunicatorId all = w.builder.communicator("all", "all", 4);
  for (std::int32_t root = 0; root < 4; ++root) w.send(all, Collective::reduce, 50, DType::bf16, root);  // roots rotate: all alike
  const Traffic even = w.traffic(50);
  EXPECT_EQ(even.total, Bytes{300});
  EXPECT_EQ(even.by_rank_min, Bytes{300});
  w.send(all, Collective::all_gather, 50);  // 75 each
  w.send(all, Collective::reduce, 50, DType::bf16, 2);
  const Traffic uneven = w.traffic(50);
  EXPECT_EQ(uneven.by_rank_min, Bytes{375});
  EXPECT_EQ(uneven.total, Bytes{475});
  EXPECT_EQ(of(uneven, Collective::reduce), Bytes{400});
  EXPECT_EQ(of(uneven, Collective::all_gather), Bytes{75});
}

TEST(Account, ControlIsApart) {
  World w(8);
  const CommunicatorId all = w.builder.communicator("all", "all", 8);
  w.send(all, Collective::all_reduce, 1, DType::fp32, 0, true);  // 4 B: 7
  w.send(all, Collective::all_reduce, 8, DType::fp32);           // 32 B: 56
  const Traffic t = w.traffic(8);
  EXPECT_EQ(t.control, Bytes{7});
  EXPECT_EQ(t.total, Bytes{56});
  EXPECT_DOUBLE_EQ(t.psi_units, 8);
  ASSERT_EQ(t.by_group.size(), 2u);
  EXPECT_FALSE(t.by_group[0].control);
  EXPECT_TRUE(t.by_group[1].control);
}

TEST(Account, CountsBeyond64BitsInBetween) {
  World w(16384);
  const CommunicatorId all = w.builder.communicator("all", "all", 16384);
  const std::int64_t elements = std::int64_t{1} << 50;  // times 2 bytes times 2 (n - 1) does not fit 64 bits
  w.send(all, Collective::all_reduce, elements);
  EXPECT_EQ(w.traffic(elements).total, Bytes{4 * elements - 4 * elements / 16384});
}

}  // namespace
}  // namespace shardsim
