// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_predictor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/costs/collectives/nccl_system.hpp"
#include "sim/costs/collectives/ring_steps.hpp"

namespace shardsim {
namespace {

// Published multi-node rings are at most 6 % faster than min(fabric, NICs); a quarter leaves room for line rates that are told low.
constexpr double measured_above_wire = 1.25;
constexpr Bytes hierarchical_chunk = mebibytes(4);  // that levels hand on to each other

float share_of(Seconds busy, Seconds time) { return time > Seconds{} ? static_cast<float>(std::min(1.0, busy / time)) : 0.0F; }

std::string where(const Placement& p) { return fmt::format("{} ranks on {} node{}", p.ranks, p.nodes, p.nodes == 1 ? "" : "s"); }

/// Rings, and what the executing library did not name: a log of unknown algorithm is better than none, and most are rings.
bool answers_for(const std::string& algorithm, Algorithm way) {
  if (way == Algorithm::tree || way == Algorithm::nvls) return algorithm == name_of(way);
  return way != Algorithm::hierarchical && (algorithm == "ring" || algorithm == "unknown");
}

Algorithm natural(Collective collective) {
  switch (collective) {
    case Collective::all_to_all:
      return Algorithm::pairwise;
    case Collective::broadcast:
    case Collective::reduce:
      return Algorithm::chain;
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter:
      break;
  }
  return Algorithm::ring;
}

Algorithm algorithm_of(NcclAlgorithm chosen) {
  switch (chosen) {
    case NcclAlgorithm::tree:
      return Algorithm::tree;
    case NcclAlgorithm::nvls:
    case NcclAlgorithm::nvls_tree:
      return Algorithm::nvls;
    case NcclAlgorithm::ring:
      break;
  }
  return Algorithm::ring;
}

/// NCCL gives NVLS one thread block a channel, rings two; every channel gets at least 32 KiB of traffic (src/graph/tuning.cc, enqueue.cc).
std::int64_t thread_blocks(Algorithm way, Collective collective, Bytes payload, std::int64_t channels) {
  const std::int64_t most = way == Algorithm::nvls ? channels : 2 * channels;
  return std::clamp<std::int64_t>(ceil_div(passes(collective) * payload.value(), 32 << 10), 1, most);
}

Seconds stepwise(Collective collective, Bytes payload, const RingPath& path, std::int64_t channels) {
  const auto crossing = static_cast<double>(passes(collective) * (path.placement.nodes - 1));
  const auto steps = static_cast<double>(ring_steps(collective, path.placement.ranks));
  const Seconds alpha = (path.intra_latency * (steps - crossing) + path.inter_latency * crossing) / steps;
  return stepwise_ring(collective, payload, path.placement.ranks, {channels, path.bandwidth(), alpha, path.base_latency});
}

}  // namespace

CollectivePredictor::CollectivePredictor(const Cluster& cluster) : cluster_(cluster) {
  for (const CollectiveFit& fit : cluster.profile.collectives)
    curves_.push_back({fit.collective, fit.ranks, fit.nodes, fit.algorithm, fit.protocol, CollectiveCurve(fit)});
}

const RingPath& CollectivePredictor::path_of(Collective collective, const Group& group) const {
  const bool exchange = collective == Collective::all_to_all;
  const std::tuple key(group.size, group.stride, exchange);
  const std::lock_guard lock(mutex_);
  const auto found = paths_.find(key);
  return found != paths_.end() ? found->second : paths_.emplace(key, ring_path(group, cluster_, exchange)).first->second;
}

CollectivePredictor::Call CollectivePredictor::call(Collective collective, Bytes payload, const RingPath& path) const {
  Call call{collective, payload, natural(collective), {}, path};
  const std::string& wanted = cluster_.profile.network.all_reduce_algorithm;
  const bool tuned = wanted == "auto" && call.way == Algorithm::ring;
  if (tuned) {
    const NcclChoice choice = nccl_choice(nccl_system(cluster_.profile, path), collective, payload);
    call.protocol = name_of(choice.protocol);
    if (collective == Collective::all_reduce) call.way = algorithm_of(choice.algorithm);
  } else if (collective == Collective::all_reduce) {
    if (wanted == "tree") call.way = Algorithm::tree;
    if (wanted == "hierarchical" && path.crosses_nodes() && path.uses_fabric()) call.way = Algorithm::hierarchical;
    if (wanted == "nvls" && nvls_is_possible(path.placement)) call.way = Algorithm::nvls;
  }
  return call;
}

/// Small all-reduces between nodes that nobody measured: a ring's latency grows with the ranks, a tree's with their logarithm. Both send
/// the same bytes in sum.
bool CollectivePredictor::prefers_tree(const Call& call, const ClosedForm& ring) const {
  return call.collective == Collective::all_reduce && cluster_.profile.network.all_reduce_algorithm == "library" &&
         call.path.crosses_nodes() && tree_all_reduce(call.payload, call.path).time < ring.time;
}

Chosen CollectivePredictor::choose(Collective collective, Bytes payload, const Group& group) const {
  const RingPath& path = path_of(collective, group);
  if (group.size <= 1) return {natural(collective), path.placement};
  const Call call = this->call(collective, payload, path);
  const ClosedForm form = load(call);
  const bool tree = prefers_tree(call, form) && !measured(call, std::max(form.fabric, form.network));
  return {tree ? Algorithm::tree : call.way, path.placement};
}

const CollectivePredictor::Curve* CollectivePredictor::find(Collective collective, const Placement& p, Algorithm way) const {
  const auto found = std::ranges::find_if(curves_, [&](const Curve& c) {
    return c.collective == collective && c.ranks == p.ranks && c.nodes == p.nodes && answers_for(c.algorithm, way);
  });
  return found == curves_.end() ? nullptr : &*found;
}

std::optional<CollectivePredictor::Measured> CollectivePredictor::exact(const Call& call) const {
  const Placement& p = call.path.placement;
  const Curve* found = find(call.collective, p, call.way);
  if (!found) return std::nullopt;
  return Measured{found->curve.at(call.payload), Source::exact, found, nullptr, found->curve.extrapolates(call.payload)};
}

/// A ring all-reduce is a reduce-scatter and an all-gather, one after the other, with the fixed cost paid once.
std::optional<CollectivePredictor::Measured> CollectivePredictor::by_halves(const Call& call) const {
  if (call.collective != Collective::all_reduce || call.way != Algorithm::ring) return std::nullopt;
  const Placement& p = call.path.placement;
  const Curve* scatter = find(Collective::reduce_scatter, p, Algorithm::ring);
  const Curve* gather = find(Collective::all_gather, p, Algorithm::ring);
  if (!scatter || !gather) return std::nullopt;
  const Seconds first = scatter->curve.at(call.payload), second = gather->curve.at(call.payload);
  const Seconds time = std::max({first, second, first + second - cluster_.profile.network.base_latency});
  const bool extrapolated = scatter->curve.extrapolates(call.payload) || gather->curve.extrapolates(call.payload);
  return Measured{time, Source::by_halves, scatter, gather, extrapolated};
}

std::optional<CollectivePredictor::Measured> CollectivePredictor::between_sizes(const Call& call) const {
  const Placement& p = call.path.placement;
  if (p.nodes != 1) return std::nullopt;
  const Curve* below = nullptr;
  const Curve* above = nullptr;
  for (const Curve& c : curves_) {
    if (c.collective != call.collective || c.nodes != 1 || !answers_for(c.algorithm, call.way)) continue;
    if (c.ranks < p.ranks && (!below || c.ranks > below->ranks)) below = &c;
    if (c.ranks > p.ranks && (!above || c.ranks < above->ranks)) above = &c;
  }
  if (!below || !above) return std::nullopt;
  const auto ratio = [](std::int64_t a, std::int64_t b) { return std::log2(static_cast<double>(a) / static_cast<double>(b)); };
  const Seconds low = below->curve.at(call.payload), high = above->curve.at(call.payload);
  const double share = ratio(p.ranks, below->ranks) / ratio(above->ranks, below->ranks);
  const bool extrapolated = below->curve.extrapolates(call.payload) || above->curve.extrapolates(call.payload);
  return Measured{low + (high - low) * share, Source::between_sizes, below, above, extrapolated};
}

std::optional<CollectivePredictor::Measured> CollectivePredictor::measured(const Call& call, Seconds wire) const {
  for (const auto source : {&CollectivePredictor::exact, &CollectivePredictor::by_halves, &CollectivePredictor::between_sizes}) {
    auto found = (this->*source)(call);
    if (found && !(call.path.crosses_nodes() && found->time * measured_above_wire < wire)) return found;
  }
  return std::nullopt;
}

ClosedForm CollectivePredictor::load(const Call& call) const {
  switch (call.way) {
    case Algorithm::tree:
      return tree_all_reduce(call.payload, call.path);
    case Algorithm::nvls:
      return nvls_all_reduce(call.payload, call.path, nvls_efficiency(generation_of(cluster_.profile.gpu.name)));
    case Algorithm::hierarchical:
      return hierarchical_form(call.payload, call.path, std::max<std::int64_t>(1, call.payload / hierarchical_chunk));
    case Algorithm::ring:
    case Algorithm::chain:
    case Algorithm::pairwise:
      break;
  }
  return flat_ring(call.collective, call.payload, call.path);
}

/// Nobody measured it: NCCL's tuner where it chose, the closed form or the stepwise ring elsewhere.
CollectivePredictor::Source CollectivePredictor::model_for(const Call& call) const {
  if (!call.protocol.empty()) return Source::tuner;
  const bool is_stepwise = call.way == Algorithm::ring && cluster_.profile.network.ring_model == "stepwise";
  return is_stepwise ? Source::stepwise : Source::closed_form;
}

Seconds CollectivePredictor::modelled(const Call& call, const ClosedForm& form) const {
  const Source source = model_for(call);
  if (source == Source::closed_form) return form.time;
  const NcclSystem system = nccl_system(cluster_.profile, call.path);
  if (source == Source::tuner) return nccl_choice(system, call.collective, call.payload).time;
  return stepwise(call.collective, call.payload, call.path, 2 * system.channels);
}

CollectivePredictor::Timed CollectivePredictor::timed(Collective collective, Bytes payload, const RingPath& path) const {
  Call call = this->call(collective, payload, path);
  ClosedForm form = load(call);
  if (const auto found = measured(call, std::max(form.fabric, form.network))) return {call, form, found->time, found};
  if (prefers_tree(call, form)) {
    call.way = Algorithm::tree;
    form = load(call);
  }
  return {call, form, modelled(call, form), std::nullopt};
}

void CollectivePredictor::describe(const Call& call, const Measured& measured, CollectiveTime& out) {
  const Curve& first = *measured.first;
  const std::string on = where(call.path.placement);
  out.extrapolated = measured.extrapolated;
  if (measured.source == Source::exact) {
    out.protocol = first.protocol;
    out.model = "calibrated, " + on + (first.algorithm == "unknown" ? ", algorithm not stated" : "");
  } else if (measured.source == Source::by_halves) {
    if (first.protocol == measured.second->protocol) out.protocol = first.protocol;
    out.model = "calibrated reduce-scatter and all-gather, " + on;
  } else {
    out.model = fmt::format("interpolated between calibrated {} and {} ranks", first.ranks, measured.second->ranks);
  }
}

void CollectivePredictor::describe_model(const Call& call, CollectiveTime& out) const {
  const std::string on = where(call.path.placement);
  const std::string_view name = call.way == Algorithm::chain ? "ring" : name_of(call.way);
  out.protocol = call.protocol;
  switch (model_for(call)) {
    case Source::tuner:
      out.model = fmt::format("NCCL's tuner, {} {}, {}", name_of(call.way), call.protocol, on);
      break;
    case Source::stepwise:
      out.model = fmt::format("stepwise ring, {} channels, {}", 2 * nccl_system(cluster_.profile, call.path).channels, on);
      break;
    default:
      out.model = fmt::format("{} alpha-beta, {}", name, on);
      break;
  }
}

CollectiveCost CollectivePredictor::cost(Collective collective, Bytes payload, const Group& group) const {
  CollectiveCost out;
  if (group.size <= 1) return out;
  const Timed timed = this->timed(collective, payload, path_of(collective, group));
  out.time = SimTime::from(timed.time);
  const Seconds time = out.time.seconds();
  out.share[static_cast<std::size_t>(Resource::intra_node)] = share_of(timed.form.fabric, time);
  out.share[static_cast<std::size_t>(Resource::network)] = share_of(timed.form.network, time);
  return out;
}

CollectiveTime CollectivePredictor::predict(Collective collective, Bytes payload, const Group& group) const {
  CollectiveTime out;
  static_cast<CollectiveCost&>(out) = cost(collective, payload, group);
  if (group.size <= 1) {
    out.model = "none: one rank";
    return out;
  }
  const RingPath& path = path_of(collective, group);
  const auto [call, form, time, measured] = timed(collective, payload, path);
  measured ? describe(call, *measured, out) : describe_model(call, out);
  out.way = call.way;
  out.algorithm = name_of(call.way);
  const __int128 sent = sent_times_n(call.way, collective, payload, path.placement);
  out.sent_per_rank = Bytes{static_cast<std::int64_t>((sent + group.size - 1) / group.size)};
  out.fabric_bytes = form.fabric_bytes;
  out.network_bytes = form.network_bytes;
  out.multiprocessors =
      static_cast<std::int32_t>(thread_blocks(call.way, collective, payload, nccl_system(cluster_.profile, path).channels));
  out.bottleneck = path.bottleneck();
  out.link = path.bottleneck_link();
  return out;
}

}  // namespace shardsim
