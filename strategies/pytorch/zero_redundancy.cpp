// SPDX-License-Identifier: Apache-2.0
// torch.distributed.optim.ZeroRedundancyOptimizer: ZeRO-1 on top of DDP. Whole parameters are assigned to ranks; DDP's all-reduce stays;
// after its local step every rank broadcasts the parameters it updated. Source: torch/distributed/optim/zero_redundancy_optimizer.py.
#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <utility>

#include "strategies/deepspeed/zero12_groups.hpp"
#include "strategies/pytorch/ddp.hpp"

namespace shardsim {
namespace {

/// Parameters by rank. _partition_parameters: group by group, largest first, each to the rank with the least so far (the lowest of equals).
std::vector<std::vector<ParameterId>> partition_parameters(const Model& model, bool split_weight_decay, std::int64_t n) {
  using Load = std::pair<std::int64_t, std::int64_t>;  // elements so far, rank
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (std::int64_t rank = 0; rank < n; ++rank) loads.push({0, rank});
  std::vector<std::vector<ParameterId>> partitions(static_cast<std::size_t>(n));
  for (std::vector<ParameterId>& group : optimizer_param_groups(model, split_weight_decay)) {
    std::stable_sort(group.begin(), group.end(), [&](ParameterId a, ParameterId b) { return model.at(a).elements > model.at(b).elements; });
    for (ParameterId p : group) {
      const auto [elements, rank] = loads.top();
      loads.pop();
      loads.push({elements + model.at(p).elements.value(), rank});
      partitions[static_cast<std::size_t>(rank)].push_back(p);
    }
  }
  return partitions;
}

/// _sync_params: asynchronous broadcasts on the process group's stream, then a wait for all. One for each parameter, or one for the flat
/// bucket of each rank where parameters are views of it.
class ParameterBroadcasts {
 public:
  ParameterBroadcasts(Program& program, std::vector<std::vector<ParameterId>> partitions, bool as_bucket_view)
      : program_(program), partitions_(std::move(partitions)), as_bucket_view_(as_bucket_view) {}

  /// Parameters rank by rank: every rank's bucket in one piece. Without buckets the order changes nothing.
  [[nodiscard]] std::vector<ParameterId> storage() const {
    std::vector<ParameterId> order;
    for (const auto& own : partitions_) order.insert(order.end(), own.begin(), own.end());
    return order;
  }
  [[nodiscard]] const std::vector<ParameterId>& own() const { return partitions_[static_cast<std::size_t>(program_.job.rank)]; }

  void operator()(BufferId parameters) {
    ScheduleBuilder& build = program_.build;
    const StreamId process_group = build.stream("process group");
    build.wait_stream(process_group, ScheduleBuilder::compute_stream());
    Elements offset;
    for (std::size_t rank = 0; rank < partitions_.size(); ++rank) {
      Elements bucket;
      for (ParameterId p : partitions_[rank]) {
        const Elements count = program_.model().at(p).elements;
        if (!as_bucket_view_) broadcast(parameters, rank, offset + bucket, count, program_.unit(p));
        bucket += count;
      }
      if (as_bucket_view_ && bucket > Elements{})
        broadcast(parameters, rank, offset, bucket, build.unit("bucket of rank " + std::to_string(rank)));
      offset += bucket;
    }
    build.wait_stream(ScheduleBuilder::compute_stream(), process_group);
  }

 private:
  void broadcast(BufferId parameters, std::size_t root, Elements offset, Elements payload, UnitId name) {
    ScheduleBuilder& build = program_.build;
    build.communicate({"nccl:broadcast", name}, build.stream("process group"),
                      {.kind = Collective::broadcast,
                       .communicator = build.communicator("dp", "dp", program_.job.world_size),
                       .dtype = program_.training().precision.parameters,
                       .root = static_cast<std::int32_t>(root),
                       .payload = payload,
                       .target = parameters,
                       .offset = offset});
  }

