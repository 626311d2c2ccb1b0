// SPDX-License-Identifier: Apache-2.0
#include "reports/fit_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/text.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

std::string signed_share(double value) { return fmt::format("{:+.1f} %", 100 * value); }

std::string runs_text(const RunFit& fit) {
  TextGrid grid;
  grid.header = {"Run", "measured", "before", "after", "left out"};
  grid.right = {false, true, true, true, true};
  for (const FittedRun& run : fit.runs)
    grid.rows.push_back({run.run.scenario, to_text(run.measured), signed_share(run.before / run.measured - 1),
                         signed_share(run.after / run.measured - 1), run.left_out ? signed_share(*run.left_out) : "-"});
  std::string out = grid.text();
  if (fit.runs.size() == 1) out += "(left out: needs a second run)\n";
  for (const FittedRun& run : fit.runs)
    if (run.run.peak && run.predicted_peak)
      out += fmt::format("{}: peak memory {} measured, {} predicted; memory is not fitted\n", run.run.scenario, to_text(*run.run.peak),
                         to_text(*run.predicted_peak));
  return out;
}

std::string prices_text(const RunFit& fit) {
  std::string out = "\nMoved (time of what it prices)\n", kept, joined;
  for (const FittedPrice& price : fit.prices) {
    if (!price.told) {
      kept += fmt::format("{}{}", kept.empty() ? "" : ", ", price.name);
      continue;
    }
    out += fmt::format("  {:<22}{:>9}  +- {:.1f} %\n", price.name, signed_share(price.factor - 1), 100 * price.deviation);
    for (const MovedKey& key : price.keys) out += fmt::format("    {} {} -> {}\n", key.key, key.from, key.to);
    if (!price.apart) joined += fmt::format("{}{}", joined.empty() ? "" : ", ", price.name);
  }
  if (!joined.empty()) out += "  " + wrapped("not told apart from their family by these runs: " + joined, 4, 2) + "\n";
  if (!kept.empty()) out += "Kept: " + wrapped(kept + " (these runs do not depend on them enough to tell)", 2, 6) + "\n";
  return out;
}

}  // namespace

std::string fit_table(const RunFit& fit) { return runs_text(fit) + prices_text(fit); }

}  // namespace shardsim
