// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_models.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace shardsim {
namespace {

constexpr std::array nccl_protocols{NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple};

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

/// Latencies of a ring or tree, and the shares of the fabric's and the NICs' bandwidth that it reaches.
struct Traits {
  Seconds base, hop, crossing;
  double fabric = 1, network = 1;
};

/// What a protocol adds to the latencies of LL.
Traits latencies(NcclAlgorithm algorithm, NcclProtocol p, const RingPath& path) {
  const auto more = [&](double now, double least) { return microseconds(now - least); };
  constexpr auto ring = NcclAlgorithm::ring;
  constexpr auto ll = NcclProtocol::ll;
  const NcclMachine& machine = *path.nccl;
  const double hop = nccl::hop_latency(algorithm, p, machine.nvlink), ll_hop = nccl::hop_latency(ring, ll, machine.nvlink);
  // One GPU on each node: a ring's messages arrive as a tree's do. Simple waits twice, for the data and for the flush.
  const NcclAlgorithm crossing = path.uses_fabric() ? algorithm : NcclAlgorithm::tree;
  const double net = nccl::net_latency(crossing, p) + hop * (p == NcclProtocol::simple ? 2 : 1);
  Traits traits;
  traits.base = path.base_latency + more(nccl::base_latency(algorithm, p), nccl::base_latency(ring, ll));
  traits.hop = path.intra_latency + more(hop, ll_hop);
  traits.crossing = path.inter_latency + more(net, nccl::net_latency(ring, ll) + ll_hop);
  return traits;
}

double limited(ByteRate rate, double limit_gbs) { return std::min(1.0, limit_gbs * 1e9 / rate.base()); }

Traits ring_traits(NcclProtocol p, const RingPath& path) {
  const NcclMachine& machine = *path.nccl;
  const std::int64_t nodes = path.placement.islands();
  Traits traits = latencies(NcclAlgorithm::ring, p, path);
  // Between nodes a proxy thread of the host hands every step on: 1 us, three times for Simple.
  if (nodes > 1) traits.hop = std::max(traits.hop, microseconds(p == NcclProtocol::simple ? 3 : 1));
  if (p == NcclProtocol::ll) {
    const double limit = nccl::ll_limit(machine.generation, nodes);
    traits.fabric = std::min(nccl::ll_share, limited(path.intra, limit));
    traits.network = nccl::ll_share;
  } else if (p == NcclProtocol::ll128) {
    const double limit = static_cast<double>(machine.channels) * nccl::ll128_ring_channel(machine.generation);
    traits.fabric = std::min(nccl::ring_ll128_share, limited(path.intra, limit));
    traits.network = nccl::ll128_share;
  }
  return traits;
}

Traits tree_traits(NcclProtocol p, Bytes payload, const RingPath& path) {
  const NcclMachine& machine = *path.nccl;
  const std::int64_t nodes = path.placement.islands();
  const auto channels = static_cast<double>(machine.channels);
  Traits traits = latencies(NcclAlgorithm::tree, p, path);
  traits.fabric = std::min(nccl::tree_share, limited(path.intra, channels * nccl::tree_channel(machine.generation, nodes)));
  if (p == NcclProtocol::ll) {
    traits.fabric = std::min(traits.fabric / nccl::tree_ll_divisor, limited(path.intra, nccl::ll_limit(machine.generation, nodes)));
    traits.network = nccl::ll_share;
  } else if (p == NcclProtocol::ll128) {
    traits.fabric = std::min(traits.fabric * (nodes == 1 ? nccl::tree_ll128_one_node : nccl::ll128_share),
                             limited(path.intra, channels * nccl::ll128_tree_channel(machine.generation, nodes)));
    traits.network = nccl::ll128_share;
  }
  const double correction = nccl::smooth_tree_correction(p, payload);
  traits.fabric *= correction;
  traits.network *= correction;
  return traits;
}

/// `bytes` of both levels take longer under a protocol than on the bare links.
Seconds bandwidth_time(const ClosedForm& form, const Traits& traits) {
  return std::max(form.fabric / traits.fabric, form.network / traits.network);
}

/// The protocol that takes least. LL128 needs NVLink, whose stores of 128 bytes arrive whole.
template <class TimeOf>
void take_fastest(ClosedForm& form, bool nvlink, TimeOf time_of) {
  form.time = Seconds{std::numeric_limits<double>::max()};
  for (const NcclProtocol p : nccl_protocols) {
    if (p == NcclProtocol::ll128 && !nvlink) continue;
    if (const Seconds time = time_of(p); time < form.time) {
      form.time = time;
      form.protocol = p;
    }
  }
}

ClosedForm pairwise(Bytes payload, const RingPath& path) {
  const auto n = static_cast<double>(path.placement.ranks);
  const auto inside = static_cast<double>(path.placement.ranks_per_island());
  const auto size = static_cast<double>(payload.value());
  ClosedForm form = loads(size * (inside - 1) / n, inside * size * (n - inside) / n, path);
  // The graph knows better than a ring's share what an exchange reaches between nodes.
  if (path.crosses_nodes()) form.network = transfer(static_cast<double>(form.network_bytes.value()), path.nic_bandwidth * path.nics);
  if (path.exchange > ByteRate{}) form.network = std::max(form.network, payload / path.exchange);
  const Seconds hop = path.crosses_nodes() ? path.inter_latency : path.intra_latency;
  // Messages to different peers are in flight together: the latency is that of one hop, not of N - 1.
  form.time = path.base_latency + hop + std::max(form.fabric, form.network);
  return form;
}

}  // namespace

