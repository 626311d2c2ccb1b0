// SPDX-License-Identifier: Apache-2.0
// Which ways to run a job are worth naming.
#include "studies/plan/feasible.hpp"

namespace shardsim {

std::string library_of(const std::string& strategy) {
  const std::string& library = find_strategy(strategy)->library;
  return library.substr(0, library.find_first_of(" ,"));
}

bool same_library(const std::string& strategy, const std::string& other) { return facts_of(strategy).library == facts_of(other).library; }

bool makes_sense(const std::string& strategy, const Scenario& scenario, std::int64_t gpus) {
  if (strategy == scenario.strategy.name) return true;
  const StrategyFacts& facts = facts_of(strategy);
  const bool adapters = scenario.model->trainable() != scenario.model->total();
  return (facts.with_adapters || !adapters) && (facts.on_one_rank || gpus > 1);
}

bool fits_with(const Memory& memory, double headroom) {
  const auto below = [&](Bytes needed, Bytes there) {
    return static_cast<double>(needed.value()) <= (1 - headroom) * static_cast<double>(there.value());
  };
  if (!memory.fits || memory.allocator_retries > 0) return false;
  return below(memory.device_peak, memory.capacity) &&
         (memory.host_capacity == Bytes{} || below(memory.host_pinned_node, memory.host_capacity));
}

}  // namespace shardsim
