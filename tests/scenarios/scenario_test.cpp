// SPDX-License-Identifier: Apache-2.0
#include "scenarios/reader/scenario.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace shardsim {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string base = R"(model:
  hf_config: models/tiny-llama.json
cluster:
  profile: clusters/h100-sxm.yaml
  nodes: 2
  gpus_per_node: 4
training:
  sequence_length: 64
  micro_batch_size: 1
strategy:
  name: ddp
)";

Result<Scenario> read(const std::string& text, const std::vector<std::string>& assignments = {}) {
  Result<ConfigNode> root = read_yaml({"s.yaml", text});
  for (const std::string& assignment : assignments)
    if (root) root = with_override(*root, assignment);
  if (!root) return tl::make_unexpected(root.error());
  return read_scenario(*root, "s.yaml", SHARDSIM_SOURCE_DIR "/scenarios");
}

Scenario good(const std::string& text, const std::vector<std::string>& assignments = {}) {
  auto scenario = read(text, assignments);
  EXPECT_TRUE(scenario) << scenario.error().text();
  return scenario.value_or(Scenario{});
}

std::string error(const std::string& text, const std::vector<std::string>& assignments = {}) {
  const auto scenario = read(text, assignments);
  return scenario ? "read without a problem" : scenario.error().text();
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = base;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Scenario, ReadsWhatIsWritten) {
  const Scenario s = good(base);
  EXPECT_EQ(s.model->total(), Elements{106'816});
  EXPECT_EQ(s.cluster.world_size(), 8);
  EXPECT_EQ(s.cluster.nics_per_node, 4);  // one for each GPU in use
  EXPECT_EQ(s.training.sequence_length, 64);
  EXPECT_EQ(s.strategy.name, "ddp");
  EXPECT_EQ(s.strategy.semantics, Semantics::framework);
  const Job job = s.job();
  EXPECT_EQ(job.model, s.model.get());
  EXPECT_EQ(job.world_size, 8);
  EXPECT_EQ(job.gpus_per_node, 4);
}

TEST(Scenario, TrainingWords) {
  const Scenario s = good(
      base,
      {"training.activation_checkpointing={every: 2}", "training.attention=plain", "training.dropout=0.1", "training.loss={chunked: 8}",
       "training.optimizer={name: adamw, implementation: fused, weight_decay_groups: split, clip_grad_norm: 1.0, zero_grad: zero}",
       "training.offload=none", "training.compile=true", "training.warm=false", "training.gradient_accumulation_steps=4"});
  EXPECT_EQ(s.training.checkpointing.kind, Checkpointing::full);
  EXPECT_EQ(s.training.checkpointing.every, 2);
  EXPECT_EQ(s.training.attention, AttentionKind::plain);
  EXPECT_EQ(s.training.dropout, 0.1);
  EXPECT_EQ(s.training.loss.kind, Loss::Kind::chunked);
  EXPECT_EQ(s.training.loss.chunks, 8);
  EXPECT_EQ(s.training.optimizer.implementation, Optimizer::Implementation::fused);
  EXPECT_TRUE(s.training.optimizer.split_weight_decay);
  EXPECT_EQ(s.training.optimizer.clip_grad_norm, 1.0);
  EXPECT_FALSE(s.training.optimizer.set_to_none);
  EXPECT_EQ(s.training.optimizer.variant, "");
  EXPECT_EQ(good(base, {"training.optimizer={name: muon, variant: keller_jordan}"}).training.optimizer.variant, "keller_jordan");
  EXPECT_TRUE(s.training.compile);
  EXPECT_FALSE(s.training.warm);
  EXPECT_EQ(s.training.gradient_accumulation_steps, 4);
}

TEST(Scenario, AllocatorTakesPyTorchsOwnKeys) {
  EXPECT_FALSE(good(base).training.allocator.expandable_segments);
  const Scenario s = good(base, {"training.allocator={expandable_segments: true, max_split_size_mb: 512}"});
  EXPECT_TRUE(s.training.allocator.expandable_segments);
  EXPECT_EQ(s.training.allocator.max_split_size, mebibytes(512));
  EXPECT_THAT(error(changed("training:\n", "training:\n  allocator: {max_split_size_mb: 20}\n")), HasSubstr("max_split_size_mb"));
}

TEST(Scenario, TransformersWays) {
  EXPECT_FALSE(good(base).training.loss_in_model);
  const Scenario s = good(base, {"training.loss_in_model=true", "training.activation_checkpointing={kind: full, use_reentrant: true}"});
  EXPECT_TRUE(s.training.loss_in_model);
  EXPECT_TRUE(s.training.checkpointing.use_reentrant);
  EXPECT_EQ(s.training.checkpointing.kind, Checkpointing::full);
  EXPECT_EQ(s.training.checkpointing.every, 1);
}

TEST(Scenario, PrecisionWordsMeanWhatTheTableSays) {
  const auto precision = [&](const std::string& text) { return good(base, {"training.precision=" + text}).training.precision; };
  const Precision mixed = precision("mixed");
  EXPECT_EQ(mixed.parameters, DType::bf16);
  EXPECT_EQ(mixed.gradients, DType::bf16);
  EXPECT_EQ(mixed.reduce, std::nullopt);
  EXPECT_EQ(mixed.master, DType::fp32);
  const Precision autocast = precision("autocast");
  EXPECT_EQ(autocast.parameters, DType::fp32);
  EXPECT_EQ(autocast.compute, DType::bf16);
  EXPECT_EQ(autocast.gradients, DType::fp32);
  EXPECT_EQ(autocast.reduce, DType::fp32);
  EXPECT_EQ(autocast.master, std::nullopt);
  const Precision pure = precision("pure-bf16");
  EXPECT_EQ(pure.moments, DType::bf16);
  EXPECT_EQ(pure.master, std::nullopt);
  EXPECT_EQ(precision("fp32").compute, DType::fp32);
  const Precision custom = precision("{parameters: fp32, compute: bf16, gradients: fp32, reduce: bf16, master: none}");
  EXPECT_EQ(custom.name, "custom");
  EXPECT_EQ(custom.compute, DType::bf16);
  EXPECT_EQ(custom.reduce, DType::bf16);
  EXPECT_EQ(custom.master, std::nullopt);
  EXPECT_EQ(custom.moments, DType::fp32);
  EXPECT_EQ(precision("{parameters: fp16}").master, DType::fp32);
}

TEST(Scenario, AnyProfileValueMayBeOverridden) {
  const Scenario s = good(
      changed("  nodes: 2\n",
              "  nodes: 2\n  nic_bandwidth: 100 Gbit/s\n  gpu: {capacity: 40 GiB, gemm: {efficiency: 0.5}}\n  price_per_gpu_hour: 2\n"));
  EXPECT_DOUBLE_EQ(s.cluster.profile.network.nic_bandwidth.base(), 12.5e9);
  EXPECT_EQ(s.cluster.profile.gpu.capacity, gibibytes(40));
  EXPECT_EQ(s.cluster.profile.gpu.gemm.efficiency, 0.5);
  EXPECT_EQ(s.cluster.profile.gpu.gemm.memory_efficiency, 0.8);  // the profile's
  EXPECT_EQ(s.cluster.profile.price_per_gpu_hour, 2);
  EXPECT_EQ(origin_of(s.cluster.profile, "network.nic_bandwidth"), "set by the scenario");
  EXPECT_THAT(error(changed("  nodes: 2\n", "  nodes: 2\n  gpu: {capacty: 40 GiB}\n")),
              HasSubstr("s.yaml:6:9: error: unknown key 'capacty' in gpu"));
}

TEST(Scenario, OverriddenLinksKeepWhatWasMeasured) {
  // The value that is there: nothing changes.
  EXPECT_FALSE(good(changed("  nodes: 2\n", "  nodes: 2\n  nic_bandwidth: 400 Gbit/s\n")).cluster.profile.measured_on);
  const Scenario slower = good(changed("  nodes: 2\n", "  nodes: 2\n  nic_bandwidth: 100 Gbit/s\n"));
  EXPECT_FALSE(slower.cluster.profile.collectives.empty());
  ASSERT_TRUE(slower.cluster.profile.measured_on);
  EXPECT_DOUBLE_EQ(slower.cluster.profile.measured_on->network.nic_bandwidth.base(), 50e9);
  const Scenario inside = good(changed("  nodes: 2\n", "  nodes: 2\n  ring_bandwidth: 100 GB/s\n"));
  EXPECT_FALSE(inside.cluster.profile.collectives.empty());
  EXPECT_THAT(inside.warnings, testing::Contains(HasSubstr("measured latency and efficiency are carried over")));
}

TEST(Scenario, AFabricIsTakenByItsName) {
  const Scenario efa = good(changed("  nodes: 2\n", "  nodes: 2\n  fabric: efa\n"));
  EXPECT_NEAR(efa.cluster.profile.network.inter_latency.base(), 25e-6, 1e-12);
  EXPECT_EQ(efa.cluster.profile.network.efficiency, 0.95);
  EXPECT_DOUBLE_EQ(efa.cluster.profile.network.nic_bandwidth.base(), 50e9);  // the profile's
  EXPECT_THAT(origin_of(efa.cluster.profile, "network.inter_latency"), HasSubstr("p5.48xlarge"));
  const Scenario own = good(changed("  nodes: 2\n", "  nodes: 2\n  fabric: roce\n  efficiency: 0.5\n"));
  EXPECT_EQ(own.cluster.profile.network.efficiency, 0.5);  // the scenario knows better
  EXPECT_THAT(error(changed("  nodes: 2\n", "  nodes: 2\n  fabric: token_ring\n")), HasSubstr("token_ring"));
}

TEST(Scenario, ATopologyReplacesWhatWasMeasuredAcrossIt) {
  const Scenario s =
      good(changed("  nodes: 2\n", "  nodes: 2\n  all_reduce_algorithm: nvls\n  topology: {nodes_per_leaf: 1, oversubscription: 2}\n"));
  EXPECT_EQ(s.cluster.profile.network.all_reduce_algorithm, "nvls");
  ASSERT_TRUE(s.cluster.profile.topology);
  EXPECT_EQ(s.cluster.profile.topology->oversubscription, 2);
  EXPECT_FALSE(s.cluster.profile.collectives.empty());  // measured inside one node
  EXPECT_EQ(origin_of(s.cluster.profile, "topology.oversubscription"), "set by the scenario");
}

TEST(Scenario, TellsAllProblemsAtOnceInOrder) {
  const std::string text = error(R"(model:
  hf_config: models/nope.json
cluster:
  profile: clusters/h100-sxm.yaml
  nodes: 0
  gpus_per_node: 9
training:
  sequence_length: -1
  micro_batch_sise: 1
  precision: half
strategy:
  name: zero4
)");
  std::size_t last = 0;
  for (const char* problem : {"s.yaml:2:14: error: cannot read 'models/nope.json'", "s.yaml:5:10: error: expected a whole number from 1",
                              "s.yaml:6:18: error: expected a whole number from 1 to 8", "s.yaml:8:20: error: expected a whole number",
                              "s.yaml:9:3: error: unknown key 'micro_batch_sise'", "s.yaml:10:14: error: precision cannot be 'half'",
                              "s.yaml:12:9: error: name cannot be 'zero4'"}) {
    const auto at = text.find(problem);
    ASSERT_NE(at, std::string::npos) << problem << "\nin\n" << text;
    EXPECT_GE(at, last) << problem;
    last = at;
  }
}

TEST(Scenario, BadValuesAreProblemsWithAPlace) {
  const std::map<std::string, std::string> cases{
      {"training.sequence_length=0", "expected a whole number from 1"},
      {"training.sequence_length=99999999999999999999", "expected a whole number from 1"},
      {"training.micro_batch_size=.nan", "expected a whole number from 1"},
      {"training.micro_batch_size=1.5", "expected a whole number from 1"},
      {"training={sequence_length: 16384, micro_batch_size: 100000}", "a micro-batch of 1638400000 tokens"},
      {"training.activation_checkpointing=ful", "did you mean 'full'?"},
      {"training.activation_checkpointing={evry: 2}", "activation_checkpointing needs a key 'every'"},
      {"training.precision={parameters: int8}", "parameters cannot be 'int8'"},
      {"training.optimizer={implementation: fused}", "optimizer needs a key 'name'"},
      {"training.optimizer={name: muon, variant: dionn}", "did you mean 'dion'?"},
      {"training.optimizer={name: adamw, variant: dion}", "only muon has variants"},
      {"training.offload=cpu", "offload is 'none' or a map"},
      {"training.precision={parameters: bf16, compute: fp8, gradientss: bf16}", "unknown key 'gradientss' in precision"},
      {"training.gradient_accumulation_steps=65536", "more than are simulated"},
      {"cluster.nic_bandwidth=400", "'400' has no unit"},
      {"cluster.nic_bandwidth=400 Gbot/s", "did you mean 'Gbit/s'?"},
      {"cluster.nic_bandwith=400 Gbit/s", "did you mean 'nic_bandwidth'?"},
      {"cluster.nodes=2147483647", "expected a whole number from 1 to 16777216"},
      {"cluster.nodes=16777216", "a world size of 67108864 is above the limit of 16777216"},
      {"cluster.profile=clusters", "cannot read"},
      {"cluster.all_reduce_algorithm=butterfly", "all_reduce_algorithm cannot be 'butterfly'"},
      {"cluster.topology={nodes_per_leaf: 2, oversubscribtion: 4}", "did you mean 'oversubscription'?"},
      {"cluster.topology={node_links: [{from: 'gpu[0-1]', to: nvswitch0, bandwidth: 300 GB/s}]}",
       "topology: 4 GPUs of each node are in use, and the topology has 2"},
      {"strategy=[1, 2]", "strategy must be a map of keys and values, not a list"},
      {"strategy.semantics=paper", "semantics cannot be 'paper'"},
      {"strategy.reshard_after_forward=true", "unknown key 'reshard_after_forward' in strategy ddp"},
      {"strategy.bucket_cap_mb=x", "expected a number"},
      {"model.preset=llama-3-8b", "model needs exactly one of"},
      {"model.trainable=some", "trainable cannot be 'some'"},
      {"model.trainable={lora: {rank: 0, targets: [q_proj]}}", "expected a whole number from 1"},
      {"model.trainable={lora: {rank: 8}}", "lora needs a key 'targets'"},
      {"models={}", "unknown key 'models' in the scenario"},
  };
  for (const auto& [assignment, expected] : cases) {
    const std::string text = error(base, {assignment});
    EXPECT_THAT(text, HasSubstr(expected)) << assignment;
    EXPECT_THAT(text, testing::ContainsRegex("(--set|s\\.yaml):[0-9]+:[0-9]+: error: ")) << assignment;
  }
}

TEST(Scenario, NeedsItsBlocks) {
  EXPECT_THAT(error(""), StartsWith("s.yaml:1:1: error: the scenario must be a map of keys and values, not empty"));
  EXPECT_THAT(error("42\n"), HasSubstr("not a single value"));
  EXPECT_THAT(error("training: {}\n"), AllOf(HasSubstr("needs a key 'model'"), HasSubstr("needs a key 'cluster'")));
}

TEST(Scenario, AMissingFileSaysWhereItWasLookedFor) {
  EXPECT_THAT(error(changed("tiny-llama", "nope")), AllOf(StartsWith("s.yaml:2:14: error: cannot read 'models/nope.json'"),
                                                          HasSubstr("looked for " SHARDSIM_SOURCE_DIR "/scenarios/models/nope.json")));
}

TEST(Scenario, AConfigThatIsNotJsonIsToldInTheConfig) {
  const std::string path = testing::TempDir() + "broken.json";
  std::ofstream(path) << "{\"model_type\": llama}";
  EXPECT_THAT(error(changed("models/tiny-llama.json", path)), StartsWith(path + ":1:16: error: not JSON"));
  std::filesystem::remove(path);
}

TEST(Scenario, ExpectationsAreParsedNotJudged) {
  const Scenario s = good(base + R"(expect:
  - {metric: traffic.sent_bytes_per_rank.total, equals: "2 * psi", relative: 0.001}
  - {metric: memory.peak_bytes, at_most: 80 GiB, at_least: 1}
  - {metric: step.time_s, baseline: 3.21, absolute: 20 ms}
  - {metric: no.such, equals: 7}
)");
  ASSERT_EQ(s.expect.size(), 4u);
  EXPECT_EQ(s.expect[0].equals, "2 * psi");
  EXPECT_EQ(s.expect[0].equals_where.line, 13);
  EXPECT_EQ(s.expect[0].equals_where.column, 58);
  EXPECT_EQ(s.expect[0].relative, 0.001);
  EXPECT_EQ(s.expect[1].at_most, 80.0 * (1 << 30));
  EXPECT_EQ(s.expect[1].at_least, 1);
  EXPECT_EQ(s.expect[2].baseline, 3.21);
  EXPECT_EQ(s.expect[2].absolute, 0.02);
  EXPECT_EQ(s.expect[3].equals, "7");
}

TEST(Scenario, ExpectationsMustSaySomething) {
  EXPECT_THAT(error(base + "expect: {metric: x}\n"), HasSubstr("expect must be a list"));
  EXPECT_THAT(error(base + "expect:\n  - {metric: x}\n"), HasSubstr("s.yaml:13:5: error: nothing to compare with"));
  EXPECT_THAT(error(base + "expect:\n  - {at_most: 1}\n"), HasSubstr("expectation needs a key 'metric'"));
  EXPECT_THAT(error(base + "expect:\n  - {metric: x, at_most: 80 GB/}\n"), HasSubstr("a number or a quantity"));
  EXPECT_THAT(error(base + "expect:\n  - {metric: x, at_most: 1, relative: 0.1}\n"), HasSubstr("a tolerance needs a value"));
  EXPECT_THAT(error(base + "expect:\n  - {metric: x, equals: 1, relative: -0.1}\n"), HasSubstr("expected a number"));
}

TEST(Scenario, LoadsFromAFileWithOverrides) {
  const std::string path = testing::TempDir() + "load.yaml";
  std::ofstream(path) << base;  // its paths lead to the shipped scenarios
  const auto scenario = load_scenario(path, {"training.micro_batch_size=3", "strategy.bucket_cap_mb=10"});
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_EQ(scenario->training.micro_batch_size, 3);
  EXPECT_EQ(scenario->strategy.options.number("bucket_cap_mb", 25), 10);
  EXPECT_EQ(scenario->strategy.options.where("bucket_cap_mb").source->name, "--set");
  EXPECT_EQ(scenario->file, path);
  EXPECT_THAT(load_scenario(path, {"a..b=1"}).error().text(), StartsWith("--set:1:3: error"));
  EXPECT_THAT(load_scenario("/no/such.yaml").error().text(), StartsWith("/no/such.yaml: error: cannot read the file"));
  std::filesystem::remove(path);
}

TEST(Scenario, ModelsAreReadOnce) { EXPECT_EQ(good(base).architecture, good(base).architecture); }

/// Every scenario that is shipped, by path; profiles and sweeps are none.
std::vector<std::string> shipped_scenarios() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SHARDSIM_SOURCE_DIR "/scenarios"))
    if (entry.path().extension() == ".yaml" && entry.path().parent_path().filename() != "clusters" &&
        !entry.path().filename().string().starts_with("sweep-"))
      paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

class ShippedScenarios : public testing::TestWithParam<std::string> {};

TEST_P(ShippedScenarios, AreReadAndExpectSomething) {
  const auto scenario = load_scenario(GetParam());
  ASSERT_TRUE(scenario) << scenario.error().text();
  EXPECT_FALSE(scenario->expect.empty());
}

INSTANTIATE_TEST_SUITE_P(All, ShippedScenarios, testing::ValuesIn(shipped_scenarios()), [](const auto& test) {
  std::string name = std::filesystem::path(test.param).stem().string();
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace shardsim
