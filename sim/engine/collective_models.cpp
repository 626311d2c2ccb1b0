// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/collective_models.hpp"

#include <algorithm>
#include <bit>

namespace shardsim {
namespace {

constexpr double tree_share_of_ring = 0.92;  // NCCL src/graph/tuning.cc: tree bandwidth is capped at 92 % of the ring's

Seconds transfer(double bytes, ByteRate rate) { return Seconds{bytes / rate.base()}; }

/// Busy time of both levels for a ring whose every link carries `bytes`.
ClosedForm loads(double bytes, const RingPath& path) {
  ClosedForm form;
  if (path.uses_fabric()) form.fabric = transfer(bytes, path.intra);
  if (path.crosses_nodes()) form.network = transfer(bytes, path.network);
  return form;
}

ClosedForm pairwise(Bytes payload, const RingPath& path) {
  const auto n = static_cast<double>(path.placement.ranks);
  const auto inside = static_cast<double>(path.placement.ranks_per_node);
  const auto size = static_cast<double>(payload.value());
  ClosedForm form;
  if (path.uses_fabric()) form.fabric = transfer(size * (inside - 1) / n, path.intra);
  if (path.crosses_nodes()) form.network = transfer(inside * size * (n - inside) / n, path.network);
  const Seconds hop = path.crosses_nodes() ? path.inter_latency : path.intra_latency;
  // Messages to different peers are in flight together: the latency is that of one hop, not of N - 1.
  form.time = path.base_latency + hop + std::max(form.fabric, form.network);
  return form;
}

}  // namespace

ClosedForm flat_ring(Collective collective, Bytes payload, const RingPath& path) {
  const std::int64_t n = path.placement.ranks;
  if (n <= 1) return {};
  if (collective == Collective::all_to_all) return pairwise(payload, path);
  const std::int64_t crossing = passes(collective) * (path.placement.nodes - 1);
  const std::int64_t inside = ring_steps(collective, n) - crossing;
  ClosedForm form = loads(bus_factor(collective, n) * static_cast<double>(payload.value()), path);
  form.time = path.base_latency + path.intra_latency * static_cast<double>(inside) + path.inter_latency * static_cast<double>(crossing) +
              std::max(form.fabric, form.network);
  return form;
}

ClosedForm tree_all_reduce(Bytes payload, const RingPath& path) {
  const Placement& p = path.placement;
  if (p.ranks <= 1) return {};
  ClosedForm form = loads(2.0 * static_cast<double>(payload.value()) / tree_share_of_ring, path);
  const auto levels = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(p.nodes)) - 1);
  form.time = path.base_latency + 2.0 * (path.intra_latency * static_cast<double>(p.ranks_per_node - 1) + path.inter_latency * levels) +
              std::max(form.fabric, form.network);
  return form;
}

Seconds hierarchical_all_reduce(Bytes payload, const RingPath& path, std::int64_t chunks) {
  const auto inside = static_cast<double>(path.placement.ranks_per_node);
  const auto nodes = static_cast<double>(path.placement.nodes);
  const auto size = static_cast<double>(payload.value());
  const Seconds level = path.intra_latency * (inside - 1) + transfer(size * (inside - 1) / inside, path.intra);
  // Each rank's own ring across nodes has its share of the NICs and carries S / m.
  const Seconds across = path.inter_latency * (2 * (nodes - 1)) + transfer(2 * (nodes - 1) / nodes * size / inside, path.network / inside);
  const Seconds longest = std::max(level, across);
  return path.base_latency + longest + (2.0 * level + across - longest) / static_cast<double>(chunks);
}

}  // namespace shardsim
