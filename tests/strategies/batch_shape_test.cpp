// SPDX-License-Identifier: Apache-2.0
#include "strategies/batch_shape.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "jobs.hpp"

namespace shardsim::testing {
namespace {

/// What to_text() does not tell apart.
std::string sizes(const Schedule& schedule) {
  std::string text;
  const auto add = [&](auto value) { text += std::to_string(value) + ' '; };
  for (const Work& work : schedule.works) {
    for (const MatrixProduct& p : work.products) add(p.m), add(p.n), add(p.k), add(p.count);
    for (const FlashAttention& a : work.attention) add(a.flops.base()), add(a.density), add(a.head_dim), add(a.sequence), add(a.backward);
    add(work.memory.value()), add(work.kernels), add(static_cast<int>(work.dtype));
    text += '\n';
  }
  for (const Buffer& buffer : schedule.buffers) add(buffer.size().value());
  return text;
}

/// The parameters of both models must be the same objects: presets are read once for the two.
std::pair<OwnedJob, OwnedJob> two_shapes(
    const std::string& model, const std::string& strategy, const JobOptions& options,
    const std::function<void(Training&)>& set = [](Training&) {}) {
  const auto architecture = preset_named(model);
  const auto at = [&](std::int64_t micro_batch, std::int64_t sequence) {
    OwnedJob owned = make_job(architecture, strategy, options);
    set(owned.job.training);
    owned.job.training.micro_batch_size = micro_batch;
    owned.job.training.sequence_length = sequence;
    owned.model = *build_model(architecture, owned.job.training);
    owned.job.model = owned.model.get();
    return owned;
  };
  return {at(1, 16), at(3, 64)};
}

class BatchShape : public ::testing::TestWithParam<std::string> {};

TEST_P(BatchShape, AScheduleOfAnotherShapeIsTheOneThatWouldBeWritten) {
  struct Case {
    const char* model;
    JobOptions options;
    std::function<void(Training&)> set = [](Training&) {};
  };
  std::vector<Case> cases{{"gpt2", {.ranks = 4, .semantics = Semantics::textbook}},
                          {"gpt2", {.ranks = 4, .micro_batches = 2, .warm = false}},
                          {"mixtral-8x7b", {.ranks = 4, .checkpointing = Checkpointing::full}}};
  cases.push_back({"gpt2", {.ranks = 4}, [](Training& t) { t.compile = true; }});
  cases.push_back({"gpt2", {.ranks = 4}, [](Training& t) { t.attention = AttentionKind::plain; }});
  cases.push_back({"gpt2", {.ranks = 4}, [](Training& t) { t.loss = {.kind = Loss::Kind::chunked, .chunks = 4}; }});
  for (const Checkpointing c : {Checkpointing::none, Checkpointing::core_attention, Checkpointing::selective_ops, Checkpointing::full})
    cases.push_back({"gpt2", {.ranks = 4, .micro_batches = 2, .checkpointing = c}});
  for (const Case& c : cases) {
    const auto [small, large] = two_shapes(c.model, GetParam(), c.options, c.set);
    ASSERT_TRUE(share_ops(small.job, large.job));
    Schedule schedule = emit(small.job);
    const Schedule wanted = emit(large.job);
    ASSERT_NE(sizes(schedule), sizes(wanted));
    set_batch_shape(schedule, large.job);
    ASSERT_EQ(sizes(schedule), sizes(wanted)) << c.model;
    ASSERT_EQ(to_text(schedule), to_text(wanted)) << c.model;
    EXPECT_NE(to_text(wanted).find("workspace("), std::string::npos) << "scratch of kernels changes its size too";
  }
}

std::vector<std::string> shaped_strategies() {
  std::vector<std::string> all;
  for (const StrategyInfo& info : strategies()) all.push_back(info.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Strategies, BatchShape, ::testing::ValuesIn(shaped_strategies()), [](const auto& name) { return name.param; });

TEST(ShareOps, NotWhereAnythingElseDiffers) {
  const auto [job, other] = two_shapes("gpt2", "fsdp2", {.ranks = 8});
  EXPECT_TRUE(share_ops(job.job, other.job));
  const auto differs = [&](auto change) {
    Job changed = other.job;
    change(changed);
    return !share_ops(job.job, changed);
  };
  EXPECT_TRUE(differs([](Job& j) { j.world_size = 16; }));
  EXPECT_TRUE(differs([](Job& j) { j.rank = 1; }));
  EXPECT_TRUE(differs([](Job& j) { j.strategy.name = "fsdp1"; }));
  EXPECT_TRUE(differs([](Job& j) { j.strategy.options.set("reshard_after_forward", false); }));
  EXPECT_TRUE(differs([](Job& j) { j.training.gradient_accumulation_steps = 2; }));
  EXPECT_TRUE(differs([](Job& j) { j.training.checkpointing.kind = Checkpointing::full; }));
  EXPECT_TRUE(differs([](Job& j) { j.training.loss.kind = Loss::Kind::fused; }));
  EXPECT_TRUE(differs([](Job& j) { j.training.optimizer.clip_grad_norm = 1; }));
}

TEST(ShareOps, NotBetweenModelsNorWhereTokensTravelToExperts) {
  EXPECT_FALSE(share_ops(two_shapes("gpt2", "ddp", {}).first.job, two_shapes("llama-3.2-1b", "ddp", {}).first.job));
  const auto [a, b] = two_shapes("mixtral-8x7b", "fsdp2", {.ranks = 8, .options = {{"expert_parallel_size", std::int64_t{4}}}});
  EXPECT_FALSE(share_ops(a.job, b.job));
}

}  // namespace
}  // namespace shardsim::testing
