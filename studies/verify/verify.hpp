// SPDX-License-Identifier: Apache-2.0
// A prediction held against a real run: what differs, and the few changes of the scenario that explain most of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"
#include "sim/engine/result.hpp"
#include "studies/verify/run_record.hpp"

namespace shardsim {

struct TrafficDifference {
  CollectiveShape shape;
  std::int64_t predicted = 0, measured = 0;                  ///< calls in a step
  std::optional<Seconds> predicted_time{}, measured_time{};  ///< of one call, mean
};

struct Cause {
  std::string text;                      ///< "gradients are reduced in fp32"
  std::vector<std::string> assignments;  ///< as for --set: with them the prediction comes nearer; empty where no key says it
  double explains = 0;                   ///< share of the difference that goes with it
};

struct Verification {
  std::string scenario, library;
  std::vector<TrafficDifference> traffic;  ///< every shape of either, largest first
  bool same_traffic = true, same_order = true;
  std::optional<std::size_t> first_out_of_order;  ///< position in the order of issue
  Bytes predicted_peak, predicted_reserved;
  std::optional<Bytes> measured_peak, measured_reserved;
  Seconds predicted_step, predicted_communication;
  std::optional<Seconds> measured_step, measured_communication;
  std::vector<Cause> causes;  ///< the first explains most

  /// Bytes are what a prediction promises; times and memory are reported.
  [[nodiscard]] bool agrees() const { return same_traffic; }
};

/// Throws InputError if the run has another number of ranks than the scenario, or no collectives where the scenario has some.
[[nodiscard]] Verification verify(const Scenario& scenario, const RunRecord& run);

}  // namespace shardsim
