// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "jobs.hpp"
#include "schedule_facts.hpp"
#include "sim/memory/memory.hpp"

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
  const OwnedJob owned =
      make_job(preset_named("mixtral-8x7b"), "fsdp2", {.ranks = 8, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  const Mixtral m(*owned.model);
  const Traffic traffic = traffic_of(owned);
  const auto sent_by = [&](Collective c) { return traffic.sent_per_rank[static_cast<std::size_t>(c)].value(); };
  EXPECT_EQ(sent_by(Collective::all_to_all), 4 * layers * (64 * top_k * hidden * 2) * 7 / 8);
  EXPECT_EQ(sent_by(Collective::all_gather), 2 * (2 * m.dense - m.root) * 7 / 8);
  EXPECT_EQ(sent_by(Collective::reduce_scatter), 2 * m.dense * 7 / 8);
}

// On 32 ranks each expert lies on 4: its shards are gathered and reduced over these 4.
TEST(ExpertParallel, ExpertsAreShardedOverTheRanksThatHoldThem) {
  const OwnedJob owned = make_job(preset_named("mixtral-8x7b"), "fsdp2",
                                  {.ranks = 32, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  const Mixtral m(*owned.model);
  const Traffic traffic = traffic_of(owned);
  const std::int64_t router_padding = layers * (32 - 8) * hidden;  // the router has 8 rows, its shards 32
  EXPECT_EQ(traffic.sent_per_rank[static_cast<std::size_t>(Collective::reduce_scatter)].value(),
            2 * (m.dense + router_padding) * 31 / 32 + 2 * (m.experts / 8) * 3 / 4);
}

TEST(ExpertParallel, CapacityPaddingTravelsToo) {
  const auto exchanged = [&](double factor) {
    const OwnedJob owned =
        make_job(preset_named("mixtral-8x7b"), "fsdp2",
                 {.ranks = 8, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}, {"expert_capacity_factor", factor}}});
    return traffic_of(owned).sent_per_rank[static_cast<std::size_t>(Collective::all_to_all)].value();
  };
  EXPECT_EQ(exchanged(1.25) * 4, exchanged(0) * 5);
}

// Recomputation sends the tokens once more: six all-to-alls a layer.
TEST(ExpertParallel, RecomputationExchangesAgain) {
  const OwnedJob owned =
      make_job(preset_named("mixtral-8x7b"), "fsdp2",
               {.ranks = 8, .checkpointing = Checkpointing::full, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  EXPECT_EQ(traffic_of(owned).sent_per_rank[static_cast<std::size_t>(Collective::all_to_all)].value(),
            6 * layers * (64 * top_k * hidden * 2) * 7 / 8);
}

// Every rank holds 1/32 of the dense part and 1/32 of the experts: the same states as without expert parallelism.
TEST(ExpertParallel, StatesStaySharded) {
  const OwnedJob owned = make_job(preset_named("mixtral-8x7b"), "fsdp2",
                                  {.ranks = 32, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  const Memory memory = fold_memory(valid_schedule(owned), 1);
  const std::int64_t router_padding = layers * (32 - 8) * hidden;
  EXPECT_EQ(sum(memory.persistent).value(), 16 * (owned.model->total().value() + router_padding) / 32);
}

// Outside FSDP2. 16 ranks, 8 experts a layer on 8 neighbours: two ranks hold the same experts. D dense parameters, E experts in all.
struct Sent {
  std::int64_t all_reduce = 0, reduce_scatter = 0, all_gather = 0, all_to_all = 0;
};

Sent sent_on_16(const std::string& strategy, std::vector<std::pair<std::string, Options::Value>> options, std::int32_t micro_batches = 1) {
  options.emplace_back("expert_parallel_size", std::int64_t{8});
  const Traffic traffic = traffic_of(
      make_job(preset_named("mixtral-8x7b"), strategy, {.ranks = 16, .micro_batches = micro_batches, .sequence = 64, .options = options}));
  const auto by = [&](Collective c) { return traffic.sent_per_rank[static_cast<std::size_t>(c)].value(); };
  return {by(Collective::all_reduce), by(Collective::reduce_scatter), by(Collective::all_gather), by(Collective::all_to_all)};
}

class ExpertsOf16 : public ::testing::Test {
 protected:
  ExpertsOf16() : model(make_job(preset_named("mixtral-8x7b"), "ddp").model), mixtral(*model) {}
  /// What 2 of 16 ranks send of one byte for every parameter reduced (or gathered) once.
  [[nodiscard]] std::int64_t once(std::int64_t bytes_per_element) const {
    return bytes_per_element * mixtral.dense * 15 / 16 + bytes_per_element * (mixtral.experts / 8) / 2;
  }
  static constexpr std::int64_t tokens = 4 * layers * (64 * top_k * hidden * 2) * 7 / 8;
  std::shared_ptr<const Model> model;
  Mixtral mixtral;
};

TEST_F(ExpertsOf16, DdpIgnoresThemAndUsersReduceThem) {
  for (const bool view : {false, true}) {
    const Sent s = sent_on_16("ddp", {{"gradient_as_bucket_view", view}}, 2);
    EXPECT_EQ(s.all_reduce, 2 * once(2));
    EXPECT_EQ(s.all_to_all, 2 * tokens);  // in every micro-batch
  }
}

TEST_F(ExpertsOf16, MegatronShardsThemOverTheirReplicas) {
  const Sent s = sent_on_16("megatron", {});
  EXPECT_EQ(s.reduce_scatter, once(4));
  EXPECT_EQ(s.all_gather, once(2));
  EXPECT_EQ(s.all_to_all, tokens);
  EXPECT_EQ(sent_on_16("megatron", {{"use_distributed_optimizer", false}}).all_reduce, 2 * once(4));
  // Two instances of 8 ranks: experts are not replicated within one, so only their all-reduce across instances remains.
  const Sent two = sent_on_16("megatron", {{"num_distributed_optimizer_instances", std::int64_t{2}}});
  EXPECT_EQ(two.reduce_scatter, 4 * mixtral.dense * 7 / 8);
  EXPECT_EQ(two.all_reduce, 2 * (4 * mixtral.dense / 8) / 2 + 2 * (4 * mixtral.experts / 8) / 2);
}

TEST_F(ExpertsOf16, DeepSpeedPartitionsThemOverTheirReplicas) {
  EXPECT_EQ(sent_on_16("zero1", {}, 2).all_reduce, 2 * once(2));
  EXPECT_EQ(sent_on_16("zero1", {}, 2).all_gather, once(2));
  EXPECT_EQ(sent_on_16("zero2", {}, 2).all_reduce, 2 * 2 * once(2));
  EXPECT_EQ(sent_on_16("zero2", {{"overlap_comm", true}}).all_to_all, tokens);
  EXPECT_EQ(sent_on_16("zero1", {{"grad_accum_dtype", std::string("fp32")}}).all_reduce, 2 * once(2)) << "BF16_Optimizer";
}

TEST_F(ExpertsOf16, DeepSpeed3PartitionsThemOverTheirReplicas) {
  // Nothing is retained: gathered in forward and in backward, reduce-scattered once.
  const Sent s = sent_on_16("zero3", {{"stage3_param_persistence_threshold", std::int64_t{0}},
                                      {"stage3_prefetch_bucket_size", std::int64_t{0}},
                                      {"stage3_max_reuse_distance", std::int64_t{0}}});
  EXPECT_EQ(s.all_gather, 2 * once(2));
  EXPECT_EQ(s.reduce_scatter, once(2));
  EXPECT_EQ(s.all_to_all, tokens);
}

TEST_F(ExpertsOf16, OlmoReducesThemInBucketsOfTheirOwn) {
  const Sent s = sent_on_16("olmo_ddp", {});
  EXPECT_EQ(s.all_reduce, 2 * once(4));
  EXPECT_EQ(s.all_gather, once(2));
}

// DeepSpeed's param groups of experts hold at most 178,956,971 elements: three matrices of 4096 x 14336.
TEST_F(ExpertsOf16, DeepSpeedLimitsTheirParamGroups) {
  const OwnedJob owned = make_job(preset_named("mixtral-8x7b"), "zero1",
                                  {.ranks = 16, .sequence = 64, .options = {{"expert_parallel_size", std::int64_t{8}}}});
  const std::vector<std::int64_t> gathered = payloads(valid_schedule(owned), Collective::all_gather);
  ASSERT_EQ(gathered.size(), 1U + 32U);
  EXPECT_EQ(gathered.front(), mixtral.dense);
  for (std::size_t i = 1; i < gathered.size(); ++i) EXPECT_EQ(gathered[i], 3 * 4096 * 14336);
}

class SplitExperts : public ::testing::TestWithParam<const char*> {};

// Each rank holds its own eighth of the experts and nothing of the others', and all ranks issue the same collectives.
TEST_P(SplitExperts, EachRankHoldsItsShare) {
  std::vector<std::string> issued;
  for (const std::int64_t rank : {0, 5, 13}) {
    const OwnedJob owned = make_job(preset_named("mixtral-8x7b"), GetParam(),
                                    {.ranks = 16,
                                     .micro_batches = 2,
                                     .checkpointing = Checkpointing::full,
                                     .sequence = 64,
                                     .rank = rank,
                                     .options = {{"expert_parallel_size", std::int64_t{8}}}});
    const Mixtral m(*owned.model);
    const Schedule schedule = valid_schedule(owned);
    const Memory memory = fold_memory(schedule, 1);
    if (std::string(GetParam()) != "fsdp2" && std::string(GetParam()) != "zero3") {
      EXPECT_EQ(memory.persistent[static_cast<std::size_t>(Category::parameters)].value(), 2 * (m.dense + m.experts / 8));
    }
    std::string text;
    for (const Communicate& c : collectives(schedule))
      text += std::to_string(static_cast<int>(c.kind)) + " " + std::to_string(c.payload.value()) + " " +
              std::to_string(c.communicator.index) + "\n";
    issued.push_back(text);
  }
  EXPECT_EQ(issued[1], issued[0]);
  EXPECT_EQ(issued[2], issued[0]);
}

INSTANTIATE_TEST_SUITE_P(Strategies, SplitExperts, ::testing::Values("ddp", "zero1", "zero2", "zero3", "megatron", "olmo_ddp", "fsdp2"),
                         [](const ::testing::TestParamInfo<const char*>& name) { return std::string(name.param); });

TEST(ExpertParallel, RefusesWhatDeepSpeedAsserts) {
  const auto refusal = [](const char* strategy, const char* option) {
    return check(make_job(preset_named("mixtral-8x7b"), strategy,
                          {.ranks = 16, .options = {{"expert_parallel_size", std::int64_t{8}}, {option, false}}})
                     .job)
        .text();
  };
  EXPECT_NE(refusal("zero2", "contiguous_gradients").find("contiguous_gradients must be true for experts"), std::string::npos);
  EXPECT_NE(refusal("zero1", "reduce_scatter").find("reduce_scatter must be true for experts"), std::string::npos);
  const auto excluded = [](const char* option, Options::Value value) {
    return check(make_job(preset_named("mixtral-8x7b"), "zero3",
                          {.ranks = 16, .options = {{"expert_parallel_size", std::int64_t{8}}, {option, value}}})
                     .job)
        .text();
  };
  EXPECT_NE(excluded("zero_hpz_partition_size", std::int64_t{2}).find("exclude zero_hpz_partition_size"), std::string::npos);
  EXPECT_NE(excluded("zero_quantized_gradients", true).find("exclude zero_quantized_gradients"), std::string::npos);
}

// An option that a library does not have is unknown to its strategy.
TEST(ExpertParallel, OnlyWhereTheLibraryHasIt) {
  for (const StrategyInfo& info : strategies()) {
    const bool has =
        std::any_of(info.options.begin(), info.options.end(), [](const OptionSpec& o) { return o.name == "expert_parallel_size"; });
    EXPECT_EQ(has, info.name != "naive_dp" && info.name != "zero_redundancy" && info.name != "fsdp1" && info.name != "mics") << info.name;
  }
}

TEST(ExpertParallel, SizesMustDivide) {
  const OwnedJob dense = make_job(toy(), "fsdp2", {.ranks = 8, .options = {{"expert_parallel_size", std::int64_t{2}}}});
  EXPECT_NE(check(dense.job).text().find("no routed experts"), std::string::npos);
  const OwnedJob odd =
      make_job(preset_named("mixtral-8x7b"), "fsdp2", {.ranks = 9, .options = {{"expert_parallel_size", std::int64_t{3}}}});
  EXPECT_NE(check(odd.job).text().find("does not divide the 8 experts"), std::string::npos);
}

}  // namespace
}  // namespace shardsim::testing
