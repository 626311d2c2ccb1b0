// SPDX-License-Identifier: Apache-2.0
// Padding and shards: every library's own rule, once.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "models/model.hpp"
#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {

/// Sum of the parameters' elements, unpadded.
[[nodiscard]] Elements total_elements(const Model& model, std::span<const ParameterId> parameters);

/// Rows of dimension 0 that each of n ranks stores: ceil(d0 / n) (torch.chunk; FSDP2 pads storage to it). A scalar has one row.
[[nodiscard]] std::int64_t rows_per_rank(const Parameter& parameter, std::int64_t n);
/// FSDP2: ceil(d0 / n) * n * (elements / d0). Source: _fsdp_param.py, _get_dim0_padded_size.
[[nodiscard]] Elements rows_padded(const Parameter& parameter, std::int64_t n);
/// FSDP2: elements of the chunk that rank `part` really owns, without padding; later ranks own fewer, down to none.
[[nodiscard]] Elements rows_owned(const Parameter& parameter, std::int64_t n, std::int64_t part);
/// DeepSpeed ZeRO-3: ceil(elements / n) * n for each parameter. Source: partition_parameters.py.
[[nodiscard]] Elements each_padded(const Parameter& parameter, std::int64_t n);

/// Where each parameter starts in a flat buffer, and how long the buffer is.
struct FlatLayout {
  std::vector<std::int64_t> starts;
  Elements elements;
};
/// Parameters one after another, each start a multiple of `align`, the whole padded to a multiple of `multiple`.
/// FSDP1 (_flat_param.py), DeepSpeed ZeRO-1/2 (flatten_dense_tensors_aligned) and Megatron (param_and_grad_buffer.py) differ in the two
/// numbers only.
[[nodiscard]] FlatLayout flat_layout(const Model& model, std::span<const ParameterId> parameters, std::int64_t align,
                                     std::int64_t multiple);

/// All trainable (or all frozen) parameters, in registration order.
[[nodiscard]] std::vector<ParameterId> parameters_where(const Model& model, bool trainable);
[[nodiscard]] std::vector<ParameterId> all_parameters(const Model& model);

/// The dtype of what trains where it is not the model's: of adapters, which are all that trains beside a frozen model.
[[nodiscard]] std::optional<DType> own_dtype_of_trained(const Model& model);

}  // namespace shardsim
