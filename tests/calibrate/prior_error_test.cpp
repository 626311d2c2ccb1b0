// SPDX-License-Identifier: Apache-2.0
// How far presets are from published logs without any calibration. docs/accuracy-collectives.md states these figures: the test prints the
// table where they moved.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "calibrate/fit/statistics.hpp"
#include "calibrate/import/nccl_tests.hpp"
#include "shared_data.hpp"
#include "sim/costs/collectives/collective_predictor.hpp"

namespace shardsim {
namespace {

struct Run {
  const char* machine;
  const char* fabric;
  const char* profile;
  double inter_latency_us;  // of the fabric
  std::vector<const char*> logs;
};

struct SizeClass {
  const char* name;
  std::int64_t least, most;
};

Cluster cluster_of(const Run& run, const NcclTestsTable& table) {
  Cluster cluster;
  cluster.profile =
      *read_profile(*read_yaml(*read_source(SHARDSIM_SOURCE_DIR "/scenarios/clusters/" + std::string(run.profile) + ".yaml")));
  if (run.inter_latency_us > 0) cluster.profile.network.inter_latency = microseconds(run.inter_latency_us);
  cluster.nodes = table.nodes;
  cluster.gpus_per_node = ceil_div(table.ranks, table.nodes);
  cluster.nics_per_node = cluster.profile.network.nics_per_node;
  return cluster;
}

std::vector<double> errors_of(const Run& run, const SizeClass& sizes) {
  std::vector<double> errors;
  for (const char* name : run.logs) {
    const auto log = read_nccl_tests(*read_source((data() / "nccl_logs" / name).string()));
    EXPECT_TRUE(log) << name;
    for (const NcclTestsTable& table : log->tables) {
      const CollectivePredictor predictor(cluster_of(run, table));
      for (const NcclTestsRow& row : table.rows) {
        if (!usable(table, row) || row.size.value() < sizes.least || row.size.value() >= sizes.most) continue;
        const Seconds time = predictor.cost(*table.collective, row.size, {"world", table.ranks, 1}).time.seconds();
        errors.push_back(std::abs(time / *time_of(row) - 1));
      }
    }
  }
  return errors;
}

std::string table_of_errors() {
  const std::vector<Run> runs{{"8 A100 40 GB, one node",
                               "NVSwitch",
                               "a100-sxm-80",
                               0,
                               {"a100_40g_8r_all_reduce_old_error_cols.txt", "a100_40g_8r_all_gather_old_error_cols.txt",
                                "a100_40g_8r_reduce_scatter_old_error_cols.txt", "a100_40g_8r_alltoall_old_error_cols.txt"}},
                              {"8 H100, one node",
                               "NVSwitch",
                               "h100-sxm",
                               0,
                               {"h100_8r_1n_all_reduce_bf16.txt", "h100_8r_1n_all_gather_bf16.txt", "h100_8r_1n_reduce_scatter_bf16.txt",
                                "h100_8r_1n_alltoall_bf16.txt"}},
                              {"16 A100, two nodes",
                               "InfiniBand HDR, RoCE",
                               "a100-sxm-80",
                               0,
                               {"azure_aks_16r_2n_all_reduce_NA_wrong.txt", "oci_a100_16r_2n_all_reduce_2_17.txt"}},
                              {"16 H100, two nodes", "EFA", "h100-sxm", 25, {"aws_p5_16r_2n_all_reduce_srunprefix.txt"}}};
  const std::vector<SizeClass> classes{
      {"1 KiB to 1 MiB", 1 << 10, 1 << 20}, {"1 to 8 MiB", 1 << 20, 8 << 20}, {"from 8 MiB", 8 << 20, std::int64_t{1} << 62}};
  std::string table;
  for (const Run& run : runs)
    for (const SizeClass& sizes : classes) {
      const std::vector<double> errors = errors_of(run, sizes);
      if (errors.empty()) continue;
      table += fmt::format("| {} | {} | {} | {} | {:.0f} % | {:.0f} % |\n", run.machine, run.fabric, sizes.name, errors.size(),
                           100 * median(errors), 100 * percentile(errors, 0.9));
    }
  return table;
}

TEST(PriorError, IsWhatTheDocumentationStates) {
  if (!fs::exists(data() / "nccl_logs/index.csv")) GTEST_SKIP() << "shared/data/nccl_logs is not here";
  std::ifstream file(SHARDSIM_SOURCE_DIR "/docs/accuracy-collectives.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string table = table_of_errors();
  EXPECT_NE(text.str().find(table), std::string::npos) << "docs/accuracy-collectives.md should say:\n" << table;
}

}  // namespace
}  // namespace shardsim
