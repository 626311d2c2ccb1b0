// SPDX-License-Identifier: Apache-2.0
// Logs of nccl-tests and rccl-tests: every column layout from 2.8 to 2.19, text and JSON, with the labels that mpirun, srun and
// Kubernetes put before (and into) lines.
//
// Only sizes and times are believed. Bandwidths are recomputed, and a row whose printed bandwidths differ is reported.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/collective.hpp"
#include "sim/base/problem.hpp"
#include "sim/base/units.hpp"

namespace shardsim {

/// One side (out of place or in place) of a row. Bandwidths in GB/s = 1e9 bytes per second, as printed.
struct NcclTestsTiming {
  std::optional<Seconds> time;
  std::optional<double> algbw, busbw;
};

struct NcclTestsRow {
  int line = 0;
  std::int64_t leading = 0;  ///< a number before the size, where the log has one (a node count); else 0
  Bytes size;                ///< the full buffer
  std::int64_t count = 0;    ///< elements: of the buffer, but per rank for all-gather and reduce-scatter
  std::string type;          ///< "float", "bfloat16"
  std::string reduction;     ///< "sum", "none", or empty
  NcclTestsTiming out_of_place, in_place;
};

struct NcclTestsTable {
  std::string test;  ///< "all_reduce_perf" where the log says so
  std::optional<Collective> collective;
  std::int64_t ranks = 0;
  std::int64_t nodes = 0;
  std::string gpu;                    ///< "NVIDIA H200"
  std::string nccl_version;           ///< "2.29.7" where stated
  std::string algorithm = "unknown";  ///< ring, tree ... where NCCL_ALGO or NCCL's tuning log says so
  std::string protocol;
  std::string network;                   ///< that NCCL's lines name where nothing says on how many nodes the ranks are
  bool one_device = false;               ///< several ranks share one GPU
  bool consistent = true;                ///< printed bandwidths follow from size, time and ranks
  std::vector<std::string> assumptions;  ///< what was not stated and how it was filled in
  std::vector<NcclTestsRow> rows;
};

struct Warning {
  Where where;
  std::string message;
};

/// `FILE:LINE: message`.
[[nodiscard]] std::string to_text(const Warning& warning);

struct NcclTestsLog {
  std::vector<NcclTestsTable> tables;  ///< with at least one row each
  std::vector<Warning> warnings;       ///< cut rows, inconsistent bandwidths, tables left out

  void warn(const std::shared_ptr<const Source>& source, int line, std::string message);
};

/// What the user says about a log that does not say it itself.
struct NcclTestsFacts {
  std::optional<Collective> collective;
  std::int64_t ranks = 0;
  std::int64_t nodes = 0;
};

/// A file without a usable row, and the output of another tool, are problems.
[[nodiscard]] Result<NcclTestsLog> read_nccl_tests(const Source& source, const NcclTestsFacts& facts = {});

/// Rows with the time of a collective on at least two ranks: what a fit may use.
[[nodiscard]] bool usable(const NcclTestsTable& table, const NcclTestsRow& row);
[[nodiscard]] std::optional<Seconds> time_of(const NcclTestsRow& row);

}  // namespace shardsim
