// SPDX-License-Identifier: Apache-2.0
// torch.distributed.optim.ZeroRedundancyOptimizer: ZeRO-1 on top of DDP. Whole parameters are assigned to ranks; DDP's all-reduce stays;
// after its local step every rank broadcasts the parameters it updated. Source: torch/distributed/optim/zero_redundancy_optimizer.py.
#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "strategies/ddp.hpp"
#include "strategies/zero12_groups.hpp"

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
        if (!as_bucket_view_) broadcast(parameters, rank, offset + bucket, count, build.unit(program_.model().at(p).name));
        bucket += count;
      }
      if (as_bucket_view_ && bucket > Elements{}) broadcast(parameters, rank, offset, bucket, build.unit("bucket of rank " + std::to_string(rank)));
      offset += bucket;
    }
    build.wait_stream(ScheduleBuilder::compute_stream(), process_group);
  }

 private:
  void broadcast(BufferId parameters, std::size_t root, Elements offset, Elements payload, UnitId name) {
    ScheduleBuilder& build = program_.build;
    build.communicate({"nccl:broadcast", name}, build.stream("process group"),
                      {.kind = Collective::broadcast, .communicator = build.communicator("dp", "dp", program_.job.world_size),
                       .dtype = program_.training().precision.parameters, .root = static_cast<std::int32_t>(root), .payload = payload,
                       .target = parameters, .offset = offset});
  }

  Program& program_;
  std::vector<std::vector<ParameterId>> partitions_;  // by rank
  bool as_bucket_view_;
};

std::unique_ptr<Hooks> make(Program& program) {
  const auto broadcasts = std::make_shared<ParameterBroadcasts>(
      program, partition_parameters(program.model(), program.training().optimizer.split_weight_decay, program.job.world_size),
      program.options().boolean("parameters_as_bucket_view", false));
  return make_ddp(program, {.storage = broadcasts->storage(), .updated = broadcasts->own(),
                            .synchronize = [broadcasts](BufferId parameters) { (*broadcasts)(parameters); }});
}

std::vector<OptionSpec> options() {
  std::vector<OptionSpec> all = ddp_options();
  all.push_back({.name = "parameters_as_bucket_view", .kind = OptionKind::boolean, .fallback = "false", .help = "one broadcast for each rank, of a flat bucket"});
  return all;
}

}  // namespace

StrategyEntry zero_redundancy_strategy() {
  return {.info = {.name = "zero_redundancy",
                   .summary = "Optimizer states of whole parameters on one rank each, on top of DDP",
                   .library = "PyTorch 2.13 (torch.distributed.optim.ZeroRedundancyOptimizer on DistributedDataParallel)",
                   .options = options()},
          .make = make,
          .differs_because = [](const Job&) -> std::string {
            return "DDP's all-reduce stays where the paper reduce-scatters; owners then broadcast their parameters";
          },
          .warnings = ddp_without_effect};
}

}  // namespace shardsim
