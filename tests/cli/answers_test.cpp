// SPDX-License-Identifier: Apache-2.0
// What people act on: the verdict on host memory, what is assumed, first scenarios, and the machine that one sits at.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "calibrate/doctor/machine_facts.hpp"
#include "command.hpp"
#include "reports/doctor_report.hpp"
#include "reports/table.hpp"
#include "scenarios/reader/profile_file.hpp"
#include "studies/compare/variant.hpp"
#include "studies/init/starter.hpp"
#include "studies/simulate/assumptions.hpp"
#include "studies/simulate/simulate_json.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

Scenario scenario_of_text(const std::string& text) {
  return value_or_throw(read_scenario(value_or_throw(read_yaml({"answers.yaml", text})), "answers.yaml", shipped_folder()));
}

Scenario offloaded(const std::string& host_memory) {
  return scenario_of_text(
      "model: {preset: llama-2-7b}\ncluster: {profile: a100-sxm-80, gpus_per_node: 2, host_memory: " + host_memory +
      "}\ntraining: {sequence_length: 2048, activation_checkpointing: full, offload: {parameters: cpu, optimizer: cpu}}\n"
      "strategy: {name: zero3}\n");
}

// 7B parameters of 16 bytes and more stand in the memory of the host.
TEST(HostMemory, BelongsToTheVerdict) {
  const SimulationResult roomy = simulate_scenario(offloaded("512 GiB")), tight = simulate_scenario(offloaded("64 GiB"));
  EXPECT_TRUE(roomy.memory.fits);
  EXPECT_FALSE(tight.memory.fits);
  EXPECT_EQ(tight.memory.host_pinned_node, 2 * tight.memory.host_pinned);
  EXPECT_EQ(*simulate_json(tight).find("memory.host_pinned_bytes_per_node")->as<std::int64_t>(), tight.memory.host_pinned_node.value());
  EXPECT_NE(simulate_table(tight).find("DOES NOT FIT 64.00 GiB"), std::string::npos);
}

TEST(BoundBy, NamesACpuOptimizerThatNothingRunsBeside) {
  const SimulationResult r = simulate_scenario(value_or_throw(vary(offloaded("512 GiB"), {"cluster.host_memory_bandwidth=20 GB/s"})));
  EXPECT_GT(r.step.optimizer / r.step.time, 0.5);
  EXPECT_EQ(r.step.bound_by, "host: optimizer on the CPU");
}

// A value a tenth worse is simulated; what the scenario sets, and what was measured, is no assumption.
TEST(Assumed, IsSortedByItsEffectOnTheStep) {
  const Scenario job = scenario_of_text(
      "model: {preset: llama-3.2-1b}\ncluster: {profile: h100-sxm, nodes: 2, nic_bandwidth: 50 Gbit/s}\n"
      "training: {sequence_length: 4096}\nstrategy: {name: fsdp2}\n");
  const SimulationResult now = simulate_scenario(job);
  const Assumptions assumed = assumptions_of(job, now);
  ASSERT_GE(assumed.size(), 3U);
  const auto with = [&](std::string_view key) {
    return std::find_if(assumed.begin(), assumed.end(), [&](const Assumption& a) { return a.key == key; });
  };
  EXPECT_EQ(with("network.nic_bandwidth"), assumed.end());
  ASSERT_NE(with("network.nics_per_node"), assumed.end());
  EXPECT_EQ(with("network.nics_per_node")->value, "8 NICs a node");
  for (std::size_t i = 1; i < assumed.size(); ++i)
    if (assumed[i].memory == Bytes{}) { EXPECT_LE(assumed[i].time, assumed[i - 1].time); }
  // The effect is that of the change, not of a formula.
  const auto slower = simulate_scenario(value_or_throw(vary(job, {"cluster.nic_bandwidth=45 Gbit/s"})));
  EXPECT_NEAR(with("network.nics_per_node")->time, slower.step.time / now.step.time - 1, 1e-9);
  const Assumptions said = assumptions_of(value_or_throw(vary(job, {"cluster.nics_per_node=8"})), now);
  EXPECT_TRUE(std::none_of(said.begin(), said.end(), [](const Assumption& a) { return a.key == "network.nics_per_node"; }));
  for (const Assumption& a : assumed) EXPECT_FALSE(a.value.empty() || a.measure.empty()) << a.key;
}

