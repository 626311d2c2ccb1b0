// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "reports/planner_report.hpp"
#include "sim/base/units_text.hpp"
#include "studies/compare/variant.hpp"
#include "studies/plan/feasible.hpp"
#include "studies/plan/options.hpp"
#include "studies/plan/words.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

Scenario parsed_scenario(const std::string& text) {
  const auto root = read_yaml({"plan.yaml", text});
  if (!root) throw InputError(root.error());
  return value_or_throw(read_scenario(*root, "plan.yaml", ""));
}

/// Small enough to search exhaustively, with a GPU so small that not everything fits.
Scenario small(const std::string& plan = "", const std::string& capacity = "6 GiB") {
  return parsed_scenario(
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
  const Plan plan = make_plan(small("plan: {nodes: [1], strategies: [fsdp2], headroom: 0}\n"));
  EXPECT_TRUE(plan.answers[2].answer.starts_with(grouped(*largest) + " sequences (" + grouped(*largest * 1024) + " tokens)"))
      << plan.answers[2].answer;
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

// Nine sequences go to one GPU, and not to 2, 4 or 16 (the node counts that are asked for).
TEST(PlanAnswers, NumbersOfGpusThatDoNotDivideTheBatchAreNamed) {
  const Scenario some = small("plan: {global_batch: 9}\n", "80 GiB");
  EXPECT_EQ(left_out(some, value_or_throw(read_plan(some))), std::vector<std::string>{"9 sequences do not divide among 2, 4, 8 GPUs"});
  const Plan none = make_plan(small("plan: {global_batch: 9, nodes: [1, 4]}\n", "80 GiB"));
  EXPECT_FALSE(none.time.has_value());
  EXPECT_EQ(none.answers[1].answer, "the plan has nothing to choose from");
  EXPECT_EQ(none.answers[1].why, "9 sequences do not divide among 4, 16 GPUs");
  const Scenario listed = small("plan: {global_batch: 16, nodes: [1], micro_batch_sizes: [3]}\n", "80 GiB");
  EXPECT_EQ(left_out(listed, value_or_throw(read_plan(listed))),
            std::vector<std::string>{"none of plan.micro_batch_sizes divides a GPU's share of 16 sequences on 4 GPUs"});
}

// What is said to do does, and a node less does not.
TEST(PlanAnswers, WhereNothingFitsTheNumberThatWouldIsNamed) {
  const Scenario base =
      small("plan: {nodes: [1], strategies: [fsdp2], activation_checkpointing: [full], hybrid: false, headroom: 0, global_batch: 4}\n",
            "1.58 GiB");
  const Plan plan = make_plan(base);
  ASSERT_FALSE(plan.time.has_value());
  ASSERT_TRUE(plan.gpus_beyond.has_value());
  const auto fits = [&](std::int64_t nodes) {
    for (const std::string keep : {"true", "false"}) {
      const auto job =
          vary(base, {"cluster.nodes=" + std::to_string(nodes), "training.micro_batch_size=1", "training.gradient_accumulation_steps=1",
                      "training.activation_checkpointing=full", "strategy.reshard_after_forward=" + keep});
      if (job && simulate_scenario(*job).memory.fits) return true;
    }
    return false;
  };
  EXPECT_EQ(*plan.gpus_beyond % 4, 0);
  EXPECT_TRUE(fits(*plan.gpus_beyond / 4));
  EXPECT_FALSE(fits(*plan.gpus_beyond / 4 - 1));
  EXPECT_NE(plan.answers[1].answer.find(gpus_text(*plan.gpus_beyond) + " would do"), std::string::npos) << plan.answers[1].answer;
  EXPECT_NE(plan.answers[1].why.find("on 4 GPUs the leanest way"), std::string::npos) << plan.answers[1].why;
}

// The bandwidth that is named leaves at most 1 % of the step exposed; five percent less does not.
TEST(PlanAnswers, TheBandwidthThatIsNamedHidesTheCommunication) {
  const Scenario job = value_or_throw(vary(
      small("", "80 GiB"), {"cluster.nic_bandwidth=10 Gbit/s", "training.micro_batch_size=32", "training.gradient_accumulation_steps=1"}));
  const std::string text = bandwidth_to_hide(job);
  const std::size_t at = text.find("would need ");
  ASSERT_NE(at, std::string::npos) << text;
  const double needed = std::stod(text.substr(at + 11));
  const auto exposed = [&](double gigabits) {
    const StepTime step = simulate_scenario(value_or_throw(vary(job, {fmt::format("cluster.nic_bandwidth={} Gbit/s", gigabits)}))).step;
    return step.exposed_communication / step.time;
  };
  EXPECT_LE(exposed(needed), 0.01);
  EXPECT_GT(exposed(needed * 0.94), 0.01);
  EXPECT_GT(exposed(10), 0.1);
}

TEST(PlanAnswers, SlowLinksInsideANodeAreABottleneckToo) {
  const Scenario job = value_or_throw(
      vary(small("", "80 GiB"), {"cluster.nodes=1", "cluster.ring_bandwidth=2 GB/s", "training.gradient_accumulation_steps=1"}));
  const Answer network = network_answer(job), mover = mover_answer(job);
  EXPECT_EQ(network.answer, "yes, inside the node");
  EXPECT_NE(network.why.find("with the ring inside the node twice as fast "), std::string::npos) << network.why;
  EXPECT_TRUE(mover.answer.starts_with("links inside the node twice as fast: -")) << mover.answer;
}

// Keeping the activations of 8 sequences shortens the step, but on a GPU that is full with recomputation they do not fit.
TEST(PlanAnswers, WhatDoesNotFitMovesNothing) {
  const Scenario roomy =
      value_or_throw(vary(small("", "80 GiB"), {"cluster.nodes=1", "training.micro_batch_size=8", "training.gradient_accumulation_steps=1",
                                                "training.activation_checkpointing=full", "cluster.memory_bandwidth=1000 TB/s"}));
  EXPECT_TRUE(mover_answer(roomy).answer.starts_with("no activation checkpointing: -")) << mover_answer(roomy).why;
  EXPECT_EQ(mover_answer(roomy).why.find(", but "), std::string::npos) << mover_answer(roomy).why;
  const double need = static_cast<double>(simulate_scenario(roomy).memory.device_peak.value());
  const Scenario tight = value_or_throw(vary(roomy, {fmt::format("cluster.capacity={:.0f} B", need * 1.02)}));
  ASSERT_TRUE(simulate_scenario(tight).memory.fits);
  const Answer mover = mover_answer(tight);
  EXPECT_EQ(mover.answer.find("no activation checkpointing"), std::string::npos) << mover.answer;
  EXPECT_NE(mover.why.find(", but "), std::string::npos) << mover.why;
}

TEST(PlanAnswers, MoneyComesFirstWhereMoneyIsAsked) {
  const Plan plan = make_plan(small("plan: {nodes: [1], strategies: [fsdp2], tokens: 2e9, price_per_gpu_hour: 2}\n"));
  const auto cost =
      std::find_if(plan.answers.begin(), plan.answers.end(), [](const Answer& a) { return a.question.starts_with("How much"); });
  ASSERT_NE(cost, plan.answers.end());
  EXPECT_TRUE(cost->answer.starts_with("$" + whole_text(*plan.cost->economics.cost) + ": " + whole_text(plan.cost->economics.gpu_hours) +
                                       " GPU-hours, "))
      << cost->answer;
  EXPECT_TRUE(cost->why.starts_with("a GPU-hour costs $2.00; 2 billion tokens in ")) << cost->why;
}

// The fewest GPUs that end in time: on one fewer of the front it takes longer.
TEST(PlanAnswers, ADeadlineTakesTheFewestGpusThatMeetIt) {
  const std::string block = "plan: {nodes: [1, 2, 4], strategies: [fsdp2], tokens: 2e9, days: ";
  const Plan free = make_plan(small("plan: {nodes: [1, 2, 4], strategies: [fsdp2], tokens: 2e9}\n"));
  ASSERT_GE(free.pareto.size(), 2U);
  const Seconds last = free.pareto.back().economics.wall, before = free.pareto[free.pareto.size() - 2].economics.wall;
  const double days = (last.base() + before.base()) / 2 / 86400;
  const Plan plan = make_plan(small(block + fmt::format("{}", days) + "}\n"));
  ASSERT_TRUE(plan.deadline.has_value());
  EXPECT_EQ(plan.deadline->evaluated.gpus(), free.pareto.back().evaluated.gpus());
  const auto said =
      std::find_if(plan.answers.begin(), plan.answers.end(), [](const Answer& a) { return a.question.starts_with("How many GPUs end"); });
  ASSERT_NE(said, plan.answers.end());
  EXPECT_TRUE(said->answer.starts_with(grouped(plan.deadline->evaluated.gpus()) + ": ")) << said->answer;
  EXPECT_FALSE(make_plan(small(block + "1e-6}\n")).deadline.has_value());
}

TEST(PlanAnswers, FailuresThatLeaveNoTimeAreSaid) {
  const Plan plan = make_plan(small("plan: {nodes: [2], strategies: [fsdp2], node_mtbf: 1 min}\n"));
  ASSERT_TRUE(plan.time.has_value());
  EXPECT_TRUE(plan.time->economics.hopeless());
  EXPECT_TRUE(plan_json(plan).find("best.time.days")->is_null());
  EXPECT_NE(plan_table(plan).find("for ever"), std::string::npos);
}

TEST(PlanWords, AreThoseOfAPlanner) {
  EXPECT_EQ(tokens_text(300e9), "300 billion tokens");
  EXPECT_EQ(tokens_text(1e12), "1 trillion tokens");
  EXPECT_EQ(tokens_text(1.56052e11), "156 billion tokens");
  EXPECT_EQ(tokens_text(2.488e9), "2.49 billion tokens");
  EXPECT_EQ(tokens_text(1e18), "1,000,000 trillion tokens");
  EXPECT_EQ(tokens_text(999), "999 tokens");
  EXPECT_EQ(gpus_text(1), "1 GPU");
  EXPECT_EQ(gpus_text(1024), "1,024 GPUs");
  EXPECT_EQ(percent_text(0.046), "4.6 %");
  EXPECT_EQ(percent_text(0.46), "46 %");
  EXPECT_EQ(wall_text(Seconds{3600.0 * 3}), "3.00 h");
  EXPECT_EQ(wall_text(Seconds{86400 * 31.84}), "31.8 days");
  EXPECT_EQ(wall_text(Seconds{86400 * 20721.9}), "20,722 days (56.7 years)");
  EXPECT_EQ(days_text(Seconds{360}), "0.0042");
  EXPECT_EQ(days_text(Seconds{86400 * 3.8}), "3.80");
}

// Fine-tuning goes over its data set; pre-training sees 20 tokens a parameter.
TEST(PlanRequest, FineTuningIsToldByItsDataSet) {
  const std::string lora = "model.trainable={lora: {rank: 8, targets: [q_proj, v_proj]}}";
  EXPECT_EQ(value_or_throw(read_plan(value_or_throw(vary(small(), {lora})))).tokens, 3 * 52000 * 1024.0);
  EXPECT_EQ(value_or_throw(read_plan(value_or_throw(vary(small(), {lora, "plan.epochs=2", "plan.samples=1000"})))).tokens,
            2 * 1000 * 1024.0);
  EXPECT_EQ(value_or_throw(read_plan(value_or_throw(vary(small(), {"plan.samples=1000"})))).tokens, 3 * 1000 * 1024.0);
  EXPECT_EQ(value_or_throw(read_plan(small())).tokens, 20 * static_cast<double>(small().model->total().value()));
  EXPECT_FALSE(read_plan(small("plan: {tokens: 1e9, epochs: 2}\n")));
}

TEST(PlanRequest, StrategiesAreThoseOfTheScenariosLibrary) {
  const PlanRequest request = value_or_throw(read_plan(small()));
  for (const std::string& name : request.strategies) EXPECT_TRUE(same_library(name, "fsdp2")) << name;
  EXPECT_GE(request.strategies.size(), 4U);
  EXPECT_EQ(std::count(request.others.begin(), request.others.end(), "zero3"), 1);
  const PlanRequest all = value_or_throw(read_plan(small("plan: {strategies: all}\n")));
  EXPECT_TRUE(all.others.empty());
  EXPECT_EQ(all.strategies.size(), strategies().size());
  EXPECT_TRUE(value_or_throw(read_plan(small("plan: {strategies: [zero3]}\n"))).others.empty());
}

TEST(PlanRequest, LibrariesForPreTrainingAreNoAnswerForAdaptersOrOneGpu) {
  const Scenario lora = value_or_throw(vary(small("plan: {strategies: all}\n"), {"model.trainable={lora: {rank: 8, targets: [q_proj]}}"}));
  const PlanRequest request = value_or_throw(read_plan(lora));
  EXPECT_EQ(std::count(request.strategies.begin(), request.strategies.end(), "megatron"), 0);
  const Scenario whole = small("plan: {strategies: all, nodes: [1]}\n");
  for (const Candidate& c : candidates(value_or_throw(vary(whole, {"cluster.gpus_per_node=1"})), value_or_throw(read_plan(whole))))
    if (c.gpus() == 1) { EXPECT_NE(c.strategy, "megatron"); }
}

// What a plan names leaves memory free, and whoever runs its command sees its figures.
TEST(PlanAnswers, WinnersLeaveMemoryFreeAndSimulateTheSameByHand) {
  const Scenario base = small("plan: {nodes: [1, 2], strategies: [fsdp2, ddp, fsdp1], global_batch: 96}\n", "5 GiB");
  const Plan plan = make_plan(base);
  ASSERT_TRUE(plan.time && plan.cost && plan.gpus);
  for (const PlanEntry* entry : {&*plan.time, &*plan.cost, &*plan.gpus}) {
    const SimulationResult by_hand = simulate_scenario(value_or_throw(vary(base, entry->set)));
    EXPECT_EQ(by_hand.step.time, entry->evaluated.time()) << entry->command("job.yaml");
    EXPECT_EQ(by_hand.memory.device_peak, entry->evaluated.result.memory.device_peak);
    EXPECT_LE(static_cast<double>(by_hand.memory.device_peak.value()), 0.92 * static_cast<double>(gibibytes(5).value()));
  }
  for (const PlanEntry& entry : plan.pareto)
    EXPECT_TRUE(fits_with(entry.evaluated.result.memory, 0.08)) << entry.evaluated.candidate.text();
  const std::string table = plan_table(plan);
  EXPECT_NE(table.find("shardsim simulate plan.yaml --set "), std::string::npos) << table;
}

// The scenario's own options are part of the way that is named.
TEST(PlanCandidates, KeepTheOptionsOfTheScenariosStrategy) {
  const Scenario base = value_or_throw(vary(small("plan: {strategies: [fsdp2], nodes: [1]}\n"), {"strategy.requires_gradient_sync=false"}));
  const auto all = candidates(base, value_or_throw(read_plan(base)));
  ASSERT_FALSE(all.empty());
  for (const Candidate& c : all) EXPECT_EQ(std::count(c.options.begin(), c.options.end(), "requires_gradient_sync=false"), 1) << c.text();
}

TEST(PlanFeasible, AJobAtTheEdgeIsFragile) {
  Memory memory;
  memory.capacity = gibibytes(80);
  memory.device_peak = gibibytes(70);
  EXPECT_TRUE(fits_with(memory, 0.08));
  memory.device_peak = gibibytes(75);
  EXPECT_FALSE(fits_with(memory, 0.08));
  EXPECT_TRUE(fits_with(memory, 0));
  memory.allocator_retries = 1;
  EXPECT_FALSE(fits_with(memory, 0));
  memory = {};
  memory.capacity = gibibytes(80);
  memory.host_capacity = gibibytes(64);
  memory.host_pinned_node = gibibytes(60);
  EXPECT_FALSE(fits_with(memory, 0.08));
  EXPECT_TRUE(fits_with(memory, 0.05));
}

// A job that does not fit is no measure for the time of one that does: only what makes it fit by itself is named.
TEST(PlanOptions, OfAJobThatDoesNotFitOnlyWhatMakesItFitIsNamed) {
  const Scenario base = value_or_throw(vary(small("", "1.9 GiB"), {"strategy={name: fsdp1}", "training.gradient_accumulation_steps=1"}));
  ASSERT_FALSE(simulate_scenario(base).memory.fits);
  const TunedOptions tuned = tune_options(base);
  EXPECT_FALSE(tuned.fits_before);
  for (const std::string& assignment : tuned.assignments())
    EXPECT_TRUE(simulate_scenario(value_or_throw(vary(base, {assignment}))).memory.fits) << assignment;
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
  EXPECT_NE(problem("{activation_checkpointing: [full, fulll]}").find("plan.yaml:5:41"), std::string::npos)
      << problem("{activation_checkpointing: [full, fulll]}");
  EXPECT_EQ(problem("{activation_checkpointing: [full, {every: 2}]}"), "accepted");
  EXPECT_NE(problem("{node_mtbf: 0 s}").find("node_mtbf must be more than 0"), std::string::npos);
  EXPECT_NE(problem("{checkpoint_bandwidth: 0 B/s}").find("must be more than 0"), std::string::npos);
  EXPECT_NE(problem("{checkpoint_interval: 0 s}").find("must be more than 0"), std::string::npos);
  EXPECT_EQ(problem("{restart: 0 s}"), "accepted");
  EXPECT_NE(problem("{nodes: [4, 8388608]}").find("plan.yaml:5:19: error: 8,388,608 nodes of 4 GPUs are more than 16,777,216 GPUs"),
            std::string::npos);
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
  EXPECT_NE(scaling.why.find("exposed communication by "), std::string::npos) << scaling.why;  // it grew the most
  EXPECT_TRUE(scaling.to_hide.starts_with("on 32 GPUs ")) << scaling.to_hide;
}

// On one GPU and on two the states are too much: their speed is no measure for those on which the job runs.
TEST(PlanScaling, EfficiencyIsAgainstTheFirstThatFits) {
  const Scaling scaling = scaling_study(value_or_throw(vary(small("", "1.8 GiB"), {"training.micro_batch_size=1"})), 1, 8);
  ASSERT_EQ(scaling.points.size(), 4U);
  ASSERT_FALSE(scaling.points.front().result.memory.fits);
  const auto first = std::find_if(scaling.points.begin(), scaling.points.end(), [](const ScalingPoint& p) { return p.result.memory.fits; });
  ASSERT_NE(first, scaling.points.end());
  EXPECT_EQ(first->efficiency, 1);
  EXPECT_DOUBLE_EQ(scaling.points.back().efficiency,
                   scaling.points.back().result.step.tokens_per_second_per_gpu / first->result.step.tokens_per_second_per_gpu);
}

TEST(PlanScaling, WhatIsNoWholeNumberOfNodesIsSaid) {
  const Scenario base = small("", "80 GiB");
  EXPECT_EQ(scaling_study(base, 1, 10).left_out, std::vector<std::string>{"10 GPUs: not a whole number of nodes of 4 GPUs"});
  EXPECT_THROW((void)scaling_study(base, 5, 7), InputError);
}

}  // namespace
}  // namespace shardsim
