// SPDX-License-Identifier: Apache-2.0
// The table of prices. Deviations: between published runs of one GPU, kernels of all classes differ by up to 20 % with power limit and
// clocks, one class from another by 10 %; hosts differ by a factor of two between processors and by half between libraries; links by a
// quarter between fabrics of one line rate.
#include "studies/fit/prices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

std::string price_number(double value) { return fmt::format("{:.3g}", value); }

double no_least(const Profile&) { return 0.05; }

const std::vector<Price>& table() {
  static const std::vector<Price> all{
      {.name = "products",
       .family = "kernels",
       .together = 0.3,
       .apart = 0.1,
       .keys = {{"gpu.gemm.efficiency", [](const Profile& p) { return price_number(p.gpu.gemm.efficiency); }},
                {"gpu.gemm.memory_efficiency", [](const Profile& p) { return price_number(p.gpu.gemm.memory_efficiency); }}},
       .stretch =
           [](Profile& p, double factor) {
             GemmModel& gemm = p.gpu.gemm;
             gemm.efficiency /= factor;
             gemm.memory_efficiency /= factor;
             for (GemmModel::Point& point : gemm.table) point.time = point.time * factor;
             if (!p.gpu.gemm_fp8) return;
             p.gpu.gemm_fp8->efficiency /= factor;
             p.gpu.gemm_fp8->memory_efficiency /= factor;
             for (GemmModel::Point& point : p.gpu.gemm_fp8->table) point.time = point.time * factor;
           },
       .least = [](const Profile& p) { return std::max(p.gpu.gemm.efficiency, p.gpu.gemm.memory_efficiency); }},
      {.name = "attention",
       .family = "kernels",
       .together = 0.3,
       .apart = 0.15,
       .keys = {{"gpu.attention_efficiency", [](const Profile& p) { return price_number(p.gpu.attention_efficiency); }},
                {"gpu.attention_backward_efficiency", [](const Profile& p) { return price_number(p.gpu.attention_backward_efficiency); }}},
       .stretch =
           [](Profile& p, double factor) {
             p.gpu.attention_efficiency /= factor;
             p.gpu.attention_backward_efficiency /= factor;
             for (AttentionModel::Point& point : p.gpu.attention.table) point.share /= factor;
           },
       .least = [](const Profile& p) { return std::max(p.gpu.attention_efficiency, p.gpu.attention_backward_efficiency); }},
      {.name = "memory-bound kernels",
       .family = "kernels",
       .together = 0.3,
       .apart = 0.1,
       .keys = {{"gpu.elementwise_efficiency", [](const Profile& p) { return price_number(p.gpu.elementwise_efficiency); }}},
       .stretch =
           [](Profile& p, double factor) {
             p.gpu.elementwise_efficiency /= factor;
             p.gpu.optimizer_efficiency /= factor;
           },
       .least = [](const Profile& p) { return p.gpu.elementwise_efficiency; }},
      {.name = "host",
       .family = "host",
       .together = 0.5,
       .apart = 0.2,
       .keys = {{"node.host_speed", [](const Profile& p) { return price_number(p.node.host_speed); }}},
       .stretch = [](Profile& p, double factor) { p.node.host_speed /= factor; },
       .least = no_least},
      {.name = "links inside a node",
       .family = "links",
       .together = 0.1,
       .apart = 0.15,
       .keys = {{"node.ring_bandwidth", [](const Profile& p) { return to_text(p.node.ring_bandwidth); }}},
       .stretch =
           [](Profile& p, double factor) {
             p.node.ring_bandwidth = p.node.ring_bandwidth / factor;
             for (CollectiveFit& fit : p.collectives)
               if (fit.nodes == 1)
                 for (CollectiveSegment& segment : fit.segments) segment.algbw = segment.algbw / factor;
           },
       .least = no_least},
      {.name = "network",
       .family = "links",
       .together = 0.1,
       .apart = 0.25,
       .keys = {{"network.efficiency", [](const Profile& p) { return price_number(p.network.efficiency); }}},
       .stretch =
           [](Profile& p, double factor) {
             p.network.efficiency /= factor;
             for (CollectiveFit& fit : p.collectives)
               if (fit.nodes > 1)
                 for (CollectiveSegment& segment : fit.segments) segment.algbw = segment.algbw / factor;
           },
       .least = [](const Profile& p) { return p.network.efficiency; }},
  };
  return all;
}

}  // namespace

std::span<const Price> prices() { return table(); }

Profile stretched(Profile profile, std::span<const double> logs) {
  for (std::size_t i = 0; i < logs.size(); ++i)
    if (logs[i] != 0) table()[i].stretch(profile, std::exp(logs[i]));
  return profile;
}

}  // namespace shardsim
