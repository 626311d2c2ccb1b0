// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_models.hpp"

#include <algorithm>
#include <bit>

namespace shardsim {
namespace {

constexpr double tree_share_of_ring = 0.92;  // NCCL src/graph/tuning.cc: tree bandwidth is capped at 92 % of the ring's

Seconds transfer(double bytes, ByteRate rate) { return Seconds{bytes / rate.base()}; }

Bytes rounded(double bytes) { return Bytes{static_cast<std::int64_t>(bytes + 0.5)}; }

/// Busy time of both levels: `inside` on a GPU's link of the fabric, `across` on the ring's share of a node's NICs.
ClosedForm loads(double inside, double across, const RingPath& path) {
  ClosedForm form;
  if (path.uses_fabric()) {
    form.fabric = transfer(inside, path.intra);
    form.fabric_bytes = rounded(inside);
  }
  if (path.crosses_nodes()) {
    form.network = transfer(across, path.network);
    form.network_bytes = rounded(across);
  }
  return form;
}

std::int64_t levels_of(std::int64_t nodes) { return std::bit_width(static_cast<std::uint64_t>(nodes)) - 1; }

ClosedForm pairwise(Bytes payload, const RingPath& path) {
  const auto n = static_cast<double>(path.placement.ranks);
  const auto inside = static_cast<double>(path.placement.ranks_per_node);
  const auto size = static_cast<double>(payload.value());
  ClosedForm form = loads(size * (inside - 1) / n, inside * size * (n - inside) / n, path);
  if (path.exchange > ByteRate{}) form.network = std::max(form.network, payload / path.exchange);
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
  const double sent = bus_factor(collective, n) * static_cast<double>(payload.value());
  ClosedForm form = loads(sent, sent, path);
  form.time = path.base_latency + path.intra_latency * static_cast<double>(inside) + path.inter_latency * static_cast<double>(crossing) +
              std::max(form.fabric, form.network);
  return form;
}

ClosedForm tree_all_reduce(Bytes payload, const RingPath& path) {
  const Placement& p = path.placement;
  if (p.ranks <= 1) return {};
  const double sent = 2.0 * static_cast<double>(payload.value());
  ClosedForm form = loads(sent / tree_share_of_ring, sent / tree_share_of_ring, path);
  if (path.uses_fabric()) form.fabric_bytes = rounded(sent);
  if (path.crosses_nodes()) form.network_bytes = rounded(sent);
  const auto levels = static_cast<double>(levels_of(p.nodes));
  form.time = path.base_latency + 2.0 * (path.intra_latency * static_cast<double>(p.ranks_per_node - 1) + path.inter_latency * levels) +
              std::max(form.fabric, form.network);
  return form;
}

ClosedForm nvls_all_reduce(Bytes payload, const RingPath& path, double efficiency) {
  const Placement& p = path.placement;
  if (p.ranks <= 1) return {};
  const auto size = static_cast<double>(payload.value());
  const auto inside = static_cast<double>(p.ranks_per_node), nodes = static_cast<double>(p.nodes);
  const double up_and_down = size * (1 + 1 / inside);
  ClosedForm form = loads(up_and_down / efficiency, 2 * size * (nodes - 1) / nodes, path);
  form.fabric_bytes = rounded(up_and_down);
  form.time = path.base_latency + path.intra_latency + path.inter_latency * static_cast<double>(2 * levels_of(p.nodes)) +
              std::max(form.fabric, form.network);
  return form;
}

ClosedForm hierarchical_form(Bytes payload, const RingPath& path, std::int64_t chunks) {
  const auto inside = static_cast<double>(path.placement.ranks_per_node);
  const auto nodes = static_cast<double>(path.placement.nodes);
  const auto size = static_cast<double>(payload.value());
  ClosedForm form = loads(2 * size * (inside - 1) / inside, 2 * size * (nodes - 1) / nodes, path);
  form.time = hierarchical_all_reduce(payload, path, chunks);
  return form;
}

Seconds hierarchical_all_reduce(Bytes payload, const RingPath& path, std::int64_t chunks) {
  const auto inside = static_cast<double>(path.placement.ranks_per_node);
  const auto nodes = static_cast<double>(path.placement.nodes);
  const auto size = static_cast<double>(payload.value());
  const Seconds level = inside > 1 ? path.intra_latency * (inside - 1) + transfer(size * (inside - 1) / inside, path.intra) : Seconds{};
  // Each rank's own ring across nodes has its share of the NICs and carries S / m.
  const double hops = 2 * (nodes - 1);
  const Seconds across = nodes > 1 ? path.inter_latency * hops + transfer(hops / nodes * size / inside, path.network / inside) : Seconds{};
  const Seconds longest = std::max(level, across);
  return path.base_latency + longest + (2.0 * level + across - longest) / static_cast<double>(chunks);
}

}  // namespace shardsim
