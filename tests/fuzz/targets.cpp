// SPDX-License-Identifier: Apache-2.0
#include "targets.hpp"

#include <cstdlib>
#include <string>

#include "scenarios/reader/scenario.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

/// Problems must be there to be told, and in a form that a terminal can show.
void require_told(const Problems& problems) {
  const std::string text = problems.text();
  if (problems.empty() || text.empty() || text.back() != '\n') std::abort();
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') std::abort();
}

template <class Q>
void require_value_or_error(const Parsed<Q>& parsed) {
  if (parsed.value.has_value() == !parsed.error.empty()) std::abort();
  if (parsed.value && to_text(*parsed.value).empty()) std::abort();
}

}  // namespace

void fuzz_scenario(std::string_view text) {
  const auto root = read_yaml({"fuzz.yaml", std::string(text)});
  if (!root) return require_told(root.error());
  const auto scenario = read_scenario(*root, "fuzz.yaml", shipped_folder());
  if (!scenario) require_told(scenario.error());
}

void fuzz_config(std::string_view text) {
  const auto root = read_json({"config.json", std::string(text)});
  if (!root) return require_told(root.error());
  const auto architecture = read_hf_config(*root);
  if (!architecture) return require_told(architecture.error());
  Training training;
  training.sequence_length = 16;
  const auto model = build_model(*architecture, training);
  if (!model) require_told(model.error());
}

void fuzz_units(std::string_view text) {
  require_value_or_error(parse_bytes(text));
  require_value_or_error(parse_byte_rate(text));
  require_value_or_error(parse_flop_rate(text));
  require_value_or_error(parse_seconds(text));
}

}  // namespace shardsim