TEST(Profiles, WithoutOverheadsCountTheContextOfTheirGeneration) {
  const auto read = [](const std::string& name) {
    const std::string yaml = "name: x\ngpu: {name: " + name +
                             ", capacity: 24 GiB, memory_bandwidth: 1 TB/s, peak: {fp32: 1 TFLOP/s}, host_link: 1 GB/s}\n"
                             "node: {gpus: 1, ring_bandwidth: 1 GB/s}\nnetwork: {nics_per_node: 1, nic_bandwidth: 10 Gbit/s}\n";
    return value_or_throw(read_profile(value_or_throw(read_yaml({"p.yaml", yaml}))));
  };
  EXPECT_EQ(read("NVIDIA GeForce RTX 4090").overheads.context, mebibytes(441));
  EXPECT_EQ(read("NVIDIA A100-SXM4-80GB").overheads.context, mebibytes(512));
  EXPECT_EQ(read("NVIDIA A10").overheads.context, mebibytes(354));
  EXPECT_EQ(read("Tesla V100-SXM2-32GB").overheads.context, mebibytes(386));
  EXPECT_GT(read("a GPU of 2031").overheads.context, Bytes{});
  EXPECT_NE(origin_of(read("NVIDIA L4"), "overheads.context").find("Ada"), std::string::npos);
}

TEST(Profiles, AllThatAreShippedLoadAndSayWhereTheirValuesAreFrom) {
  const auto files = shipped_profiles();
  EXPECT_GE(files.size(), 30U);
  for (const std::string& file : files) {
    const auto profile = load_profile(file);
    ASSERT_TRUE(profile) << file << "\n" << (profile ? "" : profile.error().text());
    for (const char* key : {"gpu.capacity", "gpu.peak", "gpu.memory_bandwidth", "gpu.gemm", "node.ring_bandwidth", "network.nic_bandwidth",
                            "overheads.context"})
      EXPECT_FALSE(origin_of(*profile, key).empty()) << file << ": " << key;
  }
}

TEST(Profiles, BuildOnOthers) {
  const Profile base = value_or_throw(load_profile("clusters/h100-sxm.yaml")), p5 = value_or_throw(load_profile("aws-p5"));
  EXPECT_EQ(p5.gpu.capacity, base.gpu.capacity);
  EXPECT_EQ(p5.collectives.size(), base.collectives.size());  // those of one node
  EXPECT_EQ(p5.name, "aws-p5");
  EXPECT_NE(p5.price_per_gpu_hour, base.price_per_gpu_hour);
  EXPECT_FALSE(value_or_throw(load_profile("gcp-a4")).price_per_gpu_hour);  // a price is not taken over
  const auto folder = std::filesystem::path(testing::TempDir()) / "circle";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "a.yaml") << "base: b.yaml\n";
  std::ofstream(folder / "b.yaml") << "base: a.yaml\n";
  EXPECT_FALSE(load_profile((folder / "a.yaml").string()));
}

TEST(Init, WritesScenariosThatSimulate) {
  for (const std::string& framework : starter_frameworks()) {
    const std::string text = starter_scenario({.model = "llama-3.2-1b", .gpus = 16, .gpu = "H100", .framework = framework});
    EXPECT_GE(std::count(text.begin(), text.end(), '#'), 5) << text;
    const Scenario scenario = scenario_of_text(text);
    EXPECT_EQ(scenario.cluster.world_size(), 16);
    EXPECT_NO_THROW((void)simulate_scenario(scenario)) << framework;
  }
  EXPECT_THROW((void)starter_scenario({.gpus = 9}), InputError);
  EXPECT_THROW((void)starter_scenario({.framework = "torchtitam"}), InputError);
}

TEST(Init, UnderstandsGpusAsPeopleWriteThem) {
  for (const auto& [written, gpus, gpu] : std::vector<std::tuple<std::string, std::int64_t, std::string>>{
           {"8", 8, "h100-sxm"}, {"16xA100", 16, "A100"}, {"8 x h100-sxm", 8, "h100-sxm"}, {"rtx-4090", 8, "rtx-4090"}}) {
    StarterChoice choice;
    read_gpus(written, choice);
    EXPECT_EQ(choice.gpus, gpus) << written;
    EXPECT_EQ(choice.gpu, gpu) << written;
  }
  EXPECT_EQ(profile_meant("H100"), "clusters/h100-sxm.yaml");
  EXPECT_EQ(profile_meant("RTX 4090"), "clusters/rtx-4090.yaml");
  EXPECT_EQ(profile_meant("clusters/h200-sxm.yaml"), "clusters/h200-sxm.yaml");
  EXPECT_EQ(profile_meant("aws-p5"), "clusters/aws-p5.yaml");
  EXPECT_THROW((void)profile_meant("abacus"), InputError);
}

