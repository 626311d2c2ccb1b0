// SPDX-License-Identifier: Apache-2.0
#include "models/trainable.hpp"

#include <algorithm>
#include <utility>

namespace shardsim {
namespace {

bool is_adapter(const Parameter& p) { return p.name.find(".lora_") != std::string::npos; }

void check_targets(const Trainable& trainable, const std::vector<Parameter>& parameters, Problems& problems) {
  if (trainable.targets.empty()) problems.add({}, "lora needs targets: names of linear modules, such as q_proj and v_proj");
  for (const std::string& target : trainable.targets) {
    const std::string adapter = target + ".lora_A.default.weight";
    const bool used = std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& p) {
      return p.name.ends_with(adapter) && (p.name.size() == adapter.size() || p.name[p.name.size() - adapter.size() - 1] == '.');
    });
    if (!used) problems.add({}, "no linear module of the model is named '" + target + "'");
  }
}

Tables with_adapters(const Architecture& architecture, const Trainable& trainable, const Adaptation& adaptation, Problems& problems) {
  Tables tables = tabulate(architecture, &adaptation);
  std::vector<Parameter> parameters = *tables.parameters;
  check_targets(trainable, parameters, problems);
  for (Parameter& p : parameters) {
    p.trainable = is_adapter(p);
    if (p.trainable) p.dtype = adaptation.dtype;
  }
  tables.parameters = std::make_shared<const std::vector<Parameter>>(std::move(parameters));
  return tables;
}

Tables by_pattern(const Architecture& architecture, const std::vector<std::string>& patterns, Problems& problems) {
  Tables tables = architecture.tables;
  std::vector<Parameter> parameters = *tables.parameters;
  if (patterns.empty()) problems.add({}, "no parameter trains: trainable lists no pattern");
  std::vector<bool> used(patterns.size());
  for (Parameter& p : parameters) {
    bool matched = false;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (!glob_matches(patterns[i], p.name)) continue;
      matched = used[i] = true;
    }
    p.trainable = p.trainable && matched;
  }
  for (std::size_t i = 0; i < patterns.size(); ++i)
    if (!used[i]) problems.add({}, "no parameter matches '" + patterns[i] + "'", {"the first parameter is " + parameters.front().name});
  tables.parameters = std::make_shared<const std::vector<Parameter>>(std::move(parameters));
  return tables;
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view name) {
  // Iterative: remembers the last star and gives it one more character on a mismatch, so that hostile patterns stay linear-ish.
  std::size_t p = 0, n = 0, star = std::string_view::npos, after_star = 0;
  while (n < name.size()) {
    const std::size_t set_end = p < pattern.size() && pattern[p] == '[' ? pattern.find(']', p + 2) : std::string_view::npos;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = n;
    } else if (set_end != std::string_view::npos && pattern.substr(p + 1, set_end - p - 1).find(name[n]) != std::string_view::npos) {
      p = set_end + 1;
      ++n;
    } else if (p < pattern.size() && set_end == std::string_view::npos && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Tables tables_for(const Architecture& architecture, const Trainable& trainable, const Adaptation& adaptation, Problems& problems) {
  if (adaptation.rank > 0) return with_adapters(architecture, trainable, adaptation, problems);
  if (!trainable.all || !trainable.patterns.empty()) return by_pattern(architecture, trainable.patterns, problems);
  return architecture.tables;
}

}  // namespace shardsim
