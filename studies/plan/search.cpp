// SPDX-License-Identifier: Apache-2.0
#include "studies/plan/search.hpp"

#include <algorithm>
#include <tuple>

#include "sim/base/parallel.hpp"

namespace shardsim {
namespace {

// Candidates are judged against what earlier waves found, so the size of a wave, unlike the number of threads, shows in the counts.
constexpr std::size_t wave_size = 32;

struct Open {
  Candidate candidate;
  LowerBound bound;
};

/// Fastest step known for up to so many GPUs.
class Frontier {
 public:
  void add(std::int64_t gpus, Seconds time) { points_.emplace_back(gpus, time); }
  [[nodiscard]] bool dominates(std::int64_t gpus, Seconds bound) const {
    return std::any_of(points_.begin(), points_.end(), [&](const auto& point) { return point.first <= gpus && point.second <= bound; });
  }

 private:
  std::vector<std::pair<std::int64_t, Seconds>> points_;
};

std::vector<Open> in_search_order(std::vector<Candidate> candidates, const SearchModel& model) {
  std::vector<Open> open;
  open.reserve(candidates.size());
  for (Candidate& candidate : candidates) {
    const LowerBound bound = model.bound(candidate);
    open.push_back({std::move(candidate), bound});
  }
  std::stable_sort(open.begin(), open.end(), [](const Open& a, const Open& b) {
    return std::tuple(a.candidate.gpus(), a.bound.time) < std::tuple(b.candidate.gpus(), b.bound.time);
  });
  return open;
}

void keep_leanest(std::vector<Evaluated>& too_large, Evaluated candidate) {
  const auto same = std::find_if(too_large.begin(), too_large.end(), [&](const Evaluated& e) { return e.gpus() == candidate.gpus(); });
  if (same == too_large.end())
    too_large.push_back(std::move(candidate));
  else if (candidate.result.memory.device_peak < same->result.memory.device_peak)
    *same = std::move(candidate);
}

void keep_leanest(std::vector<Excluded>& excluded, const Open& open) {
  const auto same =
      std::find_if(excluded.begin(), excluded.end(), [&](const Excluded& e) { return e.candidate.gpus() == open.candidate.gpus(); });
  if (same == excluded.end())
    excluded.push_back({open.candidate, open.bound.memory});
  else if (open.bound.memory < same->memory)
    *same = {open.candidate, open.bound.memory};
}

}  // namespace

SearchResult search(std::vector<Candidate> candidates, const SearchModel& model, bool prune) {
  const std::vector<Open> open = in_search_order(std::move(candidates), model);
  SearchResult found;
  Frontier frontier;
  for (std::size_t next = 0; next < open.size();) {
    const std::size_t settled = next;
    std::vector<const Open*> wave;
    for (; next < open.size() && wave.size() < wave_size; ++next) {
      const Open& o = open[next];
      const bool large = o.bound.memory > model.capacity;
      if (!prune || (!large && !frontier.dominates(o.candidate.gpus(), o.bound.time))) {
        wave.push_back(&o);
        continue;
      }
      ++found.pruned;
      if (large) keep_leanest(found.excluded, o);
    }
    std::vector<std::optional<SimulationResult>> results(wave.size());
    parallel_for(wave.size(), available_cores(), [&](std::size_t i) { results[i] = model.evaluate(wave[i]->candidate); });
    for (std::size_t i = 0; i < wave.size(); ++i) {
      if (!results[i]) {
        ++found.refused;
        continue;
      }
      ++found.evaluated;
      Evaluated evaluated{wave[i]->candidate, std::move(*results[i])};
      if (!model.fits(evaluated.result)) {
        if (evaluated.result.memory.fits && (!found.fragile || evaluated.time() < found.fragile->time())) found.fragile = evaluated;
        keep_leanest(found.too_large, std::move(evaluated));
        continue;
      }
      frontier.add(evaluated.gpus(), evaluated.time());
      found.fitting.push_back(std::move(evaluated));
    }
    if (model.advanced) model.advanced(next - settled);
  }
  return found;
}

Best best_of(const std::vector<Evaluated>& fitting) {
  Best best;
  const auto take = [&fitting](auto key) {
    const auto found =
        std::min_element(fitting.begin(), fitting.end(), [&](const Evaluated& a, const Evaluated& b) { return key(a) < key(b); });
    return found == fitting.end() ? nullptr : &*found;
  };
  const auto memory = [](const Evaluated& e) { return e.result.memory.device_peak; };
  best.time = take([&](const Evaluated& e) { return std::tuple(e.time(), e.gpus(), memory(e)); });
  best.cost = take([&](const Evaluated& e) { return std::tuple(e.gpu_seconds(), e.gpus(), memory(e)); });
  best.gpus = take([&](const Evaluated& e) { return std::tuple(e.gpus(), e.time(), memory(e)); });
  return best;
}

std::vector<const Evaluated*> pareto_front(const std::vector<Evaluated>& fitting) {
  std::vector<const Evaluated*> order;
  for (const Evaluated& e : fitting) order.push_back(&e);
  std::stable_sort(order.begin(), order.end(), [](const Evaluated* a, const Evaluated* b) {
    return std::tuple(a->gpus(), a->time(), a->result.memory.device_peak) < std::tuple(b->gpus(), b->time(), b->result.memory.device_peak);
  });
  std::vector<const Evaluated*> front;
  for (const Evaluated* e : order)
    if (front.empty() || e->time() < front.back()->time()) front.push_back(e);
  return front;
}

}  // namespace shardsim
