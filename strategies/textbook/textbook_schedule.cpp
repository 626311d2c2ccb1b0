// SPDX-License-Identifier: Apache-2.0
// The schedules that the papers count (ZeRO, arXiv 1910.02054; FSDP, arXiv 2304.11277): nothing is padded, every unit is gathered and
// reduced on its own, collectives overlap compute, and what a stage shards is never held in full for longer than it is used.
//
//   stage 0  everything replicated; gradients all-reduced once a step         2 e_g psi
//   stage 1  states sharded; reduce-scatter gradients, all-gather parameters  (e_g + e_p) psi
//   stage 2  and gradients: reduce-scatter in every micro-batch               (g e_g + e_p) psi
//   stage 3  and parameters: gathered for forward and again for backward      g (2 e_p + e_g) psi
#include <algorithm>

#include "strategies/shared/optimizer_step.hpp"
#include "strategies/shared/sharding.hpp"
#include "strategies/strategy_table.hpp"
#include "strategies/textbook/textbook.hpp"

namespace shardsim {
namespace {

constexpr StreamId compute_stream = ScheduleBuilder::compute_stream();

struct Unit {
  UnitId name;
  std::vector<ParameterId> parameters, trainable;
  LayoutId full, full_trainable, shard, shard_trainable;
  Elements count, trainable_count, shard_count, shard_trainable_count;
  BufferId stored;  ///< full copy, or the shard at stage 3
  BufferId master;
  BufferId gathered;  ///< stage 3, while gathered
  OpId gather;
  BufferId gradient;  ///< full, until reduced
  BufferId gradient_shard;
};

class TextbookSchedule final : public Hooks {
 public:
  explicit TextbookSchedule(Program& program)
      : program_(program),
        build_(program.build),
        plan_(textbook_plan(program.job)),
        communication_(build_.stream("communication")),
        shard_group_(build_.communicator(plan_.replicas > 1 ? "shard" : "dp", plan_.replicas > 1 ? "shard" : "dp", plan_.shard)),
        optimizer_(program) {
    if (plan_.replicas > 1) replicate_group_ = build_.communicator("replicate", "replicate", plan_.replicas, plan_.shard);
    make_units();
  }

  void begin_forward(std::int32_t micro_batch) override {
    micro_batch_ = micro_batch;
    build_.wait_stream(communication_, compute_stream);
    if (rest_) use(*rest_);
  }
  void pre_forward(std::int32_t layer) override { enter(layer, +1); }
  void post_forward(std::int32_t layer) override {
    if (Unit* unit = unit_of(layer)) drop_gathered(*unit);
  }
  void end_forward() override {
    if (rest_) drop_gathered(*rest_);
  }
  void begin_backward() override {
    if (rest_) use(*rest_);
  }
  void pre_backward(std::int32_t layer) override { enter(layer, -1); }

  void produce_gradient(ParameterId p) override {
    Unit& unit = *unit_of_parameter_[static_cast<std::size_t>(p.index)];
    if (unit.gradient.valid()) return;
    const bool transient = plan_.stage >= 2;
    unit.gradient = build_.allocate({.label = {"gradients", unit.name},
                                     .category = transient ? Category::unsharded_gradients : Category::gradients,
                                     .role = Role::gradient,
                                     .dtype = gradient_dtype(),
                                     .pool = compute_stream,
                                     .layout = unit.full_trainable,
                                     .elements = unit.trainable_count});
  }

  void post_backward(std::int32_t layer) override {
    if (Unit* unit = unit_of(layer)) finish(*unit);
  }

  void end_backward() override {
    if (rest_) finish(*rest_);
    if (last_micro_batch() && plan_.stage == 0 && !plan_.overlap)
      for (const auto& unit : units_) all_reduce(*unit, compute_stream);
    build_.wait_stream(compute_stream, communication_);
  }

