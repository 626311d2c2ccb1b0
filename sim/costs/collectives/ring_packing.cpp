// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/ring_packing.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace shardsim {
namespace {

constexpr std::size_t most_gpus = 8;
constexpr int rounds = 64;  // within 2 % of the best packing of complete meshes and of hybrid cube meshes

using Order = std::vector<std::size_t>;
using Matrix = std::vector<std::vector<double>>;

/// All directed rings over cables, starting at the first GPU.
std::vector<Order> rings_over(const CableMatrix& cables) {
  std::vector<Order> rings;
  Order order(cables.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    bool joined = true;
    for (std::size_t i = 0; i < order.size(); ++i) joined = joined && cables[order[i]][order[(i + 1) % order.size()]] > ByteRate{};
    if (joined) rings.push_back(order);
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return rings;
}

double weight_of(const Order& ring, const Matrix& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < ring.size(); ++i) sum += weights[ring[i]][ring[(i + 1) % ring.size()]];
  return sum;
}

/// Rings are added one by one, each over the cables that are loaded least; weights grow exponentially with load.
class Packing {
 public:
  explicit Packing(const CableMatrix& cables) : cables_(cables), loads_(cables.size(), std::vector<double>(cables.size(), 0)) {
    for (const auto& row : cables)
      for (const ByteRate rate : row)
        if (rate > ByteRate{}) thinnest_ = std::min(thinnest_, rate.base());
  }

  void add(const Order& ring) {
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const std::size_t from = ring[i], to = ring[(i + 1) % ring.size()];
      loads_[from][to] += 1 / cables_[from][to].base();
      fullest_ = std::max(fullest_, loads_[from][to]);
    }
  }

  [[nodiscard]] Matrix weights() const {
    Matrix weights = loads_;
    for (std::size_t i = 0; i < weights.size(); ++i)
      for (std::size_t j = 0; j < weights.size(); ++j)
        if (cables_[i][j] > ByteRate{}) weights[i][j] = std::exp((loads_[i][j] - fullest_) * thinnest_) / cables_[i][j].base();
    return weights;
  }

  /// Time that the fullest cable needs for one byte of each ring.
  [[nodiscard]] double fullest() const { return fullest_; }

 private:
  const CableMatrix& cables_;
  Matrix loads_;
  double thinnest_ = std::numeric_limits<double>::max(), fullest_ = 0;
};

}  // namespace

ByteRate packed_rings(const CableMatrix& cables) {
  if (cables.size() < 2 || cables.size() > most_gpus) return {};
  const std::vector<Order> rings = rings_over(cables);
  if (rings.empty()) return {};
  Packing packing(cables);
  double best = 0;
  for (int added = 1; added <= rounds; ++added) {
    const Matrix weights = packing.weights();
    const auto lighter = [&](const Order& a, const Order& b) { return weight_of(a, weights) < weight_of(b, weights); };
    packing.add(*std::ranges::min_element(rings, lighter));
    best = std::max(best, added / packing.fullest());
  }
  return ByteRate{best};
}

}  // namespace shardsim
