// SPDX-License-Identifier: Apache-2.0
// Over which ranks DeepSpeed ZeRO-3 partitions a parameter: all of them (MiCS: its shard group), or, for routed experts that AutoEP splits,
// those that hold the same ones. Source: deepspeed/runtime/zero/partition_parameters.py (ds_process_group of each parameter).
#pragma once

#include <span>
#include <vector>

#include "strategies/shared/expert_parallel.hpp"

namespace shardsim {

class Zero3Partitions {
 public:
  Zero3Partitions(Program& program, std::int64_t shard, bool groups)
      : experts_(program.job), all_{shard, 1, program.build.communicator(groups ? "shard" : "dp", groups ? "shard" : "dp", shard)} {
    if (experts_.size() > 1) replicas_ = experts_.replicas(program.build, shard);
  }

  [[nodiscard]] const ExpertParallel& experts() const { return experts_; }
  [[nodiscard]] const RankGroup& of(ParameterId p) const { return experts_.expert(p) ? replicas_ : all_; }
  [[nodiscard]] const RankGroup& all() const { return all_; }
  /// A list cut by process group: what all ranks share first. No empty lists.
  [[nodiscard]] std::vector<std::vector<ParameterId>> by_group(std::span<const ParameterId> parameters) const {
    ExpertParallel::Held held = experts_.held(parameters);
    std::vector<std::vector<ParameterId>> lists;
    for (auto* list : {&held.dense, &held.experts})
      if (!list->empty()) lists.push_back(std::move(*list));
    return lists;
  }

 private:
  ExpertParallel experts_;
  RankGroup all_, replicas_;
};

}  // namespace shardsim
