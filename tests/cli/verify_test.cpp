// SPDX-License-Identifier: Apache-2.0
// verify: no difference where there is none, and planted differences named as the first cause. The run is what another scenario predicts:
// recordings of the real libraries, which recordings_tests hold to the same schedules, would say the same.
#include "studies/verify/verify.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "studies/compare/variant.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

Scenario scenario(const std::string& strategy, const std::string& training = "") {
  const std::string text =
      "model:\n  hf_config: {model_type: llama, hidden_size: 256, intermediate_size: 688, num_hidden_layers: 4, num_attention_heads: 4, "
      "num_key_value_heads: 2, vocab_size: 1003, tie_word_embeddings: false}\ncluster: {profile: clusters/h100-sxm.yaml, nodes: 1}\n"
      "training: {sequence_length: 512, micro_batch_size: 8, gradient_accumulation_steps: 2" +
      training + "}\nstrategy: {" + strategy + "}\n";
  return value_or_throw(read_scenario(value_or_throw(read_yaml({"job.yaml", text})), "job.yaml", "."));
}

/// What a job would record that does what `scenario` predicts, every collective `slower` times as slow.
std::string recorded(const Scenario& scenario, double slower = 1, double step_slower = 1) {
  const SimulationResult result = simulate_scenario(scenario, {.timeline = true});
  std::string calls;
  for (const Slice& slice : result.timeline.slices) {
    const auto* c = std::get_if<Communicate>(&result.schedule->at(slice.op).action);
    if (c == nullptr) continue;
    const Group& group = result.schedule->group_of(c->communicator);
    calls += fmt::format(R"({}{{"kind": "{}", "elements": {}, "dtype": "{}", "ranks": {}, "stride": {}, "time_s": {}}})",
                         calls.empty() ? "" : ", ", name_of(c->kind), c->payload.value(), name_of(c->dtype), group.size, group.stride,
                         (slice.end - slice.begin).seconds().base() * slower);
  }
  return fmt::format(
      R"({{"schema": "shardsim.run/1", "library": "torch 2.15.0", "ranks": 8, "rank": 0, "steps": [{{"time_s": {}, "peak_bytes": {}, "collectives": [{}]}}]}})",
      result.step.time.base() * step_slower, result.memory.peak.value(), calls);
}

Verification held(const Scenario& predicted, const std::string& run) {
  return verify(predicted, value_or_throw(read_run({"run.json", run})));
}

class VerifyStrategies : public testing::TestWithParam<const char*> {};

TEST_P(VerifyStrategies, NoDifferenceIsReportedWhereThereIsNone) {
  const Scenario job = scenario(GetParam());
  const Verification v = held(job, recorded(job));
  EXPECT_TRUE(v.same_traffic && v.same_order && v.agrees());
  EXPECT_TRUE(v.causes.empty()) << v.causes.front().text;
  EXPECT_EQ(v.predicted_peak, *v.measured_peak);
}

INSTANTIATE_TEST_SUITE_P(All, VerifyStrategies,
                         testing::Values("name: ddp", "name: fsdp1", "name: fsdp2", "name: zero1", "name: zero2", "name: zero3"));

struct Planted {
  const char* what;
  const char* strategy;
  const char* assignment;  ///< what the real job does
  const char* cause;       ///< a word of the first cause or of its assignment
};

class VerifyPlanted : public testing::TestWithParam<Planted> {};

TEST_P(VerifyPlanted, IsTheFirstCause) {
  const Scenario job = scenario(GetParam().strategy);
  const Scenario real = value_or_throw(vary(job, {GetParam().assignment}));
  const Verification v = held(job, recorded(real));
  ASSERT_FALSE(v.causes.empty());
  const std::string first =
      v.causes.front().text + " " + (v.causes.front().assignments.empty() ? "" : v.causes.front().assignments.front());
  EXPECT_NE(first.find(GetParam().cause), std::string::npos) << first;
  EXPECT_GT(v.causes.front().explains, 0.5);
}

INSTANTIATE_TEST_SUITE_P(
    All, VerifyPlanted,
    testing::Values(Planted{"bucket size", "name: ddp", "strategy.bucket_cap_mb=5", "bucket_cap_mb=5"},
                    Planted{"reduce dtype", "name: fsdp2", "training.precision.reduce=fp32", "reduce_dtype=fp32"},
                    Planted{"missing checkpointing", "name: fsdp2", "training.activation_checkpointing=full", "checkpointing"},
                    Planted{"no_sync", "name: ddp", "strategy.no_sync=false", "no_sync=false"},
                    Planted{"reshard", "name: fsdp2", "strategy.reshard_after_forward=false", "reshard_after_forward=false"},
                    Planted{"micro-batch", "name: ddp", "training.micro_batch_size=2", "micro_batch_size=2"},
                    Planted{"another stage", "name: zero2", "strategy={name: zero3}", "zero3"}),
    [](const auto& test) {
      std::string name = test.param.what;
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      return name;
    });

TEST(Verify, SlowCollectivesAreNamedWithTheirRate) {
  const Scenario job = scenario("name: fsdp2");
  const Verification v = held(job, recorded(job, 3, 1.5));
  EXPECT_TRUE(v.agrees());
  ASSERT_FALSE(v.causes.empty());
  EXPECT_NE(v.causes.front().text.find("times as long as predicted"), std::string::npos) << v.causes.front().text;
}

TEST(Verify, AStepThatIsSlowOutsideCollectivesIsTheHostsOrTheKernels) {
  const Scenario job = scenario("name: ddp");
  const Verification v = held(job, recorded(job, 1, 2));
  ASSERT_EQ(v.causes.size(), 1U);
  EXPECT_NE(v.causes.front().text.find("in no collective"), std::string::npos);
}

TEST(Verify, ARunOfAnotherWorldOrKindOfFileIsRefused) {
  const Scenario job = scenario("name: ddp");
  std::string other = recorded(job);
  other.replace(other.find("\"ranks\": 8"), 10, "\"ranks\": 4");
  EXPECT_THROW((void)held(job, other), InputError);
  const auto wrong = read_run({"run.json", R"({"schema": "shardsim.simulate/1", "steps": []})"});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().text().find("run.json:1:12"), std::string::npos) << wrong.error().text();
}

}  // namespace
}  // namespace shardsim