  Program& program_;
  std::vector<std::vector<ParameterId>> partitions_;  // by rank
  bool as_bucket_view_;
};

/// overlap_with_ddp, by hook_with_zero_step: bucket k of DDP belongs to rank k mod n. Once the last bucket's all-reduce is launched, each
/// owner waits for its bucket, steps on it and broadcasts it, bucket by bucket; the next forward waits for all. The first iterations, in
/// which DDP settles its buckets, update nothing. Source: torch/distributed/algorithms/ddp_comm_hooks/ddp_zero_hook.py.
class BucketSteps {
 public:
  explicit BucketSteps(Program& program)
      : program_(program),
        buckets_(ddp_buckets(program.job)),
        optimizer_(program),
        offsets_(buckets_.size()),
        targets_(buckets_.size(), -1) {
    Elements offset;
    for (std::size_t rank = 0; rank < ranks(); ++rank)
      for (std::size_t b = rank; b < buckets_.size(); b += ranks()) {
        storage_.insert(storage_.end(), buckets_[b].begin(), buckets_[b].end());
        if (owned(b)) own_.insert(own_.end(), buckets_[b].begin(), buckets_[b].end());
        offsets_[b] = offset;
        offset += total_elements(program_.model(), buckets_[b]);
      }
  }

  [[nodiscard]] const std::vector<ParameterId>& storage() const { return storage_; }
  [[nodiscard]] const std::vector<ParameterId>& own() const { return own_; }

  void operator()(const Replicated& replicated, std::size_t bucket, BufferId gradients, OpId reduced) {
    if (!program_.training().warm) return;
    if (bucket == 0 && !declared_) declare(replicated);
    ScheduleBuilder& build = program_.build;
    const StreamId process_group = build.stream("process group"), compute = ScheduleBuilder::compute_stream();
    const UnitId name = build.unit("bucket " + std::to_string(bucket));
    const Elements elements = total_elements(program_.model(), buckets_[bucket]);
    if (owned(bucket)) {
      build.wait(compute, reduced);
      const auto target = static_cast<std::size_t>(targets_[bucket]);
      optimizer_.emit_target(target, {{gradients}, {elements}});
      if (program_.training().precision.master)
        build.copy({"master to parameters", name}, compute,
                   {.source = optimizer_.targets()[target].weights, .target = replicated.parameters(), .count = elements});
      build.wait_stream(process_group, compute);
    }
    build.communicate({"nccl:broadcast", name}, process_group,
                      {.kind = Collective::broadcast,
                       .communicator = build.communicator("dp", "dp", program_.job.world_size),
                       .dtype = program_.training().precision.parameters,
                       .root = static_cast<std::int32_t>(bucket % ranks()),
                       .payload = elements,
                       .target = replicated.parameters(),
                       .offset = offsets_[bucket]});
    if (bucket + 1 == buckets_.size()) build.wait_stream(compute, process_group);
  }

 private:
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(program_.job.world_size); }
  [[nodiscard]] bool owned(std::size_t bucket) const { return bucket % ranks() == static_cast<std::size_t>(program_.job.rank); }

  /// One target of the optimizer for each own bucket.
  void declare(const Replicated& replicated) {
    declared_ = true;
    ScheduleBuilder& build = program_.build;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (!owned(b)) continue;
      const BufferId weights = weights_of(b, replicated.parameters());
      const Buffer& buffer = build.schedule().at(weights);
      targets_[b] = static_cast<std::int32_t>(optimizer_.targets().size());
      optimizer_.add({.label = {"optimizer", buffer.label.unit},
                      .parameters = buckets_[b],
                      .weights = weights,
                      .layout = buffer.layout,
                      .count = buffer.elements,
                      .dtype = buffer.dtype});
    }
  }

  /// A master copy of the bucket, or its place among the parameters.
  [[nodiscard]] BufferId weights_of(std::size_t bucket, BufferId parameters) {
    ScheduleBuilder& build = program_.build;
    Buffer weights = build.schedule().at(parameters);
    weights.label = {"updated parameters", build.unit("bucket " + std::to_string(bucket))};
    weights.role = Role::none;
    weights.layout = build.layout({.parameters = build.parameters(buckets_[bucket])});
    weights.elements = total_elements(program_.model(), buckets_[bucket]);
    if (const std::optional<DType> master = program_.training().precision.master) {
      weights.label.verb = "master copy";
      weights.category = Category::optimizer_states;
      weights.dtype = *master;
    } else {
      weights.view_of = parameters;
      weights.view_offset = offsets_[bucket];
    }
    return build.buffer(weights);
  }

