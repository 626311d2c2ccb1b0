// SPDX-License-Identifier: Apache-2.0
// A sweep file: a base scenario and the keys that vary, as a numbered list of scenarios that is never held in memory as a whole.
//
//   base: llama3-8b.yaml                      # relative to the sweep's folder
//   set:                                      # optional: overrides of the base for all rows
//     training.sequence_length: 4096
//   grid:                                     # every combination; the last key varies fastest
//     strategy.name: [ddp, zero3, fsdp2]
//     training.micro_batch_size: [1, 2, 4]
//   list:                                     # optional: rows of keys that change together, combined with the grid
//     - {cluster.nodes: 1, cluster.gpus_per_node: 4}
//     - {cluster.nodes: 8, cluster.gpus_per_node: 8}
//   columns: [step.time_s, memory.fits]       # optional: which figures of `simulate` a row holds; all of them if left out
//   allocator: false                          # optional: reserved memory by the simple rule of one pool a stream, ten times as fast
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/config/node.hpp"

namespace shardsim {

/// Keys that change together, and their values: one row a step.
struct SweepAxis {
  std::vector<std::string> keys;
  std::vector<std::vector<ConfigNode>> rows;  ///< one value for each key
};

struct SweepPlan {
  std::string file;
  std::string base_file, base_folder;
  std::vector<std::string> inputs;   ///< all files that the rows are made from: the sweep, its base and what these name
  ConfigNode base;                   ///< the base scenario's tree with `set` applied
  std::vector<SweepAxis> axes;       ///< the last varies fastest
  std::vector<std::string> columns;  ///< dotted paths into the JSON of `simulate`
  bool allocator = true;             ///< reserved memory by the allocator's model
  bool says_which_rule = false;      ///< the user chose the simple rule: rows say so
  std::uint64_t size = 1;            ///< number of scenarios

  [[nodiscard]] std::vector<std::string> keys() const;
  /// Values of row `index`, in the order of keys().
  [[nodiscard]] std::vector<const ConfigNode*> values(std::uint64_t index) const;
  /// The scenario's tree of row `index`.
  [[nodiscard]] ConfigNode scenario(std::uint64_t index) const;
  /// The row to simulate at `position`: one order of all rows, in which neighbours have as much in common as the axes allow.
  [[nodiscard]] std::uint64_t row_at(std::uint64_t position) const;
};

/// `columns` are those there are. Problems: unknown keys and columns, no axis, a key that varies twice, more than 2^32 rows.
[[nodiscard]] Result<SweepPlan> load_sweep(const std::string& path, const std::vector<std::string>& columns);

/// A value as one word of a table: scalars as written, maps and lists in YAML's flow style.
[[nodiscard]] std::string flow_text(const ConfigNode& node);

/// A number that changes with whatever the rows depend on: the plan, the content of every file that it reads, and the program. Rows of one
/// may not be mixed with rows of another.
[[nodiscard]] std::uint64_t fingerprint(const SweepPlan& plan);

}  // namespace shardsim
