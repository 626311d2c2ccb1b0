// SPDX-License-Identifier: Apache-2.0
// A measured run beside the prediction.
#include "studies/simulate/measured.hpp"

#include <fmt/format.h>

#include <limits>

#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

constexpr double any_number = std::numeric_limits<double>::max();

/// Tokens a second of one GPU, in whichever way the run told them.
std::optional<double> rate_of(MapReader& reader, const Scenario& scenario, const SimulationResult& predicted) {
  const double gpus = static_cast<double>(scenario.cluster.world_size());
  const double tokens_of_step = predicted.step.tokens_per_second_per_gpu * predicted.step.time.base();
  std::optional<double> rate;
  const auto take = [&](std::string_view key, double value) {
    if (rate) reader.problems().add(reader.find(key)->where, fmt::format("{}: the speed of the run is told already", key));
    rate = value;
  };
  if (reader.has("tokens_per_second_per_gpu"))
    take("tokens_per_second_per_gpu", reader.number("tokens_per_second_per_gpu", 1, 1e-9, any_number));
  if (reader.has("tokens_per_second")) take("tokens_per_second", reader.number("tokens_per_second", 1, 1e-9, any_number) / gpus);
  if (reader.has("step_time")) {
    const Seconds time = reader.seconds("step_time", Seconds{1});
    if (time > Seconds{}) take("step_time", tokens_of_step / time.base());
  }
  if (reader.has("gpu_hours") != reader.has("tokens"))
    reader.problems().add(reader.node().where, "gpu_hours and tokens of the run tell its speed together");
  else if (reader.has("gpu_hours"))
    take("gpu_hours", reader.number("tokens", 1, 1, any_number) / (reader.number("gpu_hours", 1, 1e-9, any_number) * 3600));
  return rate;
}

void add_doubts(const Scenario& scenario, const SimulationResult& predicted, MeasuredRun& run) {
  const auto gpus = static_cast<double>(scenario.cluster.world_size());
  if (run.hfu && *run.hfu > 1) {
    std::string why = fmt::format("{:.0f} % of the dense peak is more than the GPU can do", 100 * *run.hfu);
    if (gpus > 1 && *run.hfu / gpus < 1 && *run.hfu > 2)
      why += fmt::format("; divided by {} GPUs it is {:.1f} %: is it the rate of all of them?", grouped(scenario.cluster.world_size()),
                         100 * *run.hfu / gpus);
    else
      why += "; was its MFU counted against the sparse peak, or another sequence length used?";
    run.doubts.push_back(why);
  }
  const Bytes capacity = predicted.memory.capacity;
  if (run.peak && *run.peak > capacity)
    run.doubts.push_back(fmt::format(
        "a peak of {} is more than the {} of the device; GB read as GiB are 7 % less: {}", to_text(*run.peak), to_text(capacity),
        to_text(Bytes{static_cast<std::int64_t>(static_cast<double>(run.peak->value()) * 1e9 / static_cast<double>(1 << 30))})));
}

}  // namespace

std::shared_ptr<const MeasuredRun> measured_run(const Scenario& scenario, const SimulationResult& predicted) {
  const ConfigNode* block = scenario.root.find("measured");
  if (block == nullptr || block->kind == ConfigNode::Kind::null) return nullptr;
  Problems problems;
  MapReader reader(*block, problems, "measured");
  MeasuredRun run;
  run.tokens_per_second_per_gpu = rate_of(reader, scenario, predicted);
  if (reader.has("peak_bytes")) run.peak = reader.bytes("peak_bytes", {});
  reader.finish();
  if (!problems.empty()) throw InputError(std::move(problems));
  const StepTime& step = predicted.step;
  if (run.tokens_per_second_per_gpu && step.tokens_per_second_per_gpu > 0) {
    const double ratio = *run.tokens_per_second_per_gpu / step.tokens_per_second_per_gpu;
    run.step_time = step.time * (1 / ratio);
    run.time_error = ratio - 1;  // the prediction's time over the measured one, less 1
    run.mfu = step.mfu * ratio;
    run.hfu = step.hfu * ratio;
  }
  if (run.peak && *run.peak > Bytes{})
    run.peak_error = static_cast<double>(predicted.memory.peak.value()) / static_cast<double>(run.peak->value()) - 1;
  add_doubts(scenario, predicted, run);
  return std::make_shared<const MeasuredRun>(std::move(run));
}

}  // namespace shardsim
