// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO stages 1 and 2: what they send, in which buckets and order, and what their options do to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
// gtest first
#include <rapidcheck/gtest.h>

#include <numeric>

#include "schedule_facts.hpp"
#include "strategies/deepspeed/zero12_groups.hpp"
#include "strategies/strategy.hpp"
#include "toy_model.hpp"

namespace shardsim::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Job job_on(const Model& model, const std::string& strategy, std::int64_t n, std::int32_t micro_batches = 1) {
  Job job;
  job.model = &model;
  job.strategy.name = strategy;
  job.world_size = n;
  job.training.gradient_accumulation_steps = micro_batches;
  return job;
}

Schedule valid_schedule(const Job& job) {
  EXPECT_TRUE(check(job).empty());
  Schedule schedule = emit(job);
  EXPECT_THAT(validate(schedule), IsEmpty());
  return schedule;
}

std::int64_t padded(std::int64_t elements, std::int64_t n) { return (elements + 2 * n - 1) / (2 * n) * 2 * n; }

TEST(Zero1, SendsSixBytesAParameter) {
  const auto toy = toy_model();
  const std::map<std::int64_t, std::int64_t> expected{{2, 5940}, {4, 8916}, {8, 10402}};
  for (const auto& [n, bytes] : expected) EXPECT_EQ(bytes_sent(valid_schedule(job_on(*toy, "zero1", n))), bytes) << n;
}

TEST(Zero1, ReducesOnceAStep) {
  const auto toy = toy_model();
  EXPECT_EQ(bytes_sent(valid_schedule(job_on(*toy, "zero1", 4, 3))), 8916);
}

TEST(Zero2, ReducesInEveryMicroBatch) {
  const auto toy = toy_model();
  const std::map<std::int64_t, std::int64_t> expected{{2, 9900}, {4, 14856}, {8, 17332}};
  for (const auto& [n, bytes] : expected) EXPECT_EQ(bytes_sent(valid_schedule(job_on(*toy, "zero2", n, 2))), bytes) << n;
}

TEST(Zero12, SayWhyTheyDifferFromThePaper) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero2", 4);
  EXPECT_EQ(emit(job).differs_because, "DeepSpeed all-reduces the gradients where the paper reduce-scatters");
  job.strategy.options.set("use_multi_rank_bucket_allreduce", false);
  EXPECT_EQ(emit(job).differs_because, "");
}

// Section 2.7 over a grid ----------------------------------------------------------------------------------------------------------------

struct Setting {
  std::string strategy = *rc::gen::element<std::string>("zero1", "zero2");
  std::int64_t n = *rc::gen::inRange<std::int64_t>(1, 17);
  std::int32_t micro_batches = *rc::gen::inRange(1, 4);
  bool overlap = *rc::gen::arbitrary<bool>(), contiguous = *rc::gen::arbitrary<bool>(), scatter = *rc::gen::arbitrary<bool>();
  bool multi_rank = *rc::gen::arbitrary<bool>(), round_robin = *rc::gen::arbitrary<bool>(), split = *rc::gen::arbitrary<bool>();
  bool offload = *rc::gen::arbitrary<bool>(), fp32_wire = *rc::gen::arbitrary<bool>(), fp32_accumulation = *rc::gen::arbitrary<bool>();
  std::int64_t bucket = *rc::gen::element<std::int64_t>(1, 90, 200, 900, 500'000'000);
  ToySizes sizes{.vocabulary = *rc::gen::inRange<std::int64_t>(1, 40),
                 .width = *rc::gen::inRange<std::int64_t>(1, 9),
                 .hidden = *rc::gen::inRange<std::int64_t>(1, 12),
                 .blocks = *rc::gen::inRange(1, 4)};

