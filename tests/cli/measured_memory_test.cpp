// SPDX-License-Identifier: Apache-2.0
// Predicted memory against what was measured: the project's own scenarios, and published rows where they lie beside the project.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "shared_data.hpp"
#include "studies/check/expectations.hpp"
#include "studies/formula/symbols.hpp"
#include "studies/simulate/simulate_json.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

Memory memory_of(const std::string& text) {
  return simulate_scenario(value_or_throw(read_scenario(value_or_throw(read_yaml({"row.yaml", text})), "row.yaml", shipped_folder())))
      .memory;
}

using Row = std::map<std::string, std::string>;

std::vector<Row> rows_of(const fs::path& path) {
  std::ifstream file(path);
  std::string header;
  std::getline(file, header);
  std::erase(header, '\r');
  std::vector<Row> rows;
  const std::vector<std::string> names = cells(header);
  for (const auto& values : csv(path)) {
    Row row;
    for (std::size_t i = 0; i < std::min(names.size(), values.size()); ++i) row[names[i]] = values[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

TEST(MeasuredMemory, ShippedScenarios) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(SHARDSIM_SOURCE_DIR "/scenarios/measured")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  for (const fs::path& file : files) {
    const Scenario scenario = value_or_throw(load_scenario(file.string()));
    const Json result = simulate_json(simulate_scenario(scenario));
    ASSERT_FALSE(scenario.expect.empty()) << file;
    for (const Expectation& expectation : scenario.expect) {
      const auto checked = check_expectation(expectation, result, symbols_of(scenario.job()));
      ASSERT_TRUE(checked) << file << checked.error().text();
      EXPECT_TRUE(checked->ok()) << file.filename() << ": " << checked->metric << " is " << checked->actual.line();
    }
  }
}

/// fms-acceleration trains through transformers, PEFT and accelerate: reentrant checkpointing, the loss inside the model, adapters in fp32.
std::string fms_scenario(const Row& row) {
  const bool lora = row.at("peft_method") == "lora";
  std::string model = "preset: mistral-7b";
  if (lora)
    model += fmt::format(", trainable: {{lora: {{rank: {}, targets: [q_proj, k_proj, v_proj, o_proj], dropout: {}, dtype: fp32}}}}",
                         row.at("r"), row.at("lora_dropout"));
  const bool one = row.at("num_gpus") == "1";
  return fmt::format(
      "model: {{{}}}\ncluster: {{profile: clusters/a100-sxm-80.yaml, gpus_per_node: {}}}\ntraining:\n  sequence_length: 4096\n  "
      "micro_batch_size: {}\n"
      "  precision: pure-bf16\n  activation_checkpointing: {{kind: full, use_reentrant: true, around_unit: true}}\n  loss_in_model: "
      "true\nstrategy: {{{}}}\n",
      model, row.at("num_gpus"), row.at("per_device_train_batch_size"),
      one    ? "name: naive_dp"
      : lora ? "name: fsdp1, use_orig_params: true, wrap: peft"
             : "name: fsdp1, use_orig_params: true");
}

TEST(MeasuredMemory, FmsAccelerationPeaks) {
  const fs::path path = data() / "inputs" / "measurements" / "fmsaccel_accept_rows.csv";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
  int count = 0;
  for (const Row& row : rows_of(path)) {
    const double measured = std::stod(row.at("mem_peak_torch_mem_alloc_in_bytes"));
    const double predicted = static_cast<double>(memory_of(fms_scenario(row)).peak.value());
    const double most = row.at("peft_method") == "lora" ? 0.05 : 0.02;
    EXPECT_LE(std::abs(predicted / measured - 1), most) << row.at("peft_method") << " on " << row.at("num_gpus") << ", batch "
                                                        << row.at("per_device_train_batch_size") << ": " << predicted / measured - 1;
    ++count;
  }
  EXPECT_EQ(count, 6);
}

/// A complete row of a public training run (torchtitan, LitGPT) as a scenario.
std::string run_scenario(const Row& row) {
  const std::map<std::string, std::string> models{
      {"llama3-8b", "llama-3-8b"}, {"tinyllama-1.1b", "tinyllama-1.1b"}, {"llama2-7b", "llama-2-7b"}};
  const std::map<std::string, std::string> strategies{
      {"FSDP2", "fsdp2"}, {"FSDP1 FULL_SHARD", "fsdp1"}, {"DDP", "ddp"}, {"none", "naive_dp"}};
  const std::map<std::string, std::string> checkpointing{{"selective(op)", "selective_ops"}, {"full", "full"}, {"none", "none"}};
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string strategy = strategies.at(row.at("strategy"));
  const std::string option = strategy == "fsdp1"                                        ? ", use_orig_params: true"
                             : strategy == "fsdp2" && row.at("model_id") == "llama3-8b" ? ", wrap: torchtitan"
                                                                                        : "";
  return fmt::format(
      "model: {{preset: {}}}\ncluster: {{profile: clusters/{}.yaml, gpus_per_node: {}}}\ntraining:\n  sequence_length: {}\n  "
      "micro_batch_size: {}\n"
      "  gradient_accumulation_steps: {}\n  precision: {}\n  activation_checkpointing: {}\n  loss: {}\n  compile: {}\n  optimizer: {{name: "
      "adamw, implementation: {}}}\n"
      "strategy: {{name: {}{}}}\n",
      models.at(row.at("model_id")), has(row.at("gpu"), "A100") ? "a100-sxm-80" : "h100-sxm", row.at("n_gpus"), row.at("seq_len"),
      row.at("micro_batch"), std::min(4, std::stoi(row.at("grad_accum"))),
      has(row.at("master_dtype"), "bf16-true") ? "pure-bf16" : "{parameters: bf16, gradients: bf16, reduce: fp32, master: fp32}",
      checkpointing.at(row.at("act_ckpt")), has(row.at("notes"), "chunked") ? "{chunked: 8}" : "cross_entropy",
      row.at("compile") == "yes" ? "true" : "false", has(row.at("optimizer"), "fused") ? "fused" : "foreach", strategy, option);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Each row with the counter that it names. Compiled rows apart: what Inductor fuses away is not modelled kernel by kernel.
TEST(MeasuredMemory, PublishedRuns) {
  const fs::path path = data() / "training_measurements.csv";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
  std::vector<double> eager, compiled;
  for (const Row& row : rows_of(path)) {
    if (row.at("complete") != "yes" || row.at("peak_mem").empty()) continue;
    const double measured = std::stod(row.at("peak_mem")) * (row.at("peak_mem_unit") == "GiB" ? 1073741824.0 : 1e9);
    const Memory memory = memory_of(run_scenario(row));
    const Bytes counter = row.at("mem_metric").find("alloc") != std::string::npos ? memory.peak : memory.reserved_peak;
    const double error = static_cast<double>(counter.value()) / measured - 1;
    (row.at("compile") == "yes" ? compiled : eager).push_back(std::abs(error));
    RecordProperty(row.at("row_id"), fmt::format("{:+.1f} %", 100 * error));
  }
  ASSERT_GE(eager.size(), 10u);
  EXPECT_LT(median(eager), 0.05);
  ASSERT_GE(compiled.size(), 7u);
  EXPECT_LT(median(compiled), 0.07);
}

}  // namespace
}  // namespace shardsim
