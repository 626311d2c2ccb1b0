// SPDX-License-Identifier: Apache-2.0
// Toy T as a Model, in sizes of one's choice, for tests that build their jobs by hand.
#pragma once

#include "jobs.hpp"

namespace shardsim::testing {

[[nodiscard]] inline std::shared_ptr<const Model> toy_model(const ToySizes& sizes = {}) { return make_job(toy(sizes), "ddp").model; }

}  // namespace shardsim::testing
