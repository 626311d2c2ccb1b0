// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/cost_plan.hpp"

#include <map>
#include <tuple>
#include <utility>

#include "sim/engine/cost_model.hpp"

namespace shardsim {
namespace {

/// What the cost of an op depends on besides the machine.
using Traits = std::tuple<std::size_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

class Classifier {
 public:
  Classifier(const Schedule& schedule, std::vector<OpId>& examples)
      : schedule_(schedule), examples_(examples), by_work_(schedule.works.size(), none) {}

  static constexpr std::int32_t none = -1;  // costs nothing on any machine

  std::int32_t class_of(OpId id) {
    const Op& op = schedule_.at(id);
    if (const auto* compute = std::get_if<Compute>(&op.action)) return of(id, *compute);
    if (const auto* copy = std::get_if<Copy>(&op.action)) return of(id, *copy);
    if (const auto* collective = std::get_if<Communicate>(&op.action)) return of(id, *collective);
    if (const auto* update = std::get_if<Update>(&op.action))
      return with({op.action.index(), update->work.index, update->on_host, 0, 0, 0, 0}, id);
    return none;  // bookkeeping of the host: well below a kernel launch
  }

 private:
  std::int32_t of(OpId id, const Compute& compute) {
    if (!compute.work.valid()) return none;
    std::int32_t& known = by_work_[static_cast<std::size_t>(compute.work.index)];
    if (known == none) known = added(id);
    return known;
  }

  std::int32_t of(OpId id, const Copy& copy) {
    const std::int64_t source = copy.source.valid() ? static_cast<std::int64_t>(schedule_.at(copy.source).dtype) : -1;
    const auto target = static_cast<std::int64_t>(schedule_.at(copy.target).dtype);
    return with({schedule_.at(id).action.index(), copy.count.value(), source, target, static_cast<std::int64_t>(copy.path), copy.accumulate,
                 copy.kernels},
                id);
  }

  std::int32_t of(OpId id, const Communicate& collective) {
    return with({schedule_.at(id).action.index(), static_cast<std::int64_t>(collective.kind),
                 bytes(collective.payload, collective.dtype).value(), schedule_.at(collective.communicator).group.index, 0, 0, 0},
                id);
  }

  std::int32_t with(const Traits& traits, OpId id) {
    if (last_ != by_traits_.end() && last_->first == traits) return last_->second;  // alike ops come in runs
    const auto [place, is_new] = by_traits_.try_emplace(traits, none);
    if (is_new) place->second = added(id);
    last_ = place;
    return place->second;
  }

  std::int32_t added(OpId id) {
    examples_.push_back(id);
    return static_cast<std::int32_t>(examples_.size()) - 1;
  }

  const Schedule& schedule_;
  std::vector<OpId>& examples_;
  std::vector<std::int32_t> by_work_;
  std::map<Traits, std::int32_t> by_traits_;
  std::map<Traits, std::int32_t>::iterator last_ = by_traits_.end();
};

}  // namespace

CostPlan::CostPlan(const Schedule& schedule) {
  Classifier classifier(schedule, examples_);
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const auto op = static_cast<std::int32_t>(i);
    const std::int32_t in_class = classifier.class_of(OpId{op});
    if (in_class != Classifier::none) priced_.push_back({op, in_class});
  }
}

std::vector<OpCost> CostPlan::costs(const CostModel& model, const Schedule& schedule) const {
  std::vector<OpCost> prices;
  prices.reserve(examples_.size());
  for (const OpId example : examples_) prices.push_back(model.cost(schedule.at(example), schedule));
  std::vector<OpCost> costs(schedule.ops.size());
  for (const auto& [op, in_class] : priced_) costs[static_cast<std::size_t>(op)] = prices[static_cast<std::size_t>(in_class)];
  return costs;
}

}  // namespace shardsim