  void step() override {
    std::vector<OptimizerStep::Gradients> gradients;
    for (Unit* unit : optimized_)
      gradients.push_back({{plan_.stage >= 2 ? unit->gradient_shard : unit->gradient},
                           {plan_.stage >= 1 ? unit->shard_trainable_count : unit->trainable_count}});
    optimizer_.clip(gradients, plan_.stage >= 1 ? shard_group_ : CommunicatorId{}, compute_stream, gradient_dtype(), false);
    optimizer_.emit(gradients);
    for (Unit* unit : optimized_) publish(*unit);
    build_.wait_stream(compute_stream, communication_);
    for (Unit* unit : optimized_) {
      zero_grad(program_, {plan_.stage >= 2 ? unit->gradient_shard : unit->gradient});
      unit->gradient = unit->gradient_shard = {};
    }
  }

 private:
  [[nodiscard]] DType gradient_dtype() const { return program_.training().precision.gradients; }
  [[nodiscard]] bool last_micro_batch() const { return micro_batch_ + 1 == program_.micro_batches(); }
  [[nodiscard]] Unit* unit_of(std::int32_t layer) { return unit_of_layer_[static_cast<std::size_t>(layer)]; }

  // One unit a block, and one for the rest (embedding, norm, head), which may share tensors.
  void make_units() {
    const Model& model = program_.model();
    const auto& layers = *model.layers;
    unit_of_layer_.assign(layers.size(), nullptr);
    unit_of_parameter_.assign(model.parameters->size(), nullptr);
    std::vector<ParameterId> rest;
    std::vector<bool> taken(model.parameters->size(), false);
    for (std::size_t l = 0; l < layers.size(); ++l) {
      std::vector<ParameterId> own;
      for (ParameterId p : layers[l].parameters) {
        if (taken[static_cast<std::size_t>(p.index)]) continue;
        taken[static_cast<std::size_t>(p.index)] = true;
        (model.type_of(layers[l]).block ? own : rest).push_back(p);
      }
      if (!own.empty()) unit_of_layer_[l] = add_unit(layers[l].name, std::move(own));
    }
    if (!rest.empty()) rest_ = add_unit("embedding, norm and head", std::move(rest));
  }

  [[nodiscard]] LayoutId layout(const std::vector<ParameterId>& ids, bool shard) {
    return build_.layout({.parameters = build_.parameters(ids),
                          .partition = Layout::Partition::flat,
                          .shard = shard,
                          .n = static_cast<std::int32_t>(plan_.shard)});
  }
  [[nodiscard]] Elements own_part(Elements count) const {
    const std::int64_t part = program_.job.rank % plan_.shard;
    return Elements{count.value() / plan_.shard + (part < count.value() % plan_.shard ? 1 : 0)};
  }

  Unit* add_unit(const std::string& name, std::vector<ParameterId> ids) {
    const Model& model = program_.model();
    auto unit = std::make_unique<Unit>();
    unit->name = build_.unit(name);
    unit->parameters = std::move(ids);
    for (ParameterId p : unit->parameters) {
      unit_of_parameter_[static_cast<std::size_t>(p.index)] = unit.get();
      if (model.at(p).trainable) unit->trainable.push_back(p);
    }
    unit->full = layout(unit->parameters, false);
    unit->full_trainable = layout(unit->trainable, false);
    unit->shard = layout(unit->parameters, true);
    unit->shard_trainable = layout(unit->trainable, true);
    unit->count = total_elements(model, unit->parameters);
    unit->trainable_count = total_elements(model, unit->trainable);
    unit->shard_count = own_part(unit->count);
    unit->shard_trainable_count = own_part(unit->trainable_count);
    declare_states(*unit);
    units_.push_back(std::move(unit));
    return units_.back().get();
  }

  BufferId parameters(const char* what, const Unit& unit, LayoutId layout, Elements count) {
    return build_.buffer({.label = {what, unit.name},
                          .category = Category::parameters,
                          .role = plan_.stage == 3 ? Role::none : Role::parameter,
                          .persistent = true,
                          .dtype = program_.training().precision.parameters,
                          .pool = compute_stream,
                          .layout = layout,
                          .elements = count});
  }

