// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "jobs.hpp"
#include "sim/engine/memory.hpp"

namespace shardsim::testing {
namespace {

struct Mixtral {
  std::int64_t experts = 0, dense = 0, root = 0;
  explicit Mixtral(const Model& model) {
    for (const Parameter& p : *model.parameters) {
      (p.routed_expert ? experts : dense) += p.elements.value();
      if (p.name.find("layers.") == std::string::npos) root += p.elements.value();
    }
  }
};

constexpr std::int64_t layers = 32, hidden = 4096, top_k = 2;

// All experts of a layer on 8 ranks, one each: nothing of them is gathered or reduced over 8 ranks; tokens travel four times a layer.
TEST(ExpertParallel, TokensTravelInsteadOfExperts) {
  const OwnedJob owned = make_job(preset_named("mixtral-8x7b"), "fsdp2", {.ranks = 8, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  const Mixtral m(*owned.model);
  const Traffic traffic = traffic_of(owned);
  const auto sent_by = [&](Collective c) { return traffic.sent_per_rank[static_cast<std::size_t>(c)].value(); };
  EXPECT_EQ(sent_by(Collective::all_to_all), 4 * layers * (64 * top_k * hidden * 2) * 7 / 8);
  EXPECT_EQ(sent_by(Collective::all_gather), 2 * (2 * m.dense - m.root) * 7 / 8);
  EXPECT_EQ(sent_by(Collective::reduce_scatter), 2 * m.dense * 7 / 8);
}

// On 32 ranks each expert lies on 4: its shards are gathered and reduced over these 4.
TEST(ExpertParallel, ExpertsAreShardedOverTheRanksThatHoldThem) {
  const OwnedJob owned = make_job(preset_named("mixtral-8x7b"), "fsdp2", {.ranks = 32, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  const Mixtral m(*owned.model);
  const Traffic traffic = traffic_of(owned);
  const std::int64_t router_padding = layers * (32 - 8) * hidden;  // the router has 8 rows, its shards 32
  EXPECT_EQ(traffic.sent_per_rank[static_cast<std::size_t>(Collective::reduce_scatter)].value(),
            2 * (m.dense + router_padding) * 31 / 32 + 2 * (m.experts / 8) * 3 / 4);
}

TEST(ExpertParallel, CapacityPaddingTravelsToo) {
  const auto exchanged = [&](double factor) {
    const OwnedJob owned = make_job(preset_named("mixtral-8x7b"), "fsdp2",
                                    {.ranks = 8, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}, {"expert_capacity_factor", factor}}});
    return traffic_of(owned).sent_per_rank[static_cast<std::size_t>(Collective::all_to_all)].value();
  };
  EXPECT_EQ(exchanged(1.25) * 4, exchanged(0) * 5);
}

// Recomputation sends the tokens once more: six all-to-alls a layer.
TEST(ExpertParallel, RecomputationExchangesAgain) {
  const OwnedJob owned = make_job(preset_named("mixtral-8x7b"), "fsdp2",
                                  {.ranks = 8, .checkpointing = Checkpointing::full, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  EXPECT_EQ(traffic_of(owned).sent_per_rank[static_cast<std::size_t>(Collective::all_to_all)].value(), 6 * layers * (64 * top_k * hidden * 2) * 7 / 8);
}

// Every rank holds 1/32 of the dense part and 1/32 of the experts: the same states as without expert parallelism.
TEST(ExpertParallel, StatesStaySharded) {
  const OwnedJob owned = make_job(preset_named("mixtral-8x7b"), "fsdp2", {.ranks = 32, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  const Memory memory = fold_memory(valid_schedule(owned), nullptr, 1);
  const std::int64_t router_padding = layers * (32 - 8) * hidden;
  EXPECT_EQ(sum(memory.persistent).value(), 16 * (owned.model->total().value() + router_padding) / 32);
}

TEST(ExpertParallel, SizesMustDivide) {
  const OwnedJob dense = make_job(toy(), "fsdp2", {.ranks = 8, .options = {{"expert_parallel_size", std::int64_t{2}}}});
  EXPECT_NE(check(dense.job).text().find("no routed experts"), std::string::npos);
  const OwnedJob odd = make_job(preset_named("mixtral-8x7b"), "fsdp2", {.ranks = 9, .options = {{"expert_parallel_size", std::int64_t{3}}}});
  EXPECT_NE(check(odd.job).text().find("does not divide the 8 experts"), std::string::npos);
}

}  // namespace
}  // namespace shardsim::testing
