// SPDX-License-Identifier: Apache-2.0
// Predictions next to published measurements: errors, a baseline, scaling, order of strategies, memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/json_value.hpp"
#include "studies/validate/measurements.hpp"

namespace shardsim {

/// Sizes of errors, each a share: predicted / measured - 1 of tokens per second.
struct Errors {
  std::size_t rows = 0;
  double median = 0, mean = 0, p90 = 0;  ///< of |error|
  double bias = 0;                       ///< median of the signed error
};
[[nodiscard]] Errors errors_of(std::span<const double> signed_errors);

struct ValidatedRow {
  const MeasurementSource* source = nullptr;
  const Measurement* row = nullptr;
  std::string problem;  ///< why the scenario could not be simulated; then nothing below is filled
  std::string gpu, stack, strategy, library, checkpointing, bound_by;
  bool compiled = false;
  std::int64_t world_size = 1, nodes = 1;
  std::int64_t parameters = 0;
  double tokens_per_second_per_gpu = 0;  ///< predicted
  double share_of_peak = 0;              ///< FLOPs of the model at the predicted rate, as a share of the GPU's peak
  Bytes allocated, reserved;
  bool fits = true;
  std::optional<double> measured;  ///< tokens per second and GPU
  double error = 0;
  double baseline_error = 0;            ///< of the same share of the peak for every job on this GPU
  std::optional<bool> next_batch_fits;  ///< where the largest micro-batch is known: one more of it

  [[nodiscard]] bool timed(RowUse use) const { return measured && row->use == use && problem.empty(); }
};

/// Held-out rows of one source, GPU, stack or strategy.
struct ErrorGroup {
  std::string name;
  Errors model, baseline;
  std::size_t fit_rows = 0;
};

/// One configuration on several numbers of nodes: throughput of a GPU lost from the fewest to the most.
struct ScalingLoss {
  std::string source, what;
  std::int64_t from = 0, to = 0;  ///< GPUs
  double measured = 0, predicted = 0;
  bool stated = true;
};

/// Two strategies that ran the same job.
struct OrderedPair {
  std::string source, faster, slower;  ///< "zero3 (DSC-001)", as measured
  double measured = 0, predicted = 0;  ///< throughput of the faster / of the slower - 1
  bool stated = true;
  [[nodiscard]] bool right() const { return predicted > 0; }
};

struct MemoryError {
  const ValidatedRow* row = nullptr;
  std::string counter;  ///< allocated, reserved
  Bytes measured, predicted;
  [[nodiscard]] double error() const { return static_cast<double>(predicted.value()) / static_cast<double>(measured.value()) - 1; }
};

struct Verdict {
  const ValidatedRow* row = nullptr;
  std::int64_t micro_batch = 0;  ///< 0: the row's own
  bool fitted = true, predicted = true;
};

/// Constants refitted without one source, and what they then say of it.
struct LeftOut {
  std::string source;
  Errors shipped, refitted;
};

struct ValidationReport {
  std::shared_ptr<const std::vector<MeasurementSource>> sources;
  std::vector<ValidatedRow> rows;
  Errors fit, held_out, known_software, new_software, unstated;
  Errors baseline;  ///< of the rows held out
  std::vector<ErrorGroup> by_source, by_gpu, by_stack, by_strategy;
  std::vector<ScalingLoss> scaling;
  std::vector<OrderedPair> order;
  std::vector<MemoryError> memory;
  std::vector<Verdict> verdicts;
  std::vector<LeftOut> left_out;  ///< where asked for
};

/// Simulates every row, on all cores.
[[nodiscard]] ValidationReport validate(std::vector<MeasurementSource> sources);

/// Errors of memory rows of one counter; compiled jobs apart, whose fused kernels are not modelled one by one.
[[nodiscard]] Errors memory_errors(const ValidationReport& report, std::string_view counter, bool compiled);

/// The figures that must not get worse, smaller is better: "held_out.median" ... as shares, "verdicts.wrong" and "order.wrong" as counts.
struct Figure {
  std::string name;
  double value = 0;
};
[[nodiscard]] std::vector<Figure> figures_of(const ValidationReport& report);

/// Lines for figures that are worse than recorded (JSON of names and values), by more than rounding; unknown names are an InputError.
[[nodiscard]] std::vector<std::string> worse_than_recorded(const std::vector<Figure>& figures, const ConfigNode& recorded);

[[nodiscard]] Json validation_json(const ValidationReport& report);
[[nodiscard]] std::string validation_csv(const ValidationReport& report);

}  // namespace shardsim
