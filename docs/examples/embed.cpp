// SPDX-License-Identifier: Apache-2.0
// What one step of a scenario comes to, from a program of your own:
//
//   g++ -std=c++20 embed.cpp $(pkg-config --cflags --libs shardsim) -o embed && ./embed scenario.yaml
#include <cstdio>
#include <shardsim/simulate.hpp>

int main(int count, char** words) {
  if (count < 2) return 2;
  const auto scenario = shardsim::load(words[1], {words + 2, words + count});
  if (!scenario) return std::fputs(scenario.error().message.c_str(), stderr), 2;
  const auto result = shardsim::simulate(*scenario);
  if (!result) return std::fputs(result.error().message.c_str(), stderr), 2;
  std::printf("%s on %lld GPUs: %.3f s a step, %.2f GB sent by each rank, %.1f GiB at the peak, %s\n", result->schedule->strategy.c_str(),
              static_cast<long long>(result->world_size), result->step.time.base(),
              static_cast<double>(result->traffic.total.value()) / 1e9,
              static_cast<double>(result->memory.device_peak.value()) / static_cast<double>(1 << 30),
              result->memory.fits ? "fits" : "does not fit");
  return 0;
}
