// SPDX-License-Identifier: Apache-2.0
// Weak scaling: the same work for each rank on more and more GPUs, and where the efficiency goes.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/base/parallel.hpp"
#include "sim/base/units_text.hpp"
#include "studies/compare/variant.hpp"
#include "studies/plan/planner.hpp"
#include "studies/plan/words.hpp"
#include "studies/simulate/simulation_job.hpp"

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

/// The part of the step that grew the most. The four parts add up to the step.
std::string grown_part(const StepTime& before, const StepTime& after) {
  const std::array<std::pair<const char*, Seconds>, 4> parts{
      {{"exposed communication", after.exposed_communication - before.exposed_communication},
       {"compute", after.compute - before.compute},
       {"the optimizer", after.optimizer - before.optimizer},
       {"waiting for the host", after.host_bound - before.host_bound}}};
  const auto most = std::max_element(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} by {}", most->first, to_text(most->second));
}

std::string explain(const ScalingPoint& before, const ScalingPoint& after) {
  const StepTime &then = before.result.step, &now = after.result.step;
  const bool boundary = before.nodes == 1 && after.nodes > 1;
  std::string text = fmt::format("the step grows by {} from {} to {} GPUs, {}", to_text(now.time - then.time), grouped(before.gpus),
                                 grouped(after.gpus), grown_part(then, now));
  if (boundary) text += "; this is the node boundary, where the ring leaves NVLink for the NICs";
  return text + "; bound by " + now.bound_by;
}

/// Efficiency against the first point that fits; against the first of all if none does.
void set_efficiency(std::vector<ScalingPoint>& points) {
  const auto fits = std::find_if(points.begin(), points.end(), [](const ScalingPoint& p) { return p.result.memory.fits; });
  const auto& base = fits == points.end() ? points.front() : *fits;
  const double one = base.result.step.tokens_per_second_per_gpu;
  for (ScalingPoint& point : points) point.efficiency = point.result.step.tokens_per_second_per_gpu / one;
}

Result<Scenario> at_size(const Scenario& base, std::int64_t nodes, std::int64_t gpus_per_node) {
  return vary(base, {fmt::format("cluster.nodes={}", nodes), fmt::format("cluster.gpus_per_node={}", gpus_per_node)});
}

}  // namespace

Scaling scaling_study(const Scenario& base, std::int64_t least, std::int64_t most) {
  const std::vector<Shape> wanted = shapes(base, least, most);
  if (wanted.empty())
    throw InputError(fmt::format("--scaling {}..{}: no power of two within a node of {} and no doubling of whole nodes lies between", least,
                                 most, gpus_text(base.cluster.gpus_per_node)));
  std::vector<std::optional<SimulationResult>> results(wanted.size());
  std::vector<std::string> why(wanted.size());
  parallel_for(wanted.size(), available_cores(), [&](std::size_t i) {
    const auto scenario = at_size(base, wanted[i].nodes, wanted[i].gpus_per_node);
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
      scaling.left_out.push_back(fmt::format("{}: {}", gpus_text(gpus), why[i]));
      continue;
    }
    scaling.points.push_back({wanted[i].nodes, gpus, std::move(*results[i]), 1});
  }
  if (most > base.cluster.gpus_per_node && most % base.cluster.gpus_per_node != 0)
    scaling.left_out.push_back(
        fmt::format("{}: not a whole number of nodes of {}", gpus_text(most), gpus_text(base.cluster.gpus_per_node)));
  if (scaling.points.empty()) return scaling;
  set_efficiency(scaling.points);
  scaling.cliff = find_cliff(scaling.points);
  if (scaling.cliff) scaling.why = explain(scaling.points[*scaling.cliff - 1], scaling.points[*scaling.cliff]);
  const ScalingPoint& last = scaling.points.back();
  const double exposed = last.result.step.exposed_communication / last.result.step.time;
  scaling.to_hide = fmt::format("on {} {} of the step is exposed communication", gpus_text(last.gpus), percent_text(exposed));
  if (last.gpus > 1 && exposed > 0.01)
    scaling.to_hide += "; " + bandwidth_to_hide(value_or_throw(at_size(base, last.nodes, last.gpus / last.nodes)));
  return scaling;
}

}  // namespace shardsim
