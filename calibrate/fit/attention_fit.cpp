// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/attention_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "calibrate/fit/statistics.hpp"
#include "sim/costs/attention.hpp"
#include "sim/costs/products.hpp"

namespace shardsim {
namespace {

constexpr double attention_error_limit = 0.5;  // one kernel that went wrong counts no more
constexpr std::array<double, 13> launches_us{0, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20};
constexpr std::array<double, 11> half_waves{0, 0.15, 0.3, 0.5, 0.7, 1, 1.3, 1.7, 2.2, 2.7, 3.5};

FlashAttention work_of(const AttentionPoint& p) {
  const double rows = static_cast<double>(p.batch) * static_cast<double>(p.heads) * static_cast<double>(p.sequence);
  return {.flops = Flops{4 * rows * static_cast<double>(p.sequence) * static_cast<double>(p.head_dim)},
          .density = 0.5,
          .head_dim = p.head_dim,
          .sequence = p.sequence};
}

using Knot = std::pair<std::int64_t, std::int64_t>;  // head size, sequence

}  // namespace

std::vector<double> attention_errors(const Gpu& gpu, const AttentionPoints& points) {
  const AttentionPredictor predictor(gpu);
  const FlopRate peak = peak_for(gpu, DType::bf16);
  std::vector<double> errors;
  errors.reserve(points.size());
  for (const AttentionPoint& p : points) errors.push_back(std::abs(predictor.time(work_of(p), peak) / p.time - 1));
  return errors;
}

AttentionModel fit_attention(const Gpu& gpu, const AttentionPoints& points) {
  const FlopRate peak = peak_for(gpu, DType::bf16);
  AttentionModel best;
  double least = std::numeric_limits<double>::max();
  for (const double launch : launches_us)
    for (const double half : half_waves) {
      // With a share of 1 a kernel takes its launch and so long; what it really takes beyond the launch gives the share.
      Gpu whole = gpu;
      whole.attention = {.launch = microseconds(launch), .half_waves = half, .table = {{128, 1024, 1.0}}};
      const AttentionPredictor at_peak(whole);
      std::vector<double> ideal;
      std::map<Knot, std::vector<double>> implied;
      for (const AttentionPoint& p : points) {
        ideal.push_back((at_peak.time(work_of(p), peak) - microseconds(launch)).base());
        const double beyond = p.time.base() - launch * 1e-6;
        if (beyond > 0.2 * p.time.base()) implied[{p.head_dim, p.sequence}].push_back(ideal.back() / beyond);
      }
      std::map<Knot, double> share;
      for (auto& [knot, values] : implied) share[knot] = median(values);
      double cost = 0;
      for (std::size_t i = 0; i < points.size(); ++i) {
        const auto found = share.find({points[i].head_dim, points[i].sequence});
        if (found == share.end()) {
          cost += attention_error_limit;
          continue;
        }
        const double predicted = launch * 1e-6 + ideal[i] / found->second;
        cost += std::min(std::abs(std::log(predicted / points[i].time.base())), attention_error_limit);
      }
      if (cost >= least) continue;
      least = cost;
      best = {.launch = microseconds(launch), .half_waves = half, .table = {}};
      for (const auto& [knot, value] : share) best.table.push_back({knot.first, knot.second, std::round(value * 1e4) / 1e4});
    }
  return best;
}

AddedHeadSizes add_head_sizes(AttentionModel& model, const AttentionModel& other) {
  AddedHeadSizes added;
  std::vector<double> ratios;
  for (const auto& mine : model.table)
    for (const auto& theirs : other.table)
      if (mine.head_dim == theirs.head_dim && mine.sequence == theirs.sequence) ratios.push_back(mine.share / theirs.share);
  added.ratio = ratios.empty() ? 1 : median(ratios);
  const auto known = [table = model.table](std::int64_t head) {
    return std::any_of(table.begin(), table.end(), [&](const auto& p) { return p.head_dim == head; });
  };
  for (const auto& p : other.table) {
    if (known(p.head_dim)) continue;
    if (added.heads.empty() || added.heads.back() != p.head_dim) added.heads.push_back(p.head_dim);
    model.table.push_back({p.head_dim, p.sequence, std::round(p.share * added.ratio * 1e4) / 1e4});
  }
  std::sort(model.table.begin(), model.table.end(),
            [](const auto& a, const auto& b) { return std::pair(a.head_dim, a.sequence) < std::pair(b.head_dim, b.sequence); });
  return added;
}

}  // namespace shardsim
