// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_choice.hpp"

#include <algorithm>

namespace shardsim {
namespace {

constexpr Bytes hierarchical_chunk = mebibytes(4);  // that levels hand on to each other

bool is_possible(Algorithm way, const RingPath& path) {
  if (way == Algorithm::nvls) return nvls_is_possible(path.placement);
  return way != Algorithm::hierarchical || (path.crosses_nodes() && path.uses_fabric());
}

Route routed(Algorithm way, Bytes payload, const RingPath& path) {
  switch (way) {
    case Algorithm::tree:
      return {way, tree_all_reduce(payload, path)};
    case Algorithm::nvls:
      return {way, nvls_all_reduce(payload, path)};
    case Algorithm::hierarchical:
      return {way, hierarchical_all_reduce(payload, path, std::max<std::int64_t>(1, payload / hierarchical_chunk))};
    case Algorithm::ring:
    case Algorithm::chain:
    case Algorithm::pairwise:
      break;
  }
  return {way, flat_ring(Collective::all_reduce, payload, path)};
}

/// The library multicasts in the switch of Hopper and later only.
bool library_has_nvls(const RingPath& path) {
  return path.nccl && path.nccl->nvlink && path.nccl->generation >= NcclGeneration::hopper && nvls_is_possible(path.placement);
}

}  // namespace

Algorithm natural_algorithm(Collective collective) {
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

std::optional<Algorithm> pinned_algorithm(const std::string& all_reduce_algorithm) {
  for (const Algorithm a : {Algorithm::ring, Algorithm::tree, Algorithm::nvls, Algorithm::hierarchical})
    if (name_of(a) == all_reduce_algorithm) return a;
  return std::nullopt;
}

Route route_of(Collective collective, Bytes payload, const RingPath& path, std::optional<Algorithm> pinned) {
  if (collective != Collective::all_reduce) return {natural_algorithm(collective), flat_ring(collective, payload, path)};
  if (pinned) return routed(is_possible(*pinned, path) ? *pinned : Algorithm::ring, payload, path);
  Route best = routed(Algorithm::ring, payload, path);
  const auto consider = [&](Algorithm way) {
    if (Route other = routed(way, payload, path); other.form.time < best.form.time) best = other;
  };
  if (path.nccl || path.crosses_nodes()) consider(Algorithm::tree);
  if (library_has_nvls(path)) consider(Algorithm::nvls);
  return best;
}

}  // namespace shardsim
