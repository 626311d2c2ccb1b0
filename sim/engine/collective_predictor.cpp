// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/collective_predictor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/engine/collective_models.hpp"

namespace shardsim {
namespace {

// Published multi-node rings are at most 6 % faster than min(fabric, NICs); a quarter leaves room for line rates that are told low.
constexpr double measured_above_wire = 1.25;

/// Times of other algorithms move other bytes than the ring's that the account counts.
bool answers_for_ring(const CollectiveFit& fit) { return fit.algorithm == "ring" || fit.algorithm == "unknown"; }

float share_of(Seconds busy, Seconds time) { return time > Seconds{} ? static_cast<float>(std::min(1.0, busy / time)) : 0.0F; }

std::string where(const Placement& p) { return fmt::format("{} ranks on {} node{}", p.ranks, p.nodes, p.nodes == 1 ? "" : "s"); }

CollectiveTime result(const ClosedForm& load, Seconds time, const RingPath& path) {
  CollectiveTime out;
  out.time = SimTime::from(time);
  out.share[static_cast<std::size_t>(Resource::intra_node)] = share_of(load.fabric, time);
  out.share[static_cast<std::size_t>(Resource::network)] = share_of(load.network, time);
  out.bottleneck = path.bottleneck();
  return out;
}

CollectiveTime closed_form(Collective collective, Bytes payload, const ClosedForm& ring, const RingPath& path) {
  ClosedForm best = ring;
  std::string algorithm = collective == Collective::all_to_all ? "pairwise" : "ring";
  if (collective == Collective::all_reduce && path.crosses_nodes()) {
    const ClosedForm tree = tree_all_reduce(payload, path);
    if (tree.time < ring.time) {
      best = tree;
      algorithm = "tree";
    }
  }
  CollectiveTime out = result(best, best.time, path);
  out.model = algorithm + " alpha-beta, " + where(path.placement);
  out.algorithm = std::move(algorithm);
  return out;
}

}  // namespace

CollectivePredictor::CollectivePredictor(const Cluster& cluster) : cluster_(cluster) {
  for (const CollectiveFit& fit : cluster.profile.collectives)
    if (answers_for_ring(fit)) curves_.push_back({fit.collective, fit.ranks, fit.nodes, fit.algorithm, fit.protocol, CollectiveCurve(fit)});
}

const CollectivePredictor::Curve* CollectivePredictor::find(Collective collective, std::int64_t ranks, std::int64_t nodes) const {
  const auto found = std::ranges::find_if(
      curves_, [&](const Curve& c) { return c.collective == collective && c.ranks == ranks && c.nodes == nodes; });
  return found == curves_.end() ? nullptr : &*found;
}

std::optional<CollectivePredictor::Measured> CollectivePredictor::exact(Collective collective, Bytes payload, const Placement& p) const {
  const Curve* found = find(collective, p.ranks, p.nodes);
  if (!found) return std::nullopt;
  const bool stated = found->algorithm != "unknown";
  return Measured{found->curve.at(payload), stated ? found->algorithm : "ring", found->protocol,
                  "calibrated, " + where(p) + (stated ? "" : ", algorithm not stated"), found->curve.extrapolates(payload)};
}

/// A ring all-reduce is a reduce-scatter and an all-gather, one after the other, with the fixed cost paid once.
std::optional<CollectivePredictor::Measured> CollectivePredictor::by_halves(Collective collective, Bytes payload, const Placement& p) const {
  if (collective != Collective::all_reduce) return std::nullopt;
  const Curve* scatter = find(Collective::reduce_scatter, p.ranks, p.nodes);
  const Curve* gather = find(Collective::all_gather, p.ranks, p.nodes);
  if (!scatter || !gather) return std::nullopt;
  const Seconds first = scatter->curve.at(payload), second = gather->curve.at(payload);
  const Seconds time = std::max({first, second, first + second - cluster_.profile.network.base_latency});
  return Measured{time, "ring", scatter->protocol == gather->protocol ? scatter->protocol : "",
                  "calibrated reduce-scatter and all-gather, " + where(p),
                  scatter->curve.extrapolates(payload) || gather->curve.extrapolates(payload)};
}

std::optional<CollectivePredictor::Measured> CollectivePredictor::between_sizes(Collective collective, Bytes payload,
                                                                                const Placement& p) const {
  if (p.nodes != 1) return std::nullopt;
  const Curve* below = nullptr;
  const Curve* above = nullptr;
  for (const Curve& c : curves_) {
    if (c.collective != collective || c.nodes != 1) continue;
    if (c.ranks < p.ranks && (!below || c.ranks > below->ranks)) below = &c;
    if (c.ranks > p.ranks && (!above || c.ranks < above->ranks)) above = &c;
  }
  if (!below || !above) return std::nullopt;
  const auto ratio = [](std::int64_t a, std::int64_t b) { return std::log2(static_cast<double>(a) / static_cast<double>(b)); };
  const Seconds low = below->curve.at(payload), high = above->curve.at(payload);
  return Measured{low + (high - low) * (ratio(p.ranks, below->ranks) / ratio(above->ranks, below->ranks)), "ring", "",
                  fmt::format("interpolated between calibrated {} and {} ranks", below->ranks, above->ranks),
                  below->curve.extrapolates(payload) || above->curve.extrapolates(payload)};
}

CollectiveTime CollectivePredictor::predict(Collective collective, Bytes payload, const Placement& placement) const {
  if (placement.ranks <= 1) {
    CollectiveTime none;
    none.model = "none: one rank";
    return none;
  }
  const RingPath path = ring_path(placement, cluster_);
  const ClosedForm load = flat_ring(collective, payload, path);
  const Seconds wire = std::max(load.fabric, load.network);
  for (const auto source : {&CollectivePredictor::exact, &CollectivePredictor::by_halves, &CollectivePredictor::between_sizes}) {
    auto measured = (this->*source)(collective, payload, placement);
    if (!measured || (path.crosses_nodes() && measured->time * measured_above_wire < wire)) continue;
    CollectiveTime out = result(load, measured->time, path);
    out.algorithm = std::move(measured->algorithm);
    out.protocol = std::move(measured->protocol);
    out.model = std::move(measured->model);
    out.extrapolated = measured->extrapolated;
    return out;
  }
  return closed_form(collective, payload, load, path);
}

}  // namespace shardsim
