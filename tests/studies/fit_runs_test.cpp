// SPDX-License-Identifier: Apache-2.0
// One's own measured steps: read from CSV and YAML, and a profile that predicts the same software at other sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "studies/fit/prices.hpp"
#include "studies/fit/runs.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
const std::string h100 = "clusters/h100-sxm.yaml";

class Runs : public testing::Test {
 protected:
  Runs() { fs::create_directories(folder); }
  ~Runs() override { fs::remove_all(folder); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  }
  std::string scenario(const std::string& name, const std::string& model, const std::string& rest) const {
    return write(name, "model: " + model + "\ncluster: {profile: " + h100 + rest.substr(0, rest.find('|')) + "}\ntraining: {" +
                           rest.substr(rest.find('|') + 1) + "}\n");
  }
  static Seconds time_of(const std::string& path, const std::string& profile = h100) {
    return simulate_scenario(value_or_throw(load_scenario(path, {"cluster.profile=" + profile}))).step.time;
  }
  static Profile base() {
    return value_or_throw(read_source(shipped_folder() + "/" + h100)
                              .and_then([](const Source& source) { return read_yaml(source); })
                              .and_then([](const ConfigNode& root) { return read_profile(root); }));
  }
  RunFit fit(const std::string& table) const {
    const std::string path = write("runs.csv", table);
    return fit_runs(path, value_or_throw(load_runs(path)), h100, base());
  }
  const fs::path folder = fs::temp_directory_path() / ("shardsim-runs-" + std::to_string(getpid()));
};

const std::string llama = "{preset: llama-3-8b}";
std::string deep(int layers) {
  return "{hf_config: {model_type: gpt2, n_embd: 256, n_layer: " + std::to_string(layers) +
         ", n_head: 4, vocab_size: 8192, n_positions: 1024}}";
}

TEST_F(Runs, OneRunOfAGpuBoundJobPredictsOtherSizes) {
  const std::string known =
      scenario("known.yaml", llama, "|sequence_length: 4096, micro_batch_size: 2, activation_checkpointing: full}\nstrategy: {name: fsdp2");
  const RunFit result = fit("scenario,step_time_s\nknown.yaml," + std::to_string(1.25 * time_of(known).base()) + "\n");
  EXPECT_NEAR(result.runs[0].after / result.runs[0].measured, 1, 0.005);
  const std::string fitted = write("fitted.yaml", to_yaml(result.profile));
  for (const char* other :
       {"|sequence_length: 4096, micro_batch_size: 4, activation_checkpointing: full}\nstrategy: {name: fsdp2",
        ", nodes: 4|sequence_length: 4096, micro_batch_size: 2, activation_checkpointing: full}\nstrategy: {name: fsdp2",
        ", nodes: 2|sequence_length: 8192, micro_batch_size: 1, activation_checkpointing: full}\nstrategy: {name: fsdp2"}) {
    const std::string path = scenario("other.yaml", llama, other);
    EXPECT_NEAR(time_of(path, fitted) / time_of(path), 1.25, 0.03) << other;
  }
  for (const FittedPrice& price : result.prices) {
    EXPECT_EQ(price.told, price.family == "kernels") << price.name;
    if (!price.told) { EXPECT_EQ(price.factor, 1) << price.name; }
  }
  EXPECT_THAT(result.profile.origins.at("gpu.gemm.efficiency"), HasSubstr("fitted: 1 measured step of runs.csv"));
}

TEST_F(Runs, OneRunOfAHostBoundJobMovesTheHostAlone) {
  const std::string rest = "|sequence_length: 128, micro_batch_size: 1}\nstrategy: {name: ddp";
  const std::string known = scenario("known.yaml", deep(48), rest);
  const RunFit result = fit("scenario,step_time_s\nknown.yaml," + std::to_string(1.6 * time_of(known).base()) + "\n");
  const std::string fitted = write("fitted.yaml", to_yaml(result.profile));
  for (const int layers : {24, 96}) {
    const std::string path = scenario("other.yaml", deep(layers), rest);
    EXPECT_NEAR(time_of(path, fitted) / time_of(path), 1.6, 0.05) << layers;
  }
}

TEST_F(Runs, SeveralRunsGiveLeaveOneOutErrors) {
  std::string table = "scenario,tokens_per_second_per_gpu,peak_bytes\n";
  for (const int batch : {1, 2, 4}) {
    const std::string name = "b" + std::to_string(batch) + ".yaml";
    const std::string path = scenario(
        name, llama,
        "|sequence_length: 4096, micro_batch_size: " + std::to_string(batch) + ", activation_checkpointing: full}\nstrategy: {name: fsdp2");
    table += name + "," + std::to_string(4096 * batch / (1.1 * time_of(path).base())) + ",30000000000\n";
  }
  const RunFit result = fit(table);
  for (const FittedRun& run : result.runs) {
    ASSERT_TRUE(run.left_out);
    EXPECT_LT(std::abs(*run.left_out), 0.01);
    EXPECT_TRUE(run.predicted_peak);
  }
}

TEST_F(Runs, TablesAreReadAndMistakesToldAtTheirPlace) {
  const auto said = [&](const std::string& name, const std::string& text) {
    const auto runs = load_runs(write(name, text));
    return runs ? std::string("accepted") : runs.error().text();
  };
  EXPECT_EQ(said("a.csv", "scenario,step_time\n\"a, b.yaml\",1.9 s\n"), "accepted");
  EXPECT_EQ(said("a.yaml", "runs: [{scenario: a.yaml, step_time_s: 1.9}]\n"), "accepted");
  EXPECT_EQ(said("a.yaml", "- {scenario: a.yaml, step_time: 1900 ms}\n"), "accepted");
  EXPECT_THAT(said("a.csv", "scenario,step_time_s\na.yaml,fast\n"), HasSubstr("a.csv:2:8: error:"));
  EXPECT_THAT(said("a.csv", "scenario,step_times\na.yaml,1\n"), HasSubstr("did you mean 'step_time"));
  EXPECT_THAT(said("a.csv", "scenario,step_time_s\na.yaml,-1\n"), HasSubstr("a.csv:2:8: error:"));
  EXPECT_THAT(said("a.csv", "scenario,step_time_s\na.yaml\n"), HasSubstr("1 fields under a header of 2"));
  EXPECT_THAT(said("a.csv", "scenario,peak_bytes\na.yaml,1000\n"), HasSubstr("a run needs its time"));
  EXPECT_THAT(said("a.csv", "scenario,step_time_s\n"), HasSubstr("no runs"));
}

TEST(Prices, AStretchedProfileIsAProfile) {
  for (std::size_t i = 0; i < prices().size(); ++i) {
    std::vector<double> logs(prices().size(), 0.0);
    logs[i] = 0.2;
    const Profile profile = value_or_throw(read_source(shipped_folder() + "/" + h100)
                                               .and_then([](const Source& source) { return read_yaml(source); })
                                               .and_then([](const ConfigNode& root) { return read_profile(root); }));
    const Profile slow = stretched(profile, logs);
    EXPECT_NE(to_yaml(slow), to_yaml(profile)) << prices()[i].name;
    EXPECT_TRUE(read_yaml({"p.yaml", to_yaml(slow)}).and_then([](const ConfigNode& root) { return read_profile(root); }))
        << prices()[i].name;
    for (const PriceKey& key : prices()[i].keys) EXPECT_NE(key.text(slow), key.text(profile)) << key.key;
  }
}

}  // namespace
}  // namespace shardsim
