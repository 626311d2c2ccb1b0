// SPDX-License-Identifier: Apache-2.0
// One rank that runs its Schedule for real: every op in host order, each to its end before the next begins. Host order is one of the
// orders that streams and waits allow, so values are those of any legal run; only the time differs.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "calibrate/execute/backends/backend.hpp"
#include "calibrate/execute/store.hpp"
#include "calibrate/execute/training/trainer.hpp"
#include "calibrate/execute/training/workspace.hpp"

namespace shardsim::execute {

/// Shapes of the model's parameters as layouts see them.
[[nodiscard]] std::vector<ParameterShape> shapes_of(const Model& model);

/// What a machine meets the rest of the world through. All outlive it.
struct MachineParts {
  const Model& model;
  const Training& training;
  BatchShares shares;
  Backend& backend;
};

/// Gradients as the optimizer reads them, compared with what they should be: relative to the largest element of each parameter.
struct GradientCheck {
  const std::vector<std::vector<std::vector<float>>>* expected = nullptr;  ///< by step, parameter, element; null: no comparison
  double largest_difference = 0;
};

class RankExecutor final : private Workspace {
 public:
  /// Allocates what is alive before the step and gives parameters their start values.
  RankExecutor(const Schedule& schedule, const MachineParts& parts);

  /// Runs the schedule once, to its end. Returns the mean loss of each micro-batch.
  [[nodiscard]] std::vector<double> step(GradientCheck& check);

  [[nodiscard]] const MemoryCount& memory() const { return store_.count(); }
  /// Of every parameter that was computed with, in order: equal on all ranks if all computed with the same bits.
  [[nodiscard]] std::uint64_t parameters_digest() const { return digest_; }

 private:
  void run(const Op& op, const Compute& action);
  void run(const Communicate& action);
  void run(const Copy& action);
  void run(const Update& action, GradientCheck& check);
  void allocate(BufferId buffer);
  void release(BufferId buffer);
  void begin_micro_batch(std::int32_t micro_batch);
  void fill_start_values();
  void compare(const Update& action, const std::vector<Overlap>& elements, GradientCheck& check);

  [[nodiscard]] Numbers read(BufferId buffer, std::int64_t begin, std::int64_t count);
  void write(BufferId buffer, std::int64_t begin, const Numbers& values);
  [[nodiscard]] std::vector<Overlap> updated(const Update& action);
  [[nodiscard]] Numbers elements_in(BufferId buffer, const Overlap& wanted);
  void put_elements(BufferId buffer, const Overlap& wanted, const Numbers& values);
  [[nodiscard]] const std::vector<Overlap>& shared(BufferId source, BufferId target);
  [[nodiscard]] std::span<std::byte> payload(BufferId buffer, const Communicate& action);
  [[nodiscard]] std::span<std::byte> own_shard(BufferId buffer, const Communicate& action, const Members& members);

  // Workspace
  Numbers parameter(ParameterId parameter) override;
  void add_gradient(ParameterId parameter, const Numbers& values) override;
  bool holds(TensorRef tensor) override;
  Numbers load(TensorRef tensor) override;
  void store(TensorRef tensor, const Numbers& values) override;
  [[nodiscard]] BufferId buffer_of(TensorRef tensor) const;

  const Schedule& schedule_;
  MachineParts parts_;
  Math& math_;  // of the backend
  BufferStore store_;
  Trainer trainer_;
  std::vector<Members> members_;                             // by communicator
  std::map<std::array<std::int32_t, 3>, BufferId> tensors_;  // live tensors
  std::map<std::pair<LayoutId, LayoutId>, std::vector<Overlap>> overlaps_;
  std::uint64_t digest_ = 0xcbf29ce484222325u;  // FNV-1a, a word at a time
  std::int64_t steps_ = 0;
  std::int32_t micro_batch_ = -1;
};

}  // namespace shardsim::execute
