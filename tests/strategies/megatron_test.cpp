// SPDX-License-Identifier: Apache-2.0
// Megatron-Core's distributed optimizer: buffers and their padding, buckets, what is sent when, and what its options need.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
// gtest first
#include <rapidcheck/gtest.h>

#include <numeric>

#include "jobs.hpp"
#include "schedule_facts.hpp"
#include "strategies/megatron/megatron_buckets.hpp"
#include "strategies/shared/sharding.hpp"

namespace shardsim::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Given = std::vector<std::pair<std::string, Options::Value>>;

/// Toy T in reverse order, each start a multiple of 64: 808 (832), 8 (64), then twice 8 80 10 80 (64 128 64 128), 808: 2472, padded to
/// 2560.
TEST(Megatron, PadsParametersTo64AndTheBucketTo128) {
  const std::map<std::int64_t, std::int64_t> bytes{{2, 7680}, {4, 11520}, {8, 13440}};
  for (const auto& [n, expected] : bytes) {
    const Schedule schedule = valid_schedule(make_job(toy(), "megatron", {.ranks = n, .micro_batches = 3}));
    EXPECT_THAT(payloads(schedule, Collective::reduce_scatter), ElementsAre(2560));
    EXPECT_THAT(payloads(schedule, Collective::all_gather), ElementsAre(2560));
    EXPECT_EQ(bytes_sent(schedule), expected);
  }
}

TEST(Megatron, PadsToRanksThatAreNoPowerOfTwo) {
  EXPECT_THAT(payloads(valid_schedule(make_job(toy(), "megatron", {.ranks = 3})), Collective::all_gather),
              ElementsAre(2688));  // lcm(3, 128) = 384
  EXPECT_THAT(payloads(valid_schedule(make_job(toy(), "megatron", {.options = {{"pad_buckets_for_high_nccl_busbw", true}}})),
                       Collective::all_gather),
              ElementsAre(65536));
}

std::vector<std::size_t> bucket_lengths(const std::vector<int>& sizes, std::int64_t bucket_size) {
  std::string layers;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size)  // listed so that the buffer holds them in the order given
    layers += "- {name: layer" + std::to_string(layers.size()) + ", parameters: {w: [" + std::to_string(*size) + "]}}\n";
  const OwnedJob job = make_job(inline_layers(layers), "megatron");
  std::vector<std::size_t> lengths;
  for (const auto& bucket :
       megatron_buckets(*job.model, {.use_distributed_optimizer = false, .bucket_size = bucket_size}, parameters_where(*job.model, true)))
    lengths.push_back(bucket.size());
  return lengths;
}

TEST(Megatron, ClosesABucketThatHasReachedItsSize) { EXPECT_THAT(bucket_lengths({4, 4, 4, 12, 3}, 10), ElementsAre(3, 1, 1)); }

TEST(Megatron, ReducesBucketsWhileBackwardRunsAndGathersThemInForward) {
  const Given overlap{{"overlap_grad_reduce", true}, {"overlap_param_gather", true}, {"bucket_size", std::int64_t{780}}};
  const Schedule schedule = valid_schedule(make_job(toy(), "megatron", {.micro_batches = 2, .options = overlap}));
  // head: 808 | norm and both blocks: the last starts at 704 and ends at 784 | embed: 808
  EXPECT_THAT(payloads(schedule, Collective::reduce_scatter), ElementsAre(896, 896, 896));
  EXPECT_THAT(payloads(schedule, Collective::all_gather), ElementsAre(896, 896, 896));
  std::vector<std::string> gathered;
  std::size_t reduced_before_backward_ends = 0, last_compute = 0;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i)
    if (std::holds_alternative<Compute>(schedule.ops[i].action) && schedule.ops[i].phase == Phase::backward) last_compute = i;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const auto* c = std::get_if<Communicate>(&schedule.ops[i].action);
    if (!c) continue;
    if (c->kind == Collective::all_gather) {
      EXPECT_EQ(schedule.ops[i].phase, Phase::forward);
      EXPECT_EQ(schedule.ops[i].micro_batch, 0);
      gathered.push_back(schedule.units[static_cast<std::size_t>(schedule.ops[i].label.unit.index)]);
    } else {
      EXPECT_EQ(schedule.ops[i].micro_batch, 1) << "only the last micro-batch is reduced";
      reduced_before_backward_ends += i < last_compute ? 1 : 0;
    }
  }
  EXPECT_THAT(gathered, ElementsAre("bucket 2", "bucket 1", "bucket 0"));
  EXPECT_EQ(reduced_before_backward_ends, 2U);
}

