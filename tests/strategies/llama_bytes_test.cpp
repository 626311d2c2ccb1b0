// SPDX-License-Identifier: Apache-2.0
// Llama-2-7B on 8 and 64 ranks: gigabytes that every strategy sends in a step, against the worked table.
#include <array>

#include "jobs.hpp"
#include "schedule_facts.hpp"

namespace shardsim::testing {
namespace {

using Given = std::vector<std::pair<std::string, Options::Value>>;

/// Gigabytes (1e9) sent by a rank in a step: on 8 ranks with 1 and 4 micro-batches, on 64 ranks with 1 and 4.
struct BytesRow {
  const char* strategy;
  std::array<double, 4> gigabytes;
  Given options{};
  JobOptions job{};
  bool uneven = false;     ///< the mean over ranks: broadcasts and reductions to owners
  std::int64_t shard = 0;  ///< HSDP's shard group
};

class LlamaBytes : public ::testing::TestWithParam<BytesRow> {};

TEST_P(LlamaBytes, EqualTheTable) {
  const BytesRow& row = GetParam();
  std::size_t column = 0;
  for (const std::int64_t n : {8, 64})
    for (const std::int32_t g : {1, 4}) {
      JobOptions options = row.job;
      options.ranks = n;
      options.micro_batches = g;
      options.options = row.options;
      if (row.shard > 0) options.options.emplace_back("replicate", n / row.shard);
      const OwnedJob job = make_job(preset_named("llama-2-7b"), row.strategy, options);
      ASSERT_EQ(job.model->total().value(), 6'738'415'616);
      const std::int64_t sent = row.uneven ? bytes_sent(valid_schedule(job)) : traffic_of(job).total.value();
      EXPECT_NEAR(static_cast<double>(sent) / 1e9, row.gigabytes[column++], 0.0005)
          << row.strategy << " on " << n << ", " << g << " micro-batches";
    }
}

const JobOptions in_fp32{.parameters = DType::fp32, .gradients = DType::fp32, .master = std::nullopt},
    papers{.semantics = Semantics::textbook}, reduced_in_fp32{.reduce = DType::fp32};

INSTANTIATE_TEST_SUITE_P(
    Llama2_7B, LlamaBytes,
    ::testing::Values(
        BytesRow{"ddp", {23.584, 23.584, 26.533, 26.533}}, BytesRow{"ddp", {47.169, 47.169, 53.065, 53.065}, {}, in_fp32},
        BytesRow{"zero1", {35.377, 35.377, 39.799, 39.799}}, BytesRow{"zero_redundancy", {35.377, 35.377, 39.799, 39.799}, {}, {}, true},
        BytesRow{"megatron", {35.377, 35.377, 39.799, 39.799}},
        BytesRow{"zero1", {23.584, 23.584, 26.533, 26.533}, {{"use_multi_rank_bucket_allreduce", false}}, {}, true},
        BytesRow{"zero2", {35.377, 106.130, 39.799, 119.396}}, BytesRow{"zero3", {35.377, 141.507, 39.799, 159.195}, {}, papers},
        BytesRow{"zero3", {33.651, 134.604, 37.858, 151.429}},
        BytesRow{"zero3", {34.497, 137.988, 38.809, 155.236}, {{"stage3_prefetch_bucket_size", std::int64_t{0}}}},
        BytesRow{"fsdp1", {34.918, 139.672, 39.283, 157.131}}, BytesRow{"fsdp2", {34.918, 139.672, 39.283, 157.131}},
        BytesRow{"fsdp2", {46.710, 186.841, 52.549, 210.196}, {}, reduced_in_fp32},
        BytesRow{"fsdp2", {46.710, 116.087, 52.549, 130.598}, {{"requires_gradient_sync", false}}, reduced_in_fp32},
        BytesRow{"fsdp2", {35.377, 141.507, 39.799, 159.195}, {{"reshard_after_forward", std::string("false")}}, reduced_in_fp32},
        BytesRow{"fsdp2", {46.710, 186.841, 52.606, 210.425}, {}, reduced_in_fp32, false, 8},
        BytesRow{"olmo_ddp", {58.961, 58.961, 66.331, 66.331}}),
    [](const ::testing::TestParamInfo<BytesRow>& row) { return std::string(row.param.strategy) + std::to_string(row.index); });

}  // namespace
}  // namespace shardsim::testing