  [[nodiscard]] Job job(const Model& model) const {
    Job job = job_on(model, strategy, n, micro_batches);
    job.rank = *rc::gen::inRange<std::int64_t>(0, n);
    job.training.optimizer.split_weight_decay = split;
    if (offload) job.training.offload.optimizer = OffloadTarget::cpu;
    if (fp32_wire) job.training.precision.reduce = DType::fp32;
    if (fp32_accumulation) job.training.precision.gradients = DType::fp32;
    Options& options = job.strategy.options;
    options.set("overlap_comm", overlap);
    options.set("contiguous_gradients", contiguous);
    options.set("reduce_scatter", scatter);
    options.set("use_multi_rank_bucket_allreduce", multi_rank);
    options.set("round_robin_gradients", round_robin);
    options.set("reduce_bucket_size", bucket);
    return job;
  }
  [[nodiscard]] bool bf16_optimizer() const { return strategy == "zero1" && fp32_accumulation && !offload; }
  [[nodiscard]] bool reduces_to_owners() const { return !bf16_optimizer() && (contiguous || offload) && scatter && !multi_rank; }
};

RC_GTEST_PROP(Zero12, BytesFollowTheClosedForm, ()) {
  const Setting s;
  const auto toy = toy_model(s.sizes);
  const Job job = s.job(*toy);
  RC_ASSERT(check(job).empty());
  const Schedule schedule = emit(job);
  RC_ASSERT(validate(schedule).empty());
  RC_ASSERT(moments_fit_weights(schedule));
  std::int64_t flat = 0, reduced = toy->total().value();
  for (const auto& group : optimizer_param_groups(*toy, s.split))
    flat += padded(std::accumulate(group.begin(), group.end(), std::int64_t{0},
                                   [&](std::int64_t sum, ParameterId p) { return sum + toy->at(p).elements.value(); }),
                   s.n);
  if (s.bf16_optimizer()) reduced = flat;
  const std::int64_t passes_over = s.reduces_to_owners() ? 1 : 2, times = s.strategy == "zero2" ? s.micro_batches : 1,
                     e_c = s.fp32_wire ? 4 : 2;
  const std::int64_t crossing = passes_over * times * reduced * e_c + (s.n > 1 ? flat * 2 : 0);
  RC_ASSERT(bytes_sent(schedule) == ((s.n - 1) * crossing + s.n - 1) / s.n);
}

RC_GTEST_PROP(Zero12, EveryRankIssuesTheSameCollectives, ()) {
  const Setting s;
  const auto toy = toy_model(s.sizes);
  Job job = s.job(*toy);
  const auto signature = [&](std::int64_t rank) {
    job.rank = rank;
    std::vector<std::tuple<Collective, std::int64_t, std::int32_t, bool>> calls;
    for (const Op& op : emit(job).ops)
      if (const auto* c = std::get_if<Communicate>(&op.action)) calls.emplace_back(c->kind, c->payload.value(), c->root, c->control);
    return calls;
  };
  RC_ASSERT(signature(0) == signature(s.n - 1));
}

// Buckets --------------------------------------------------------------------------------------------------------------------------------

TEST(Zero1, FlushesBeforeABucketWouldOverflow) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero1", 4);
  job.strategy.options.set("reduce_bucket_size", std::int64_t{200});
  // Registration order: embed 808 alone | 80 10 80 8 | 80 10 80 8 8 | head 808 alone; what exceeds the limit goes from its own gradient,
  // slice by slice: the embedding's 496 + 312, the head's 316 + 492 (partitions of 496).
  EXPECT_THAT(payloads(valid_schedule(job), Collective::all_reduce), ElementsAre(496, 312, 178, 186, 316, 492));
}

TEST(Zero2, ReducesInTheOrderOfArrival) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero2", 4);
  job.strategy.options.set("reduce_bucket_size", std::int64_t{1000});
  // head 808, norm 8, the last block 178: 994; one more bias of 8 would be too much. The first block and the embedding are left.
  EXPECT_THAT(payloads(valid_schedule(job), Collective::all_reduce), ElementsAre(994, 986));
}

TEST(Zero1, OneReduceForEachOwner) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero1", 4);
  job.strategy.options.set("use_multi_rank_bucket_allreduce", false);
  const Schedule schedule = valid_schedule(job);
  EXPECT_THAT(payloads(schedule, Collective::reduce), ElementsAre(496, 496, 496, 492));
  std::vector<std::int32_t> roots;
  for (const Communicate& c : collectives(schedule))
    if (c.kind == Collective::reduce) roots.push_back(c.root);
  EXPECT_THAT(roots, ElementsAre(0, 1, 2, 3));
}

