// SPDX-License-Identifier: Apache-2.0
// Architectures beyond a config.json: of a size alone, with quantised weights; and facts of one.
#pragma once

#include "models/families/hf_config.hpp"

namespace shardsim {

/// A decoder of about this many parameters, by the usual shape of its size, which its first warning states.
[[nodiscard]] Result<std::shared_ptr<const Architecture>> model_of_size(double parameters);
/// The same model with the linear weights of its blocks stored as `how` says: nf4, nf4-double, int8, int4-g128, fp8.
[[nodiscard]] Result<std::shared_ptr<const Architecture>> quantised(const std::shared_ptr<const Architecture>& architecture,
                                                                    const std::string& how);
/// Width of the residual stream of its (last) blocks; 0 if it has none.
[[nodiscard]] std::int64_t hidden_size(const Architecture& architecture);
/// The longest sequence that its learned positions hold; 0: any.
[[nodiscard]] std::int64_t longest_sequence(const Architecture& architecture);

}  // namespace shardsim
