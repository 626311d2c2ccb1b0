// SPDX-License-Identifier: Apache-2.0
#include "reports/html/timeline_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "reports/html/markup.hpp"
#include "reports/html/timeline_bars.hpp"
#include "reports/text.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

// Pixels.
constexpr int width = 960, left = 170, right = 946, plot = right - left;
constexpr int top = 40, row_height = 24, bar_height = 18, memory_height = 70, letter = 7, legend_height = 22;
constexpr const char* ink = "#1b1f24";
constexpr const char* soft = "#57606a";
constexpr const char* grid_color = "#d0d7de";

/// "3" of "model.layers.3", "embed" of "model.embed_tokens" if that is what fits.
std::string short_name(const std::string& unit, int pixels) {
  const std::string last = unit.substr(unit.rfind('.') + 1);
  const auto letters = static_cast<std::size_t>(std::max(0, pixels / letter));
  return columns(last) <= letters ? last : "";
}

/// 1, 2 or 5 times a power of ten that cuts `length` into four to ten parts.
double tick_step(double length) {
  const double power = std::pow(10, std::floor(std::log10(length / 4)));
  for (const double factor : {5.0, 2.0})
    if (length / (factor * power) >= 4) return factor * power;
  return power;
}

class Picture {
 public:
  explicit Picture(const SimulationResult& result)
      : result_(result), rows_(timeline_rows(*result.schedule)), end_(std::max<std::int64_t>(1, result.timeline.end.picoseconds())) {}

  std::string text() && {
    const int bottom = top + row_height * static_cast<int>(rows_.size());
    time_axis(bottom + memory_height + 12);
    rows();
    bars();
    memory(bottom + 6);
    const int height = legend(bottom + memory_height + 44) + 8;
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
        "font-family=\"sans-serif\" "
        "font-size=\"12\">\n<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n{3}</svg>\n",
        width, height, markup(title()), body_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
    body_ += '\n';
  }

  [[nodiscard]] int x_of(SimTime time) const {
    return left + static_cast<int>(std::lround(static_cast<double>(time.picoseconds()) / static_cast<double>(end_) * plot));
  }

  [[nodiscard]] std::string title() const {
    const StepTime& step = result_.step;
    return fmt::format("{} on {} GPUs: {} a step, {} of it exposed communication", result_.schedule->strategy, grouped(result_.world_size),
                       to_text(step.time), to_text(step.exposed_communication));
  }

  void time_axis(int bottom) {
    line("<text x=\"8\" y=\"22\" font-size=\"14\" fill=\"{}\">{}</text>", ink, markup(title()));
    const double length = static_cast<double>(end_) * 1e-12, step = tick_step(length);
    for (int i = 0; i * step <= length; ++i) {
      const int x = x_of(SimTime::from(Seconds{i * step}));
      line("<path d=\"M{} {}V{}\" stroke=\"{}\"/>", x, top, bottom, grid_color);
      if (x < right - 24)
        line("<text x=\"{}\" y=\"{}\" fill=\"{}\" text-anchor=\"middle\">{}</text>", x, bottom + 14, soft,
             i == 0 ? "0" : to_text(Seconds{i * step}));
    }
  }

  void rows() {
    for (std::size_t i = 0; i < rows_.size(); ++i)
      line("<text x=\"{}\" y=\"{}\" fill=\"{}\" text-anchor=\"end\">{}</text>", left - 8, top + row_height * static_cast<int>(i) + 16, ink,
           markup(rows_[i]));
  }

  /// A colour at a time, so that the colour stands once.
  void bars() {
    const Schedule& schedule = *result_.schedule;
    std::string names;
    bool open = false;
    BarKind kind{};
    for (const TimelineBar& bar : timeline_bars(result_, SimTime{end_ * 2 / plot}, Merge::same_unit)) {
      if (!open || bar.kind != kind) {
        line("{}<g fill=\"{}\">", open ? "</g>\n" : "", style_of(bar.kind).color);
        open = true;
        kind = bar.kind;
        shown_.push_back(kind);
      }
      const int x = x_of(bar.begin), wide = std::max(1, x_of(bar.end) - x - 1);  // a pixel between neighbours
      const int y = top + row_height * static_cast<int>(bar.row) + (row_height - bar_height) / 2;
      line("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", x, y, wide, bar_height);
      if (!bar.op.valid() || bar.row == 0 || !schedule.at(bar.op).label.unit.valid()) continue;
      const std::string name = short_name(schedule.units[static_cast<std::size_t>(schedule.at(bar.op).label.unit.index)], wide);
      const bool dark = kind == BarKind::backward || kind == BarKind::recompute || kind == BarKind::optimizer;
      if (!name.empty())
        names += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>\n", x + wide / 2, y + 13, dark ? "#fff" : ink, markup(name));
    }
    if (open) line("</g>\n<g text-anchor=\"middle\" font-size=\"11\">\n{}</g>", names);
  }

  /// Allocated bytes by pixel: the most of each.
  [[nodiscard]] std::vector<Bytes> highest() const {
    std::vector<Bytes> most(static_cast<std::size_t>(plot) + 1);
    Bytes now = sum(result_.memory.before);
    int from = left;
    const auto fill = [&](int to) {
      for (int x = from; x <= to; ++x) most[static_cast<std::size_t>(x - left)] = std::max(most[static_cast<std::size_t>(x - left)], now);
      from = to;
    };
    visit_states(result_.memory, [&](SimTime time, OpId, const ByCategory& allocated) {
      fill(std::min(right, x_of(time)));
      now = sum(allocated);
    });
    fill(right);
    return most;
  }

  void memory(int y) {
    const Bytes peak = result_.memory.peak;
    if (result_.memory.timeline.times.empty() || peak <= Bytes{}) return;
    const int ground = y + memory_height;
    std::string path = fmt::format("M{} {}", left, ground);
    int before = ground, x = left;
    for (const Bytes allocated : highest()) {
      const double share = static_cast<double>(allocated.value()) / static_cast<double>(peak.value());
      const int now = ground - static_cast<int>(std::lround(share * (memory_height - 8)));
      if (now != before) path += fmt::format("H{}V{}", x, now);
      before = now;
      ++x;
    }
    line("<path d=\"{}H{}V{}Z\" fill=\"#56B4E9\" fill-opacity=\".35\" stroke=\"#0072B2\"/>", path, right, ground);
    line("<text x=\"{}\" y=\"{}\" fill=\"{}\" text-anchor=\"end\">allocated memory</text>", left - 8, y + memory_height / 2, ink);
    line("<text x=\"{}\" y=\"{}\" fill=\"{}\" text-anchor=\"end\">peak {}</text>", left - 8, y + memory_height / 2 + 16, soft,
         to_text(peak));
  }

  /// Of the kinds that occur; returns where it ends.
  int legend(int y) {
    int x = 8;
    for (const BarKind kind : shown_) {
      const BarStyle& style = style_of(kind);
      const int wide = 18 + letter * static_cast<int>(columns(style.label)) + 12;
      if (x + wide > width) {
        x = 8;
        y += legend_height;
      }
      line("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>", x, y - 10, style.color);
      line("<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>", x + 18, y, ink, style.label);
      x += wide;
    }
    return y;
  }

  const SimulationResult& result_;
  std::vector<std::string> rows_;
  std::int64_t end_;
  std::vector<BarKind> shown_;
  std::string body_;
};

}  // namespace

std::string timeline_svg(const SimulationResult& result) { return Picture(result).text(); }

}  // namespace shardsim
