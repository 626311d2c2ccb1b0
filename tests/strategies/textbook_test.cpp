// SPDX-License-Identifier: Apache-2.0
// The papers' formulas against the papers' schedules, and against the ZeRO paper's own table.
#include <gtest/gtest.h>

#include "jobs.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim::testing {
namespace {

const std::vector<std::string> textbook_names{"naive_dp", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};

TEST(Textbook, FormulaEqualsScheduleOverAGrid) {
  for (const std::string& name : textbook_names)
    for (const auto& architecture : {toy(), equal_blocks(3, 5), preset_named("gpt2")})
      for (std::int64_t n : {1, 2, 3, 4, 8, 64})
        for (std::int32_t g : {1, 3})
          for (DType gradients : {DType::bf16, DType::fp32}) {
            const OwnedJob owned =
                make_job(architecture, name, {.ranks = n, .micro_batches = g, .semantics = Semantics::textbook, .gradients = gradients});
            EXPECT_EQ(traffic_of(owned).total, textbook(owned.job).sent_per_rank) << name << " n=" << n << " g=" << g;
          }
}

TEST(Textbook, PsiUnitsAreFourFourFourSix) {
  for (const auto& [name, units] : std::vector<std::pair<std::string, double>>{
           {"naive_dp", 4}, {"ddp", 4}, {"zero1", 4}, {"zero2", 4}, {"zero3", 6}, {"fsdp1", 6}, {"fsdp2", 6}})
    EXPECT_DOUBLE_EQ(traffic_of(make_job(preset_named("gpt2"), name, {.ranks = 16, .semantics = Semantics::textbook})).psi_units, units)
        << name;
}

TEST(Textbook, ReplicasAddAnAllReduceOfTheShard) {
  const OwnedJob owned =
      make_job(equal_blocks(2, 64), "fsdp2", {.ranks = 8, .semantics = Semantics::textbook, .options = {{"replicate", std::int64_t{2}}}});
  const std::int64_t psi = 2 * 64 * 64;
  EXPECT_EQ(traffic_of(owned).total.value(), 6 * psi * 3 / 4 + 2 * 2 * psi / 4 / 2);
  EXPECT_EQ(traffic_of(owned).total, textbook(owned.job).sent_per_rank);
}

// FSDP1's strategies without replicate: NO_SHARD is data parallelism, the hybrid ones replicate over nodes.
TEST(Textbook, FollowsFsdp1sShardingStrategy) {
  const std::int64_t psi = 2 * 64 * 64;
  const auto book = [&](const char* strategy) {
    const OwnedJob owned =
        make_job(equal_blocks(2, 64), "fsdp1",
                 {.ranks = 16, .semantics = Semantics::textbook, .options = {{"sharding_strategy", std::string(strategy)}}});
    EXPECT_EQ(traffic_of(owned).total, textbook(owned.job).sent_per_rank) << strategy;
    return textbook(owned.job).sent_per_rank.value();
  };
  EXPECT_EQ(book("FULL_SHARD"), 6 * psi * 15 / 16);
  EXPECT_EQ(book("NO_SHARD"), 4 * psi * 15 / 16);
  EXPECT_EQ(book("HYBRID_SHARD"), 6 * psi * 7 / 8 + 4 * psi / 8 / 2);
}

// States by hand: 2 + 2 + 12 bytes a parameter, sharded stage by stage; the schedule holds them at the end of backward.
TEST(Textbook, StatesAreHeldAsTheStageSays) {
  const std::int64_t psi = 3 * 64 * 64, n = 4;
  for (const auto& [name, bytes_times_n] :
       std::vector<std::pair<std::string, std::int64_t>>{{"ddp", 16 * n}, {"zero1", 4 * n + 12}, {"zero2", 2 * n + 14}, {"zero3", 16}}) {
    const OwnedJob owned = make_job(equal_blocks(3), name, {.ranks = n, .semantics = Semantics::textbook});
    const Memory memory = fold_memory(valid_schedule(owned), 1);
    EXPECT_EQ(sum(memory.persistent).value(), bytes_times_n * psi / n) << name;
    const Textbook book = textbook(owned.job);
    EXPECT_EQ((book.parameters + book.gradients + book.optimizer_states).value(), bytes_times_n * psi / n) << name;
  }
}

// ZeRO paper, table 1, in GB (1e9): 7.5, 128 and 1,000 billion parameters on 1 to 1,024 ranks, rounded there to three places.
struct PaperRow {
  std::int64_t rows, columns, ranks;
  double ddp, zero1, zero2, zero3;
};

class ZeroPapersTable : public ::testing::TestWithParam<PaperRow> {};

TEST_P(ZeroPapersTable, StatesOfEachStage) {
  const PaperRow row = GetParam();
  const auto architecture =
      inline_layers("- {name: w, parameters: {weight: [" + std::to_string(row.rows) + ", " + std::to_string(row.columns) + "]}}\n");
  for (const auto& [name, gigabytes] :
       std::vector<std::pair<std::string, double>>{{"ddp", row.ddp}, {"zero1", row.zero1}, {"zero2", row.zero2}, {"zero3", row.zero3}}) {
    const Textbook book = textbook(make_job(architecture, name, {.ranks = row.ranks, .semantics = Semantics::textbook}).job);
    EXPECT_NEAR(static_cast<double>((book.parameters + book.gradients + book.optimizer_states).value()) / 1e9, gigabytes, 6e-4) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Paper, ZeroPapersTable,
    ::testing::Values(PaperRow{75000, 100000, 1, 120, 120, 120, 120}, PaperRow{75000, 100000, 4, 120, 52.5, 41.25, 30},
                      PaperRow{75000, 100000, 16, 120, 35.625, 21.5625, 7.5}, PaperRow{75000, 100000, 64, 120, 31.406, 16.641, 1.875},
                      PaperRow{75000, 100000, 256, 120, 30.352, 15.41, 0.469}, PaperRow{75000, 100000, 1024, 120, 30.088, 15.103, 0.117},
                      PaperRow{320000, 400000, 1, 2048, 2048, 2048, 2048}, PaperRow{320000, 400000, 4, 2048, 896, 704, 512},
                      PaperRow{320000, 400000, 16, 2048, 608, 368, 128}, PaperRow{320000, 400000, 64, 2048, 536, 284, 32},
                      PaperRow{320000, 400000, 256, 2048, 518, 263, 8}, PaperRow{320000, 400000, 1024, 2048, 513.5, 257.75, 2},
                      PaperRow{1000000, 1000000, 1, 16000, 16000, 16000, 16000}, PaperRow{1000000, 1000000, 4, 16000, 7000, 5500, 4000},
                      PaperRow{1000000, 1000000, 16, 16000, 4750, 2875, 1000}, PaperRow{1000000, 1000000, 64, 16000, 4187.5, 2218.75, 250},
                      PaperRow{1000000, 1000000, 256, 16000, 4046.875, 2054.6875, 62.5},
                      PaperRow{1000000, 1000000, 1024, 16000, 4011.719, 2013.672, 15.625}));

}  // namespace
}  // namespace shardsim::testing