  /// Below stage 3 frozen parameters stand apart: nobody sends them.
  void declare_parameters(Unit& unit) {
    if (plan_.stage == 3) {
      unit.stored = parameters("parameters", unit, unit.shard, unit.shard_count);
      return;
    }
    std::vector<ParameterId> frozen;
    for (ParameterId p : unit.parameters)
      if (!program_.model().at(p).trainable) frozen.push_back(p);
    if (!frozen.empty()) parameters("frozen parameters", unit, layout(frozen, false), unit.count - unit.trainable_count);
    if (!unit.trainable.empty()) unit.stored = parameters("parameters", unit, unit.full_trainable, unit.trainable_count);
  }

  void declare_states(Unit& unit) {
    const Precision& precision = program_.training().precision;
    declare_parameters(unit);
    if (unit.trainable.empty()) return;
    const bool shard_states = plan_.stage >= 1;
    const LayoutId states = shard_states ? unit.shard_trainable : unit.full_trainable;
    const Elements count = shard_states ? unit.shard_trainable_count : unit.trainable_count;
    if (precision.master)
      unit.master = build_.buffer({.label = {"master copy", unit.name},
                                   .category = Category::optimizer_states,
                                   .persistent = true,
                                   .dtype = *precision.master,
                                   .pool = compute_stream,
                                   .layout = states,
                                   .elements = count});
    const BufferId weights = unit.master.valid() ? unit.master : unit.stored;
    optimizer_.add({.label = {"optimizer", unit.name},
                    .parameters = unit.trainable,
                    .weights = weights,
                    .layout = states,
                    .count = count,
                    .dtype = build_.schedule().at(weights).dtype});
    optimized_.push_back(&unit);
  }

  // Gathers -----------------------------------------------------------------------------------------------------------------------------

  void gather(Unit& unit) {
    if (plan_.stage < 3 || unit.gathered.valid()) return;
    unit.gathered = build_.allocate({.label = {"gathered parameters", unit.name},
                                     .category = Category::unsharded_parameters,
                                     .role = Role::parameter,
                                     .dtype = program_.training().precision.parameters,
                                     .pool = compute_stream,
                                     .layout = unit.full,
                                     .elements = unit.count});
    unit.gather = build_.communicate({"all_gather", unit.name}, communication_,
                                     {.kind = Collective::all_gather,
                                      .communicator = shard_group_,
                                      .dtype = program_.training().precision.parameters,
                                      .payload = unit.count,
                                      .source = unit.stored,
                                      .target = unit.gathered});
  }
  void use(Unit& unit) {
    gather(unit);
    if (plan_.stage == 3) build_.wait(compute_stream, unit.gather);
  }
  void drop_gathered(Unit& unit) {
    if (!unit.gathered.valid()) return;
    build_.free(unit.gathered);
    unit.gathered = {};
  }
  /// Gathers a layer's unit and, so that the next gather overlaps this compute, the unit after it in the direction of travel.
  void enter(std::int32_t layer, std::int32_t direction) {
    Unit* unit = unit_of(layer);
    if (!unit || plan_.stage < 3) return;
    use(*unit);
    for (std::int32_t next = layer + direction; next >= 0 && next < static_cast<std::int32_t>(unit_of_layer_.size()); next += direction)
      if (Unit* ahead = unit_of(next)) return gather(*ahead);
  }

  // Reductions --------------------------------------------------------------------------------------------------------------------------

  void finish(Unit& unit) {
    drop_gathered(unit);
    if (!unit.gradient.valid()) return;
    if (plan_.stage >= 2) return reduce_scatter_to_shard(unit);
    if (!last_micro_batch()) return;
    if (plan_.stage == 1) reduce_scatter_in_place(unit);
    if (plan_.stage == 0 && plan_.overlap) all_reduce(unit, communication_);
  }

