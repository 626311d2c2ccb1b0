// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/fair_share.hpp"

#include <algorithm>
#include <cmath>

namespace shardsim {
namespace {

constexpr double slack = 1e-6;  // shares are floats: 0.1f ten times is a little more than 1
constexpr double resolution = 0x1p32;

double quantized(double speed) { return std::round(speed * resolution) / resolution; }

}  // namespace

void FairShare::clear() {
  uses_.clear();
  flows_.clear();
}

std::size_t FairShare::add_flow() {
  flows_.push_back({uses_.size(), uses_.size(), 1, false});
  return flows_.size() - 1;
}

void FairShare::use(std::size_t resource, float share) {
  if (share <= 0) return;
  uses_.push_back({resource, static_cast<double>(share)});
  flows_.back().end = uses_.size();
}

bool FairShare::fits_at_full_speed() {
  std::fill(demand_.begin(), demand_.end(), 0.0);
  for (const Use& use : uses_) demand_[use.resource] += use.share;
  return std::all_of(demand_.begin(), demand_.end(), [](double demand) { return demand <= 1 + slack; });
}

void FairShare::measure_demand() {
  std::fill(demand_.begin(), demand_.end(), 0.0);
  for (const Flow& flow : flows_)
    if (!flow.frozen)
      for (std::size_t u = flow.begin; u < flow.end; ++u) demand_[uses_[u].resource] += uses_[u].share;
}

/// The speed at which the first resource is full.
double FairShare::next_level() const {
  double level = 1;
  for (std::size_t r = 0; r < free_.size(); ++r)
    if (demand_[r] > 0) level = std::min(level, std::max(free_[r], 0.0) / demand_[r]);
  return level;
}

bool FairShare::is_held_at(const Flow& flow, double level) const {
  if (level >= 1) return true;
  for (std::size_t u = flow.begin; u < flow.end; ++u) {
    const std::size_t r = uses_[u].resource;
    if (free_[r] <= level * demand_[r] * (1 + slack)) return true;
  }
  return false;
}

/// Returns how many flows were frozen.
std::size_t FairShare::freeze(double level) {
  std::size_t count = 0;
  for (Flow& flow : flows_) {
    if (flow.frozen || !is_held_at(flow, level)) continue;
    flow.speed = level;
    ++count;
  }
  for (Flow& flow : flows_) {
    if (flow.frozen || flow.speed != level) continue;
    flow.frozen = true;
    for (std::size_t u = flow.begin; u < flow.end; ++u) free_[uses_[u].resource] -= level * uses_[u].share;
  }
  return count;
}

void FairShare::solve() {
  if (fits_at_full_speed()) return;
  std::fill(free_.begin(), free_.end(), 1.0);
  for (Flow& flow : flows_) flow.speed = -1;
  for (std::size_t left = flows_.size(); left > 0;) {
    measure_demand();
    left -= freeze(next_level());
  }
  for (Flow& flow : flows_) flow.speed = quantized(flow.speed);
}

}  // namespace shardsim
