// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/cost_model.hpp"

#include <algorithm>

namespace shardsim {
namespace {

/// The cost of one op.
class Pricing {
 public:
  Pricing(const CostModel& model, const Schedule& schedule) : model_(model), schedule_(schedule) {}

  [[nodiscard]] OpCost of(const Compute& action) const { return kernels(action.work); }

  [[nodiscard]] OpCost of(const Communicate& action) const {
    const Group& group = schedule_.group_of(action.communicator);
    OpCost cost;
    if (group.size <= 1) return cost;
    const CollectiveCost alone = model_.collective_cost(action.kind, bytes(action.payload, action.dtype), group);
    cost.device = alone.time;
    cost.share = alone.share;
    cost.host = SimTime::from(gpu().collective_launch);
    cost.collective = true;
    return cost;
  }

  [[nodiscard]] OpCost of(const Copy& action) const {
    const Bytes written = bytes(action.count, schedule_.at(action.target).dtype);
    Bytes read = action.source.valid() ? bytes(action.count, schedule_.at(action.source).dtype) : Bytes{};
    if (action.accumulate) read += written;
    OpCost cost;
    cost.device = SimTime::from(model_.copy(read, written, action.path) + gpu().device_kernel_gap * action.kernels);
    cost.host = launches(action.kernels);
    cost.compute = action.path == CopyPath::device;
    if (!cost.compute) cost.share[static_cast<std::size_t>(Resource::host_link)] = 1;
    return cost;
  }

  [[nodiscard]] OpCost of(const Update& action) const {
    if (!action.on_host || !action.work.valid()) return kernels(action.work);
    OpCost cost;
    cost.host = SimTime::from(model_.host_memory(schedule_.at(action.work).memory));
    return cost;
  }

  // Bookkeeping of the host: well below a kernel launch.
  static OpCost of(const Allocate&) { return {}; }
  static OpCost of(const Free&) { return {}; }
  static OpCost of(const Wait&) { return {}; }
  static OpCost of(const HostWait&) { return {}; }
  static OpCost of(const Synchronize&) { return {}; }

 private:
  [[nodiscard]] const Gpu& gpu() const { return model_.cluster().profile.gpu; }
  [[nodiscard]] SimTime launches(std::int32_t kernels) const { return SimTime::from(gpu().kernel_launch * kernels); }

  [[nodiscard]] OpCost kernels(WorkId id) const {
    OpCost cost;
    if (!id.valid()) return cost;
    cost.device = SimTime::from(model_.work(schedule_.at(id)));
    cost.host = launches(schedule_.at(id).kernels);
    cost.compute = true;
    return cost;
  }

  const CostModel& model_;
  const Schedule& schedule_;
};

}  // namespace

CostModel::CostModel(const Cluster& cluster) : cluster_(cluster), gemm_(cluster.profile.gpu), collectives_(cluster) {}

Seconds CostModel::product(const MatrixProduct& product, DType dtype) const { return gemm_.time(product, dtype); }

Seconds CostModel::memory_bound(Bytes touched) const {
  const Gpu& gpu = cluster_.profile.gpu;
  return touched / (gpu.memory_bandwidth * gpu.elementwise_efficiency);
}

Seconds CostModel::work(const Work& work) const {
  const Gpu& gpu = cluster_.profile.gpu;
  Seconds time = memory_bound(work.memory) + gpu.device_kernel_gap * work.kernels;
  for (const MatrixProduct& p : work.products) time += product(p, work.dtype);
  for (const FlashAttention& a : work.attention) {
    const double efficiency = a.backward ? gpu.attention_backward_efficiency : gpu.attention_efficiency;
    time += gpu.gemm.launch + a.flops * a.density / (peak_for(gpu, work.dtype) * efficiency);
  }
  return time / gpu.sustained_efficiency;
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
  return std::visit([&](const auto& action) { return pricing.of(action); }, op.action);
}

std::vector<OpCost> CostModel::prices(const ReplayProgram& program) const {
  std::vector<OpCost> prices(program.examples().size());
  for (std::size_t i = 1; i < prices.size(); ++i) prices[i] = cost(program.schedule().at(program.examples()[i]), program.schedule());
  return prices;
}

}  // namespace shardsim
