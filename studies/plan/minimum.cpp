// SPDX-License-Identifier: Apache-2.0
// How few GPUs hold the job: node counts between and beyond those that a plan may use.
#include <algorithm>
#include <utility>

#include "studies/plan/feasible.hpp"
#include "studies/plan/planner.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most_gpus_beyond = std::int64_t{1} << 16;

/// Fits on so many whole nodes in the leanest way that the request allows? The global batch is not asked for: one sequence a rank.
bool fits_somehow(const Scenario& base, const PlanRequest& request, std::int64_t nodes) {
  PlanRequest lean = request;
  lean.nodes = {nodes};
  lean.parts_of_a_node = false;
  lean.global_batch = nodes * base.cluster.gpus_per_node;
  lean.micro_batches = {};
  return !search(candidates(base, lean), search_model(base, request.headroom)).fitting.empty();
}

/// The least number of nodes that holds the job: `low` do not, `high` do.
std::int64_t halved(const Scenario& base, const PlanRequest& request, std::int64_t low, std::int64_t high) {
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits_somehow(base, request, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

SearchModel search_model(const Scenario& base, double headroom) {
  const auto usable = (1 - headroom) * static_cast<double>(base.cluster.profile.gpu.capacity.value());
  return {.bound = LowerBounds(base),
          .evaluate = [&base](const Candidate& c) { return simulate_candidate(base, c); },
          .capacity = Bytes{static_cast<std::int64_t>(usable)},
          .fits = [headroom](const SimulationResult& result) { return fits_with(result.memory, headroom); }};
}

std::int64_t refined_minimum(const Scenario& base, const PlanRequest& request, std::int64_t fitting_gpus) {
  const std::int64_t whole = base.cluster.gpus_per_node, high = fitting_gpus / whole;
  if (fitting_gpus % whole != 0 || high <= 1 || !request.parts_of_a_node) return fitting_gpus;
  std::int64_t low = 0;
  for (const std::int64_t nodes : request.nodes)
    if (nodes < high) low = std::max(low, nodes);
  return halved(base, request, low, high) * whole;
}

std::optional<std::int64_t> minimum_beyond(const Scenario& base, const PlanRequest& request) {
  const std::int64_t whole = base.cluster.gpus_per_node;
  std::int64_t low = 0, high = 1;
  while (!fits_somehow(base, request, high)) {
    low = std::exchange(high, high * 2);
    if (high * whole > most_gpus_beyond) return std::nullopt;
  }
  return halved(base, request, low, high) * whole;
}

}  // namespace shardsim