  Program& program_;
  std::vector<std::vector<ParameterId>> buckets_;
  OptimizerStep optimizer_;
  std::vector<ParameterId> storage_, own_;  // rank by rank
  std::vector<Elements> offsets_;           // by bucket: in the parameters' storage
  std::vector<std::int32_t> targets_;       // by bucket, -1: another rank's
  bool declared_ = false;
};

std::unique_ptr<Hooks> make_overlapped(Program& program) {
  const auto steps = std::make_shared<BucketSteps>(program);
  return make_ddp(program, {.storage = steps->storage(),
                            .updated = steps->own(),
                            .step_bucket = [steps](const Replicated& replicated, std::size_t bucket, BufferId gradients, OpId reduced) {
                              (*steps)(replicated, bucket, gradients, reduced);
                            }});
}

std::unique_ptr<Hooks> make(Program& program) {
  if (program.options().boolean("overlap_with_ddp", false)) return make_overlapped(program);
  const auto broadcasts = std::make_shared<ParameterBroadcasts>(
      program, partition_parameters(program.model(), program.training().optimizer.split_weight_decay, program.job.world_size),
      program.options().boolean("parameters_as_bucket_view", false));
  return make_ddp(program, {.storage = broadcasts->storage(),
                            .updated = broadcasts->own(),
                            .synchronize = [broadcasts](BufferId parameters) { (*broadcasts)(parameters); }});
}

std::vector<OptionSpec> zero_redundancy_options() {
  std::vector<OptionSpec> all = ddp_options();
  all.push_back({.name = "overlap_with_ddp",
                 .kind = OptionKind::boolean,
                 .fallback = "false",
                 .help = "step and broadcast DDP bucket by bucket at the end of backward; the first iteration updates nothing"});
  all.push_back({.name = "parameters_as_bucket_view",
                 .kind = OptionKind::boolean,
                 .fallback = "false",
                 .help = "one broadcast for each rank, of a flat bucket"});
  return all;
}

void check_overlap(const Job& job, Problems& problems) {
  const Options& options = job.strategy.options;
  if (!options.boolean("overlap_with_ddp", false)) return;
  const Where where = options.where("overlap_with_ddp");
  if (job.training.optimizer.split_weight_decay) problems.add(where, "overlap_with_ddp supports a single parameter group only");
  if (job.training.gradient_accumulation_steps > 1 && !options.boolean("no_sync", true))
    problems.add(where, "overlap_with_ddp steps in every backward that reduces: accumulation needs no_sync");
}

std::vector<std::string> zero_redundancy_without_effect(const Job& job) {
  std::vector<std::string> warnings = ddp_without_effect(job);
  if (!job.strategy.options.boolean("overlap_with_ddp", false)) return warnings;
  if (job.strategy.options.given("parameters_as_bucket_view"))
    warnings.push_back("zero_redundancy: parameters_as_bucket_view has no effect with overlap_with_ddp");
  if (job.training.optimizer.clip_grad_norm)
    warnings.push_back("zero_redundancy: clip_grad_norm has no effect with overlap_with_ddp: gradients are clipped after they were used");
  return warnings;
}

}  // namespace

StrategyEntry zero_redundancy_strategy() {
  return {.info = {.name = "zero_redundancy",
                   .summary = "Optimizer states of whole parameters on one rank each, on top of DDP",
                   .stack = "transformers",
                   .library = "PyTorch {} (torch.distributed.optim.ZeroRedundancyOptimizer on DistributedDataParallel)",
                   .releases = ddp_releases(),
                   .options = zero_redundancy_options(),
                   .facts = {.stage = 1, .checkpoints = CheckpointWriter::consolidated, .on_one_rank = false}},
          .make = make,
          .check = check_overlap,
          .differs_because = [](const Job&) -> std::string {
            return "DDP's all-reduce stays where the paper reduce-scatters; owners then broadcast their parameters";
          },
          .warnings = zero_redundancy_without_effect};
}

}  // namespace shardsim
