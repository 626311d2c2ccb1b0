// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/measured_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace shardsim {
namespace {

constexpr std::array ring_collectives{Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce};

std::string where(std::int64_t ranks, std::int64_t nodes) {
  return fmt::format("{} ranks on {} node{}", ranks, nodes, nodes == 1 ? "" : "s");
}

double log2_ratio(std::int64_t a, std::int64_t b) { return std::log2(static_cast<double>(a) / static_cast<double>(b)); }

/// Seconds of a byte more of a payload that is all bandwidth.
Seconds closed_slope(Collective collective, const RingPath& path, std::optional<Algorithm> pinned) {
  constexpr Bytes large = gibibytes(32);
  const Seconds more = route_of(collective, large + large, path, pinned).form.time - route_of(collective, large, path, pinned).form.time;
  return more / static_cast<double>(large.value());
}

/// Sizes at which a learnt curve is laid out: closed forms bend no more between two of them than a percent.
std::vector<Bytes> grid(const std::vector<const CollectiveFit*>& fits) {
  std::vector<Bytes> sizes;
  for (std::int64_t size = 64; size <= std::int64_t{1} << 37; size *= 2) {
    sizes.emplace_back(size);
    sizes.emplace_back(size + size / 2);
  }
  for (const CollectiveFit* fit : fits)
    for (const auto& sample : fit->samples)
      if (sample.size > Bytes{}) sizes.push_back(sample.size);
  std::ranges::sort(sizes);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

}  // namespace

/// A fit whose algorithm is not known is what the library ran. A pinned algorithm is answered by fits of that algorithm alone: with it,
/// and for collectives that have only one, the others are what-ifs.
bool MeasuredCollectives::answers(const CollectiveFit& fit, Collective collective) const {
  if (fit.collective != collective) return false;
  return collective != Collective::all_reduce || !pinned_ || fit.algorithm == name_of(*pinned_);
}

std::optional<Algorithm> MeasuredCollectives::pinned_for(const CollectiveFit& fit) const {
  return fit.collective == Collective::all_reduce ? pinned_algorithm(fit.algorithm) : std::nullopt;
}

/// Of several fits of one group, what the library ran before what somebody pinned.
const CollectiveFit* MeasuredCollectives::exact(Collective collective, std::int64_t ranks, std::int64_t nodes) const {
  const CollectiveFit* found = nullptr;
  for (const CollectiveFit& fit : fits_) {
    if (fit.ranks != ranks || fit.nodes != nodes || !answers(fit, collective)) continue;
    if (!found || (found->algorithm != "unknown" && fit.algorithm == "unknown")) found = &fit;
  }
  return found;
}

MeasuredCollectives::Sources MeasuredCollectives::sisters(Collective collective, const Placement& p) const {
  Sources sources;
  if (std::ranges::find(ring_collectives, collective) == ring_collectives.end()) return sources;
  for (const Collective sister : ring_collectives)
    if (sister != collective)
      if (const CollectiveFit* fit = exact(sister, p.ranks, p.nodes)) sources.push_back({fit});
  // A pinned all-reduce nobody measured still runs on the network on which the library's was.
  if (sources.empty() && pinned_)
    for (const CollectiveFit& fit : fits_)
      if (fit.collective == collective && fit.ranks == p.ranks && fit.nodes == p.nodes) sources.push_back({&fit});
  for (Source& source : sources) source.weight = 1 / static_cast<double>(sources.size());
  return sources;
}

MeasuredCollectives::Sources MeasuredCollectives::other_groups(Collective collective, const Placement& p) const {
  const CollectiveFit* below = nullptr;
  const CollectiveFit* above = nullptr;
  const CollectiveFit* nearest = nullptr;
  double least = std::numeric_limits<double>::max();
  for (const CollectiveFit& fit : fits_) {
    if (!answers(fit, collective) || (fit.nodes == 1) != (p.nodes == 1)) continue;
    const double distance = std::abs(log2_ratio(fit.ranks, p.ranks)) + std::abs(log2_ratio(fit.nodes, p.nodes));
    if (distance < least) nearest = &fit;
    least = std::min(least, distance);
    if (p.nodes > 1 && fit.ranks * p.nodes != p.ranks * fit.nodes) continue;  // other ranks on each node
    if (fit.ranks < p.ranks && (!below || fit.ranks > below->ranks)) below = &fit;
    if (fit.ranks > p.ranks && (!above || fit.ranks < above->ranks)) above = &fit;
  }
  if (below && above) {
    const double share = log2_ratio(p.ranks, below->ranks) / log2_ratio(above->ranks, below->ranks);
    return {{below, 1 - share}, {above, share}};
  }
  return nearest ? Sources{{nearest}} : Sources{};
}

MeasuredCollectives::MeasuredCollectives(const Cluster& cluster, std::optional<Algorithm> pinned)
    : fits_(cluster.profile.collectives), pinned_(pinned) {
  // Of the profile what paths are made of: the rest is large, and one is made for every scenario of a sweep.
  const Profile& now = cluster.profile;
  Profile& then = measured_.profile;
  then.gpu.name = now.gpu.name;
  then.gpu.host_link = now.gpu.host_link;
  then.node = now.measured_on ? now.measured_on->node : now.node;
  then.network = now.measured_on ? now.measured_on->network : now.network;
  then.topology = now.measured_on ? now.measured_on->topology : now.topology;
  measured_.nics_per_node = then.network.nics_per_node;
}

/// The links that a fit was measured on. A group with a rank on each of several nodes is one of those that tile the cluster; any other had
/// its nodes for itself.
RingPath MeasuredCollectives::path_of(const CollectiveFit& fit) const {
  Cluster cluster = measured_;
  const bool one_each = fit.nodes > 1 && fit.ranks == fit.nodes;
  cluster.nodes = fit.nodes;
  cluster.gpus_per_node = one_each ? cluster.profile.node.gpus : ceil_div(fit.ranks, fit.nodes);
  const Group group{"measured", fit.ranks, one_each ? cluster.gpus_per_node : 1};
  try {
    return ring_path(group, cluster, fit.collective == Collective::all_to_all);
  } catch (const InputError&) {  // a topology of other nodes than the fit's
    return ring_path(place(group, cluster), cluster);
  }
}

CollectiveCurve MeasuredCollectives::curve_of(const CollectiveFit& fit, const RingPath& path) const {
  return CollectiveCurve(fit, closed_slope(fit.collective, path, pinned_for(fit)));
}

CollectiveCurve MeasuredCollectives::learnt(Collective collective, const RingPath& path, const Sources& sources) const {
  struct Known {
    const Source* source;
    RingPath path;
    CollectiveCurve curve;
  };
  std::vector<Known> known;
  std::vector<const CollectiveFit*> fits;
  for (const Source& source : sources) {
    RingPath measured_path = path_of(*source.fit);
    CollectiveCurve curve = curve_of(*source.fit, measured_path);
    known.push_back({&source, std::move(measured_path), std::move(curve)});
    fits.push_back(source.fit);
  }
  std::vector<CollectiveCurve::Point> points;
  for (const Bytes size : grid(fits)) {
    double log_ratio = 0;
    for (const auto& [source, measured_path, curve] : known) {
      const Seconds closed = route_of(source->fit->collective, size, measured_path, pinned_for(*source->fit)).form.time;
      log_ratio += source->weight * std::log(curve.at(size) / closed);
    }
    const Seconds scaled = route_of(collective, size, path, pinned_).form.time * std::exp(log_ratio);
    points.push_back({size, std::max(scaled, narrowest_cut(collective, size, path))});
  }
  return CollectiveCurve(std::move(points));
}

std::optional<MeasuredTime> MeasuredCollectives::time(Collective collective, const RingPath& path) const {
  const Placement& p = path.placement;
  const auto one = [](const Sources& sources) { return sources.front().fit; };
  if (const CollectiveFit* fit = exact(collective, p.ranks, p.nodes)) {
    const RingPath then = path_of(*fit);
    const std::string model = "calibrated, " + where(p.ranks, p.nodes);
    if (then.alike(path)) return MeasuredTime{curve_of(*fit, then), model, fit->protocol, true, false};
    return MeasuredTime{learnt(collective, path, {{fit}}), model + ", at other rates", fit->protocol, false, false};
  }
  if (const Sources sources = sisters(collective, p); !sources.empty()) {
    std::string names;
    for (const Source& source : sources) names += (names.empty() ? "" : " and ") + std::string(name_of(source.fit->collective));
    return MeasuredTime{
        learnt(collective, path, sources), fmt::format("learnt from calibrated {}, {}", names, where(p.ranks, p.nodes)), {}, false, false};
  }
  Sources sources = other_groups(collective, p);
  for (std::size_t i = 0; sources.empty() && i < ring_collectives.size(); ++i)
    if (std::ranges::find(ring_collectives, collective) != ring_collectives.end()) sources = other_groups(ring_collectives[i], p);
  if (sources.empty()) return std::nullopt;
  const CollectiveFit& first = *one(sources);
  const std::string model = sources.size() > 1
                                ? fmt::format("interpolated between calibrated {} and {} ranks", first.ranks, sources[1].fit->ranks)
                                : fmt::format("learnt from {} of {}", name_of(first.collective), where(first.ranks, first.nodes));
  return MeasuredTime{learnt(collective, path, sources), model, {}, false, sources.size() == 1};
}

std::optional<MeasuredCollectives::Inside> MeasuredCollectives::inside_a_node(Collective collective, const RingPath& path) const {
  const Placement& p = path.placement;
  if (!path.crosses_nodes() || std::ranges::find(ring_collectives, collective) == ring_collectives.end()) return std::nullopt;
  const CollectiveFit* fit = exact(collective, p.ranks_per_node, 1);
  if (!fit) return std::nullopt;
  const RingPath then = path_of(*fit);
  if (then.intra != path.intra) return std::nullopt;
  const bool ring = fit->algorithm != name_of(Algorithm::nvls);
  return Inside{curve_of(*fit, then), ring ? bus_factor(collective, p.ranks) / bus_factor(collective, p.ranks_per_node) : 1};
}

}  // namespace shardsim
