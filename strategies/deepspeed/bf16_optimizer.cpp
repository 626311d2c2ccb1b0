// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's BF16_Optimizer: what ZeRO stage 1 becomes with bf16 parameters and fp32 gradient accumulation. Every rank keeps all
// gradients in flat fp32 buffers; the engine all-reduces them after backward in the communication dtype, nothing overlaps; then the
// optimizer steps on this rank's partition. Source: DeepSpeed runtime/bf16_optimizer.py, runtime/engine.py (buffered_allreduce_fallback).
#include <algorithm>
#include <utility>

#include "strategies/deepspeed/zero12.hpp"
#include "strategies/deepspeed/zero12_groups.hpp"
#include "strategies/shared/bucketing.hpp"
#include "strategies/shared/expert_parallel.hpp"

namespace shardsim {
namespace {

/// MEMORY_OPT_ALLREDUCE_SIZE: reduce_bucket_size is not read on this path.
constexpr std::int64_t engine_bucket = 500'000'000;

class Bf16Optimizer final : public Hooks {
 public:
  Bf16Optimizer(Program& program, const Zero12Config& config)
      : program_(program),
        build_(program.build),
        config_(config),
        groups_(program, {.model = config.model, .master = config.master, .round_robin = false}),
        lp_gradients_(program.model().parameters->size()) {
    for (const FlatGroup& group : groups_.all())
      hp_gradients_.push_back(build_.buffer({.label = {"fp32_groups_gradients_flat", group.name},
                                             .category = Category::gradients,
                                             .persistent = true,
                                             .dtype = config_.accumulation,
                                             .layout = build_.schedule().at(group.bit16).layout,
                                             .elements = group.flat}));
  }

  void begin_forward(std::int32_t micro_batch) override { boundary_ = micro_batch + 1 == program_.micro_batches(); }

  /// backward_prologue, clear_lp_grads: what is left of the last micro-batch is filled with zeros, not freed.
  void begin_backward() override {
    std::int32_t kernels = 1;  // one foreach launch for all
    for (ParameterId p : all())
      if (gradient(p).valid())
        build_.copy({"BF16_Optimizer::clear_lp_grads", unit(p)}, current_stream,
                    {.target = gradient(p), .count = count(p), .kernels = std::exchange(kernels, 0)});
  }

  void produce_gradient(ParameterId p) override {
    if (gradient(p).valid()) return;
    gradient(p) = build_.allocate({.label = {".grad", unit(p)},
                                   .category = Category::gradients,
                                   .role = Role::gradient,
                                   .dtype = config_.model,
                                   .pool = current_stream,
                                   .layout = build_.layout({.parameters = build_.parameters(std::span(&p, 1))}),
                                   .elements = count(p)});
  }

  /// backward_epilogue: update_hp_grads; at the accumulation boundary the engine all-reduces.
  void end_backward() override {
    for (std::size_t i = 0; i < hp_gradients_.size(); ++i)
      for (ParameterId p : groups_.all()[i].parameters)
        if (gradient(p).valid())
          build_.copy({"BF16_Optimizer::update_hp_grads", unit(p)}, current_stream,
                      {.source = gradient(p), .target = hp_gradients_[i], .count = count(p), .accumulate = true, .kernels = 2});
    if (boundary_) buffered_allreduce_fallback();
  }

  void step() override {
    build_.call(HostCall::zero_step);
    clip();
    for (std::size_t i = 0; i < hp_gradients_.size(); ++i)
      groups_.all()[i].optimizer->emit({{{hp_gradients_[i]}, {groups_.all()[i].partition}}});
    for (const FlatGroup& group : groups_.all())
      build_.copy({"BF16_Optimizer::update_lp_params", group.name}, current_stream,
                  {.source = group.master, .target = group.bit16, .count = group.partition});
    groups_.all_gather();
    for (std::size_t i = 0; i < hp_gradients_.size(); ++i)
      build_.copy({"BF16_Optimizer::clear_hp_grads", groups_.all()[i].name}, current_stream,
                  {.target = hp_gradients_[i], .count = groups_.all()[i].flat});
    for (ParameterId p : all()) {
      if (gradient(p).valid()) build_.free(gradient(p));
      gradient(p) = {};
    }
  }

 private:
  [[nodiscard]] BufferId& gradient(ParameterId p) { return lp_gradients_[static_cast<std::size_t>(p.index)]; }
  [[nodiscard]] Elements count(ParameterId p) const { return program_.model().at(p).elements; }
  [[nodiscard]] UnitId unit(ParameterId p) { return program_.unit(p); }
  [[nodiscard]] std::vector<ParameterId> all() const {
    std::vector<ParameterId> ids;
    for (const FlatGroup& group : groups_.all()) ids.insert(ids.end(), group.parameters.begin(), group.parameters.end());
    return ids;
  }

