// SPDX-License-Identifier: Apache-2.0
// Weak scaling: the same work for each rank on more and more GPUs, and where the efficiency goes.
#include <fmt/format.h>

#include <algorithm>

#include "cli/parallel.hpp"
#include "cli/planner.hpp"
#include "cli/simulation_job.hpp"
#include "cli/variant.hpp"
#include "sim/core/units_text.hpp"

namespace shardsim {
namespace {

struct Shape {
  std::int64_t nodes, gpus_per_node;
};

std::vector<Shape> shapes(const Scenario& base, std::int64_t least, std::int64_t most) {
  const std::int64_t whole = base.cluster.gpus_per_node;
  std::vector<std::int64_t> gpus;
  for (std::int64_t n = 1; n < whole; n *= 2) gpus.push_back(n);
  for (std::int64_t nodes = 1; nodes * whole <= most; nodes *= 2) gpus.push_back(nodes * whole);
  if (most % whole == 0) gpus.push_back(most);
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  std::vector<Shape> out;
  for (const std::int64_t n : gpus)
    if (n >= least && n <= most) out.push_back(n < whole ? Shape{1, n} : Shape{n / whole, whole});
  return out;
}

/// The point with the largest loss against the one before it, if it is one percent or more.
std::optional<std::size_t> find_cliff(const std::vector<ScalingPoint>& points) {
  std::optional<std::size_t> cliff;
  double largest = 0.01;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const double lost = 1 - points[i].efficiency / points[i - 1].efficiency;
    if (lost >= largest) {
      largest = lost;
      cliff = i;
    }
  }
  return cliff;
}

std::string explain(const ScalingPoint& before, const ScalingPoint& after) {
  const Seconds grown = after.result.step.exposed_communication - before.result.step.exposed_communication;
  const Seconds longer = after.result.step.time - before.result.step.time;
  const bool boundary = before.nodes == 1 && after.nodes > 1;
  std::string text = fmt::format("the step grows by {} from {} to {} GPUs, exposed communication by {}", to_text(longer), before.gpus,
                                 after.gpus, to_text(grown));
  if (boundary) text += "; this is the node boundary, where the ring leaves NVLink for the NICs";
  return text + "; bound by " + after.result.step.bound_by;
}

}  // namespace

Scaling scaling_study(const Scenario& base, std::int64_t least, std::int64_t most) {
  const std::vector<Shape> wanted = shapes(base, least, most);
  std::vector<std::optional<SimulationResult>> results(wanted.size());
  std::vector<std::string> why(wanted.size());
  parallel_for(wanted.size(), available_cores(), [&](std::size_t i) {
    const auto scenario =
        vary(base, {fmt::format("cluster.nodes={}", wanted[i].nodes), fmt::format("cluster.gpus_per_node={}", wanted[i].gpus_per_node)});
    if (!scenario) {
      why[i] = first_message(scenario.error());
      return;
    }
    results[i] = simulate_scenario(*scenario);
    results[i]->schedule = nullptr;
  });
  Scaling scaling;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::int64_t gpus = wanted[i].nodes * wanted[i].gpus_per_node;
    if (!results[i]) {
      scaling.left_out.push_back(fmt::format("{} GPUs: {}", gpus, why[i]));
      continue;
    }
    ScalingPoint point{wanted[i].nodes, gpus, std::move(*results[i]), 1};
    if (!scaling.points.empty())
      point.efficiency = point.result.step.tokens_per_second_per_gpu / scaling.points.front().result.step.tokens_per_second_per_gpu;
    scaling.points.push_back(std::move(point));
  }
  scaling.cliff = find_cliff(scaling.points);
  if (scaling.cliff) scaling.why = explain(scaling.points[*scaling.cliff - 1], scaling.points[*scaling.cliff]);
  return scaling;
}

}  // namespace shardsim
