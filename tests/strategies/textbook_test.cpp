// SPDX-License-Identifier: Apache-2.0
// The papers' formulas against the papers' schedules, and against the ZeRO paper's own table.
#include <gtest/gtest.h>

#include "jobs.hpp"
#include "sim/engine/memory.hpp"

namespace shardsim::testing {
namespace {

const std::vector<std::string> names{"naive_dp", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};

TEST(Textbook, FormulaEqualsScheduleOverAGrid) {
  for (const std::string& name : names)
    for (const auto& architecture : {toy(), equal_blocks(3, 5), preset_named("gpt2")})
      for (std::int64_t n : {1, 2, 3, 4, 8, 64})
        for (std::int32_t g : {1, 3})
          for (DType gradients : {DType::bf16, DType::fp32}) {
            const OwnedJob owned = make_job(architecture, name, {.ranks = n, .micro_batches = g, .semantics = Semantics::textbook, .gradients = gradients});
            EXPECT_EQ(traffic_of(owned).total, textbook(owned.job).sent_per_rank) << name << " n=" << n << " g=" << g;
          }
}

TEST(Textbook, PsiUnitsAreFourFourFourSix) {
  for (const auto& [name, units] : std::vector<std::pair<std::string, double>>{
           {"naive_dp", 4}, {"ddp", 4}, {"zero1", 4}, {"zero2", 4}, {"zero3", 6}, {"fsdp1", 6}, {"fsdp2", 6}})
    EXPECT_DOUBLE_EQ(traffic_of(make_job(preset_named("gpt2"), name, {.ranks = 16, .semantics = Semantics::textbook})).psi_units, units) << name;
}

TEST(Textbook, ReplicasAddAnAllReduceOfTheShard) {
  const OwnedJob owned = make_job(equal_blocks(2, 64), "fsdp2", {.ranks = 8, .semantics = Semantics::textbook, .options = {{"replicate", std::int64_t{2}}}});
  const std::int64_t psi = 2 * 64 * 64;
  EXPECT_EQ(traffic_of(owned).total.value(), 6 * psi * 3 / 4 + 2 * 2 * psi / 4 / 2);
  EXPECT_EQ(traffic_of(owned).total, textbook(owned.job).sent_per_rank);
}

// States by hand: 2 + 2 + 12 bytes a parameter, sharded stage by stage; the schedule holds them at the end of backward.
TEST(Textbook, StatesAreHeldAsTheStageSays) {
  const std::int64_t psi = 3 * 64 * 64, n = 4;
  for (const auto& [name, bytes_times_n] : std::vector<std::pair<std::string, std::int64_t>>{
           {"ddp", 16 * n}, {"zero1", 4 * n + 12}, {"zero2", 2 * n + 14}, {"zero3", 16}}) {
    const OwnedJob owned = make_job(equal_blocks(3), name, {.ranks = n, .semantics = Semantics::textbook});
    const Memory memory = fold_memory(valid_schedule(owned), nullptr, 1);
    EXPECT_EQ(sum(memory.persistent).value(), bytes_times_n * psi / n) << name;
    const Textbook book = textbook(owned.job);
    EXPECT_EQ((book.parameters + book.gradients + book.optimizer_states).value(), bytes_times_n * psi / n) << name;
  }
}

// ZeRO paper, table 1: 7.5 billion parameters, 64 ranks: 120, 31.4, 16.6 and 1.88 GB.
TEST(Textbook, ZeroPapersTable) {
  const auto architecture = inline_layers("- {name: w, parameters: {weight: [75000, 100000]}}\n");
  for (const auto& [name, gigabytes] : std::vector<std::pair<std::string, double>>{{"ddp", 120.0}, {"zero1", 31.40625}, {"zero2", 16.640625}, {"zero3", 1.875}}) {
    const Textbook book = textbook(make_job(architecture, name, {.ranks = 64, .semantics = Semantics::textbook}).job);
    EXPECT_NEAR(static_cast<double>((book.parameters + book.gradients + book.optimizer_states).value()) / 1e9, gigabytes, 1e-6) << name;
  }
}

}  // namespace
}  // namespace shardsim::testing
