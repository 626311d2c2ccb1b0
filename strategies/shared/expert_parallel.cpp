// SPDX-License-Identifier: Apache-2.0
#include "strategies/shared/expert_parallel.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

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

std::int64_t group_size(const Job& job) { return job.strategy.options.integer("expert_parallel_size", 1); }

/// A strategy's hooks with the exchanges of tokens around every module of routed experts.
class ExpertExchange final : public Hooks {
 public:
  ExpertExchange(Program& program, std::unique_ptr<Hooks> hooks)
      : program_(program),
        hooks_(std::move(hooks)),
        experts_(program.job),
        capacity_factor_(program.options().number("expert_capacity_factor", 0)),
        group_(program.build.communicator("expert", "expert", experts_.size())),
        stream_(program.build.stream("expert all-to-all")) {}

  void begin_forward(std::int32_t micro_batch) override { hooks_->begin_forward(micro_batch); }
  void pre_forward(std::int32_t layer) override { hooks_->pre_forward(layer); }
  void post_forward(std::int32_t layer) override { hooks_->post_forward(layer); }
  void end_forward() override { hooks_->end_forward(); }
  void begin_backward() override { hooks_->begin_backward(); }
  void pre_backward(std::int32_t layer) override { hooks_->pre_backward(layer); }
  void post_backward(std::int32_t layer) override { hooks_->post_backward(layer); }
  void end_backward() override { hooks_->end_backward(); }
  void step() override { hooks_->step(); }

  /// Tokens to the experts' ranks.
  void pre_module_forward(std::int32_t layer, std::int32_t module, Pass pass) override {
    exchange("ExpertParallel::dispatch", layer, module);
    hooks_->pre_module_forward(layer, module, pass);
  }
  /// Outputs back to the tokens' ranks.
  void post_module_forward(std::int32_t layer, std::int32_t module, Pass pass) override {
    exchange("ExpertParallel::combine", layer, module);
    hooks_->post_module_forward(layer, module, pass);
  }
  /// Gradients of the outputs to the experts' ranks.
  void pre_module_backward(std::int32_t layer, std::int32_t module) override {
    exchange("ExpertParallel::combine backward", layer, module);
    hooks_->pre_module_backward(layer, module);
  }
  /// Gradients of the tokens back.
  void post_module_backward(std::int32_t layer, std::int32_t module) override {
    exchange("ExpertParallel::dispatch backward", layer, module);
    hooks_->post_module_backward(layer, module);
  }

  void produce_gradient(ParameterId parameter) override {
    if (experts_.local(parameter)) hooks_->produce_gradient(parameter);
  }
  void gradient_ready(ParameterId parameter) override {
    if (experts_.local(parameter)) hooks_->gradient_ready(parameter);
  }

 private:
  void exchange(const char* verb, std::int32_t layer, std::int32_t module) {
    const Layer& of = (*program_.model().layers)[static_cast<std::size_t>(layer)];
    const LayerType& type = program_.model().type_of(of);
    if (!type.modules[static_cast<std::size_t>(module)].routed_experts) return;
    ScheduleBuilder& build = program_.build;
    const DType dtype = program_.training().precision.compute;
    const Elements payload = send_buffer(type, module);
    const UnitId name = build.unit(of.name);
    const BufferId received = build.allocate({.label = {"all-to-all output", name},
                                              .category = Category::communication_buffers,
                                              .dtype = dtype,
                                              .pool = default_stream,
                                              .elements = payload});
    build.wait_stream(stream_, default_stream);
    build.communicate({verb, name}, stream_,
                      {.kind = Collective::all_to_all, .communicator = group_, .dtype = dtype, .payload = payload, .target = received});
    build.wait_stream(default_stream, stream_);
    build.free(received);  // what was received takes the place of what was sent
  }

