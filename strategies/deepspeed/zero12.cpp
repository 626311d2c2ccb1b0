// SPDX-License-Identifier: Apache-2.0
// DeepSpeedZeroOptimizer, stages 1 and 2: parameters are views of flat 16-bit buffers; gradients go through a contiguous bucket, are
// reduced bucket by bucket, and what the own partition needs is copied out; the optimizer steps on that partition in fp32, and the
// updated flat buffers are all-gathered. Source: DeepSpeed runtime/zero/stage_1_and_2.py.
#include "strategies/deepspeed/zero12.hpp"

#include <algorithm>
#include <utility>

#include "strategies/deepspeed/zero12_offload.hpp"
#include "strategies/deepspeed/zero12_reduce.hpp"
#include "strategies/deepspeed/zero12_step.hpp"
#include "strategies/shared/expert_parallel.hpp"
#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

/// In autograd's order where hooks reduce, else in the optimizer's: for group in groups, for parameter in group.
std::vector<ParameterId> reduction_order(const Job& job, const Zero12Config& config, const FlatGroups& groups) {
  if (config.reduces_in_hooks()) return ExpertParallel(job).local(arrival_order(*job.model));
  std::vector<ParameterId> order;
  for (const FlatGroup& group : groups.all()) order.insert(order.end(), group.parameters.begin(), group.parameters.end());
  return order;
}

class DeepSpeedZeroOptimizer final : public Hooks {
 public:
  DeepSpeedZeroOptimizer(Program& program, const Zero12Config& config)
      : program_(program),
        build_(program.build),
        config_(config),
        groups_(program, {.model = config.model, .master = config.master, .round_robin = config.round_robin_gradients}),
        order_(reduction_order(program.job, config_, groups_)),
        owned_(owned_in_order()),
        buckets_(program, config_, order_),
        reducer_(program, config_, groups_),
        offloaded_(program, config_, groups_, owned_),
        step_(program, config_, groups_),
        gradients_(program.model().parameters->size()),
        grad_accum_(gradients_.size()),
        sums_(gradients_.size()) {
    owned_elements_ = total_elements(program.model(), owned_);
    owned_layout_ = build_.layout({.parameters = build_.parameters(owned_)});
  }

  void begin_forward(std::int32_t micro_batch) override {
    micro_batch_ = micro_batch;
    boundary_ = micro_batch + 1 == program_.micro_batches();
  }

  void begin_backward() override {
    if (!config_.buckets_on_first_gradient) buckets_.setup();
  }

  /// Stage 1 lets autograd add to what is there; stage 2 has dropped it.
  void produce_gradient(ParameterId p) override {
    if (of(gradients_, p).valid()) return;
    const bool kept = config_.stage == 1 && !config_.separate_accumulation();
    of(gradients_, p) =
        per_parameter(".grad", p, kept ? Category::gradients : Category::unsharded_gradients, Role::gradient, config_.model);
  }

  /// process_gradients.
  void gradient_ready(ParameterId p) override {
    buckets_.setup();
    if (config_.separate_accumulation()) fill_param_grad_accum(p);
    if (config_.reduces_in_hooks() && (config_.stage == 2 || boundary_)) reduce_independent_p_g_buckets(p);
  }

  /// DeepSpeedEngine.allreduce_gradients: at stage 2 in every micro-batch, at stage 1 at the accumulation boundary.
  void end_backward() override {
    if (config_.stage == 1 && !boundary_) return;
    if (!config_.reduces_in_hooks())  // reduce_gradients: after backward, so nothing overlaps
      for (ParameterId p : order_) reduce_independent_p_g_buckets(p);
    independent_gradient_partition_epilogue();
  }

  void step() override {
    build_.call(HostCall::zero_step);
    if (config_.offload) {
      free_where(grad_accum_, [](ParameterId) { return true; });
      step_.step_offloaded(offloaded_.partitions());
      return;
    }
    step_.check_and_norm();
    std::vector<std::vector<BufferId>> averaged;
    for (const FlatGroup& group : groups_.all()) averaged.push_back(averaged_gradients(group));
    free_where(grad_accum_, [&](ParameterId p) { return config_.contiguous_gradients || !groups_.owned(p); });
    step_.step(averaged);
    averaged_ = {};
    for (auto* list : {&gradients_, &grad_accum_, &sums_}) std::fill(list->begin(), list->end(), BufferId{});
  }

 private:
  [[nodiscard]] static BufferId& of(std::vector<BufferId>& buffers, ParameterId p) { return buffers[static_cast<std::size_t>(p.index)]; }
  [[nodiscard]] Elements count(ParameterId p) const { return program_.model().at(p).elements; }
  [[nodiscard]] UnitId unit(ParameterId p) { return program_.unit(p); }

  [[nodiscard]] std::vector<ParameterId> owned_in_order() const {
    std::vector<ParameterId> owned;
    std::copy_if(order_.begin(), order_.end(), std::back_inserter(owned), [&](ParameterId p) { return groups_.owned(p); });
    return owned;
  }

