// SPDX-License-Identifier: Apache-2.0
// A DeepSpeed ZeRO-1 run of OPT-1.3B on eight GPUs: the collectives that its config predicts, by facts written down here and, where the
// public trace is at hand, by the trace itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "models/families/hf_config.hpp"
#include "schedule_facts.hpp"
#include "strategies/strategy.hpp"

namespace shardsim::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// As PyTorch's profiler labels them: the collective and its input's elements.
struct Call {
  std::string name;
  std::int64_t elements = 0;
  auto operator<=>(const Call&) const = default;
};

std::shared_ptr<const Model> opt_1_3b(const Training& training) {
  const auto config =
      read_yaml({"opt-1.3b", R"({"model_type": "opt", "architectures": ["OPTForCausalLM"], "vocab_size": 50272, "hidden_size": 2048,
    "word_embed_proj_dim": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "ffn_dim": 8192, "max_position_embeddings": 2048,
    "do_layer_norm_before": true, "activation_function": "relu"})"});
  if (!config) throw std::runtime_error(config.error().text());
  const auto architecture = read_hf_config(*config);
  if (!architecture) throw std::runtime_error(architecture.error().text());
  const auto model = build_model(*architecture, training);
  if (!model) throw std::runtime_error(model.error().text());
  return *model;
}

/// The library of that run (0.12) reduced without contiguous gradients at stage 1 and looked for no overflow in bf16.
Schedule trained_step(bool contiguous_gradients, bool split_weight_decay = true) {
  Job job;
  job.training.sequence_length = 512;
  job.training.optimizer.split_weight_decay = split_weight_decay;
  const auto model = opt_1_3b(job.training);
  job.model = model.get();
  job.world_size = 8;
  job.strategy.name = "zero1";
  job.strategy.options.set("contiguous_gradients", contiguous_gradients);
  job.strategy.options.set("check_grad_overflow", false);
  Schedule schedule = emit(job);
  EXPECT_THAT(validate(schedule), IsEmpty());
  return schedule;
}

std::vector<Call> calls_of(const Schedule& schedule) {
  std::vector<Call> calls;
  for (const Op& op : schedule.ops)
    if (const auto* c = std::get_if<Communicate>(&op.action))
      calls.push_back({op.label.verb, c->kind == Collective::all_gather ? c->payload.value() / schedule.world_size : c->payload.value()});
  return calls;
}

TEST(Zero1Trace, BucketsSpanParamGroupsInRegistrationOrder) {
  for (bool contiguous : {false, true}) {
    const Schedule schedule = trained_step(contiguous);
    EXPECT_THAT(payloads(schedule, Collective::all_reduce), ElementsAre(493'031'424, 486'539'264, 336'187'392));
    EXPECT_THAT(payloads(schedule, Collective::all_gather), ElementsAre(1'315'115'008, 643'072));
    EXPECT_THAT(to_text(schedule), HasSubstr("493031424"));
  }
}

TEST(Zero1Trace, OneParamGroupGivesOtherBuckets) {
  EXPECT_THAT(payloads(trained_step(false, false), Collective::all_reduce), ElementsAre(493'242'368, 486'797'312, 335'718'400));
}

TEST(Zero1Trace, EveryGradientIsCopiedBack) {
  const Schedule schedule = trained_step(false);
  const auto copied_back =
      std::count_if(schedule.ops.begin(), schedule.ops.end(), [](const Op& op) { return std::string_view(op.label.verb) == "buf.copy_"; });
  EXPECT_EQ(copied_back, 388);
}

/// Text after `key` at or behind `from`, up to the first character of `stop`.
std::optional<std::string> after(const std::string& text, const std::string& key, std::size_t from, const char* stop) {
  const std::size_t at = text.find(key, from);
  if (at == std::string::npos) return std::nullopt;
  return text.substr(at + key.size(), text.find_first_of(stop, at + key.size()) - at - key.size());
}

std::string unzipped(const std::filesystem::path& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(("gunzip -c '" + file.string() + "'").c_str(), "r"), pclose);
  std::string text;
  std::array<char, 65536> block{};
  if (!pipe) return text;
  while (const std::size_t size = std::fread(block.data(), 1, block.size(), pipe.get())) text.append(block.data(), size);
  return text;
}

/// The annotated collectives of a kineto trace, in the order in which the host issued them.
std::vector<Call> calls_of_trace(const std::string& text) {
  std::vector<Call> calls;
  const std::string key = R"("cat":"user_annotation","name":"nccl:)";
  for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
    const auto name = after(text, key, at, "\"");
    const auto elements = after(text, R"("Input Dims":[[)", at, "]");
    if (name && elements) calls.push_back({"nccl:" + *name, std::stoll(*elements)});
  }
  return calls;
}

TEST(Zero1Trace, EqualsThePublicTrace) {
  const std::filesystem::path trace =
      std::filesystem::path(SHARDSIM_SOURCE_DIR) / "../shared/data/inputs/trace/li_plus_zero1.trace.json.gz";
  if (!std::filesystem::exists(trace)) GTEST_SKIP() << "no li_plus_zero1.trace.json.gz beside the source tree";
  const std::vector<Call> one_step = calls_of(trained_step(false));
  std::vector<Call> two_steps = one_step;
  two_steps.insert(two_steps.end(), one_step.begin(), one_step.end());
  EXPECT_EQ(calls_of_trace(unzipped(trace)), two_steps);
}

}  // namespace
}  // namespace shardsim::testing