ClosedForm flat_ring(Collective collective, Bytes payload, const RingPath& path) {
  const std::int64_t n = path.placement.ranks, nodes = path.placement.islands();
  if (n <= 1) return {};
  if (collective == Collective::all_to_all) return pairwise(payload, path);
  const std::int64_t crossing = passes(collective) * (nodes - 1);
  const std::int64_t inside = ring_steps(collective, n) - crossing;
  const double sent = bus_factor(collective, n) * static_cast<double>(payload.value());
  ClosedForm form = loads(sent, sent, path);
  const auto time_with = [&](const Traits& traits, double factor) {
    const Seconds latency = traits.base + traits.hop * static_cast<double>(inside) + traits.crossing * static_cast<double>(crossing);
    return latency * factor + bandwidth_time(form, traits);
  };
  if (!path.nccl) {
    form.time = time_with({path.base_latency, path.intra_latency, path.inter_latency}, 1);
    return form;
  }
  take_fastest(form, path.nccl->nvlink, [&](NcclProtocol p) {
    const bool plateau =
        p == NcclProtocol::simple && nodes > 1 && collective == Collective::all_reduce && payload.value() / (path.nccl->channels * n) >= 64;
    const double factor = path.nccl->generation < NcclGeneration::ampere ? nccl::ring_plateau_volta : nccl::ring_plateau;
    return time_with(ring_traits(p, path), plateau ? factor : 1);
  });
  return form;
}

ClosedForm tree_all_reduce(Bytes payload, const RingPath& path) {
  const Placement& p = path.placement;
  if (p.ranks <= 1) return {};
  const auto nodes = static_cast<double>(p.islands());
  const double size = static_cast<double>(payload.value());
  ClosedForm form = loads(2 * size, 2 * size * (nodes - 1) / nodes, path);
  // The mean node sends 2 S (k - 1) / k. The busiest, inner in one of the two trees with half the data each and leaf in the other, S on two
  // nodes, 1.5 S on three and 2 S on more.
  ClosedForm busiest = form;
  if (nodes > 2) busiest.network = form.network * (std::min(nodes, 4.0) * nodes / (4 * (nodes - 1)));
  const auto time_with = [&](const Traits& traits) {
    const Seconds inside = traits.hop * static_cast<double>(p.ranks_per_island() - 1);
    return traits.base + 2.0 * (inside + traits.crossing * static_cast<double>(levels_of(p.islands()))) + bandwidth_time(busiest, traits);
  };
  if (path.nccl) {
    take_fastest(form, path.nccl->nvlink, [&](NcclProtocol protocol) { return time_with(tree_traits(protocol, payload, path)); });
  } else {
    form.time = time_with({path.base_latency, path.intra_latency, path.inter_latency, nccl::tree_share});
  }
  return form;
}

ClosedForm nvls_all_reduce(Bytes payload, const RingPath& path) {
  const Placement& p = path.placement;
  if (p.ranks <= 1) return {};
  const auto size = static_cast<double>(payload.value());
  const auto inside = static_cast<double>(p.ranks_per_island()), nodes = static_cast<double>(p.islands());
  ClosedForm form = loads(size * (1 + 1 / inside), 2 * size * (nodes - 1) / nodes, path);
  const double efficiency = nvls_efficiency(path.nccl ? path.nccl->generation : NcclGeneration::hopper);
  const double ring = 2 * size * static_cast<double>(p.ranks - 1) / static_cast<double>(p.ranks);
  const Seconds across = nodes > 2 ? transfer(ring, path.network) : form.network;
  form.time = path.base_latency + path.intra_latency;
  if (path.nccl) form.time = microseconds(nccl::hop_latency(NcclAlgorithm::nvls, NcclProtocol::simple, path.nccl->nvlink));
  if (nodes > 1) {
    const double levels = static_cast<double>(2 * levels_of(p.islands()));
    form.time += (path.nccl ? latencies(NcclAlgorithm::nvls_tree, NcclProtocol::simple, path).crossing : path.inter_latency) * levels;
  }
  form.time += std::max(form.fabric / efficiency, across);
  return form;
}

ClosedForm hierarchical_all_reduce(Bytes payload, const RingPath& path, std::int64_t chunks) {
  const auto inside = static_cast<double>(path.placement.ranks_per_island());
  const auto nodes = static_cast<double>(path.placement.islands());
  const auto size = static_cast<double>(payload.value());
  ClosedForm form = loads(2 * size * (inside - 1) / inside, 2 * size * (nodes - 1) / nodes, path);
  const Seconds level = inside > 1 ? path.intra_latency * (inside - 1) + 0.5 * form.fabric : Seconds{};
  // Each rank's own ring across nodes has its share of the NICs and carries S / m.
  const Seconds across = nodes > 1 ? path.inter_latency * (2 * (nodes - 1)) + form.network : Seconds{};
  const Seconds longest = std::max(level, across);
  form.time = path.base_latency + longest + (2.0 * level + across - longest) / static_cast<double>(chunks);
  return form;
}

Seconds narrowest_cut(Collective collective, Bytes payload, const RingPath& path) {
  if (!path.crosses_nodes()) return {};
  const auto nodes = static_cast<double>(path.placement.islands());
  const auto size = static_cast<double>(payload.value());
  const ByteRate nics = path.nic_bandwidth * path.nics;
  switch (collective) {
    case Collective::all_to_all:
      return flat_ring(collective, payload, path).network;
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return transfer(size * (nodes - 1) / nodes, nics);
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::reduce:
      break;
  }
  return transfer(size, nics);
}

}  // namespace shardsim
