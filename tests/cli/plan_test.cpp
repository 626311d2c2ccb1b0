// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cli/planner_report.hpp"
#include "cli/simulation_job.hpp"
#include "cli/variant.hpp"

namespace shardsim {
namespace {

Scenario scenario(const std::string& text) {
  const auto root = read_yaml({"plan.yaml", text});
  if (!root) throw InputError(root.error());
  return value_or_throw(read_scenario(*root, "plan.yaml", ""));
}

/// Small enough to search exhaustively, with a GPU so small that not everything fits.
Scenario small(const std::string& plan = "", const std::string& capacity = "6 GiB") {
  return scenario(
      "model: {hf_config: {model_type: llama, hidden_size: 512, intermediate_size: 1536, num_hidden_layers: 4, num_attention_heads: 8, "
      "num_key_value_heads: 4, "
      "vocab_size: 32000, max_position_embeddings: 4096, tie_word_embeddings: false}}\n"
      "cluster: {profile: clusters/h100-sxm.yaml, nodes: 2, gpus_per_node: 4, capacity: " +
      capacity +
      "}\n"
      "training: {sequence_length: 1024, micro_batch_size: 2, gradient_accumulation_steps: 4, precision: mixed}\nstrategy: {name: "
      "fsdp2}\n" +
      plan);
}

TEST(PlanBounds, NeverExceedWhatTheSimulationSays) {
  const Scenario base = small("plan: {nodes: [1, 2, 4]}\n");
  const PlanRequest request = value_or_throw(read_plan(base));
  LowerBounds bounds(base);
  int ran = 0;
  double tightest = 0;
  for (const Candidate& candidate : candidates(base, request)) {
    const auto result = simulate_candidate(base, candidate);
    if (!result) continue;
    const LowerBound bound = bounds(candidate);
    ++ran;
    EXPECT_LE(bound.time.base(), result->step.time.base() * (1 + 1e-12)) << candidate.text();
    EXPECT_LE(bound.memory, result->memory.device_peak) << candidate.text();
    EXPECT_GT(bound.time.base(), 0) << candidate.text();
    tightest = std::max(tightest, bound.time / result->step.time);
  }
  EXPECT_GT(ran, 100);
  EXPECT_GT(tightest, 0.5);  // a bound that says nothing would pass the above
}

TEST(PlanBounds, PruningKeepsTheOptimaOfARealSearch) {
  const Scenario base = small("plan: {nodes: [1, 2, 4]}\n");
  const PlanRequest request = value_or_throw(read_plan(base));
  const SearchModel model{LowerBounds(base), [&](const Candidate& c) { return simulate_candidate(base, c); },
                          base.cluster.profile.gpu.capacity};
  const SearchResult all = search(candidates(base, request), model, false), pruned = search(candidates(base, request), model, true);
  EXPECT_GT(pruned.pruned, 0);
  EXPECT_FALSE(all.too_large.empty());
  const Best want = best_of(all.fitting), got = best_of(pruned.fitting);
  ASSERT_NE(got.time, nullptr);
  EXPECT_EQ(got.time->time(), want.time->time());
  EXPECT_EQ(got.cost->gpu_seconds(), want.cost->gpu_seconds());
  EXPECT_EQ(got.gpus->gpus(), want.gpus->gpus());
  const auto front = pareto_front(pruned.fitting), whole = pareto_front(all.fitting);
  ASSERT_EQ(front.size(), whole.size());
  for (std::size_t i = 0; i < front.size(); ++i) EXPECT_EQ(front[i]->time(), whole[i]->time());
}

TEST(PlanCandidates, ManyMicroBatchesContinueOnALine) {
  const Scenario base = small();
  for (const std::string strategy : {"fsdp2", "ddp", "fsdp1"}) {
    Candidate candidate{2, 4, strategy, {}, "none", "none", 1, 40};
    const auto line = simulate_candidate(base, candidate);
    const auto exact = scenario_of(base, candidate);
    ASSERT_TRUE(line && exact) << strategy;
    const SimulationResult whole = simulate_scenario(*exact);
    EXPECT_NEAR(line->step.time.base(), whole.step.time.base(), whole.step.time.base() * 1e-6) << strategy;
    EXPECT_NEAR(line->step.mfu, whole.step.mfu, 1e-6) << strategy;
    EXPECT_EQ(line->traffic.total, whole.traffic.total) << strategy;
    EXPECT_EQ(line->memory.device_peak, whole.memory.device_peak) << strategy;
  }
}

TEST(PlanCandidates, GiveTheGlobalBatchExactly) {
  const Scenario base = small("plan: {global_batch: 96, hybrid: false, strategies: [ddp]}\n");
  const auto all = candidates(base, value_or_throw(read_plan(base)));
  ASSERT_FALSE(all.empty());
  for (const Candidate& c : all) EXPECT_EQ(c.gpus() * c.micro_batch * c.accumulation, 96) << c.text();
}

// 1e9 tokens at 64 sequences of 1,024 tokens: 15,258.8 steps.
TEST(PlanEconomics, DaysAndMoneyFollowFromTheStep) {
  const Scenario base =
      small("plan: {tokens: 1e9, price_per_gpu_hour: 2.5, node_mtbf: 1000 h, restart: 0 s, checkpoint_bandwidth: 1 GB/s}\n");
  const PlanRequest request = value_or_throw(read_plan(base));
  const Candidate candidate{2, 4, "fsdp2", {}, "none", "none", 2, 4};
  const Evaluated evaluated{candidate, *simulate_candidate(base, candidate)};
  const Economics e = economics(base, request, evaluated);
  EXPECT_NEAR(e.steps, 15258.8, 0.1);
  // fp32 shards of parameters and two moments, 12 bytes for each of the parameters, by two nodes.
  const double psi = static_cast<double>(base.model->total().value());
  EXPECT_NEAR(e.checkpoint.base(), 12 * psi / 2 / 1e9, 12 * psi / 2 / 1e9 * 0.01);
  EXPECT_NEAR(e.wall.base() * e.goodput, e.steps * evaluated.time().base(), 1e-6 * e.wall.base());
  EXPECT_NEAR(e.gpu_hours, e.wall.base() / 3600 * 8, 1e-9);
  EXPECT_NEAR(*e.cost, e.gpu_hours * 2.5, 1e-9);
  EXPECT_GT(e.goodput, 0.99);
}

TEST(PlanAnswers, TheLargestMicroBatchIsTheLastThatFits) {
  const Scenario base = small();
  const auto largest = largest_micro_batch(base);
  ASSERT_TRUE(largest.has_value());
  const auto fits = [&](std::int64_t m) {
    return simulate_scenario(value_or_throw(vary(base, {"training.micro_batch_size=" + std::to_string(m)}))).memory.fits;
  };
  EXPECT_TRUE(fits(*largest));
  EXPECT_FALSE(fits(*largest + 1));
  EXPECT_FALSE(largest_micro_batch(small("", "1 GiB")).has_value());
}

TEST(PlanAnswers, EveryAnswerHasAReason) {
  const Plan plan = make_plan(small("plan: {nodes: [1, 2]}\n"));
  EXPECT_GE(plan.answers.size(), 6U);
  for (const Answer& a : plan.answers) EXPECT_FALSE(a.question.empty() || a.answer.empty() || a.why.empty()) << a.question;
  const Json json = plan_json(plan);
  EXPECT_EQ(*json.find("schema")->as<std::string>(), "shardsim.plan/1");
  EXPECT_EQ(*json.find("minimum_gpus")->as<std::int64_t>(), *plan.minimum_gpus);
  EXPECT_FALSE(plan_table(plan).empty());
  EXPECT_NE(plan_csv(plan).find("step_time_s"), std::string::npos);
}

TEST(PlanAnswers, NothingFitsIsAnAnswer) {
  const Plan plan = make_plan(small("plan: {nodes: [1]}\n", "1 GiB"));
  EXPECT_FALSE(plan.time.has_value());
  EXPECT_FALSE(plan.minimum_gpus.has_value());
  EXPECT_TRUE(plan_json(plan).find("best.time")->is_null());
  EXPECT_GE(plan.answers.size(), 3U);
}

TEST(PlanRequest, MistakesAreToldWhereTheyStand) {
  const auto problem = [](const std::string& block) {
    const auto request = read_plan(small("plan: " + block + "\n"));
    return request ? std::string("accepted") : request.error().text();
  };
  EXPECT_NE(problem("{tokns: 1}").find("tokens"), std::string::npos);
  EXPECT_NE(problem("{strategies: [fsdp9]}").find("fsdp9"), std::string::npos);
  EXPECT_NE(problem("{nodes: []}").find("at least one"), std::string::npos);
  EXPECT_NE(problem("{global_batch: 0}").find("plan.yaml"), std::string::npos);
}

// Rings leave NVLink at the second node; a slow network makes that the cliff.
TEST(PlanScaling, TheCliffStandsAtTheNodeBoundary) {
  Scenario base = value_or_throw(vary(small(), {"cluster.nic_bandwidth=10 Gbit/s", "cluster.gpus_per_node=8", "cluster.capacity=80 GiB"}));
  const Scaling scaling = scaling_study(base, 1, 32);
  ASSERT_EQ(scaling.points.size(), 6U);
  EXPECT_EQ(scaling.points.back().gpus, 32);
  ASSERT_TRUE(scaling.cliff.has_value());
  EXPECT_EQ(scaling.points[*scaling.cliff].gpus, 16);
  EXPECT_NE(scaling.why.find("node boundary"), std::string::npos);
  EXPECT_LT(scaling.points.back().efficiency, 0.9);
}

}  // namespace
}  // namespace shardsim
