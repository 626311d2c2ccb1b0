// SPDX-License-Identifier: Apache-2.0
// Published measurements as data (scenarios/validation): one file a source, each row a scenario and what was measured of it.
//
//   source: LFA                            # short name; ids of rows begin with it
//   title: "...", where: "...", date: ..., software: llm-foundry, error_bar: 0.5 %, inferred: "what the source does not print"
//   fit: {every: 3}                        # the first, fourth, seventh ... row may be fitted to, the others are held out; or none
//   scenario: {training: {...}}            # what all rows share
//   parts:                                 # what a row adds by name in its column `with`; null takes a key away
//     mpt-7b: {model: {...}}
//     h100: {cluster: {...}, unstated: "the network: 8 x 400 Gbit/s assumed"}
//   columns: [id, with, cluster.nodes, [training.sequence_length, model.hf_config.max_seq_len], tokens_per_second_per_gpu]
//   rows:
//     - [LFA-010, [mpt-7b, h100], 64, 2048, 9670]
//
// A column is a dotted key of the scenario (or a list of them, set alike), `id`, `with`, or a measurement: tokens_per_second_per_gpu,
// step_time, allocated, reserved, fits, largest_micro_batch; `parameters` is the published count. A row with something `unstated` counts in
// no error: only ratios within its source say something.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/config/node.hpp"

namespace shardsim {

/// What a row's throughput is for.
enum class RowUse : std::uint8_t { fit, held_out, unstated, memory_only };
[[nodiscard]] std::string_view name_of(RowUse use);

struct Measurement {
  std::string id;
  RowUse use = RowUse::memory_only;
  std::string unstated;  ///< what the source leaves open, and what is assumed for it
  std::string software;
  ConfigNode scenario;
  std::optional<double> tokens_per_second_per_gpu;
  std::optional<Seconds> step_time;
  std::optional<Bytes> allocated, reserved;
  std::optional<bool> fits;  ///< said by the source; a row with a throughput did fit
  std::optional<std::int64_t> largest_micro_batch;
  std::optional<std::int64_t> parameters;
};

struct MeasurementSource {
  std::string file, name, title, where, date, inferred;
  std::string unexplained;     ///< what is known of errors that stay
  double error_bar = 0;        ///< of a published number, as a share
  std::int64_t fit_every = 0;  ///< 0: nothing is fitted to this source
  std::vector<Measurement> rows;
};

/// Problems: unknown keys, parts and columns, a row with too few or too many cells, an id twice.
[[nodiscard]] Result<MeasurementSource> read_measurements(const ConfigNode& root);

/// All files of a folder, in order of their names.
[[nodiscard]] Result<std::vector<MeasurementSource>> load_measurements(const std::string& folder);

}  // namespace shardsim
