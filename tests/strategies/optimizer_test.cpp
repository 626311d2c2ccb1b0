// SPDX-License-Identifier: Apache-2.0
// What each optimizer holds and needs meanwhile, in bytes a parameter; three square matrices of 64 x 64.
#include <gtest/gtest.h>

#include "jobs.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim::testing {
namespace {

constexpr std::int64_t toy_psi = 3 * 64 * 64;

std::int64_t states(OptimizerKind kind, std::optional<DType> master) {
  const OwnedJob owned = make_job(equal_blocks(3), "ddp", {.ranks = 2, .master = master, .optimizer = kind});
  return fold_memory(valid_schedule(owned), 1).persistent[static_cast<std::size_t>(Category::optimizer_states)].value();
}

struct Expected {
  OptimizerKind kind;
  std::int64_t mixed, without_master;
};

class States : public ::testing::TestWithParam<Expected> {};

TEST_P(States, BytesHeld) {
  EXPECT_EQ(states(GetParam().kind, DType::fp32), GetParam().mixed);
  EXPECT_EQ(states(GetParam().kind, std::nullopt), GetParam().without_master);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, States,
                         ::testing::Values(Expected{OptimizerKind::sgd, 4 * toy_psi, 0},
                                           Expected{OptimizerKind::momentum, 8 * toy_psi, 4 * toy_psi},
                                           Expected{OptimizerKind::adam, 12 * toy_psi, 8 * toy_psi},
                                           Expected{OptimizerKind::adamw, 12 * toy_psi, 8 * toy_psi},
                                           Expected{OptimizerKind::lion, 8 * toy_psi, 4 * toy_psi},
                                           Expected{OptimizerKind::adamw_8bit, 6 * toy_psi, 2 * toy_psi},
                                           Expected{OptimizerKind::muon, 8 * toy_psi, 4 * toy_psi},
                                           Expected{OptimizerKind::adafactor, 4 * toy_psi + 3 * 4 * 128, 3 * 4 * 128}));

std::int64_t temporaries(Optimizer::Implementation implementation) {
  OwnedJob owned = make_job(equal_blocks(3), "ddp", {.ranks = 2});
  owned.job.training.optimizer.implementation = implementation;
  std::int64_t sum = 0;
  for (const Buffer& b : valid_schedule(owned).buffers)
    if (std::string(b.label.verb) == "optimizer temporaries") sum += b.size().value();
  return sum;
}

// foreach keeps one fp32 list for sqrt(v); fused needs nothing; the loop two tensors of the largest size.
TEST(StepTemporaries, DependOnTheImplementation) {
  EXPECT_EQ(temporaries(Optimizer::Implementation::foreach), 4 * toy_psi);
  EXPECT_EQ(temporaries(Optimizer::Implementation::fused), 0);
  EXPECT_EQ(temporaries(Optimizer::Implementation::for_loop), 2 * 4 * 64 * 64);
}

TEST(Clipping, SendsOneScalarWhereGradientsAreSharded) {
  OwnedJob owned = make_job(equal_blocks(3), "fsdp2", {.ranks = 4});
  owned.job.training.optimizer.clip_grad_norm = 1.0;
  EXPECT_EQ(traffic_of(owned).control.value(), 2 * 3 * 4 / 4);
  owned.job.strategy.name = "ddp";
  EXPECT_EQ(traffic_of(owned).control.value(), 0);
}

// fp16: torch's GradScaler reads one flag on the host before it steps; where gradients are sharded it is all-reduced first.
TEST(GradScaler, AllReducesTheFlagOfShards) {
  for (const auto& [strategy, sent] :
       std::vector<std::pair<std::string, std::int64_t>>{{"naive_dp", 0}, {"ddp", 0}, {"zero_redundancy", 0}, {"fsdp1", 6}, {"fsdp2", 6}})
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      const OwnedJob owned = make_job(equal_blocks(3), strategy, {.ranks = 4, .parameters = dtype, .gradients = dtype});
      const Schedule schedule = valid_schedule(owned);
      EXPECT_EQ(account(schedule, owned.model->total()).control.value(), dtype == DType::fp16 ? sent : 0) << strategy;
      const auto reads = std::count_if(schedule.ops.begin(), schedule.ops.end(),
                                       [](const Op& op) { return op.label.verb == std::string("found_inf.item"); });
      EXPECT_EQ(reads, dtype == DType::fp16 ? 1 : 0) << strategy;
    }
}

// The first step makes the states: they are not there in forward and backward.
TEST(LazyStates, AppearInTheFirstStep) {
  const OwnedJob owned = make_job(equal_blocks(3), "ddp", {.ranks = 2, .warm = false});
  const Memory memory = fold_memory(valid_schedule(owned), 1);
  EXPECT_EQ(memory.persistent[static_cast<std::size_t>(Category::optimizer_states)].value(), 4 * toy_psi);  // the master copy
  EXPECT_EQ(memory.peak_phase, Phase::step);
}

}  // namespace
}  // namespace shardsim::testing
