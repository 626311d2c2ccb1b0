// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "sim/costs/checked_time.hpp"
#include "sim/costs/jitter.hpp"

namespace shardsim {
namespace {

SimTime times(SimTime time, double factor) {
  return factor == 1 ? time : SimTime{std::llround(static_cast<double>(time.picoseconds()) * factor)};
}

/// The cost of one op.
class Pricing {
 public:
  Pricing(const CostModel& model, const Schedule& schedule) : model_(model), schedule_(schedule) {}

  [[nodiscard]] OpCost of(const Compute& action) const {
    if (!action.work.valid()) return {};
    const Work& work = schedule_.at(action.work);
    const Launcher launcher = action.modules.layer < 0 ? Launcher::library : work.compiled ? Launcher::compiled : Launcher::eager;
    return kernels(model_.work(work), work.kernels, launcher);
  }

  [[nodiscard]] OpCost of(const Communicate& action) const {
    const Group& group = schedule_.group_of(action.communicator);
    OpCost cost;
    if (group.size <= 1) return cost;
    const CollectiveCost alone = model_.collective_cost(action.kind, bytes(action.payload, action.dtype), group);
    cost.device = times(alone.time, slowest_of(profile().spread.collectives, group.size));
    cost.share = alone.share;
    cost.host = checked_time(model_.host().collective());
    cost.collective = true;
    return cost;
  }

  [[nodiscard]] OpCost of(const Copy& action) const {
    const Bytes written = bytes(action.count, schedule_.at(action.target).dtype);
    Bytes read = action.source.valid() ? bytes(action.count, schedule_.at(action.source).dtype) : Bytes{};
    if (action.accumulate) read += written;
    const Seconds time = model_.copy(read, written, action.path) + profile().gpu.device_kernel_gap * action.kernels;
    OpCost cost = kernels(time, action.kernels, Launcher::library);
    if (action.path == CopyPath::device) return cost;
    cost.device = checked_time(time);
    cost.compute = false;
    cost.share[static_cast<std::size_t>(Resource::host_link)] = 1;
    return cost;
  }

  [[nodiscard]] OpCost of(const Update& action) const {
    if (!action.work.valid()) return {};
    const Work& work = schedule_.at(action.work);
    if (!action.on_host) return kernels(model_.optimizer_work(work), work.kernels, Launcher::library);
    OpCost cost;
    cost.host = checked_time(model_.host_memory(work.memory));
    return cost;
  }

  // Bookkeeping of the host: well below a kernel launch.
  static OpCost of(const Allocate&) { return {}; }
  static OpCost of(const Free&) { return {}; }
  static OpCost of(const Wait&) { return {}; }
  static OpCost of(const HostWait&) { return {}; }
  static OpCost of(const Synchronize&) { return {}; }

 private:
  [[nodiscard]] const Profile& profile() const { return model_.cluster().profile; }

  /// Ranks meet again and again, so that each kernel counts as the slowest rank's.
  [[nodiscard]] OpCost kernels(Seconds alone, std::int32_t count, Launcher launcher) const {
    OpCost cost;
    cost.device = times(checked_time(alone), slowest_of(profile().spread.compute, schedule_.world_size));
    cost.host = checked_time(model_.host().kernels(count, launcher));
    cost.compute = true;
    return cost;
  }

  const CostModel& model_;
  const Schedule& schedule_;
};

}  // namespace

CostModel::CostModel(const Cluster& cluster, const Stack& stack)
    : cluster_(cluster),
      stack_(stack),
      products_(cluster.profile.gpu),
      attention_(cluster.profile.gpu),
      collectives_(cluster),
      host_(cluster.profile, stack) {}

Seconds CostModel::product(const MatrixProduct& product, DType dtype) const {
  return products_.time(product, dtype) / stack_.rates.products;
}

Seconds CostModel::memory_bound(Bytes touched) const {
  const Gpu& gpu = cluster_.profile.gpu;
  return touched / (gpu.memory_bandwidth * gpu.elementwise_efficiency * stack_.rates.memory_bound);
}

Seconds CostModel::products_and_attention(const Work& work) const {
  Seconds time;
  for (const MatrixProduct& p : work.products) time += product(p, work.dtype);
  for (const FlashAttention& a : work.attention)
    time += attention_.time(a, peak_for(cluster_.profile.gpu, work.attention_dtype())) / stack_.rates.attention;
  return time;
}

Seconds CostModel::work(const Work& work) const {
  return memory_bound(work.memory) + cluster_.profile.gpu.device_kernel_gap * work.kernels + products_and_attention(work);
}

Seconds CostModel::optimizer_work(const Work& work) const {
  const Gpu& gpu = cluster_.profile.gpu;
  return work.memory / (gpu.memory_bandwidth * gpu.optimizer_efficiency * stack_.rates.optimizer) + gpu.device_kernel_gap * work.kernels +
         products_and_attention(work);
}

CollectiveTime CostModel::collective(Collective collective, Bytes payload, const Group& group) const {
  return collectives_.predict(collective, payload, group);
}

CollectiveCost CostModel::collective_cost(Collective collective, Bytes payload, const Group& group) const {
  return collectives_.cost(collective, payload, group);
}

Chosen CostModel::choose(Collective collective, Bytes payload, const Group& group) const {
  return collectives_.choose(collective, payload, group);
}

Seconds CostModel::copy(Bytes read, Bytes written, CopyPath path) const {
  if (path == CopyPath::device) return memory_bound(read + written);
  return std::max(read, written) / cluster_.profile.gpu.host_link;
}

Seconds CostModel::host_memory(Bytes touched) const {
  const ByteRate node = cluster_.profile.node.host_memory_bandwidth;
  // Without a figure for DRAM the slower host link stands in: an upper bound of the time.
  if (node <= ByteRate{}) return touched / cluster_.profile.gpu.host_link;
  return touched / (node / static_cast<double>(cluster_.gpus_per_node));
}

OpCost CostModel::cost(const Op& op, const Schedule& schedule) const {
  const Pricing pricing(*this, schedule);
  OpCost cost = std::visit([&](const auto& action) { return pricing.of(action); }, op.action);
  if (op.host.valid()) cost.host += checked_time(host_.calls(schedule.at(op.host)));
  return cost;
}

std::vector<OpCost> CostModel::prices(const ReplayProgram& program) const {
  std::vector<OpCost> prices(program.examples().size());
  for (std::size_t i = 1; i < prices.size(); ++i) prices[i] = cost(program.schedule().at(program.examples()[i]), program.schedule());
  return prices;
}

}  // namespace shardsim
