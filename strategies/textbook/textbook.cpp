// SPDX-License-Identifier: Apache-2.0
// What the papers count, as closed formulas: ZeRO (arXiv 1910.02054, sections 5 and 7) and PyTorch FSDP (arXiv 2304.11277). Written apart
// from the schedules, and compared with them by tests.
#include "strategies/textbook/textbook.hpp"

#include <algorithm>

#include "strategies/shared/muon.hpp"
#include "strategies/shared/optimizer_step.hpp"

namespace shardsim {
namespace {

/// numerator / denominator, rounded up.
Bytes ceil_ratio(__int128 numerator, std::int64_t denominator) {
  return Bytes{static_cast<std::int64_t>((numerator + denominator - 1) / denominator)};
}

}  // namespace

TextbookPlan textbook_plan(const Job& job) {
  const StrategyFacts& facts = facts_of(job.strategy.name);
  TextbookPlan plan{.stage = facts.stage, .overlap = facts.overlaps};
  plan.replicas = facts.replicas ? facts.replicas(job) : job.strategy.options.integer("replicate", 1);
  plan.shard = job.world_size / std::max<std::int64_t>(1, plan.replicas);
  return plan;
}

/// AdamW's second moment of what muon does not update.
static __int128 adamw_beside_muon(const Job& job) {
  if (job.training.optimizer.kind != OptimizerKind::muon) return 0;
  __int128 rest = job.model->trainable().value();
  for (ParameterId p : muon_matrices(*job.model)) rest -= job.model->at(p).elements.value();
  return rest * size_of(job.training.precision.moments);
}

Textbook textbook(const Job& job) {
  const TextbookPlan plan = textbook_plan(job);
  const Precision& precision = job.training.precision;
  const __int128 psi = job.model->total().value(), trained = job.model->trainable().value();
  const std::int64_t e_p = size_of(precision.parameters), e_g = size_of(precision.gradients);
  const std::int64_t g = job.training.gradient_accumulation_steps, s = plan.shard, r = plan.replicas;
  Textbook book;
  __int128 payload = 0;  // bytes that cross the ring once
  switch (plan.stage) {
    case 0:
      payload = 2 * e_g * trained;
      break;
    case 1:
      payload = (e_g + e_p) * trained;
      break;
    case 2:
      payload = (g * e_g + e_p) * trained;
      break;
    default:
      payload = g * (2 * e_p * psi + e_g * trained);
      break;
  }
  book.sent_per_rank = ceil_ratio(payload * (s - 1), s);
  if (r > 1) book.sent_per_rank += ceil_ratio(2 * e_g * trained * (r - 1), s * r);
  const auto held = [&](__int128 amount, bool sharded) { return sharded ? ceil_ratio(amount, s) : ceil_ratio(amount, 1); };
  const double states = (precision.master ? static_cast<double>(size_of(*precision.master)) : 0.0) + state_bytes_per_element(job.training);
  book.parameters = held(e_p * psi, plan.stage >= 3);
  book.gradients = held(e_g * trained, plan.stage >= 2);
  book.optimizer_states = held(static_cast<__int128>(states * static_cast<double>(trained)) + adamw_beside_muon(job), plan.stage >= 1);
  return book;
}

}  // namespace shardsim