TEST(Doctor, KnowsGpusByTheNameOfTheirDriver) {
  for (const auto& [name, profile] : std::vector<std::pair<std::string, std::string>>{{"NVIDIA H100 80GB HBM3", "h100-sxm"},
                                                                                      {"NVIDIA H100 PCIe", "h100-pcie"},
                                                                                      {"NVIDIA H100 NVL", "h100-nvl"},
                                                                                      {"NVIDIA A100-SXM4-40GB", "a100-sxm-40"},
                                                                                      {"NVIDIA A100-SXM4-80GB", "a100-sxm-80"},
                                                                                      {"NVIDIA A100 80GB PCIe", "a100-pcie-80"},
                                                                                      {"NVIDIA H200", "h200-sxm"},
                                                                                      {"NVIDIA B200", "b200-sxm"},
                                                                                      {"NVIDIA GH200 480GB", "gh200"},
                                                                                      {"NVIDIA GeForce RTX 4090", "rtx-4090"},
                                                                                      {"NVIDIA RTX A6000", "rtx-a6000"},
                                                                                      {"NVIDIA L40S", "l40s"},
                                                                                      {"Tesla V100-SXM2-32GB", "v100-sxm2"}})
    EXPECT_EQ(profile_for_gpu(name), "clusters/" + profile + ".yaml") << name;
  EXPECT_THROW((void)profile_for_gpu("Matrox Millennium"), InputError);
}

/// A machine of files: two GPUs, one InfiniBand port.
class DoctorsMachine : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) / "doctors-machine";
    put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some Processor\n");
    put("proc/meminfo", "MemTotal:       1048576 kB\n");
    put("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    put("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
  }
  void put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  [[nodiscard]] MachineFacts look() const {
    return look_at_machine({root_.string(), [](const std::string& command) -> std::string {
                              if (command.find("--query-gpu") != std::string::npos)
                                return "NVIDIA H100 80GB HBM3, 550.54.15, 81559, 5, 16\nNVIDIA H100 80GB HBM3, 550.54.15, 81559, 5, 16\n";
                              return command.find("python3") != std::string::npos ? "torch 2.6.0\ndeepspeed 0.16.4\n" : "";
                            }});
  }
  std::filesystem::path root_;
};

TEST_F(DoctorsMachine, IsDescribedAndBecomesAProfile) {
  const MachineFacts facts = look();
  ASSERT_EQ(facts.gpus.size(), 2U);
  EXPECT_EQ(facts.gpus.front().memory, mebibytes(81559));
  ASSERT_EQ(facts.nics.size(), 1U);
  EXPECT_EQ(facts.nics.front().rate, ByteRate{50e9});
  EXPECT_EQ(facts.memory, gibibytes(1));
  EXPECT_EQ(facts.libraries.size(), 2U);
  const std::string base = profile_for_gpu(facts.gpus.front().name);
  const std::string text = doctor_text(facts, base, "");
  for (const char* words :
       {"2 x NVIDIA H100 80GB HBM3", "driver 550.54.15", "mlx5_0 (InfiniBand, 400 Gbit/s)", "torch 2.6.0", "calibrate nccl --groups 2,2"})
    EXPECT_NE(text.find(words), std::string::npos) << text;
  put("mine.yaml", profile_of(facts, base));
  const Profile mine = value_or_throw(load_profile((root_ / "mine.yaml").string()));
  EXPECT_EQ(mine.node.gpus, 2);
  EXPECT_EQ(mine.network.nics_per_node, 1);
  EXPECT_EQ(mine.network.nic_bandwidth, ByteRate{50e9});
  EXPECT_TRUE(origin_of(mine, "network.nic_bandwidth").starts_with("measured"));
  EXPECT_EQ(mine.gpu.peak.at(DType::bf16), value_or_throw(load_profile(base)).gpu.peak.at(DType::bf16));
}

TEST(Commands, SayNoWhenNothingEndsInTime) {
  const std::string plan =
      std::string(SHARDSIM_EXECUTABLE) + " plan " SHARDSIM_SOURCE_DIR "/scenarios/questions/days-and-money.yaml -q --days ";
  EXPECT_EQ(test::run_command(plan + "0.1").code, 1);
  EXPECT_EQ(test::run_command(plan + "400").code, 0);
}

TEST(Commands, FindShippedScenariosByName) {
  const std::string program = "cd / && " + std::string(SHARDSIM_EXECUTABLE);
  EXPECT_EQ(test::run_command(program + " simulate gpt2-ddp-8xa100 --format json -q").code, 0);
  EXPECT_EQ(test::run_command(program + " simulate no-such-scenario -q").code, 2);
}

}  // namespace
}  // namespace shardsim
