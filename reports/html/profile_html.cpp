// SPDX-License-Identifier: Apache-2.0
#include "reports/html/profile_html.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/profile_rows.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

HtmlSection machine_section(const Profile& profile) {
  TextGrid grid{.header = {"Key", "Value", "Origin"}, .right = {false, false, false}, .rows = {}};
  for (const ProfileValue& v : profile_values(profile)) grid.rows.push_back({v.key, v.value, v.origin});
  return {.title = "Machine", .tables = {std::move(grid)}};
}

Json point(Bytes size, double bandwidth, const std::string& name) {
  return Json::Object{{"x", size.value()}, {"y", bandwidth}, {"name", fmt::format("{} at {}", name, to_text(size))}};
}

HtmlSection fit_section(const CollectiveFit& fit) {
  HtmlChart chart{.kind = HtmlChart::Kind::line,
                  .description = "Bus bandwidth over the size of " + fit_title(fit) + ", measured and fitted.",
                  .x = {.label = "size of the full buffer", .unit = HtmlAxis::Unit::bytes, .doubling = true},
                  .y = {.label = "bus bandwidth, GB/s"}};
  TextGrid grid{.header = {"Size", "Measured", "Fitted", "Error", "busbw GB/s"}, .right = {true, true, true, true, true}, .rows = {}};
  Json fitted(Json::List{}), measured(Json::List{});
  for (const CurvePoint& p : curve_points(fit)) {
    fitted.add(point(p.size, bus_gigabytes(fit, p.size, p.fitted), "fitted"));
    if (p.measured) measured.add(point(p.size, p.bus_gigabytes, "measured"));
    grid.rows.push_back({to_text(p.size), p.measured ? to_text(*p.measured) : "", to_text(p.fitted),
                         p.measured ? fmt::format("{:+.1f} %", 100 * p.error()) : "", fmt::format("{:.4g}", p.bus_gigabytes)});
  }
  if (!measured.as<Json::List>()->empty())
    chart.series.push_back({.label = "measured", .color = "#D55E00", .data = std::move(measured), .style = "dots"});
  chart.series.push_back({.label = "fitted", .color = "#0072B2", .data = std::move(fitted), .style = "plain"});
  std::string text = fit.origin;
  if (fit.leave_one_out_median && fit.leave_one_out_p90)
    text += fmt::format("{}Leave-one-out error: median {}, 90 % of the sizes below {}.", text.empty() ? "" : ". ",
                        percentage(*fit.leave_one_out_median), percentage(*fit.leave_one_out_p90));
  return {.title = fit_title(fit), .text = std::move(text), .chart = std::move(chart), .tables = {std::move(grid)}};
}

std::vector<HtmlTile> profile_tiles(const Profile& p) {
  std::vector<HtmlTile> tiles;
  if (!p.gpu.name.empty())
    tiles.push_back({.label = "GPU", .value = p.gpu.name, .note = fmt::format("{}, {} to a node", to_text(p.gpu.capacity), p.node.gpus)});
  if (p.network.nic_bandwidth > ByteRate{})
    tiles.push_back({.label = "Network",
                     .value = fmt::format("{:.4g} Gbit/s", p.network.nic_bandwidth.base() * 8e-9),
                     .note = fmt::format("each of {} NICs", p.network.nics_per_node)});
  if (p.collectives.empty()) return tiles;
  const auto worst = std::max_element(p.collectives.begin(), p.collectives.end(), [](const CollectiveFit& a, const CollectiveFit& b) {
    return a.leave_one_out_median.value_or(0) < b.leave_one_out_median.value_or(0);
  });
  HtmlTile tile{.label = "Collectives", .value = std::to_string(p.collectives.size())};
  if (worst->leave_one_out_median) tile.note = fmt::format("median error at most {}", percentage(*worst->leave_one_out_median));
  tiles.push_back(std::move(tile));
  return tiles;
}

}  // namespace

HtmlPage profile_page(const Profile& profile) {
  HtmlPage page{
      .title = profile.name.empty() ? profile.file : profile.name, .tiles = profile_tiles(profile), .data = profile_json(profile)};
  if (!profile.description.empty()) page.lines.push_back(profile.description);
  if (!profile_values(profile).empty())
    page.sections.push_back(machine_section(profile));
  else
    page.lines.emplace_back("Collectives only: the machine itself is not described.");
  for (const CollectiveFit& fit : profile.collectives) page.sections.push_back(fit_section(fit));
  return page;
}

}  // namespace shardsim
