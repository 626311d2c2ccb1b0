// SPDX-License-Identifier: Apache-2.0
// The optimizer of one rank: its states, what a step reads and writes, and what it needs meanwhile. Shared by all strategies.
#pragma once

#include <optional>
#include <vector>

#include "strategies/hooks.hpp"

namespace shardsim {

/// What the optimizer updates on this rank, as one list of tensors: a buffer of parameters (the master copy where there is one), and how
/// much of it. The gradients are named when the step runs.
struct OptimizerTarget {
  Label label{};
  std::vector<ParameterId> parameters{};  ///< whose elements (or parts) it holds; none: one flat tensor
  BufferId weights{};                     ///< what the update writes: master copy, or the stored parameters
  LayoutId layout{};                      ///< of the states
  Elements count{};                       ///< elements of the weights that are updated; the states have as many
  DType dtype = DType::fp32;              ///< of the weights
};

/// Bytes of optimizer states for one element beyond the master copy: Adam 8, momentum 4 (fp32 moments), half of it under pure-bf16.
[[nodiscard]] double state_bytes_per_element(const Training& training);

/// Number of full-size moment buffers: 0 (sgd), 1 (momentum, lion, muon) or 2 (adam, adamw, 8-bit). Beside muon, AdamW keeps a second
/// moment of what muon does not update.
[[nodiscard]] int moment_count(OptimizerKind kind);

class OptimizerStep {
 public:
  explicit OptimizerStep(Program& program);

  /// Declares the moments of a target. Warm: they are there from the start; else the first step makes them.
  /// Source: torch/optim/adamw.py, _init_group (lazy state).
  void add(OptimizerTarget target);

  /// The gradients of target i are in these buffers (their layouts say which parts). One update for each buffer.
  struct Gradients {
    std::vector<BufferId> buffers;
    std::vector<Elements> counts;
  };
  /// Emits the updates of all targets, with the temporaries of the implementation: foreach keeps one list in the moments' dtype for
  /// sqrt(v) over everything it updates at once; fused none; the plain loop two tensors of the largest size.
  void emit(const std::vector<Gradients>& gradients);
  /// The same for one target alone: optimizers that step group by group, or sub-group by sub-group.
  void emit_target(std::size_t target, const Gradients& gradients);

  /// The foreach temporaries cover at most so many elements at once (OLMo-core steps in chunks).
  void step_in_chunks_of(Elements most) { chunk_ = most; }

  /// torch's GradScaler, where the job computes in fp16: gradients are unscaled in place and searched for inf and nan; the flag is
  /// all-reduced over `communicator` (none: nothing is sharded), and the host reads it before it steps. Source: torch/amp/grad_scaler.py,
  /// torch/distributed/fsdp/sharded_grad_scaler.py.
  void unscale(const std::vector<Gradients>& gradients, CommunicatorId communicator, DType gradient_dtype);

  /// clip_grad_norm_: norms of the local gradients, one scalar all-reduce over `communicator` (none: nothing is sharded), scaling in
  /// place. Nothing if the job does not clip. `norms`: how many the all-reduce carries: DTensors reduce one for each parameter tensor.
  void clip(const std::vector<Gradients>& gradients, CommunicatorId communicator, StreamId stream, DType gradient_dtype, bool host_sync,
            Elements norms = Elements{1});

  /// On the host one kernel does the whole update, as DeepSpeedCPUAdam (csrc/adam/cpu_adam_impl.cpp) does: 28 bytes an element for fp32.
  /// torch's own optimizers go operation by operation there unless they are asked to be fused: foreach is for the GPU
  /// (torch/optim/optimizer.py).
  void has_cpu_kernel() { cpu_kernel_ = true; }

  /// Muon: the updates come orthogonalised (dion's tasks, emitted before); without it the step orthogonalises all that its targets hold.
  void updates_are_orthogonal() { newton_schulz_ = false; }

  [[nodiscard]] const std::vector<OptimizerTarget>& targets() const { return targets_; }

 private:
  struct Moments {
    BufferId first, second;
  };
  [[nodiscard]] bool orthogonalizes(ParameterId parameter) const;
  [[nodiscard]] Elements element_wise(const OptimizerTarget& target) const;
  [[nodiscard]] Elements temporary_elements(std::size_t first, std::size_t last) const;
  [[nodiscard]] Bytes temporary_bytes(std::size_t first, std::size_t last) const;
  [[nodiscard]] BufferId allocate_temporaries(std::size_t first, std::size_t last);
  void update(std::size_t target, const Gradients& gradients);
  void create_states();

  [[nodiscard]] DType moments_dtype() const;

  Program& program_;
  std::optional<DType> own_dtype_;  // of adapters
  std::vector<OptimizerTarget> targets_;
  std::vector<Moments> moments_;
  std::vector<bool> orthogonal_;  // by parameter: muon's matrices; of other optimizers none
  bool newton_schulz_ = true;
  bool cpu_kernel_ = false;
  Elements chunk_;  // none: everything at once
  bool created_ = false;
};

/// Frees the gradients (zero_grad with set_to_none) or fills them with zeros.
void zero_grad(Program& program, const std::vector<BufferId>& gradients);

}  // namespace shardsim
