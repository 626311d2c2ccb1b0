// SPDX-License-Identifier: Apache-2.0
#include "reports/profile_rows.hpp"

#include <fmt/format.h>

#include "sim/base/units_text.hpp"
#include "sim/costs/collectives/collective_curve.hpp"

namespace shardsim {
namespace {

class Values {
 public:
  explicit Values(const Profile& profile) : profile_(profile) {}
  void add(const std::string& key, std::string value) { rows_.push_back({key, std::move(value), origin_of(profile_, key)}); }
  template <class Q>
  void known(const std::string& key, Q value) {
    if (value > Q{}) add(key, to_text(value));
  }
  [[nodiscard]] std::vector<ProfileValue> take() && { return std::move(rows_); }

 private:
  const Profile& profile_;
  std::vector<ProfileValue> rows_;
};

Json optional_number(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

Json points_json(const CollectiveFit& fit) {
  Json::List points;
  for (const CurvePoint& p : curve_points(fit))
    points.emplace_back(Json::Object{{"bytes", p.size.value()},
                                     {"measured_s", p.measured ? Json(p.measured->base()) : Json()},
                                     {"fitted_s", p.fitted.base()},
                                     {"error", p.measured ? Json(p.error()) : Json()},
                                     {"bus_gigabytes_per_second", p.bus_gigabytes}});
  return points;
}

Json segments_json(const CollectiveFit& fit) {
  Json::List segments;
  for (const CollectiveSegment& s : fit.segments)
    segments.emplace_back(Json::Object{{"limit_bytes", s.limit ? Json(s.limit->value()) : Json()},
                                       {"alpha_s", s.alpha.base()},
                                       {"algbw_bytes_per_second", s.algbw.base()}});
  return segments;
}

Json fit_json(const CollectiveFit& fit) {
  return Json::Object{{"collective", name_of(fit.collective)},
                      {"ranks", fit.ranks},
                      {"nodes", fit.nodes},
                      {"algorithm", fit.algorithm},
                      {"protocol", fit.protocol},
                      {"origin", fit.origin},
                      {"leave_one_out_median", optional_number(fit.leave_one_out_median)},
                      {"leave_one_out_p90", optional_number(fit.leave_one_out_p90)},
                      {"segments", segments_json(fit)},
                      {"points", points_json(fit)}};
}

}  // namespace

std::vector<ProfileValue> profile_values(const Profile& p) {
  if (p.gpu.name.empty()) return {};
  Values values(p);
  values.add("gpu.name", p.gpu.name);
  values.known("gpu.capacity", p.gpu.capacity);
  values.known("gpu.memory_bandwidth", p.gpu.memory_bandwidth);
  for (const auto& [type, rate] : p.gpu.peak) values.add(fmt::format("gpu.peak.{}", name_of(type)), to_text(rate));
  values.add("gpu.gemm.launch", to_text(p.gpu.gemm.launch));
  values.add("gpu.gemm.efficiency", fmt::format("{:.3g}", p.gpu.gemm.efficiency));
  values.add("gpu.gemm.memory_efficiency", fmt::format("{:.3g}", p.gpu.gemm.memory_efficiency));
  if (!p.gpu.gemm.table.empty()) values.add("gpu.gemm.table", fmt::format("{} shapes", p.gpu.gemm.table.size()));
  values.add("gpu.attention_efficiency", fmt::format("{:.3g}", p.gpu.attention_efficiency));
  values.add("gpu.attention_backward_efficiency", fmt::format("{:.3g}", p.gpu.attention_backward_efficiency));
  values.add("gpu.elementwise_efficiency", fmt::format("{:.3g}", p.gpu.elementwise_efficiency));
  values.add("gpu.kernel_launch", to_text(p.gpu.kernel_launch));
  values.add("gpu.overlap_slowdown", fmt::format("{:.3g}", p.gpu.overlap_slowdown));
  values.known("gpu.host_link", p.gpu.host_link);
  values.add("node.gpus", std::to_string(p.node.gpus));
  values.known("node.ring_bandwidth", p.node.ring_bandwidth);
  values.known("node.intra_latency", p.node.intra_latency);
  values.known("node.host_memory", p.node.host_memory);
  values.known("node.host_memory_bandwidth", p.node.host_memory_bandwidth);
  values.add("network.nics_per_node", std::to_string(p.network.nics_per_node));
  values.known("network.nic_bandwidth", p.network.nic_bandwidth);
  values.add("network.efficiency", fmt::format("{:.3g}", p.network.efficiency));
  values.known("network.inter_latency", p.network.inter_latency);
  values.known("network.base_latency", p.network.base_latency);
  values.add("overheads.context", to_text(p.overheads.context));
  values.add("overheads.nccl_per_communicator", to_text(p.overheads.nccl_per_communicator));
  values.add("overheads.cublas_workspace", to_text(p.overheads.cublas_workspace));
  if (p.storage) {
    values.add("storage.write_per_node", to_text(p.storage->write_per_node));
    values.add("storage.read_per_node", to_text(p.storage->read_per_node));
  }
  if (p.price_per_gpu_hour) values.add("price_per_gpu_hour", fmt::format("${:.2f}", *p.price_per_gpu_hour));
  return std::move(values).take();
}

double bus_gigabytes(const CollectiveFit& fit, Bytes size, Seconds time) {
  return (size / time).base() / 1e9 * bus_factor(fit.collective, fit.ranks);
}

std::vector<CurvePoint> curve_points(const CollectiveFit& fit) {
  std::vector<CurvePoint> points;
  const auto add = [&](Bytes size, std::optional<Seconds> measured) {
    const Seconds fitted = fit.segments.empty() ? CollectiveCurve(fit).at(size) : time_of(fit.segments, size);
    points.push_back({size, measured, fitted, bus_gigabytes(fit, size, measured.value_or(fitted))});
  };
  for (const auto& sample : fit.samples) add(sample.size, sample.median);
  if (points.empty())
    for (Bytes size = kibibytes(1); size <= gibibytes(1); size = 4 * size) add(size, std::nullopt);
  return points;
}

std::string fit_title(const CollectiveFit& fit) {
  return fmt::format("{}, {} ranks on {} node{}, {}{}{}", name_of(fit.collective), fit.ranks, fit.nodes, fit.nodes == 1 ? "" : "s",
                     fit.algorithm == "unknown" ? "algorithm not stated" : fit.algorithm, fit.protocol.empty() ? "" : " ", fit.protocol);
}

Json profile_json(const Profile& profile) {
  Json::List values, fits;
  for (const ProfileValue& v : profile_values(profile))
    values.emplace_back(Json::Object{{"key", v.key}, {"value", v.value}, {"origin", v.origin}});
  for (const CollectiveFit& fit : profile.collectives) fits.push_back(fit_json(fit));
  return Json::Object{{"schema", "shardsim.profile/1"},
                      {"name", profile.name},
                      {"description", profile.description},
                      {"values", std::move(values)},
                      {"collectives", std::move(fits)}};
}

}  // namespace shardsim