TEST(Zero12, RoundRobinSpreadsConsecutiveGradients) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero2", 2);
  job.strategy.options.set("round_robin_gradients", true);
  Program program(job);
  const FlatGroups groups(program, {.model = DType::bf16, .master = DType::fp32, .round_robin = true});
  std::vector<std::int32_t> order;
  for (ParameterId p : groups.all()[0].flat_order) order.push_back(p.index);
  EXPECT_THAT(order, ElementsAre(0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9));
}

TEST(Zero12, DecayedWeightsComeFirstWhereTheOptimizerSplitsThem) {
  const auto toy = toy_model();
  const auto groups = optimizer_param_groups(*toy, true);
  ASSERT_EQ(groups.size(), 2U);
  for (ParameterId p : groups[0]) EXPECT_EQ(toy->at(p).shape.size(), 2U);
  EXPECT_EQ(groups[1].size(), 5U);
}

// Overlap --------------------------------------------------------------------------------------------------------------------------------

TEST(Zero2, AtMostOneReductionOverlapsCompute) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero2", 4);
  job.strategy.options.set("reduce_bucket_size", std::int64_t{900});
  job.strategy.options.set("overlap_comm", true);
  const Schedule schedule = valid_schedule(job);
  std::int32_t previous = -1, waited_for = -1, reductions = 0;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    if (const auto* wait = std::get_if<Wait>(&op.action); wait && op.stream == ScheduleBuilder::compute_stream())
      waited_for = std::max(waited_for, wait->op.index);
    const auto* c = std::get_if<Communicate>(&op.action);
    if (!c || c->kind != Collective::all_reduce || c->control) continue;
    EXPECT_EQ(schedule.streams[static_cast<std::size_t>(op.stream.index)].name, "reduction_stream");
    if (++reductions > 1) { EXPECT_GT(waited_for, previous) << "compute ran on beside two reductions"; }
    previous = static_cast<std::int32_t>(i);
  }
  EXPECT_EQ(reductions, 3);
}

TEST(Zero1, WithoutOverlapTheReductionFollowsBackward) {
  const auto toy = toy_model();
  const Schedule schedule = valid_schedule(job_on(*toy, "zero1", 4));
  std::size_t last_compute = 0, first_reduction = 0;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    if (const auto* c = std::get_if<Compute>(&schedule.ops[i].action); c && c->modules.layer >= 0) last_compute = i;
    if (std::holds_alternative<Communicate>(schedule.ops[i].action) && first_reduction == 0) first_reduction = i;
  }
  EXPECT_LT(last_compute, first_reduction);
}

// The step -------------------------------------------------------------------------------------------------------------------------------

TEST(Zero12, TheStepChecksOverflowAndTakesANormForEachGroup) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero1", 4);
  job.training.optimizer.split_weight_decay = true;
  const auto kinds = [](const Schedule& schedule) {
    std::vector<Reduction> found;
    for (const Communicate& c : collectives(schedule, true)) found.push_back(c.reduction);
    return found;
  };
  EXPECT_THAT(kinds(valid_schedule(job)), ElementsAre(Reduction::max, Reduction::sum, Reduction::sum));
  job.strategy.options.set("check_grad_overflow", false);
  EXPECT_THAT(kinds(valid_schedule(job)), ElementsAre(Reduction::sum, Reduction::sum));
}

TEST(Zero12, GathersEachGroupInPlaceOnTheComputeStream) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero2", 4);
  job.training.optimizer.split_weight_decay = true;
  const Schedule schedule = valid_schedule(job);
  EXPECT_THAT(payloads(schedule, Collective::all_gather), ElementsAre(1936, 48));  // 1936 and 44, padded to multiples of 8
  for (const Communicate& c : collectives(schedule)) EXPECT_EQ(c.source.valid(), false) << name_of(c.kind);
  job.world_size = 1;
  EXPECT_THAT(payloads(valid_schedule(job), Collective::all_gather), IsEmpty());
}

// BF16_Optimizer -------------------------------------------------------------------------------------------------------------------------

