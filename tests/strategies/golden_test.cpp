// SPDX-License-Identifier: Apache-2.0
// Whole schedules of the toy model as text. SHARDSIM_UPDATE_GOLDEN=1 rewrites them; review the difference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "jobs.hpp"

namespace shardsim::testing {
namespace {

struct Golden {
  const char* strategy;
  Semantics semantics;
  std::int32_t micro_batches;
};

std::string file_of(const Golden& g) {
  return std::string(SHARDSIM_GOLDEN_DIR) + "/" + g.strategy + (g.semantics == Semantics::textbook ? "-textbook" : "-framework") + "-g" +
         std::to_string(g.micro_batches) + ".txt";
}

std::string golden_name(const ::testing::TestParamInfo<Golden>& golden) {
  return std::string(golden.param.strategy) + (golden.param.semantics == Semantics::textbook ? "Textbook" : "Framework");
}

class GoldenSchedule : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenSchedule, IsUnchanged) {
  const Golden g = GetParam();
  JobOptions options{.ranks = 4, .micro_batches = g.micro_batches, .semantics = g.semantics};
  if (std::string(g.strategy).starts_with("zero")) options.options = {{"reduce_bucket_size", std::int64_t{500}}};
  if (g.semantics == Semantics::textbook) options.options.clear();
  const std::string text = to_text(valid_schedule(make_job(toy(), g.strategy, options)));
  if (std::getenv("SHARDSIM_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(SHARDSIM_GOLDEN_DIR);
    std::ofstream(file_of(g)) << text;
  }
  std::ifstream file(file_of(g));
  ASSERT_TRUE(file) << "no golden file " << file_of(g);
  std::istringstream actual(text);
  std::string expected_line, actual_line;
  for (int number = 1;; ++number) {
    const bool more_expected = static_cast<bool>(std::getline(file, expected_line)),
               more_actual = static_cast<bool>(std::getline(actual, actual_line));
    ASSERT_EQ(more_actual, more_expected) << file_of(g) << " has another length, from line " << number;
    if (!more_expected) break;
    ASSERT_EQ(actual_line, expected_line) << file_of(g) << ":" << number;
  }
}

INSTANTIATE_TEST_SUITE_P(Toy, GoldenSchedule,
                         ::testing::Values(Golden{"naive_dp", Semantics::framework, 1}, Golden{"ddp", Semantics::framework, 2},
                                           Golden{"fsdp1", Semantics::framework, 2}, Golden{"fsdp2", Semantics::framework, 2},
                                           Golden{"zero3", Semantics::framework, 2}, Golden{"ddp", Semantics::textbook, 1},
                                           Golden{"zero1", Semantics::textbook, 1}, Golden{"zero2", Semantics::textbook, 2},
                                           Golden{"fsdp2", Semantics::textbook, 1}),
                         golden_name);

}  // namespace
}  // namespace shardsim::testing