  [[nodiscard]] BufferId per_parameter(const char* verb, ParameterId p, Category category, Role role, DType dtype) {
    return build_.allocate({.label = {verb, unit(p)},
                            .category = category,
                            .role = role,
                            .dtype = dtype,
                            .pool = current_stream,
                            .layout = build_.layout({.parameters = build_.parameters(std::span(&p, 1))}),
                            .elements = count(p)});
  }

  void free_one(std::vector<BufferId>& buffers, ParameterId p, StreamId also_used_by = {}) {
    build_.free(std::exchange(of(buffers, p), {}), also_used_by);
  }
  template <class Which>
  void free_where(std::vector<BufferId>& buffers, Which which) {
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].valid() && which(ParameterId{static_cast<std::int32_t>(i)})) build_.free(std::exchange(buffers[i], {}));
  }

  /// _fill_param_grad_accum_attribute: gradients add up in a dtype of their own.
  void fill_param_grad_accum(ParameterId p) {
    BufferId& sum = of(grad_accum_, p);
    const bool first = !sum.valid();
    if (first) sum = per_parameter("grad_accum", p, Category::gradients, Role::none, config_.accumulation);
    build_.copy({"grad_accum.add_", unit(p)}, current_stream,
                {.source = of(gradients_, p), .target = sum, .count = count(p), .accumulate = !first});
    free_one(gradients_, p);
  }

  /// get_gradient_for_reduction: .grad itself, or a cast copy of what was accumulated in another dtype. The caller frees it.
  [[nodiscard]] BufferId take_gradient_for_reduction(ParameterId p) {
    if (!config_.separate_accumulation()) return std::exchange(of(gradients_, p), {});
    const BufferId cast = per_parameter("grad_accum.to", p, Category::unsharded_gradients, Role::none, config_.model);
    build_.copy({"grad_accum.to", unit(p)}, current_stream, {.source = of(grad_accum_, p), .target = cast, .count = count(p)});
    return cast;
  }

  /// reduce_independent_p_g_buckets_and_remove_grads: flush first if this gradient does not fit; then copy it into the bucket, where .grad
  /// points from now on.
  void reduce_independent_p_g_buckets(ParameterId p) {
    build_.call(HostCall::zero_gradient);
    if (config_.stage == 2) build_.call(HostCall::zero_partition);
    const IpgBucket& bucket = buckets_.bucket_of(p);
    if (&bucket != open_) {
      reduce_ipg_grads();
      open_ = &bucket;
    }
    if (!config_.contiguous_gradients || bucket.extra_large) return;
    const BufferId ipg = buckets_.view(bucket);
    const BufferId source = take_gradient_for_reduction(p);
    build_.copy({"ZeRO::copy to ipg buffer", unit(p)}, current_stream, {.source = source, .target = ipg, .count = count(p)});
    build_.free(source);
  }

  /// Averages the open bucket, then keeps what this rank's partition needs.
  void reduce_ipg_grads() {
    if (!open_) return;
    const IpgBucket& bucket = *std::exchange(open_, nullptr);
    if (!config_.contiguous_gradients) return reduce_without_ipg(bucket);
    if (bucket.extra_large) return reduce_extra_large(bucket);
    const BufferId ipg = buckets_.view(bucket);
    reducer_.average_tensor(ipg, bucket);
    copy_grads_in_partition(ipg, bucket);
  }

  void reduce_extra_large(const IpgBucket& bucket) {
    const ParameterId p = bucket.parameters.front();
    const BufferId tensor = take_gradient_for_reduction(p);
    reducer_.average_tensor(tensor, bucket);
    copy_grads_in_partition(tensor, bucket);
    if (config_.stage == 1 && !config_.separate_accumulation() && !groups_.owned(p)) {
      of(gradients_, p) = tensor;  // nobody drops it before the epilogue
    } else {
      build_.free(tensor, reducer_.stream() == current_stream ? StreamId{} : reducer_.stream());
    }
  }

  void reduce_without_ipg(const IpgBucket& bucket) {
    if (config_.overlap_comm) synchronize_and_clear_previous("ZeRO::allreduce_and_copy");
    std::vector<BufferId> tensors;
    for (ParameterId p : bucket.parameters) tensors.push_back(of(config_.separate_accumulation() ? grad_accum_ : gradients_, p));
    reducer_.buffered_reduce_fallback(tensors, bucket);
    if (config_.stage == 1) return;
    std::copy_if(bucket.parameters.begin(), bucket.parameters.end(), std::back_inserter(previous_reduced_grads_),
                 [&](ParameterId p) { return !groups_.owned(p); });
    if (!config_.overlap_comm) clear_previous_reduced_grads();  // else they must outlive the reduction
  }
  void synchronize_and_clear_previous(const char* where) {
    build_.synchronize({where, {}});
    clear_previous_reduced_grads();
  }
  void clear_previous_reduced_grads() {
    for (ParameterId p : std::exchange(previous_reduced_grads_, {})) free_one(gradients_, p);
  }

  /// One copy a parameter, of all its elements, although the partition may need only part of the first and the last.
  void copy_grads_in_partition(BufferId tensor, const IpgBucket& bucket) {
    Elements elements;
    std::int32_t copies = 0;
    for (ParameterId p : bucket.parameters) {
      if (!groups_.owned(p)) continue;
      if (config_.offload) {
        offloaded_.copy_grads_in_partition(tensor, p, reducer_.stream(), micro_batch_);
        continue;
      }
      elements += count(p);
      ++copies;
    }
    if (copies == 0) return;
    if (!grads_in_partition_.valid())
      grads_in_partition_ = build_.allocate({.label = {"grads_in_partition", {}},
                                             .category = Category::gradients,
                                             .dtype = config_.model,
                                             .pool = reducer_.stream(),
                                             .layout = owned_layout_,
                                             .elements = owned_elements_});
    build_.copy({"ZeRO::copy_grads_in_partition", bucket.name}, reducer_.stream(),
                {.source = tensor, .target = grads_in_partition_, .count = elements, .kernels = copies});
  }

  /// Flushes the rest, adds this micro-batch's partition to the sum, releases the buckets, and drops what is left in .grad.
  void independent_gradient_partition_epilogue() {
    reduce_ipg_grads();
    if (config_.overlap_comm) synchronize_and_clear_previous("ZeRO::independent_gradient_partition_epilogue");
    if (config_.contiguous_gradients) {
      accumulate_partition();
    } else if (config_.stage == 2) {
      accumulate_gradients();
    }
    buckets_.release();
    free_where(gradients_, [&](ParameterId p) { return config_.contiguous_gradients || !groups_.owned(p); });
  }

  /// all_grad_tensors: the first micro-batch's partition is the sum, later ones are added to it.
  void accumulate_partition() {
    if (!grads_in_partition_.valid()) return;
    const BufferId fresh = std::exchange(grads_in_partition_, {});
    if (!averaged_.valid()) {
      averaged_ = fresh;
      return;
    }
    build_.copy({"accumulated_grad.add_", {}}, current_stream,
                {.source = fresh,
                 .target = averaged_,
                 .count = owned_elements_,
                 .accumulate = true,
                 .kernels = static_cast<std::int32_t>(owned_.size())});
    build_.free(fresh);
  }

  /// The same without contiguous gradients. The sum must not be a gradient that backward adds to, so the first micro-batch's tensors change
  /// hands if more follow: at no cost, as in the library, where a list keeps them alive.
  void accumulate_gradients() {
    if (program_.micro_batches() == 1) return;
    for (ParameterId p : owned_) {
      BufferId& sum = of(sums_, p);
      const bool first = !sum.valid();
      if (first) sum = per_parameter("all_grad_tensors", p, Category::gradients, Role::none, config_.model);
      build_.copy({first ? "all_grad_tensors" : "accumulated_grad.add_", unit(p)}, current_stream,
                  {.source = of(gradients_, p),
                   .target = sum,
                   .count = first ? Elements{} : count(p),
                   .accumulate = !first,
                   .kernels = first ? 0 : 1});
      free_one(gradients_, p);
    }
  }

  /// averaged_gradients[i]: the buffers that hold this rank's slices of a group.
  [[nodiscard]] std::vector<BufferId> averaged_gradients(const FlatGroup& group) {
    std::vector<BufferId> tensors;
    for (ParameterId p : group.flat_order) {
      if (!groups_.owned(p)) continue;
      if (averaged_.valid()) return {averaged_};
      for (const auto* list : {&sums_, &grad_accum_, &gradients_})
        if (const BufferId tensor = (*list)[static_cast<std::size_t>(p.index)]; tensor.valid()) {
          tensors.push_back(tensor);
          break;
        }
    }
    return tensors;
  }

  Program& program_;
  ScheduleBuilder& build_;
  Zero12Config config_;
  FlatGroups groups_;
  std::vector<ParameterId> order_;  // of reduction
  std::vector<ParameterId> owned_;  // of these, parameters that touch this rank's partitions
  IpgBuckets buckets_;
  GradientReducer reducer_;
  OffloadedGradients offloaded_;
  ZeroStep step_;
  const IpgBucket* open_ = nullptr;                  // bucket that gradients join now
  std::vector<BufferId> gradients_;                  // .grad, by parameter
  std::vector<BufferId> grad_accum_;                 // by parameter, where the accumulation dtype is another
  std::vector<BufferId> sums_;                       // over micro-batches without contiguous_gradients, by parameter
  std::vector<ParameterId> previous_reduced_grads_;  // not owned, to be dropped when their reduction is known to be done
  LayoutId owned_layout_;
  Elements owned_elements_;
  BufferId grads_in_partition_, averaged_;
  std::int32_t micro_batch_ = 0;
  bool boundary_ = false;
};

}  // namespace

std::unique_ptr<Hooks> make_deepspeed_zero_optimizer(Program& program, const Zero12Config& config) {
  return with_expert_parallel(program, std::make_unique<DeepSpeedZeroOptimizer>(program, config));
}

}  // namespace shardsim
