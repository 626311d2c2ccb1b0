// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_predictor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/units_text.hpp"
#include "sim/costs/checked_time.hpp"
#include "sim/costs/collectives/nccl_system.hpp"
#include "sim/costs/collectives/ring_steps.hpp"

namespace shardsim {
namespace {

float share_of(Seconds busy, Seconds time) { return time > Seconds{} ? static_cast<float>(std::min(1.0, busy / time)) : 0.0F; }

std::string where(const Placement& p) { return fmt::format("{} ranks on {} node{}", p.ranks, p.nodes, p.nodes == 1 ? "" : "s"); }

std::int64_t channels_of(const RingPath& path) { return path.nccl ? path.nccl->channels : NcclMachine{}.channels; }

/// NCCL gives NVLS one thread block a channel, rings two; every channel gets at least 32 KiB of traffic (src/graph/tuning.cc, enqueue.cc).
std::int64_t thread_blocks(Algorithm way, Collective collective, Bytes payload, std::int64_t channels) {
  const std::int64_t most = way == Algorithm::nvls ? channels : 2 * channels;
  return std::clamp<std::int64_t>(ceil_div(passes(collective) * payload.value(), 32 << 10), 1, most);
}

Seconds stepwise(Collective collective, Bytes payload, const RingPath& path) {
  const auto crossing = static_cast<double>(passes(collective) * (path.placement.islands() - 1));
  const auto steps = static_cast<double>(ring_steps(collective, path.placement.ranks));
  const Seconds alpha = (path.intra_latency * (steps - crossing) + path.inter_latency * crossing) / steps;
  return stepwise_ring(collective, payload, path.placement.ranks, {2 * channels_of(path), path.bandwidth(), alpha, path.base_latency});
}

Algorithm algorithm_of(NcclAlgorithm chosen) {
  if (chosen == NcclAlgorithm::tree) return Algorithm::tree;
  return chosen == NcclAlgorithm::ring ? Algorithm::ring : Algorithm::nvls;
}

/// NCCL's own choice where it is another: it does not know the machine's measured rates.
std::string tuner_differs(Collective collective, Bytes payload, const RingPath& path, const Route& route) {
  if (!path.nccl || natural_algorithm(collective) != Algorithm::ring) return {};
  const NcclChoice tuner = nccl_choice(nccl_system(*path.nccl, path), collective, payload);
  if (algorithm_of(tuner.algorithm) == route.way) return {};
  return fmt::format(" (NCCL's tuner: {} {})", name_of(tuner.algorithm), name_of(tuner.protocol));
}

}  // namespace

CollectivePredictor::CollectivePredictor(const Cluster& cluster)
    : cluster_(cluster), pinned_(pinned_algorithm(cluster.profile.network.all_reduce_algorithm)), measured_(cluster_, pinned_) {}

const CollectivePredictor::Basis& CollectivePredictor::basis_of(Collective collective, const Group& group) const {
  const std::tuple key(collective, group.size, group.stride);
  const std::lock_guard lock(mutex_);
  if (const auto found = bases_.find(key); found != bases_.end()) return found->second;
  Basis basis{ring_path(group, cluster_, collective == Collective::all_to_all), {}, {}};
  if (group.size > 1) {
    basis.measured = measured_.time(collective, basis.path);
    if (!basis.measured || !basis.measured->exact) basis.inside = measured_.inside_a_node(collective, basis.path);
  }
  return bases_.emplace(key, std::move(basis)).first->second;
}

Route CollectivePredictor::route(Collective collective, Bytes payload, const Basis& basis) const {
  Route route = route_of(collective, payload, basis.path, pinned_);
  if (!basis.measured && route.way == Algorithm::ring && cluster_.profile.network.ring_model == "stepwise")
    route.form.time = stepwise(collective, payload, basis.path);
  return route;
}

Seconds CollectivePredictor::time_of(const Route& route, Bytes payload, const Basis& basis) {
  const Seconds time = basis.measured ? basis.measured->curve.at(payload) : route.form.time;
  return basis.inside ? std::max(time, basis.inside->curve.at(payload) * basis.inside->factor) : time;
}

Chosen CollectivePredictor::choose(Collective collective, Bytes payload, const Group& group) const {
  const Basis& basis = basis_of(collective, group);
  const Algorithm natural = natural_algorithm(collective);
  if (group.size <= 1 || natural != Algorithm::ring) return {natural, basis.path.placement};
  const Algorithm way = route(collective, payload, basis).way;
  const bool as_a_ring = cluster_.profile.network.all_reduce_algorithm == "library" && (way == Algorithm::nvls || basis.measured);
  return {as_a_ring ? natural : way, basis.path.placement};
}

CollectiveCost CollectivePredictor::cost(Collective collective, Bytes payload, const Group& group) const {
  CollectiveCost out;
  if (group.size <= 1) return out;
  const Basis& basis = basis_of(collective, group);
  const Route route = this->route(collective, payload, basis);
  out.time = checked_time(time_of(route, payload, basis));
  const Seconds time = out.time.seconds();
  out.share[static_cast<std::size_t>(Resource::intra_node)] = share_of(route.form.fabric, time);
  out.share[static_cast<std::size_t>(Resource::network)] = share_of(route.form.network, time);
  return out;
}

void CollectivePredictor::describe(Collective collective, Bytes payload, const Basis& basis, const Route& route,
                                   CollectiveTime& out) const {
  const std::string on = where(basis.path.placement);
  if (basis.measured) {
    const MeasuredTime& measured = *basis.measured;
    out.model = measured.model;
    out.protocol = measured.protocol;
    out.extrapolated = measured.other_group || (measured.exact && measured.curve.extrapolates(payload));
    const Seconds cut = narrowest_cut(collective, payload, basis.path);
    if (measured.exact && out.time.seconds() < cut)
      out.doubt =
          fmt::format("{} measured, and the links between the nodes as described need {}", to_text(out.time.seconds()), to_text(cut));
    return;
  }
  if (route.way == Algorithm::ring && cluster_.profile.network.ring_model == "stepwise") {
    out.model = fmt::format("stepwise ring, {} channels, {}", 2 * channels_of(basis.path), on);
    return;
  }
  const bool rings_and_trees = route.way == Algorithm::ring || route.way == Algorithm::tree || route.way == Algorithm::chain;
  if (basis.path.nccl && rings_and_trees) out.protocol = name_of(route.form.protocol);
  const std::string tuner = pinned_ ? "" : tuner_differs(collective, payload, basis.path, route);
  out.model = fmt::format("{} alpha-beta, {}{}", route.way == Algorithm::chain ? "ring" : name_of(route.way), on, tuner);
}

CollectiveTime CollectivePredictor::predict(Collective collective, Bytes payload, const Group& group) const {
  CollectiveTime out;
  static_cast<CollectiveCost&>(out) = cost(collective, payload, group);
  if (group.size <= 1) {
    out.model = "none: one rank";
    return out;
  }
  const Basis& basis = basis_of(collective, group);
  const Route route = this->route(collective, payload, basis);
  describe(collective, payload, basis, route, out);
  out.way = route.way;
  out.algorithm = name_of(route.way);
  const __int128 sent = sent_times_n(route.way, collective, payload, basis.path.placement);
  out.sent_per_rank = Bytes{static_cast<std::int64_t>((sent + group.size - 1) / group.size)};
  out.fabric_bytes = route.form.fabric_bytes;
  out.network_bytes = route.form.network_bytes;
  out.multiprocessors = static_cast<std::int32_t>(thread_blocks(route.way, collective, payload, channels_of(basis.path)));
  out.bottleneck = basis.path.bottleneck();
  out.link = basis.path.bottleneck_link();
  return out;
}

}  // namespace shardsim