TEST(Bf16Optimizer, ReducesWholePaddedGroupsInBf16AndChecksNothing) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero1", 8, 2);
  job.strategy.options.set("grad_accum_dtype", std::string("fp32"));
  const Schedule schedule = valid_schedule(job);
  EXPECT_THAT(payloads(schedule, Collective::all_reduce), ElementsAre(1984));
  EXPECT_THAT(payloads(schedule, Collective::all_gather), ElementsAre(1984));
  EXPECT_EQ(bytes_sent(schedule), 1984 * 6 * 7 / 8);
  EXPECT_THAT(collectives(schedule, true), IsEmpty());
}

TEST(Bf16Optimizer, IsChosenAtStage1WithBf16ParametersAndNothingOffloaded) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero1", 4);
  job.training.precision.gradients = DType::fp32;
  const auto has_fp32_gradients = [](const Schedule& s) { return most_alive(s, labelled("fp32_groups_gradients_flat")) > 0; };
  EXPECT_TRUE(has_fp32_gradients(valid_schedule(job)));
  job.training.offload.optimizer = OffloadTarget::cpu;
  EXPECT_FALSE(has_fp32_gradients(valid_schedule(job)));
  job.training.offload.optimizer = OffloadTarget::none;
  job.training.precision.parameters = DType::fp16;
  EXPECT_FALSE(has_fp32_gradients(valid_schedule(job)));
  job.training.precision.parameters = DType::bf16;
  job.strategy.name = "zero2";
  EXPECT_FALSE(has_fp32_gradients(valid_schedule(job)));
}

// Options --------------------------------------------------------------------------------------------------------------------------------

TEST(Zero12, NameOptionsWithoutEffect) {
  const auto toy = toy_model();
  Job job = job_on(*toy, "zero2", 4);
  EXPECT_THAT(emit(job).warnings, IsEmpty());
  job.strategy.options.set("allgather_bucket_size", std::int64_t{1000});
  job.training.offload.parameters = OffloadTarget::cpu;
  job.training.precision.gradients = DType::fp32;
  EXPECT_THAT(emit(job).warnings,
              ElementsAre(HasSubstr("allgather_bucket_size"), HasSubstr("offload of parameters"), HasSubstr("accumulation dtype")));
  job.strategy.name = "zero1";
  job.strategy.options.set("overlap_comm", true);
  EXPECT_THAT(emit(job).warnings, ::testing::Contains(HasSubstr("overlap_comm has no effect: BF16_Optimizer")));
}

TEST(Zero12, RefuseWhatDeepSpeedForbids) {
  const auto toy = toy_model();
  for (const char* strategy : {"zero1", "zero2"}) {
    Job job = job_on(*toy, strategy, 4);
    job.training.offload.optimizer = OffloadTarget::nvme;
    EXPECT_THAT(check(job).text(), HasSubstr("ZeRO stage 3"));
    job.training.offload.optimizer = OffloadTarget::cpu;
    job.training.optimizer.kind = OptimizerKind::muon;
    EXPECT_THAT(check(job).text(), HasSubstr("muon with reduce_scatter cannot offload"));
    job.training.optimizer.kind = OptimizerKind::adamw;
    job.training.offload.optimizer = OffloadTarget::none;
    job.training.precision.master = DType::bf16;
    EXPECT_THAT(check(job).text(), HasSubstr("bf16_master_weights_and_grads"));
    job.training.precision.moments = DType::bf16;
    EXPECT_TRUE(check(job).empty());
  }
}

TEST(Zero12, FrozenParametersAreNeitherReducedNorGathered) {
  Model toy = *toy_model();
  std::vector<Parameter> parameters = *toy.parameters;
  parameters.front().trainable = parameters.back().trainable = false;
  toy.parameters = std::make_shared<const std::vector<Parameter>>(std::move(parameters));
  for (const char* strategy : {"zero1", "zero2"}) {
    const Schedule schedule = valid_schedule(job_on(toy, strategy, 4));
    EXPECT_THAT(payloads(schedule, Collective::all_reduce), ElementsAre(364)) << strategy;
    EXPECT_THAT(payloads(schedule, Collective::all_gather), ElementsAre(368)) << strategy;
  }
}

TEST(Zero12, StaySmallOnManyRanks) {
  const auto toy = toy_model();
  for (const char* strategy : {"zero1", "zero2"}) EXPECT_LT(emit(job_on(*toy, strategy, 16384)).ops.size(), 400U) << strategy;
}

}  // namespace
}  // namespace shardsim::testing
