// SPDX-License-Identifier: Apache-2.0
#include "strategies/expert_parallel.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace shardsim {
namespace {

/// The number between ".experts." and the next dot, -1 if there is none.
std::int64_t expert_index(const std::string& name) {
  const std::size_t at = name.find(".experts.");
  if (at == std::string::npos) return -1;
  std::int64_t index = -1;
  std::from_chars(name.data() + at + 9, name.data() + name.size(), index);
  return index;
}

std::int64_t expert_count(const Model& model) {
  std::int64_t count = 0;
  for (const Parameter& p : *model.parameters)
    if (p.routed_expert) count = std::max(count, expert_index(p.name) + 1);
  return count;
}

}  // namespace

ExpertParallel::ExpertParallel(Program& program)
    : program_(program), size_(program.options().integer("expert_parallel_size", 1)), own_(program.job.rank % size_),
      capacity_factor_(program.options().number("expert_capacity_factor", 0)), owner_(program.model().parameters->size(), program.job.rank % size_) {
  if (size_ == 1) return;
  group_ = program.build.communicator("expert", "expert", size_);
  stream_ = program.build.stream("expert all-to-all");
  const std::int64_t each = std::max<std::int64_t>(1, expert_count(program.model()) / size_);
  for (std::size_t i = 0; i < owner_.size(); ++i)
    if (const Parameter& p = (*program.model().parameters)[i]; p.routed_expert) owner_[i] = expert_index(p.name) / each;
}

/// The rows that are dispatched, times the hidden size: only the selected rows, or every expert's capacity filled up with padding.
Elements ExpertParallel::send_buffer(const LayerType& type, std::int32_t module) const {
  Elements rows;
  for (const Tensor& t : type.tensors)
    if (t.last_consumer == module && t.producer >= 0 && t.producer != module) rows = std::max(rows, t.elements);
  if (capacity_factor_ <= 0) return rows;
  return Elements{static_cast<std::int64_t>(std::ceil(static_cast<double>(rows.value()) * capacity_factor_))};
}

void ExpertParallel::exchange(const char* verb, std::int32_t layer, std::int32_t module) const {
  const Layer& of = (*program_.model().layers)[static_cast<std::size_t>(layer)];
  const LayerType& type = program_.model().type_of(of);
  if (size_ == 1 || !type.modules[static_cast<std::size_t>(module)].routed_experts) return;
  ScheduleBuilder& build = program_.build;
  const DType dtype = program_.training().precision.compute;
  const Elements payload = send_buffer(type, module);
  const UnitId name = build.unit(of.name);
  const BufferId received = build.allocate({.label = {"all-to-all output", name}, .category = Category::communication_buffers, .dtype = dtype,
                                            .pool = ScheduleBuilder::compute_stream(), .elements = payload});
  build.wait_stream(stream_, ScheduleBuilder::compute_stream());
  build.communicate({verb, name}, stream_, {.kind = Collective::all_to_all, .communicator = group_, .dtype = dtype, .payload = payload, .target = received});
  build.wait_stream(ScheduleBuilder::compute_stream(), stream_);
  build.free(received);  // what was received takes the place of what was sent
}

void ExpertParallel::before_forward(std::int32_t layer, std::int32_t module) const { exchange("ExpertParallel::dispatch", layer, module); }
void ExpertParallel::after_forward(std::int32_t layer, std::int32_t module) const { exchange("ExpertParallel::combine", layer, module); }
void ExpertParallel::before_backward(std::int32_t layer, std::int32_t module) const { exchange("ExpertParallel::combine backward", layer, module); }
void ExpertParallel::after_backward(std::int32_t layer, std::int32_t module) const { exchange("ExpertParallel::dispatch backward", layer, module); }

const std::vector<OptionSpec>& expert_parallel_options() {
  static const std::vector<OptionSpec> specs{
      {.name = "expert_parallel_size", .kind = OptionKind::integer, .fallback = "1", .help = "neighbouring ranks over which routed experts are split", .words = {}, .minimum = 1},
      {.name = "expert_capacity_factor", .kind = OptionKind::number, .fallback = "0", .help = "rows sent to each expert, padded to this multiple of the even share; 0: only the selected rows", .words = {}, .minimum = 0}};
  return specs;
}

void check_expert_parallel(const Job& job, std::int64_t ranks, Problems& problems) {
  const Options& options = job.strategy.options;
  const std::int64_t size = options.integer("expert_parallel_size", 1);
  if (size == 1) return;
  const std::int64_t experts = expert_count(*job.model);
  const Where where = options.where("expert_parallel_size");
  if (experts == 0) return problems.add(where, "expert_parallel_size: the model has no routed experts");
  if (experts % size != 0) problems.add(where, "expert_parallel_size: " + std::to_string(size) + " does not divide the " + std::to_string(experts) + " experts of a layer");
  if (ranks % size != 0) problems.add(where, "expert_parallel_size: " + std::to_string(size) + " does not divide the " + std::to_string(ranks) + " ranks that shard the model");
}

}  // namespace shardsim
