// SPDX-License-Identifier: Apache-2.0
// From measured steps to a profile with the prices that they determine.
#include "studies/fit/runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "sim/base/parallel.hpp"
#include "studies/fit/prices.hpp"
#include "studies/fit/timed_job.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

/// A path that means the same from any folder; one of a shipped profile stays as it is.
std::string from_anywhere(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) ? std::filesystem::absolute(path, error).string() : path;
}

std::vector<TimedJob> jobs_of(const std::vector<TimedRun>& runs, const std::string& base) {
  std::vector<TimedJob> jobs;
  Problems problems;
  for (const TimedRun& run : runs) {
    auto scenario = load_scenario(run.scenario, {"cluster.profile=" + from_anywhere(base)});
    if (!scenario)
      problems.append(scenario.error());
    else if (Problems wrong = check(scenario->job()); !wrong.empty())
      problems.append(wrong);
    else
      jobs.emplace_back(std::move(*scenario));
  }
  if (!problems.empty()) throw InputError(std::move(problems));
  return jobs;
}

Seconds measured_time(const TimedRun& run, const StepTime& step) {
  return run.step_time ? *run.step_time : step.time * (step.tokens_per_second_per_gpu / *run.tokens_per_second_per_gpu);
}

std::vector<FactorPrior> priors(const Profile& profile) {
  std::vector<FactorPrior> all;
  for (const Price& price : prices())
    all.push_back({std::string(price.family), price.together, price.apart, std::log(std::clamp(price.least(profile), 0.01, 1.0)), 3});
  return all;
}

std::vector<FittedPrice> moved(const Profile& from, const Profile& to, const FactorFit& fit) {
  std::vector<FittedPrice> all;
  for (std::size_t i = 0; i < prices().size(); ++i) {
    const Price& price = prices()[i];
    FittedPrice fitted{
        std::string(price.name), std::string(price.family), std::exp(fit.logs[i]), fit.deviation[i], fit.told[i], fit.apart[i], {}};
    for (const PriceKey& key : price.keys) fitted.keys.push_back({std::string(key.key), key.text(from), key.text(to)});
    all.push_back(std::move(fitted));
  }
  return all;
}

}  // namespace

RunFit fit_runs(const std::string& file, const std::vector<TimedRun>& runs, const std::string& base, const Profile& profile) {
  const std::vector<TimedJob> jobs = jobs_of(runs, base);
  RunFit result;
  FactorProblem problem;
  const std::vector<double> as_is(prices().size(), 0.0);
  std::vector<SimulationResult> before;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    before.push_back(jobs[i].run(as_is));
    const Seconds measured = measured_time(runs[i], before.back().step);
    result.runs.push_back({runs[i], measured, before.back().step.time, {}, {}, {}});
    problem.measured.push_back(std::log(measured.base()));
  }
  problem.factors = priors(profile);
  problem.predict = [&](std::size_t i, std::span<const double> logs) { return std::log(jobs[i].run(logs).step.time.base()); };
  const FactorFit fit = fit_factors(problem);

  result.profile = stretched(profile, fit.logs);
  result.prices = moved(profile, result.profile, fit);
  for (const FittedPrice& price : result.prices)
    if (price.told)
      for (const MovedKey& key : price.keys)
        result.profile.origins[key.key] =
            fmt::format("fitted: {} measured step{} of {}: {} take {:.3f} times as long ({} before)", runs.size(),
                        runs.size() == 1 ? "" : "s", std::filesystem::path(file).filename().string(), price.name, price.factor, key.from);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    result.runs[i].after = jobs[i].run(fit.logs).step.time;
    if (!fit.left_out.empty()) result.runs[i].left_out = fit.left_out[i];
    if (runs[i].peak) result.runs[i].predicted_peak = before[i].memory.peak;
  }
  return result;
}

}  // namespace shardsim
