// SPDX-License-Identifier: Apache-2.0
// Llama-2-7B on 8 and 64 ranks: gigabytes that the strategies with a sharded optimizer send in a step, against the worked table.
#include "jobs.hpp"
#include "schedule_facts.hpp"

namespace shardsim::testing {
namespace {

struct Row {
  const char* strategy;
  std::int64_t ranks;
  std::int32_t micro_batches;
  double gigabytes;
  std::vector<std::pair<std::string, Options::Value>> options = {};
};

TEST(LlamaBytes, EqualTheTable) {
  const std::vector<Row> rows{{"zero1", 8, 1, 35.377}, {"zero1", 8, 4, 35.377}, {"zero1", 64, 4, 39.799},
                              {"zero1", 8, 1, 23.584, {{"use_multi_rank_bucket_allreduce", false}}}, {"zero1", 64, 1, 26.533, {{"use_multi_rank_bucket_allreduce", false}}},
                              {"zero2", 8, 1, 35.377}, {"zero2", 8, 4, 106.130}, {"zero2", 64, 1, 39.799}, {"zero2", 64, 4, 119.396},
                              {"zero_redundancy", 8, 1, 35.377}, {"zero_redundancy", 64, 1, 39.799},
                              {"megatron", 8, 1, 35.377}, {"megatron", 64, 4, 39.799}, {"olmo_ddp", 8, 4, 58.961}, {"olmo_ddp", 64, 1, 66.331}};
  for (const Row& row : rows) {
    const OwnedJob job = make_job(preset_named("llama-2-7b"), row.strategy, {.ranks = row.ranks, .micro_batches = row.micro_batches, .options = row.options});
    ASSERT_EQ(job.model->total().value(), 6'738'415'616);
    EXPECT_NEAR(static_cast<double>(bytes_sent(valid_schedule(job))) / 1e9, row.gigabytes, 0.0005) << row.strategy << " on " << row.ranks;
  }
}

}  // namespace
}  // namespace shardsim::testing
