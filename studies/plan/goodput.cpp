// SPDX-License-Identifier: Apache-2.0
#include "studies/plan/goodput.hpp"

#include <cmath>

namespace shardsim {

Seconds optimum_interval(const Reliability& job) {
  const double delta = job.checkpoint.base(), mtbf = job.mtbf.base();
  if (delta >= 2 * mtbf) return job.mtbf;
  const double ratio = delta / (2 * mtbf);
  return Seconds{std::sqrt(2 * delta * mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - delta};
}

double goodput(const Reliability& job, Seconds interval) {
  const double mtbf = job.mtbf.base();
  const double wall = mtbf * std::exp(job.restart.base() / mtbf) * std::expm1((interval + job.checkpoint).base() / mtbf);
  return wall > 0 && std::isfinite(wall) ? interval.base() / wall : 0;
}

}  // namespace shardsim
