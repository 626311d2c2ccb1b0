// SPDX-License-Identifier: Apache-2.0
#include "reports/html/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reports/html/assets.hpp"
#include "reports/html/markup.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

constexpr std::size_t long_cell = 28;  // letters: sentences wrap, words and numbers do not

/// JSON inside a script element, where "</script" would end it and "<!--<script" would not let it end.
std::string embedded(const Json& json) {
  std::string text;
  for (const char c : json.line()) {
    if (c == '<')
      text += "\\u003c";  // only inside of strings
    else
      text += c;
  }
  return text;
}

std::string_view unit_name(HtmlAxis::Unit unit) {
  switch (unit) {
    case HtmlAxis::Unit::plain:
      return "";
    case HtmlAxis::Unit::bytes:
      return "bytes";
    case HtmlAxis::Unit::traffic:
      return "traffic";
    case HtmlAxis::Unit::seconds:
      return "seconds";
    case HtmlAxis::Unit::share:
      return "share";
    case HtmlAxis::Unit::words:
      return "words";
  }
  return "";
}

std::string_view kind_name(HtmlChart::Kind kind) {
  switch (kind) {
    case HtmlChart::Kind::area:
      return "area";
    case HtmlChart::Kind::bar:
      return "bar";
    case HtmlChart::Kind::timeline:
      return "timeline";
    case HtmlChart::Kind::line:
      return "line";
    case HtmlChart::Kind::scatter:
      return "scatter";
  }
  return "";
}

Json axis_json(const HtmlAxis& axis) {
  const Json unit = axis.unit == HtmlAxis::Unit::words ? Json() : Json(unit_name(axis.unit));
  return Json::Object{{"label", axis.label}, {"unit", unit}, {"doubling", axis.doubling}};
}

Json chart_json(const HtmlChart& chart) {
  Json::List series;
  for (const HtmlSeries& s : chart.series) {
    Json item(Json::Object{{"label", s.label}, {"color", s.color}, {"style", s.style}, {"data", s.data}});
    if (!s.stack.empty()) item.add("stack", s.stack);
    series.push_back(std::move(item));
  }
  return Json::Object{{"kind", kind_name(chart.kind)},
                      {"x", axis_json(chart.x)},
                      {"y", axis_json(chart.y)},
                      {"labels", Json::List(chart.labels.begin(), chart.labels.end())},
                      {"stacked", chart.stacked},
                      {"lying", chart.lying},
                      {"end", chart.end},
                      {"series", std::move(series)}};
}

std::string table_html(const TextGrid& grid) {
  const auto cells = [&](const std::vector<std::string>& row, std::string_view element) {
    std::string out;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool right = i < grid.right.size() && grid.right[i];
      out += fmt::format("<{0}{1}>{2}</{0}>", element,
                         right                       ? " class=\"right\""
                         : row[i].size() > long_cell ? " class=\"long\""
                                                     : "",
                         markup(row[i]));
    }
    return "<tr>" + out + "</tr>\n";
  };
  // Words alone: a phone shows each row as a paragraph.
  const bool words = std::find(grid.right.begin(), grid.right.end(), true) == grid.right.end();
  std::string out = fmt::format("<div class=\"scroll\" tabindex=\"0\"><table{}>\n<thead>", words ? " class=\"words\"" : "") +
                    cells(grid.header, "th") + "</thead>\n<tbody>\n";
  for (const auto& row : grid.rows) out += cells(row, "td");
  return out + "</tbody></table></div>\n";
}

/// Many bars from left to right need room below each other.
std::string height(const HtmlChart& chart) {
  if (!chart.lying || chart.labels.size() < 3) return "";
  return fmt::format(" style=\"height: {:.1f}rem\"", 8 + 2.2 * static_cast<double>(chart.labels.size()));
}

std::string section_html(const HtmlSection& section, std::size_t& charts) {
  std::string out = fmt::format("<section>\n<h2>{}</h2>\n", markup(section.title));
  if (!section.text.empty()) out += fmt::format("<p class=\"soft\">{}</p>\n", markup(section.text));
  if (section.chart)
    out += fmt::format(
        "<figure><div class=\"plot{}\"{}><canvas id=\"chart-{}\" role=\"img\" "
        "aria-label=\"{}\"></canvas></div>\n<figcaption>{}</figcaption></figure>\n",
        section.chart->low ? " low" : "", height(*section.chart), charts++, markup(section.chart->description),
        markup(section.chart->description));
  if (!section.code.empty()) out += fmt::format("<pre tabindex=\"0\">{}</pre>\n", markup(section.code));
  std::string tables;
  for (const TextGrid& grid : section.tables) tables += table_html(grid);
  out += section.chart && !tables.empty() ? "<details open><summary>Figures</summary>\n" + tables + "</details>\n" : tables;
  return out + "</section>\n";
}

std::string head_html(const HtmlPage& page) {
  std::string out = fmt::format("<header>\n<h1>{}</h1>\n", markup(page.title));
  for (const std::string& line : page.lines) out += fmt::format("<p class=\"soft\">{}</p>\n", markup(line));
  out += "</header>\n<div class=\"tiles\">\n";
  for (const HtmlTile& tile : page.tiles)
    out += fmt::format("<div class=\"tile {}\"><span>{}</span><b>{}</b><span>{}</span></div>\n", tile.mood, markup(tile.label),
                       markup(tile.value), markup(tile.note));
  return out + "</div>\n";
}

std::string warnings_html(const std::vector<std::string>& warnings) {
  if (warnings.empty()) return "";
  std::string out = "<section>\n<h2>Warnings</h2>\n<ul class=\"warnings\">\n";
  for (const std::string& warning : warnings) out += fmt::format("<li>{}</li>\n", markup(warning));
  return out + "</ul>\n</section>\n";
}

}  // namespace

std::string series_color(std::size_t i) {
  static constexpr std::array<const char*, 9> colors{"#0072B2", "#E69F00", "#009E73", "#56B4E9", "#F0E442",
                                                     "#CC79A7", "#D55E00", "#8B5A2B", "#999999"};
  return colors[i % colors.size()];
}

std::string html_page(const HtmlPage& page) {
  if (chart_library.empty()) throw EnvironmentError("this build has no Chart.js for HTML reports: install libjs-chart.js and build again");
  std::string sections;
  Json::List charts;
  std::size_t count = 0;
  for (const HtmlSection& section : page.sections) {
    sections += section_html(section, count);
    if (section.chart) charts.push_back(chart_json(*section.chart));
  }
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
      markup(page.title), report_style);
  out += head_html(page) + "<main>\n" + sections + warnings_html(page.warnings) +
         "</main>\n<footer>Made by shardsim. Charts: Chart.js (MIT).</footer>\n";
  out += fmt::format(
      "<script type=\"application/json\" id=\"data\">{}</script>\n<script type=\"application/json\" id=\"charts\">{}</script>\n",
      embedded(page.data), embedded(Json(std::move(charts))));
  out += fmt::format("<script>\n{}</script>\n<script>\n{}</script>\n</body>\n</html>\n", chart_library, report_script);
  return out;
}

}  // namespace shardsim
