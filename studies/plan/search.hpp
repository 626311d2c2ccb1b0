// SPDX-License-Identifier: Apache-2.0
// The search of a plan: simulates what could be best and leaves out what bounds prove is not.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "studies/plan/bounds.hpp"

namespace shardsim {

struct Evaluated {
  Candidate candidate;
  SimulationResult result;

  [[nodiscard]] Seconds time() const { return result.step.time; }
  [[nodiscard]] std::int64_t gpus() const { return candidate.gpus(); }
  [[nodiscard]] double gpu_seconds() const { return time().base() * static_cast<double>(gpus()); }
};

/// A candidate that a bound excludes: it holds at least `memory`.
struct Excluded {
  Candidate candidate;
  Bytes memory;
};

struct SearchResult {
  std::vector<Evaluated> fitting;    ///< in the order of the search
  std::vector<Evaluated> too_large;  ///< ran, did not fit: the one with the least memory for each number of GPUs
  std::optional<Evaluated> fragile;  ///< the fastest that the device holds, but not with what is to stay free
  std::vector<Excluded> excluded;    ///< by their memory bound: the one with the lowest for each number of GPUs
  std::int64_t evaluated = 0, pruned = 0, refused = 0;
};

/// The two ways to look at a candidate; functions, so that tests can search worlds of their own.
struct SearchModel {
  std::function<LowerBound(const Candidate&)> bound;
  std::function<std::optional<SimulationResult>(const Candidate&)> evaluate;  ///< called from several threads
  Bytes capacity;                                                             ///< that may be used
  std::function<bool(const SimulationResult&)> fits = [](const SimulationResult& result) { return result.memory.fits; };
  std::function<void(std::size_t)> advanced{};  ///< told how many more candidates are settled; may be empty
};

/// Leaves out a candidate only if (a) its memory bound exceeds the capacity, or (b) one that fits on no more GPUs is known to be at least
/// as fast as the candidate's time bound. Both keep the optimum of time, of GPUs and of any objective that grows with the two, and
/// the values on the Pareto front. The result does not depend on the number of threads.
[[nodiscard]] SearchResult search(std::vector<Candidate> candidates, const SearchModel& model, bool prune = true);

/// The best by time, by GPU-time and by number of GPUs; null where nothing fits. Ties go to fewer GPUs, then less time, then less memory.
struct Best {
  const Evaluated* time = nullptr;
  const Evaluated* cost = nullptr;
  const Evaluated* gpus = nullptr;
};
[[nodiscard]] Best best_of(const std::vector<Evaluated>& fitting);

/// Those that nothing else beats in both time and number of GPUs, by GPUs.
[[nodiscard]] std::vector<const Evaluated*> pareto_front(const std::vector<Evaluated>& fitting);

}  // namespace shardsim