TEST(Megatron, TheFirstIterationOverlapsNothing) {
  const Given overlap{{"overlap_grad_reduce", true}, {"overlap_param_gather", true}, {"bucket_size", std::int64_t{780}}};
  const Schedule schedule = valid_schedule(make_job(toy(), "megatron", {.warm = false, .options = overlap}));
  bool reduced = false;
  for (const Op& op : schedule.ops) {
    if (std::holds_alternative<Communicate>(op.action)) reduced = true;
    const auto* c = std::get_if<Compute>(&op.action);
    EXPECT_FALSE(c && c->modules.layer >= 0 && reduced);
  }
  EXPECT_THAT(payloads(schedule, Collective::all_gather), IsEmpty());
}

TEST(Megatron, KeepsFp32GradientsWholeAndTheOptimizerSharded) {
  const Schedule schedule = valid_schedule(make_job(toy(), "megatron", {.ranks = 4}));
  EXPECT_EQ(alive_after(schedule, in_category(Category::parameters)).front(), 2 * 2560);
  EXPECT_EQ(alive_after(schedule, in_category(Category::gradients)).front(), 4 * 2560);
  EXPECT_EQ(alive_after(schedule, in_category(Category::optimizer_states)).front(), 12 * 2560 / 4);
  EXPECT_EQ(most_alive(schedule, in_category(Category::unsharded_gradients)), 2 * 808) << "autograd's gradients live until they are added";
}

TEST(Megatron, WithoutTheDistributedOptimizerNothingIsPaddedOrSharded) {
  const Schedule schedule = valid_schedule(make_job(toy(), "megatron", {.ranks = 4, .options = {{"use_distributed_optimizer", false}}}));
  EXPECT_THAT(payloads(schedule, Collective::all_reduce), ElementsAre(1980));
  EXPECT_EQ(bytes_sent(schedule), 2 * 4 * 1980 * 3 / 4);
  EXPECT_EQ(alive_after(schedule, in_category(Category::optimizer_states)).front(), 12 * 1980);
}

TEST(Megatron, ShardsAreAllReducedAcrossInstances) {
  OwnedJob job =
      make_job(toy(), "megatron", {.ranks = 8, .rank = 5, .options = {{"num_distributed_optimizer_instances", std::int64_t{2}}}});
  const Schedule schedule = valid_schedule(job);
  EXPECT_THAT(payloads(schedule, Collective::reduce_scatter), ElementsAre(2560));
  EXPECT_THAT(payloads(schedule, Collective::all_reduce), ElementsAre(640));
  for (const Communicate& c : collectives(schedule)) {
    EXPECT_EQ(schedule.group_of(c.communicator).size, c.kind == Collective::all_reduce ? 2 : 4);
    EXPECT_EQ(c.offset.value(), c.kind == Collective::all_reduce ? 640 : 0) << "rank 5 is the second of its instance";
  }
  EXPECT_EQ(alive_after(schedule, in_category(Category::optimizer_states)).front(), 12 * 640);
}

TEST(Megatron, APrecisionSpelledOutIsTakenAtItsWord) {
  OwnedJob job = make_job(toy(), "megatron", {.ranks = 4});
  EXPECT_THAT(emit(job.job).differs_because, HasSubstr("fp32 gradient buffer"));
  job.job.training.precision.name = "custom";
  EXPECT_EQ(bytes_sent(valid_schedule(job)), 4 * 2560 * 3 / 4);
  EXPECT_EQ(emit(job.job).differs_because, "");
  EXPECT_EQ(most_alive(emit(job.job), labelled("shard_main_param.grad")), 4 * 640) << "bf16 gradients are cast, shard by shard";
}

TEST(Megatron, RefusesWhatItsConfigForbids) {
  const auto refusal = [](const Given& given) { return check(make_job(toy(), "megatron", {.options = given}).job).text(); };
  EXPECT_THAT(refusal({{"overlap_param_gather", true}}), HasSubstr("needs overlap_grad_reduce"));
  EXPECT_THAT(refusal({{"num_distributed_optimizer_instances", std::int64_t{3}}}), HasSubstr("does not divide the world of 8"));
  EXPECT_THAT(refusal({{"use_distributed_optimizer", false}, {"pad_buckets_for_high_nccl_busbw", true}}),
              HasSubstr("needs use_distributed_optimizer"));
  EXPECT_THAT(refusal({{"reduce_scatter_with_fp32_accumulation", true}, {"average_in_collective", true}}), HasSubstr("sums only"));
  EXPECT_THAT(refusal({{"reduce_scatter_with_fp32_accumulation", true}, {"use_distributed_optimizer", false}}),
              HasSubstr("needs use_distributed_optimizer"));
  EXPECT_THAT(emit(make_job(toy(), "megatron", {.options = {{"bucket_size", std::int64_t{10}}}}).job).warnings,
              ElementsAre(HasSubstr("bucket_size has no effect")));
}