  void all_reduce(Unit& unit, StreamId stream) {
    if (!unit.gradient.valid()) return;
    if (stream != compute_stream) build_.wait_stream(stream, compute_stream);
    build_.communicate({"all_reduce", unit.name}, stream,
                       {.kind = Collective::all_reduce,
                        .communicator = shard_group_,
                        .dtype = gradient_dtype(),
                        .reduction = Reduction::average,
                        .payload = unit.trainable_count,
                        .target = unit.gradient});
  }

  void reduce_scatter_in_place(Unit& unit) {
    build_.wait_stream(communication_, compute_stream);
    build_.communicate({"reduce_scatter", unit.name}, communication_,
                       {.kind = Collective::reduce_scatter,
                        .communicator = shard_group_,
                        .dtype = gradient_dtype(),
                        .reduction = Reduction::average,
                        .payload = unit.trainable_count,
                        .source = unit.gradient});
  }

  void reduce_scatter_to_shard(Unit& unit) {
    const bool first = !unit.gradient_shard.valid();
    const BufferId shard = build_.allocate({.label = {"gradient shard", unit.name},
                                            .category = first ? Category::gradients : Category::communication_buffers,
                                            .dtype = gradient_dtype(),
                                            .pool = communication_,
                                            .layout = unit.shard_trainable,
                                            .elements = unit.shard_trainable_count});
    build_.wait_stream(communication_, compute_stream);
    build_.communicate({"reduce_scatter", unit.name}, communication_,
                       {.kind = Collective::reduce_scatter,
                        .communicator = shard_group_,
                        .dtype = gradient_dtype(),
                        .reduction = Reduction::average,
                        .payload = unit.trainable_count,
                        .source = unit.gradient,
                        .target = shard});
    build_.free(unit.gradient, communication_);
    unit.gradient = {};
    if (first) {
      unit.gradient_shard = shard;
    } else {
      build_.copy({"accumulate", unit.name}, communication_,
                  {.source = shard, .target = unit.gradient_shard, .count = unit.shard_trainable_count, .accumulate = true});
      build_.free(shard);
    }
    if (replicate_group_.valid() && last_micro_batch())
      build_.communicate({"all_reduce", unit.name}, communication_,
                         {.kind = Collective::all_reduce,
                          .communicator = replicate_group_,
                          .dtype = gradient_dtype(),
                          .reduction = Reduction::average,
                          .payload = unit.shard_trainable_count,
                          .target = unit.gradient_shard});
  }

  /// The updated weights go where the next forward reads them: cast from the master copy, gathered at stages 1 and 2.
  void publish(Unit& unit) {
    if (unit.master.valid())
      build_.copy(
          {"master to parameters", unit.name}, compute_stream,
          {.source = unit.master, .target = unit.stored, .count = plan_.stage >= 1 ? unit.shard_trainable_count : unit.trainable_count});
    if (plan_.stage != 1 && plan_.stage != 2) return;
    build_.wait_stream(communication_, compute_stream);
    build_.communicate({"all_gather", unit.name}, communication_,
                       {.kind = Collective::all_gather,
                        .communicator = shard_group_,
                        .dtype = program_.training().precision.parameters,
                        .payload = unit.trainable_count,
                        .target = unit.stored});
  }

  Program& program_;
  ScheduleBuilder& build_;
  TextbookPlan plan_;
  StreamId communication_;
  CommunicatorId shard_group_, replicate_group_;
  OptimizerStep optimizer_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<Unit*> optimized_;  // in the order of the optimizer's targets
  std::vector<Unit*> unit_of_layer_, unit_of_parameter_;
  Unit* rest_ = nullptr;
  std::int32_t micro_batch_ = 0;
};

}  // namespace

std::unique_ptr<Hooks> make_textbook(Program& program) { return std::make_unique<TextbookSchedule>(program); }

}  // namespace shardsim
