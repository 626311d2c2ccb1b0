// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/parameter_coordinator.hpp"

#include <algorithm>

namespace shardsim {

ParameterCoordinator::ParameterCoordinator(Program& program, const Zero3Config& config, const std::vector<Submodule>& submodules)
    : program_(program),
      config_(config),
      submodules_(submodules),
      allgather_(program.build.stream("allgather")),
      parameters_(program, config),
      fetched_for_step_(program.model().parameters->size()) {}

void ParameterCoordinator::set_trace(std::vector<std::int32_t> order) {
  trace_ = std::move(order);
  queue_.clear();
  for (std::size_t step = 0; step < trace_.size(); ++step)
    for (ParameterId p : of(trace_[step])) queue_.push_back({p, static_cast<std::int64_t>(step)});
}

void ParameterCoordinator::reset_step(std::int32_t micro_batch) {
  complete_ = program_.training().warm || micro_batch > 0;
  if (!program_.training().warm && micro_batch == 0) parameters_.compare_over_ranks(0);  // nothing recorded yet
  if (!program_.training().warm && micro_batch == 1) {
    parameters_.keep_persistent();
    for (const std::size_t length : {trace_.size(), queue_.size(), queue_.size()}) parameters_.compare_over_ranks(length);
  }
  step_ = 0;
  available_ = 0;
  queue_front_ = 0;
  std::fill(fetched_for_step_.begin(), fetched_for_step_.end(), -1);
}

void ParameterCoordinator::all_gather(const std::vector<ParameterId>& parameters, UnitId name) {
  for (ParameterId p : parameters) available_ += parameters_.numel(p);
  parameters_.all_gather(parameters, name);
}

void ParameterCoordinator::fetch_sub_module(std::int32_t index) {
  program_.build.call(HostCall::zero3_fetch);
  const Submodule& submodule = submodules_[static_cast<std::size_t>(index)];
  std::vector<ParameterId> missing;
  for (ParameterId p : submodule.parameters)
    if (parameters_.status(p) == Status::not_available) missing.push_back(p);
  if (!missing.empty()) all_gather(missing, submodule.name);
  for (ParameterId p : submodule.parameters)
    if (parameters_.status(p) == Status::in_flight) parameters_.wait(p);
  if (!submodule.parameters.empty()) program_.build.wait_stream(default_stream, allgather_);
  if (complete_) prefetch(submodule);
  ++step_;
}

void ParameterCoordinator::prefetch(const Submodule& submodule) {
  // Pop what this module needed from the queue, so that it is not prefetched later.
  std::vector<ParameterId> popped;
  std::size_t expected = 0;
  for (ParameterId p : submodule.parameters) expected += fetched_for(p) < step_ ? 1 : 0;
  while (queue_front_ < queue_.size() && popped.size() < expected) {
    const QueueEntry entry = queue_[queue_front_++];
    fetched_for(entry.parameter) = entry.step;
    if (std::find(popped.begin(), popped.end(), entry.parameter) == popped.end()) popped.push_back(entry.parameter);
  }
  if (config_.prefetch_bucket <= 0) return;
  const std::int64_t limit = std::min(config_.max_live - available_, config_.prefetch_bucket);
  std::int64_t prefetching = 0;
  std::vector<ParameterId> chosen;
  while (queue_front_ < queue_.size() && prefetching < limit) {
    const QueueEntry entry = queue_[queue_front_++];
    fetched_for(entry.parameter) = entry.step;
    if (parameters_.status(entry.parameter) != Status::not_available ||
        std::find(chosen.begin(), chosen.end(), entry.parameter) != chosen.end())
      continue;
    chosen.push_back(entry.parameter);
    prefetching += parameters_.numel(entry.parameter);
  }
  if (!chosen.empty()) all_gather(chosen, submodule.name);
}

/// __params_to_release: not what persists, nor what the prefetcher skipped because it was still there, nor what comes back soon.
std::vector<ParameterId> ParameterCoordinator::to_release(const Submodule& submodule) const {
  if (!complete_) return submodule.parameters;
  std::vector<ParameterId> release;
  for (ParameterId p : submodule.parameters)
    if (!parameters_.persistent(p) && step_ >= fetched_for_step_[static_cast<std::size_t>(p.index)]) release.push_back(p);
  std::int64_t traversed = 0;
  for (auto step = static_cast<std::size_t>(step_); step < trace_.size() && !release.empty() && traversed < config_.max_reuse_distance;
       ++step)
    for (ParameterId p : of(trace_[step])) {
      std::erase(release, p);
      traversed += parameters_.numel(p);
    }
  return release;
}

void ParameterCoordinator::release_sub_module(std::int32_t index, bool saved) {
  program_.build.call(HostCall::zero3_release);
  for (ParameterId p : to_release(submodules_[static_cast<std::size_t>(index)])) {
    if (parameters_.status(p) != Status::available) continue;
    parameters_.release(p, saved);
    available_ -= parameters_.numel(p);
  }
}

void ParameterCoordinator::drop_saved(std::int32_t submodule) {
  for (ParameterId p : of(submodule)) parameters_.drop_saved(p);
}

void ParameterCoordinator::post_step() {
  parameters_.gather_persistent();
  parameters_.drop_secondary();
}

}  // namespace shardsim