  /// The rows that are dispatched, times the hidden size: only the selected rows, or every expert's capacity filled up with padding.
  [[nodiscard]] Elements send_buffer(const LayerType& type, std::int32_t module) const {
    Elements rows;
    for (const Tensor& t : type.tensors)
      if (t.last_consumer == module && t.producer >= 0 && t.producer != module) rows = std::max(rows, t.elements);
    if (capacity_factor_ <= 0) return rows;
    return Elements{static_cast<std::int64_t>(std::ceil(static_cast<double>(rows.value()) * capacity_factor_))};
  }

  Program& program_;
  std::unique_ptr<Hooks> hooks_;
  ExpertParallel experts_;
  double capacity_factor_;
  CommunicatorId group_;
  StreamId stream_;
};

}  // namespace

ExpertParallel::ExpertParallel(const Job& job) : size_(group_size(job)), own_(job.rank % size_), owner_(job.model->parameters->size(), -1) {
  if (size_ == 1) return;
  const std::int64_t each = std::max<std::int64_t>(1, expert_count(*job.model) / size_);
  for (std::size_t i = 0; i < owner_.size(); ++i)
    if (const Parameter& p = (*job.model->parameters)[i]; p.routed_expert) owner_[i] = expert_index(p.name) / each;
}

ExpertParallel::Held ExpertParallel::held(std::span<const ParameterId> parameters) const {
  Held held;
  for (ParameterId p : parameters) {
    if (!expert(p))
      held.dense.push_back(p);
    else if (local(p))
      held.experts.push_back(p);
  }
  return held;
}

std::vector<ParameterId> ExpertParallel::local(std::span<const ParameterId> parameters) const {
  std::vector<ParameterId> own;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(own), [&](ParameterId p) { return local(p); });
  return own;
}

RankGroup ExpertParallel::replicas(ScheduleBuilder& build, std::int64_t ranks) const {
  return {ranks / size_, size_, build.communicator("expert data parallel", "expert data parallel", ranks / size_, size_)};
}

std::unique_ptr<Hooks> with_expert_parallel(Program& program, std::unique_ptr<Hooks> hooks) {
  if (group_size(program.job) == 1) return hooks;
  return std::make_unique<ExpertExchange>(program, std::move(hooks));
}

const std::vector<OptionSpec>& expert_parallel_options() {
  static const std::vector<OptionSpec> specs{
      {.name = "expert_parallel_size",
       .kind = OptionKind::integer,
       .fallback = "1",
       .help = "neighbouring ranks over which routed experts are split",
       .words = {},
       .minimum = 1},
      {.name = "expert_capacity_factor",
       .kind = OptionKind::number,
       .fallback = "0",
       .help = "rows sent to each expert, padded to this multiple of the even share; 0: only the selected rows",
       .words = {},
       .minimum = 0}};
  return specs;
}

std::vector<OptionSpec> with_expert_parallel_options(std::vector<OptionSpec> options) {
  options.insert(options.end(), expert_parallel_options().begin(), expert_parallel_options().end());
  return options;
}

void check_expert_parallel(const Job& job, std::int64_t ranks, Problems& problems) {
  const std::int64_t size = group_size(job);
  if (size == 1) return;
  const std::int64_t experts = expert_count(*job.model);
  const Where where = job.strategy.options.where("expert_parallel_size");
  if (experts == 0) return problems.add(where, "expert_parallel_size: the model has no routed experts");
  if (experts % size != 0)
    problems.add(
        where, "expert_parallel_size: " + std::to_string(size) + " does not divide the " + std::to_string(experts) + " experts of a layer");
  if (ranks % size != 0)
    problems.add(where, "expert_parallel_size: " + std::to_string(size) + " does not divide the " + std::to_string(ranks) +
                            " ranks that shard the model");
}

void warn_expert_parallel(const Job& job, std::vector<std::string>& warnings) {
  if (job.strategy.options.given("expert_capacity_factor") && group_size(job) == 1)
    warnings.push_back(job.strategy.name + ": expert_capacity_factor has no effect: experts are not split over ranks");
}

}  // namespace shardsim
