// SPDX-License-Identifier: Apache-2.0
// What holds for every strategy that there is, over a grid of jobs: schedules are valid, memory returns to where it was, one rank sends
// nothing, every collective of a rank is met by every other rank.
#include <gtest/gtest.h>

#include "jobs.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim::testing {
namespace {

class EveryStrategy : public ::testing::TestWithParam<std::string> {};

std::string strategy_name(const ::testing::TestParamInfo<std::string>& name) { return name.param; }

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const StrategyInfo& info : strategies()) all.push_back(info.name);
  return all;
}

std::vector<JobOptions> grid(Semantics semantics) {
  std::vector<JobOptions> jobs;
  for (std::int64_t n : {1, 2, 3, 8})
    for (std::int32_t g : {1, 3})
      for (Checkpointing c : {Checkpointing::none, Checkpointing::full})
        for (bool warm : {true, false})
          jobs.push_back({.ranks = n, .micro_batches = g, .semantics = semantics, .checkpointing = c, .warm = warm});
  return jobs;
}

TEST_P(EveryStrategy, SchedulesAreValidAndMemoryReturns) {
  for (Semantics semantics : {Semantics::framework, Semantics::textbook})
    for (const auto& architecture : {toy(), equal_blocks(3, 6)})
      for (const JobOptions& options : grid(semantics)) {
        const OwnedJob owned = make_job(architecture, GetParam(), options);
        const Schedule schedule = valid_schedule(owned);
        const Memory memory = fold_memory(schedule, 1);
        Bytes kept;
        for (const Buffer& b : schedule.buffers)
          if (b.persistent && !b.host && !b.view_of.valid()) kept += b.size();
        EXPECT_EQ(memory.resident, kept);
        EXPECT_GE(memory.peak, kept);
        EXPECT_EQ(sum(memory.at_peak), memory.peak);
        EXPECT_EQ(schedule.world_size, options.ranks);
        EXPECT_FALSE(schedule.library.empty());
      }
}

OwnedJob job_of(const std::string& preset, const std::string& strategy, const Trainable& trainable, JobOptions options) {
  OwnedJob owned = make_job(preset_named(preset), strategy, options);
  owned.model = *build_model(preset_named(preset), owned.job.training, trainable);
  owned.job.model = owned.model.get();
  return owned;
}

/// Tied weights (GPT-2's head is its embedding), adapters of rank 4, and a subset by name: one gradient each, none for what is frozen.
TEST_P(EveryStrategy, TiedWeightsAndTrainableSubsets) {
  const Trainable lora{.all = false, .lora_rank = 4, .targets = {"q_proj", "v_proj"}, .patterns = {}},
      norms{.all = false, .lora_rank = 0, .targets = {}, .patterns = {"*norm*"}};
  for (const auto& [preset, trainable] :
       std::vector<std::pair<std::string, Trainable>>{{"gpt2", {}}, {"llama-3.2-1b", lora}, {"llama-3.2-1b", norms}})
    for (const std::int64_t n : {1, 3, 8})
      for (const bool warm : {true, false}) {
        const OwnedJob owned =
            job_of(preset, GetParam(), trainable, {.ranks = n, .micro_batches = 2, .checkpointing = Checkpointing::full, .warm = warm});
        const Schedule schedule = valid_schedule(owned);
        EXPECT_EQ(sum(fold_memory(schedule, 1).at_peak), fold_memory(schedule, 1).peak);
        if (trainable.all) continue;
        const Traffic whole = traffic_of(
            job_of(preset, GetParam(), {}, {.ranks = n, .micro_batches = 2, .checkpointing = Checkpointing::full, .warm = warm}));
        EXPECT_LE(traffic_of(owned).total, whole.total) << preset << n;
      }
}

TEST_P(EveryStrategy, OneRankSendsNothing) {
  for (Semantics semantics : {Semantics::framework, Semantics::textbook})
    EXPECT_EQ(sent(toy(), GetParam(), {.ranks = 1, .micro_batches = 2, .semantics = semantics}), 0);
}

/// The collectives of a rank as text: what its partners must issue too, in the same order.
std::string collectives_text(const Schedule& schedule) {
  std::string text;
  for (const Op& op : schedule.ops)
    if (const auto* c = std::get_if<Communicate>(&op.action))
      text += std::string(name_of(c->kind)) + " " + std::to_string(c->payload.value()) + " " + std::string(name_of(c->dtype)) + " " +
              std::to_string(c->communicator.index) + " " + std::to_string(c->root) + "\n";
  return text;
}

TEST_P(EveryStrategy, AllRanksIssueTheSameCollectives) {
  for (Semantics semantics : {Semantics::framework, Semantics::textbook}) {
    JobOptions options{.ranks = 3, .micro_batches = 2, .semantics = semantics};
    const std::string first = collectives_text(valid_schedule(make_job(toy(), GetParam(), options)));
    for (options.rank = 1; options.rank < options.ranks; ++options.rank)
      EXPECT_EQ(collectives_text(valid_schedule(make_job(toy(), GetParam(), options))), first) << options.rank;
  }
}

// Where a library sends more or less than the papers count, one line says why.
TEST_P(EveryStrategy, SaysWhyItDiffersFromThePapers) {
  for (const std::int64_t n : {2, 4, 8})
    for (const std::int32_t g : {1, 3})
      for (const std::optional<DType> reduce : {std::optional<DType>{}, std::optional(DType::fp32)}) {
        const OwnedJob owned = make_job(equal_blocks(3), GetParam(), {.ranks = n, .micro_batches = g, .reduce = reduce});
        const Schedule schedule = valid_schedule(owned);
        const std::int64_t framework = account(schedule, owned.model->total()).total.value(),
                           papers = textbook(owned.job).sent_per_rank.value();
        EXPECT_TRUE(std::abs(framework - papers) <= 1 || !schedule.differs_because.empty()) << n << " " << g;
      }
}

TEST_P(EveryStrategy, MoreRanksNeverSendLess) {
  std::int64_t before = 0;
  for (std::int64_t n : {2, 4, 8, 16}) {
    const std::int64_t now = sent(equal_blocks(3), GetParam(), {.ranks = n});
    EXPECT_GE(now, before) << n;
    before = now;
  }
}

TEST_P(EveryStrategy, EveryOptimizerHasASchedule) {
  for (OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam, OptimizerKind::adamw,
                             OptimizerKind::adamw_8bit, OptimizerKind::lion, OptimizerKind::adafactor, OptimizerKind::muon})
    (void)valid_schedule(make_job(toy(), GetParam(), {.ranks = 4, .optimizer = kind}));
}

INSTANTIATE_TEST_SUITE_P(Strategies, EveryStrategy, ::testing::ValuesIn(names()), strategy_name);

}  // namespace
}  // namespace shardsim::testing
