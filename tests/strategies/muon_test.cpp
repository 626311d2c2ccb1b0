// SPDX-License-Identifier: Apache-2.0
// Distributed variants of Muon by hand: what is sent on top of the gradients, who orthogonalises what, and what it needs meanwhile.
#include "strategies/shared/muon.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs.hpp"
#include "strategies/textbook/textbook.hpp"

namespace shardsim::testing {
namespace {

using ::testing::HasSubstr;

OwnedJob muon(std::shared_ptr<const Architecture> model, const std::string& strategy, std::int64_t ranks, const std::string& variant,
              std::int64_t rank = 0, std::optional<DType> master = DType::fp32) {
  OwnedJob owned = make_job(std::move(model), strategy, {.ranks = ranks, .master = master, .rank = rank, .optimizer = OptimizerKind::muon});
  owned.job.training.optimizer.variant = variant;
  return owned;
}

/// Bytes sent beyond what the strategy sends with AdamW.
std::int64_t extra(std::shared_ptr<const Architecture> model, const std::string& strategy, std::int64_t ranks, const std::string& variant,
                   std::int64_t rank = 0) {
  return traffic_of(muon(model, strategy, ranks, variant, rank)).total.value() - sent(model, strategy, {.ranks = ranks, .rank = rank});
}

std::int64_t bytes_of(const Schedule& schedule, Category category) {
  std::int64_t sum = 0;
  for (const Buffer& b : schedule.buffers)
    if (b.category == category && !b.view_of.valid()) sum += b.size().value();
  return sum;
}

std::int64_t states(const OwnedJob& owned) { return bytes_of(valid_schedule(owned), Category::optimizer_states); }

/// FLOPs of the step: the other layers of these models compute products as well, in forward and backward.
double newton_schulz_flops(const OwnedJob& owned) {
  const Schedule schedule = valid_schedule(owned);
  double sum = 0;
  for (const Op& op : schedule.ops) {
    if (const auto* update = std::get_if<Update>(&op.action)) sum += schedule.at(update->work).flops().base();
    if (const auto* c = std::get_if<Compute>(&op.action); c && op.label.verb == std::string("Muon::newton_schulz"))
      sum += schedule.at(c->work).flops().base();
  }
  return sum;
}

// Three matrices of 64 x 64 on two ranks: batches of two and one, each an all-gather of 2 * 4096 elements in bf16, half of it sent by a
// rank.
TEST(Muon, GathersBatchesOfOneShape) {
  const std::int64_t batch = 2 * 4096 * 2 / 2;
  for (const char* strategy : {"naive_dp", "ddp"}) {
    EXPECT_EQ(extra(equal_blocks(3), strategy, 2, "keller_jordan"), 2 * batch);
    EXPECT_EQ(extra(equal_blocks(3), strategy, 2, "dion"), 2 * batch);
    EXPECT_EQ(extra(equal_blocks(3), strategy, 2, ""), 0);
    EXPECT_EQ(extra(equal_blocks(3), strategy, 1, "dion"), 0);
    EXPECT_EQ(extra(equal_blocks(3), strategy, 1, "keller_jordan"), 0);
  }
}

// keller_jordan gathers parameters, so their dtype counts; dion's updates are bf16 always.
TEST(Muon, DTypeOfWhatIsGathered) {
  const auto traffic = [](const std::string& variant) {
    OwnedJob owned = make_job(
        equal_blocks(2), "ddp",
        {.ranks = 2, .parameters = DType::fp32, .gradients = DType::fp32, .master = std::nullopt, .optimizer = OptimizerKind::muon});
    owned.job.training.optimizer.variant = variant;
    return traffic_of(owned).total.value();
  };
  EXPECT_EQ(traffic("keller_jordan") - traffic(""), 4 * 4096);
  EXPECT_EQ(traffic("dion") - traffic(""), 2 * 4096);
}

// Two matrices of 10 x 8 and two of 8 x 10 on four ranks: keller_jordan puts all four in one batch, a broadcast of 80 elements from each
// rank, of which the one just before a root passes nothing on; dion makes a batch of each shape, filled up to four.
TEST(Muon, ShapesApartOrTogether) {
  EXPECT_EQ(extra(toy(), "ddp", 4, "keller_jordan"), 3 * 80 * 2);
  EXPECT_EQ(extra(toy(), "ddp", 4, "dion"), 2 * (4 * 80) * 2 * 3 / 4);
}

// Eight ranks: the batch of four is filled up with four dummies like the last one.
TEST(Muon, DummiesAreSentToo) { EXPECT_EQ(extra(toy(), "ddp", 8, "keller_jordan"), 7 * 80 * 2); }

TEST(Muon, KellerJordanSortsByShape) {
  const OwnedJob owned = muon(toy(), "ddp", 3, "keller_jordan");
  const std::vector<MuonBatch> batches = muon_batches(*owned.model, muon_matrices(*owned.model), "keller_jordan", 3);
  ASSERT_EQ(batches.size(), 2u);
  std::vector<std::string> names;
  for (const MuonBatch& batch : batches)
    for (ParameterId p : batch.matrices) names.push_back(owned.model->at(p).name);
  EXPECT_THAT(names, ::testing::ElementsAre(HasSubstr("w1"), HasSubstr("w1"), HasSubstr("w2"), HasSubstr("w2")));
  EXPECT_FALSE(batches[0].same_shape);
  EXPECT_TRUE(batches[1].same_shape);
  EXPECT_EQ(extra(toy(), "ddp", 3, "keller_jordan"), 2 * 80 * 2 + 3 * 80 * 2 * 2 / 3)
      << "three broadcasts, then an all-gather of one matrix and two dummies";
}

TEST(Muon, DionDoesALoneMatrixEverywhere) {
  EXPECT_EQ(extra(equal_blocks(1), "ddp", 4, "dion"), 0);
  EXPECT_EQ(newton_schulz_flops(muon(equal_blocks(1), "ddp", 4, "dion", 3)), 2.0 * 15 * 64 * 64 * 64);
}

// Four ranks, three matrices: one batch; a rank sends three quarters of one matrix in bf16 to make whole ones, and again to give updates
// back.
TEST(Muon, ShardsAreExchangedUnderFsdp2) {
  EXPECT_EQ(extra(equal_blocks(3), "fsdp2", 4, ""), 2 * 4096 * 2 * 3 / 4);
  EXPECT_EQ(extra(equal_blocks(3), "fsdp2", 4, "dion"), 2 * 4096 * 2 * 3 / 4);
  // 10 x 8 over four ranks: three rows a shard, 12 * 8 elements with padding; 8 x 10: 80. Two of each fill one batch each.
  EXPECT_EQ(extra(toy(), "fsdp2", 4, "dion"), 2 * (96 + 80) * 2 * 3 / 4);
}

// HSDP: the exchange stays among the ranks that hold the shards.
TEST(Muon, ReplicasOfShardsDoTheSame) {
  const auto traffic = [](OptimizerKind kind) {
    return sent(equal_blocks(4), "fsdp2", {.ranks = 8, .options = {{"replicate", std::int64_t{2}}}, .optimizer = kind});
  };
  EXPECT_EQ(traffic(OptimizerKind::muon) - traffic(OptimizerKind::adamw), 2 * 4096 * 2 * 3 / 4);
}

// One shard is a whole matrix; offloaded gradients are stepped on by the host, which has no all-to-all.
TEST(Muon, NothingToExchange) {
  OwnedJob whole =
      make_job(equal_blocks(4), "fsdp2", {.ranks = 4, .options = {{"replicate", std::int64_t{4}}}, .optimizer = OptimizerKind::muon});
  const std::int64_t traffic = traffic_of(whole).total.value();
  whole.job.training.optimizer.kind = OptimizerKind::adamw;
  EXPECT_EQ(traffic, traffic_of(whole).total.value());
  OwnedJob offloaded = muon(equal_blocks(4), "fsdp2", 4, "");
  offloaded.job.training.offload = {OffloadTarget::cpu, OffloadTarget::cpu};
  EXPECT_EQ(traffic_of(offloaded).total.value(), sent(equal_blocks(4), "fsdp2", {.ranks = 4}));
}

// Five rounds of three products of 64^3: 2 * 15 * 64^3 FLOPs a matrix. Of three matrices rank 0 of two does two, rank 1 one; dion's rank 1
// orthogonalises a dummy as well.
TEST(Muon, NewtonSchulzIsSharedOut) {
  const double matrix = 2.0 * 15 * 64 * 64 * 64;
  for (std::int64_t rank : {0, 1}) {
    EXPECT_EQ(newton_schulz_flops(muon(equal_blocks(3), "ddp", 2, "", rank)), 3 * matrix);
    EXPECT_EQ(newton_schulz_flops(muon(equal_blocks(3), "ddp", 2, "keller_jordan", rank)), static_cast<double>(2 - rank) * matrix);
    EXPECT_EQ(newton_schulz_flops(muon(equal_blocks(3), "ddp", 2, "dion", rank)), 2 * matrix);
  }
  EXPECT_EQ(newton_schulz_flops(muon(equal_blocks(5), "fsdp2", 4, "", 3)), 2 * matrix);
}

// 10 x 8: the smaller side is 8. X X^T: 8 x 8 x 10, its square 8^3, the product 8 x 10 x 8.
TEST(Muon, NewtonSchulzWorksOnTheSmallerSide) {
  EXPECT_EQ(newton_schulz_flops(muon(toy(), "ddp", 2, "")), 4 * 2.0 * 5 * (640 + 512 + 640));
  Parameter experts;
  experts.shape = {3, 10, 8};
  experts.elements = Elements{240};
  EXPECT_EQ(newton_schulz_bytes(experts, DType::bf16, true).value(), 3 * 2 * (2 * 80 + 2 * 64));
}

// Matrices of blocks (320 elements) keep a momentum; the other 1,660 elements of the toy (embedding, head, biases, norm) Adam's two
// moments.
TEST(Muon, AdamWKeepsASecondMomentOfTheRest) {
  for (const char* variant : {"", "dion"}) {
    EXPECT_EQ(states(muon(toy(), "ddp", 2, variant)), 4 * 1980 + 4 * 1980 + 4 * 1660);
    EXPECT_EQ(states(muon(toy(), "ddp", 2, variant, 0, std::nullopt)), 4 * 1980 + 4 * 1660);
  }
  EXPECT_EQ(textbook(muon(toy(), "ddp", 2, "").job).optimizer_states.value(), 4 * 1980 + 4 * 1980 + 4 * 1660);
}

// keller_jordan on two ranks: two of the four matrices each, momentum (and master copy) of those alone; on three ranks rank 0 has two.
TEST(Muon, KellerJordanSplitsMomentum) {
  EXPECT_EQ(states(muon(toy(), "ddp", 2, "keller_jordan", 1, std::nullopt)), 4 * 160 + 8 * 1660);
  EXPECT_EQ(states(muon(toy(), "ddp", 2, "keller_jordan", 1)), 8 * 160 + 12 * 1660);
  EXPECT_EQ(states(muon(toy(), "ddp", 3, "keller_jordan", 0, std::nullopt)), 4 * 160 + 8 * 1660);
  EXPECT_EQ(states(muon(toy(), "ddp", 3, "keller_jordan", 2, std::nullopt)), 4 * 80 + 8 * 1660);
}

std::int64_t temporaries(const OwnedJob& owned, const std::string& verb) {
  std::int64_t most = 0;
  for (const Buffer& b : valid_schedule(owned).buffers)
    if (b.label.verb == verb) most = std::max(most, b.size().value());
  return most;
}

// Eager: four X and two X X^T of 64 x 64 in bf16. dion's is compiled: two and two. AdamW's part of the toy is larger: one fp32 list.
TEST(Muon, TemporariesOfTheStep) {
  EXPECT_EQ(temporaries(muon(equal_blocks(3), "ddp", 2, ""), "optimizer temporaries"), 6 * 4096 * 2);
  EXPECT_EQ(temporaries(muon(equal_blocks(3), "ddp", 2, "keller_jordan"), "optimizer temporaries"), 6 * 4096 * 2);
  EXPECT_EQ(temporaries(muon(equal_blocks(3), "ddp", 2, "dion"), "optimizer temporaries"), 0);
  EXPECT_EQ(temporaries(muon(equal_blocks(3), "ddp", 2, "dion"), "Newton-Schulz"), 4 * 4096 * 2);
  EXPECT_EQ(temporaries(muon(equal_blocks(3), "ddp", 2, "keller_jordan"), "gathered parameters"), 2 * 4096 * 2);
  EXPECT_EQ(temporaries(muon(equal_blocks(3), "fsdp2", 4, ""), "shards of one matrix"), 4096 * 2);
  EXPECT_EQ(temporaries(muon(toy(), "ddp", 2, ""), "optimizer temporaries"), 4 * 1660);
}

TEST(Muon, SaysWhyTrafficDiffers) {
  EXPECT_THAT(valid_schedule(muon(equal_blocks(3), "ddp", 2, "keller_jordan")).differs_because, HasSubstr("all-gathers the matrices"));
  EXPECT_THAT(valid_schedule(muon(equal_blocks(3), "fsdp2", 2, "")).differs_because, HasSubstr("all-to-all"));
  EXPECT_EQ(valid_schedule(muon(equal_blocks(3), "ddp", 2, "")).differs_because.find("muon"), std::string::npos);
}

TEST(Muon, OlmoGathersMatricesOfBlocksOnly) {
  const auto traffic = [](OptimizerKind kind) {
    return sent(toy({.vocabulary = 1024, .width = 64, .hidden = 64}), "olmo_ddp", {.ranks = 4, .optimizer = kind});
  };
  EXPECT_EQ(traffic(OptimizerKind::muon) - traffic(OptimizerKind::adamw), 4 * 4096 * 4 * 3 / 4);
}

TEST(Muon, VariantsBelongToStrategies) {
  const auto refusal = [](const char* strategy, const char* variant) { return check(muon(toy(), strategy, 4, variant).job).text(); };
  EXPECT_THAT(refusal("fsdp2", "keller_jordan"), HasSubstr("fsdp2 cannot run muon's variant keller_jordan"));
  EXPECT_THAT(refusal("zero3", "dion"), HasSubstr("dion: naive_dp, ddp, fsdp2"));
  EXPECT_THAT(refusal("ddp", "dionn"), HasSubstr("keller_jordan"));
  EXPECT_EQ(refusal("naive_dp", "keller_jordan"), "");
  EXPECT_EQ(refusal("fsdp2", "dion"), "");
  EXPECT_EQ(refusal("zero3", ""), "");
  OwnedJob adamw = make_job(toy(), "ddp", {.ranks = 2});
  adamw.job.training.optimizer.variant = "dion";
  EXPECT_THAT(check(adamw.job).text(), HasSubstr("only muon has variants"));
  OwnedJob offload = muon(toy(), "fsdp2", 4, "dion");
  offload.job.training.offload.optimizer = OffloadTarget::cpu;
  EXPECT_THAT(check(offload.job).text(), HasSubstr("offloaded"));
}

}  // namespace
}  // namespace shardsim::testing