  /// allreduce_no_retain over whole groups: collected until they exceed the engine's bucket, never split.
  void buffered_allreduce_fallback() {
    std::vector<std::int64_t> sizes;
    for (const FlatGroup& group : groups_.all()) sizes.push_back(group.flat.value());
    const std::int64_t limit = engine_bucket + 1;
    const auto first_expert = static_cast<std::size_t>(
        std::find_if(groups_.all().begin(), groups_.all().end(), [](const FlatGroup& g) { return g.experts; }) - groups_.all().begin());
    const auto reduce = [&](std::size_t from, std::size_t to) {
      for (const BucketRange& range : close_when_full(std::span(sizes).subspan(from, to - from), std::span(&limit, 1)))
        allreduce_and_copy({range.begin + from, range.end + from});
    };
    reduce(0, first_expert);             // _reduce_non_expert_gradients
    reduce(first_expert, sizes.size());  // _reduce_expert_gradients
  }

  /// Flattened where there are several groups; cast to the communication dtype; all-reduced, then divided (postscale); cast and copied
  /// back.
  void allreduce_and_copy(const BucketRange& range) {
    const UnitId name = build_.unit("param group " + std::to_string(range.begin) +
                                    (range.end > range.begin + 1 ? " to " + std::to_string(range.end - 1) : ""));
    std::vector<ParameterId> ids;
    Elements elements;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const FlatGroup& group = groups_.all()[i];
      ids.insert(ids.end(), group.flat_order.begin(), group.flat_order.end());
      elements += group.flat;
    }
    const LayoutId layout = build_.layout({.parameters = build_.parameters(ids)});
    const auto temporary = [&](const char* verb, DType dtype) {
      return build_.allocate({.label = {verb, name},
                              .category = Category::communication_buffers,
                              .dtype = dtype,
                              .pool = current_stream,
                              .layout = layout,
                              .elements = elements});
    };
    BufferId wire = hp_gradients_[range.begin], flat, cast;
    if (range.end > range.begin + 1) {
      wire = flat = temporary("flatten", config_.accumulation);
      copy_groups(range, [&](std::size_t i) { return Copy{.source = hp_gradients_[i], .target = flat, .count = groups_.all()[i].flat}; });
    }
    if (config_.communication != config_.accumulation) {
      cast = temporary("communication copy", config_.communication);
      build_.copy({"tensor.to", name}, current_stream, {.source = wire, .target = cast, .count = elements});
      wire = cast;
    }
    build_.communicate({"nccl:all_reduce", name}, current_stream,
                       {.kind = Collective::all_reduce,
                        .communicator = groups_.all()[range.begin].ranks.communicator,
                        .dtype = config_.communication,
                        .payload = elements,
                        .target = wire});
    build_.copy({"tensor.mul_", name}, current_stream,
                {.source = wire, .target = wire, .count = elements, .scale = 1.0 / static_cast<double>(program_.job.world_size)});
    if (cast.valid()) {
      build_.copy({"tensor.copy_", name}, current_stream,
                  {.source = cast, .target = flat.valid() ? flat : hp_gradients_[range.begin], .count = elements});
      build_.free(cast);
    }
    if (!flat.valid()) return;
    copy_groups(range, [&](std::size_t i) { return Copy{.source = flat, .target = hp_gradients_[i], .count = groups_.all()[i].flat}; });
    build_.free(flat);
  }

  template <class MakeCopy>
  void copy_groups(const BucketRange& range, MakeCopy make) {
    for (std::size_t i = range.begin; i < range.end; ++i) build_.copy({"buf.copy_", groups_.all()[i].name}, current_stream, make(i));
  }

  /// get_global_norm_of_tensors on the whole reduced gradients: every rank has them, so nothing is sent; the host reads the norm.
  void clip() {
    Elements elements;
    for (const FlatGroup& group : groups_.all()) elements += group.flat;
    const auto tensors = static_cast<std::int32_t>(all().size());
    Work norm;
    norm.memory = bytes(elements, config_.accumulation);
    norm.kernels = tensors + 2;
    build_.host_wait({"global_norm.item", {}},
                     build_.compute({"BF16_Optimizer::get_grads_for_norm", {}}, build_.work(std::move(norm)), Pass::backward, {}));
    if (!program_.training().optimizer.clip_grad_norm) return;
    Work scale;
    scale.memory = bytes(2 * elements, config_.accumulation);
    scale.kernels = tensors;
    build_.compute({"BF16_Optimizer::clip_tensors_by_global_norm", {}}, build_.work(std::move(scale)), Pass::backward, {});
  }

  Program& program_;
  ScheduleBuilder& build_;
  Zero12Config config_;
  FlatGroups groups_;
  std::vector<BufferId> hp_gradients_;  // fp32, by group
  std::vector<BufferId> lp_gradients_;  // .grad, by parameter
  bool boundary_ = false;
};

}  // namespace

std::unique_ptr<Hooks> make_bf16_optimizer(Program& program, const Zero12Config& config) {
  return with_expert_parallel(program, std::make_unique<Bf16Optimizer>(program, config));
}

}  // namespace shardsim
