// SPDX-License-Identifier: Apache-2.0
// A page in one file that opens without a network: figures, charts (Chart.js), and the same as tables for those who cannot see charts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reports/text.hpp"
#include "sim/base/json_value.hpp"

namespace shardsim {

/// A figure in large print.
struct HtmlTile {
  std::string label;
  std::string value;
  std::string note{};
  std::string mood{};  ///< "good", "bad" or nothing
};

struct HtmlAxis {
  std::string label{};
  /// bytes: binary; traffic: decimal bytes; share: of one, shown as percent; words: the axis of the labels
  enum class Unit { plain, bytes, traffic, seconds, share, words } unit = Unit::plain;
  bool doubling = false;  ///< logarithmic, with ticks at powers of two (line and scatter)
};

struct HtmlSeries {
  std::string label;
  std::string color;
  Json data;  ///< numbers by label, or {"x": ..., "y": ...} points, each with a "name" if it has one; bars may span [from, to]
  std::string stack{};
  std::string style{};  ///< area: "dashed", "point"; bar: "mark" (a tick across each bar), "dashed" (ticks and a line); line, scatter:
                        ///< "dashed", "plain", "dots", "star"
};

struct HtmlChart {
  enum class Kind { area, bar, timeline, line, scatter } kind = Kind::bar;
  std::string description{};  ///< what there is to see, in a sentence: the text alternative
  HtmlAxis x{}, y{};
  std::vector<std::string> labels{};  ///< of the category axis
  std::vector<HtmlSeries> series{};
  bool stacked = false;
  bool lying = false;  ///< bars from left to right; the chart grows with their number
  bool low = false;    ///< half as high as others
  double end = 0;      ///< of the time axis
};

struct HtmlSection {
  std::string title;
  std::string text{};
  std::string code{};  ///< commands and lines of configuration, as they are
  std::optional<HtmlChart> chart{};
  std::vector<TextGrid> tables{};
};

struct HtmlPage {
  std::string title;
  std::vector<std::string> lines{};  ///< under the title
  std::vector<HtmlTile> tiles{};
  std::vector<HtmlSection> sections{};
  std::vector<std::string> warnings{};
  Json data{};  ///< the report's JSON, kept in the page for programs
};

/// Distinct colours that stay apart for the colour-blind (Okabe and Ito), for the i-th series of a chart.
[[nodiscard]] std::string series_color(std::size_t i);

/// An EnvironmentError if the build found no Chart.js.
[[nodiscard]] std::string html_page(const HtmlPage& page);

}  // namespace shardsim
