// SPDX-License-Identifier: Apache-2.0
// How a model is trained: the `training:` block of a scenario as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/base/dtype.hpp"
#include "sim/base/software.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim {

/// Dtypes of one training job. `reduce` empty: the library's default. `master` empty: no copy of its own.
struct Precision {
  DType parameters = DType::bf16;  ///< held and gathered for compute
  DType compute = DType::bf16;     ///< matrix products and activations
  DType gradients = DType::bf16;   ///< the unsharded gradient
  std::optional<DType> reduce;     ///< on the wire of reductions
  std::optional<DType> master = DType::fp32;
  DType moments = DType::fp32;  ///< bf16 under pure-bf16
  std::string name = "mixed";   ///< as the user wrote it: mixed, autocast, pure-bf16, fp32, or custom
  bool fp8_products = false;    ///< products of linear modules in fp8, all else in `compute` (written as compute: fp8)
  bool operator==(const Precision&) const = default;
};

enum class Checkpointing : std::uint8_t {
  none,
  core_attention,  ///< only scores, softmax and context are recomputed (Megatron's selective)
  selective_ops,   ///< attention outputs and every second matrix product are kept (torchtitan's selective op policy)
  full,            ///< only each layer's input is kept
};

struct ActivationCheckpointing {
  Checkpointing kind = Checkpointing::none;
  std::int32_t every = 1;  ///< full on every k-th layer, none on the others
  /// torch.utils.checkpoint's: the layer runs without a graph in forward and again, hooks and all, in backward (transformers' default).
  bool use_reentrant = false;
  /// checkpoint(unit): recomputation calls the wrapped module, as transformers before 4.53 had it; else the unit wraps checkpoint(block).
  bool around_unit = false;
  bool operator==(const ActivationCheckpointing&) const = default;
};

enum class AttentionKind : std::uint8_t { flash, plain };

struct Loss {
  /// fused_linear: the head's product and the loss are one operator that never holds more than a chunk of logits (Liger).
  enum class Kind : std::uint8_t { cross_entropy, fused, chunked, fused_linear } kind = Kind::cross_entropy;
  std::int32_t chunks = 1;  ///< of `chunked`
  [[nodiscard]] bool fuses_head() const { return kind == Kind::fused_linear; }
  bool operator==(const Loss&) const = default;
};

struct Optimizer {
  enum class Implementation : std::uint8_t { foreach, fused, for_loop };
  OptimizerKind kind = OptimizerKind::adamw;
  Implementation implementation = Implementation::foreach;
  bool split_weight_decay = false;  ///< weight_decay_groups: split (matrices with decay; biases and norms without)
  std::optional<double> clip_grad_norm;
  bool set_to_none = true;  ///< zero_grad
  std::string variant;      ///< of muon: which distributed implementation
  bool operator==(const Optimizer&) const = default;
};

/// How long the loop holds the model's logits.
enum class LogitsLife : std::uint8_t {
  dropped,   ///< until the loss is there: `del pred` (torchtitan), a compute_loss that returns the loss alone (transformers' Trainer)
  held,      ///< to the end of backward: a loop that keeps the model's output in a variable
  replaced,  ///< as held, but an fp32 copy takes their name: logits = logits.float()
};

enum class OffloadTarget : std::uint8_t { none, cpu, nvme };
struct Offload {
  OffloadTarget parameters = OffloadTarget::none;
  OffloadTarget optimizer = OffloadTarget::none;
  bool operator==(const Offload&) const = default;
};

/// PYTORCH_CUDA_ALLOC_CONF: how the caching allocator reserves memory.
struct Allocator {
  bool expandable_segments = false;
  std::optional<Bytes> max_split_size;
  bool operator==(const Allocator&) const = default;
};

struct Training {
  std::int64_t sequence_length = 2048;
  std::int64_t micro_batch_size = 1;  ///< sequences per rank
  std::int32_t gradient_accumulation_steps = 1;
  Precision precision;
  ActivationCheckpointing checkpointing;
  AttentionKind attention = AttentionKind::flash;
  double dropout = 0;
  Loss loss;
  LogitsLife logits = LogitsLife::dropped;
  bool loss_in_model = false;  ///< the wrapped module's own forward computes it (transformers), not the training loop (torchtitan)
  Optimizer optimizer;
  Offload offload;
  Allocator allocator;
  bool compile = false;
  bool warm = true;
  FusedKernels fused{};  ///< by the stack

  [[nodiscard]] Tokens tokens_per_micro_batch() const { return Tokens{sequence_length * micro_batch_size}; }
  bool operator==(const Training&) const = default;
};

}  // namespace shardsim