std::vector<std::string> verbs_in(const Schedule& schedule, const std::vector<std::string_view>& wanted) {
  std::vector<std::string> found;
  for (const Op& op : schedule.ops)
    if (std::find(wanted.begin(), wanted.end(), op.label.verb) != wanted.end()) found.emplace_back(to_text(op.label, schedule));
  return found;
}

/// bf16 values by all-to-all: as many bytes as a bf16 reduce-scatter, and a second buffer as large as the bucket until the handle is waited
/// for.
TEST(Megatron, SumsBf16GradientsInFp32) {
  const Given bf16{{"grad_reduce_in_fp32", false}};
  Given exchange = bf16;
  exchange.emplace_back("reduce_scatter_with_fp32_accumulation", true);
  const Schedule plain = valid_schedule(make_job(toy(), "megatron", {.ranks = 4, .options = bf16}));
  const Schedule schedule = valid_schedule(make_job(toy(), "megatron", {.ranks = 4, .options = exchange}));
  EXPECT_THAT(payloads(schedule, Collective::all_to_all), ElementsAre(2560));
  EXPECT_THAT(payloads(schedule, Collective::reduce_scatter), IsEmpty());
  EXPECT_EQ(bytes_sent(schedule), bytes_sent(plain));
  EXPECT_EQ(most_alive(schedule, labelled("all_to_all_output_tensor")), 2 * 2560);
  EXPECT_EQ(most_alive(schedule, labelled("output_tensor_in_fp32")), 4 * 640);
  EXPECT_THAT(verbs_in(schedule, {"nccl:all_to_all", "torch.sum", "output_tensor.copy_"}),
              ElementsAre("nccl:all_to_all(bucket 0)", "torch.sum(bucket 0)", "output_tensor.copy_(bucket 0)"));
}

/// Under overlap every bucket's second buffer lives until backward has ended; across instances the sum comes before the shards' all-reduce.
TEST(Megatron, KeepsWhatArrivedUntilBackwardEnds) {
  Given options{{"grad_reduce_in_fp32", false},
                {"reduce_scatter_with_fp32_accumulation", true},
                {"overlap_grad_reduce", true},
                {"bucket_size", std::int64_t{780}}};
  EXPECT_EQ(most_alive(valid_schedule(make_job(toy(), "megatron", {.ranks = 4, .options = options})), labelled("all_to_all_output_tensor")),
            2 * 3 * 896);
  options = {{"grad_reduce_in_fp32", false},
             {"reduce_scatter_with_fp32_accumulation", true},
             {"num_distributed_optimizer_instances", std::int64_t{2}}};
  EXPECT_THAT(verbs_in(valid_schedule(make_job(toy(), "megatron", {.ranks = 8, .options = options})),
                       {"nccl:all_to_all", "torch.sum", "nccl:all_reduce"}),
              ElementsAre("nccl:all_to_all(bucket 0)", "torch.sum(bucket 0)", "nccl:all_reduce(bucket 0)"));
}

RC_GTEST_PROP(Megatron, BytesFollowTheClosedForm, ()) {
  const auto n = *rc::gen::inRange<std::int64_t>(1, 17);
  const auto micro_batches = *rc::gen::inRange(1, 4);
  const ToySizes sizes{.vocabulary = *rc::gen::inRange<std::int64_t>(1, 40),
                       .width = *rc::gen::inRange<std::int64_t>(1, 9),
                       .hidden = *rc::gen::inRange<std::int64_t>(1, 12),
                       .blocks = *rc::gen::inRange<std::int64_t>(1, 4)};
  const bool overlap = *rc::gen::arbitrary<bool>(), gather = overlap && *rc::gen::arbitrary<bool>();
  const Given options{
      {"overlap_grad_reduce", overlap}, {"overlap_param_gather", gather}, {"bucket_size", *rc::gen::inRange<std::int64_t>(1, 500)}};
  OwnedJob job = make_job(toy(sizes), "megatron",
                          {.ranks = n,
                           .micro_batches = micro_batches,
                           .master = *rc::gen::arbitrary<bool>() ? std::optional(DType::fp32) : std::nullopt,
                           .rank = *rc::gen::inRange<std::int64_t>(0, n),
                           .options = options});
  const MegatronConfig config = megatron_config(job.job);
  std::int64_t padded = 0;
  for (const auto& bucket : megatron_buckets(*job.model, config, parameters_where(*job.model, true))) {
    std::int64_t end = 0;
    for (ParameterId p : bucket) end = (end + 63) / 64 * 64 + job.model->at(p).elements.value();
    const std::int64_t multiple = std::lcm(n, std::int64_t{128});
    padded += (end + multiple - 1) / multiple * multiple;
  }
  const Schedule schedule = emit(job.job);
  RC_ASSERT(validate(schedule).empty());
  RC_ASSERT(moments_fit_weights(schedule));
  RC_ASSERT(bytes_sent(schedule) == 6 * padded * (n - 1) / n);
}

}  // namespace
}  // namespace shardsim::testing
