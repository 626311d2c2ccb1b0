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
      : schedule_(schedule), examples_(examples), by_work_(schedule.works.size(), -1) {
    examples_.emplace_back();
  }

  std::int32_t class_of(OpId id) {
    const Op& op = schedule_.at(id);
    if (const auto* compute = std::get_if<Compute>(&op.action)) return of(id, *compute);
    if (const auto* copy = std::get_if<Copy>(&op.action)) return of(id, *copy);
    if (const auto* collective = std::get_if<Communicate>(&op.action)) return of(id, *collective);
    if (const auto* update = std::get_if<Update>(&op.action))
      return with({op.action.index(), update->work.index, update->on_host, 0, 0, 0, 0}, id);
    return 0;  // bookkeeping of the host: well below a kernel launch
  }

 private:
  std::int32_t of(OpId id, const Compute& compute) {
    if (!compute.work.valid()) return 0;
    std::int32_t& known = by_work_[static_cast<std::size_t>(compute.work.index)];
    if (known < 0) known = added(id);
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
    const auto [place, is_new] = by_traits_.try_emplace(traits, 0);
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
  class_.reserve(schedule.ops.size());
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) class_.push_back(classifier.class_of(OpId{static_cast<std::int32_t>(i)}));
}

std::vector<OpCost> CostPlan::costs(const CostModel& model, const Schedule& schedule) const {
  std::vector<OpCost> prices(examples_.size());
  for (std::size_t c = 1; c < prices.size(); ++c) prices[c] = model.cost(schedule.at(examples_[c]), schedule);
  std::vector<OpCost> costs;
  costs.reserve(class_.size());
  for (const std::int32_t c : class_) costs.push_back(prices[static_cast<std::size_t>(c)]);
  return costs;
}

}  // namespace shardsim
