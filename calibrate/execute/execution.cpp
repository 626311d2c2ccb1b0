// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/execution.hpp"

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "calibrate/execute/backends/gpu_plan.hpp"
#include "calibrate/execute/rank_executor.hpp"
#include "calibrate/execute/training/element.hpp"
#include "calibrate/execute/training/optimizer.hpp"
#include "calibrate/execute/training/reference.hpp"
#include "calibrate/execute/training/trainer.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim::execute {
namespace {

using Json = nlohmann::json;

BatchShares shares_of(const Job& job) { return {job.world_size, job.training.gradient_accumulation_steps, job.training.micro_batch_size}; }

Schedule schedule_of(Job job, std::int64_t rank) {
  job.rank = rank;
  return emit(job);
}

/// What one rank tells the parent.
struct RankReport {
  Bytes sent, control, peak, high_water;
  std::vector<Bytes> by_category, highest;
  std::vector<std::vector<double>> losses;  ///< by step, micro-batch
  std::vector<double> seconds;              ///< by step
  double gradient_difference = 0;
  std::uint64_t parameters_digest = 0;
  std::vector<std::uint64_t> digest_sent, digest_received;  ///< by peer; empty where a library moves the bytes
  std::string counted_by;
  std::optional<PoolUse> pool;
  Bytes pool_high_water;  ///< that the schedule's buffers should come to there
};

Json to_json(const std::optional<PoolUse>& pool) {
  if (!pool) return nullptr;
  return {pool->used_high, pool->reserved_high, pool->granularity, pool->device_free, pool->device_total};
}

std::optional<PoolUse> pool_from(const Json& json) {
  if (json.is_null()) return std::nullopt;
  const auto figure = [&](std::size_t i) { return json.at(i).get<std::size_t>(); };
  return PoolUse{figure(0), figure(1), figure(2), figure(3), figure(4)};
}

std::vector<std::int64_t> numbers(const std::vector<Bytes>& bytes) {
  std::vector<std::int64_t> values;
  for (Bytes b : bytes) values.push_back(b.value());
  return values;
}

std::vector<Bytes> bytes_from(const Json& list) {
  std::vector<Bytes> bytes;
  for (std::int64_t b : list.get<std::vector<std::int64_t>>()) bytes.emplace_back(b);
  return bytes;
}

std::string to_text(const RankReport& report) {
  // JSON has no infinity: a difference beyond any number is a very large one.
  const double difference = std::isfinite(report.gradient_difference) ? report.gradient_difference : 1e300;
  std::vector<std::vector<double>> losses = report.losses;
  for (auto& step : losses)
    for (double& loss : step)
      if (!std::isfinite(loss)) loss = 1e300;
  return Json{{"sent", report.sent.value()},
              {"control", report.control.value()},
              {"peak", report.peak.value()},
              {"high_water", report.high_water.value()},
              {"by_category", numbers(report.by_category)},
              {"highest", numbers(report.highest)},
              {"losses", losses},
              {"seconds", report.seconds},
              {"gradient", difference},
              {"digest", report.parameters_digest},
              {"digest_sent", report.digest_sent},
              {"digest_received", report.digest_received},
              {"counted_by", report.counted_by},
              {"pool", to_json(report.pool)},
              {"pool_high_water", report.pool_high_water.value()}}
      .dump();
}

RankReport report_from(const std::string& text) {
  const Json json = Json::parse(text);
  RankReport report;
  report.sent = Bytes{json.at("sent").get<std::int64_t>()};
  report.control = Bytes{json.at("control").get<std::int64_t>()};
  report.peak = Bytes{json.at("peak").get<std::int64_t>()};
  report.high_water = Bytes{json.at("high_water").get<std::int64_t>()};
  report.by_category = bytes_from(json.at("by_category"));
  report.highest = bytes_from(json.at("highest"));
  report.losses = json.at("losses").get<std::vector<std::vector<double>>>();
  report.seconds = json.at("seconds").get<std::vector<double>>();
  report.gradient_difference = json.at("gradient").get<double>();
  report.parameters_digest = json.at("digest").get<std::uint64_t>();
  report.digest_sent = json.at("digest_sent").get<std::vector<std::uint64_t>>();
  report.digest_received = json.at("digest_received").get<std::vector<std::uint64_t>>();
  report.counted_by = json.at("counted_by").get<std::string>();
  report.pool = pool_from(json.at("pool"));
  report.pool_high_water = Bytes{json.at("pool_high_water").get<std::int64_t>()};
  return report;
}

/// Everything a rank does.
RankReport run_rank(Platform& platform, const Job& job, const ExecutionOptions& options, const Reference& reference, int rank, Line& line) {
  const std::unique_ptr<Backend> backend = platform.open(rank, static_cast<int>(job.world_size), line, options.network);
  const Schedule schedule = schedule_of(job, rank);
  RankExecutor machine(schedule, {*job.model, job.training, shares_of(job), *backend});
  RankReport report;
  GradientCheck check{&reference.gradients};
  for (int step = 0; step < options.steps; ++step) {
    if (options.kill && options.kill->rank == rank && options.kill->step == step) ::raise(SIGKILL);
    line.barrier();
    const auto begin = std::chrono::steady_clock::now();
    report.losses.push_back(machine.step(check));
    report.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  line.barrier();  // what others still receive has been counted when all are here
  report.sent = backend->traffic().sent();
  report.control = backend->control().sent();
  report.counted_by = backend->traffic().counted_by();
  if (const WireDigests* digests = backend->traffic().digests()) {
    report.digest_sent = digests->sent();
    report.digest_received = digests->received();
  }
  report.peak = machine.memory().peak;
  report.by_category = machine.memory().at_peak;
  report.highest = machine.memory().highest;
  report.high_water = backend->high_water();
  report.pool = backend->pool();
  if (report.pool) report.pool_high_water = pool_high_water(schedule, [&](Bytes size) { return backend->footprint(size); });
  report.gradient_difference = check.largest_difference;
  report.parameters_digest = machine.parameters_digest();
  line.barrier();  // nobody closes a connection that another still reads its counter on
  return report;
}

std::int64_t payload_collectives(const Schedule& schedule) {
  return std::count_if(schedule.ops.begin(), schedule.ops.end(), [](const Op& op) {
    const auto* c = std::get_if<Communicate>(&op.action);
    return c != nullptr && !c->control;
  });
}

void add_predictions(ExecutionResult& result, const Platform& platform, const Job& job, int steps) {
  for (std::int64_t rank = 0; rank < job.world_size; ++rank) {
    const Schedule schedule = schedule_of(job, rank);
    result.sent.predicted.push_back(steps * platform.predicted_payload(schedule));
    result.sent.tolerance =
        std::max(result.sent.tolerance, platform.tolerance(result.sent.predicted.back(), steps * payload_collectives(schedule)));
    result.control.predicted.push_back(steps * predicted_bytes(schedule).control);
    result.peak.predicted.push_back(fold_memory(schedule, 1).peak);
    if (!result.pools.empty()) result.pools[static_cast<std::size_t>(rank)].least = result.peak.predicted.back();
    result.strategy = schedule.strategy;
    result.semantics = schedule.semantics;
  }
}

/// Pairs of ranks between which something did not arrive as it was sent.
std::vector<std::pair<int, int>> corrupted(const std::vector<RankReport>& reports) {
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t from = 0; from < reports.size(); ++from)
    for (std::size_t to = 0; to < reports[from].digest_sent.size(); ++to)
      if (reports[from].digest_sent[to] != reports[to].digest_received.at(from))
        pairs.emplace_back(static_cast<int>(from), static_cast<int>(to));
  return pairs;
}

void add_measurements(ExecutionResult& result, const std::vector<RankReport>& reports, int steps) {
  result.corrupted = corrupted(reports);
  result.losses.assign(static_cast<std::size_t>(steps), 0);
  result.step_seconds.assign(static_cast<std::size_t>(steps), 0);
  for (const RankReport& report : reports) {
    result.sent.measured.push_back(report.sent);
    result.control.measured.push_back(report.control);
    result.peak.measured.push_back(report.peak);
    result.peak_by_category.push_back(report.by_category);
    result.highest_by_category.push_back(report.highest);
    result.high_water.push_back(report.high_water);
    result.counted_by = report.counted_by;
    if (report.pool) result.pools.push_back({*report.pool, {}, report.pool_high_water});
    result.same_parameters = result.same_parameters && report.parameters_digest == reports.front().parameters_digest;
    result.gradient.largest_difference = std::max(result.gradient.largest_difference, report.gradient_difference);
    for (std::size_t s = 0; s < result.losses.size(); ++s) {
      result.step_seconds[s] = std::max(result.step_seconds[s], report.seconds[s]);
      for (double loss : report.losses[s]) result.losses[s] += loss / static_cast<double>(reports.size() * report.losses[s].size());
    }
  }
}

}  // namespace

bool ByRank::equal() const {
  const auto near = [this](Bytes a, Bytes b) { return std::max(a, b) - std::min(a, b) <= tolerance; };
  return std::equal(predicted.begin(), predicted.end(), measured.begin(), measured.end(), near);
}

bool PoolCheck::within() const {
  const Bytes used{static_cast<std::int64_t>(use.used_high)};
  return least <= used && used <= most;
}

bool ExecutionResult::agree() const {
  return same_parameters && corrupted.empty() && sent.equal() && control.equal() && peak.equal() && loss.within() && gradient.within() &&
         std::all_of(pools.begin(), pools.end(), [](const PoolCheck& pool) { return pool.within(); });
}

std::vector<std::string> cannot_execute(const Job& job) {
  std::vector<std::string> reasons = cannot_train(*job.model, job.training);
  const Optimizer& optimizer = job.training.optimizer;
  if (!is_executed(optimizer.kind)) reasons.emplace_back("of the optimizers only sgd, momentum, adam and adamw are executed");
  if (optimizer.clip_grad_norm) reasons.emplace_back("gradient clipping is not executed: leave clip_grad_norm out");
  if (job.training.offload.parameters != OffloadTarget::none || job.training.offload.optimizer != OffloadTarget::none)
    reasons.emplace_back("offloading is not executed: set training.offload to none");
  if (!job.training.warm) reasons.emplace_back("only warm steps are executed: set training.warm to true");
  for (const char* option :
       {"reduce_scatter_with_fp32_accumulation", "zero_quantized_weights", "zero_quantized_gradients", "mics_hierarchical_params_gather"})
    if (job.strategy.options.boolean(option, false)) reasons.push_back(std::string(option) + " is not executed: leave it out");
  if (job.strategy.options.word("comm_hook", "none") == "powersgd")
    reasons.emplace_back("comm_hook powersgd is not executed: leave it out");
  const auto own_dtype = [&](const Parameter& p) { return p.dtype && *p.dtype != job.training.precision.parameters; };
  if (std::any_of(job.model->parameters->begin(), job.model->parameters->end(), own_dtype))
    reasons.emplace_back("adapters in another dtype than the model are not executed: leave out lora.dtype");
  if (job.world_size > 64) reasons.push_back(std::to_string(job.world_size) + " ranks are more than one machine runs (64)");
  return reasons;
}

Schedule in_order(Schedule schedule) {
  for (Op& op : schedule.ops)
    if (op.stream.valid()) op.stream = StreamId{0};
  return schedule;
}

PredictedBytes predicted_bytes(const Schedule& schedule) {
  PredictedBytes sum;
  for (const Op& op : schedule.ops) {
    const auto* c = std::get_if<Communicate>(&op.action);
    if (c == nullptr) continue;
    const Members members = members_of(schedule.group_of(c->communicator), static_cast<int>(schedule.rank));
    const std::int64_t elements = ring_sent_elements(c->kind, ring_segments(c->payload.value(), members.size()), members.index, c->root);
    (c->control ? sum.control : sum.payload) += bytes(Elements{elements}, c->dtype);
  }
  return sum;
}

double roundoff(const Training& training) {
  const Precision& p = training.precision;
  return std::max(
      {unit_roundoff(p.parameters), unit_roundoff(p.compute), unit_roundoff(p.gradients), unit_roundoff(p.reduce.value_or(p.gradients))});
}

// See [Note: tolerance].
double gradient_tolerance(const Training& training, std::int64_t ranks, int steps) {
  const auto roundings = static_cast<double>(ranks + training.gradient_accumulation_steps + 4);
  return 8 * roundings * roundoff(training) * (1 + 0.1 * steps);
}

double loss_tolerance(const Training& training, const std::vector<double>& losses, int steps) {
  return roundoff(training) * *std::max_element(losses.begin(), losses.end()) * (1 + 0.1 * steps);
}

ExecutionResult execute_on(Platform& platform, const Job& job, const ExecutionOptions& options) {
  const Reference reference = train_alone(*job.model, job.training, shares_of(job), options.steps);
  const auto texts = platform.run(static_cast<int>(job.world_size),
                                  [&](int rank, Line& line) { return to_text(run_rank(platform, job, options, reference, rank, line)); });
  std::vector<RankReport> reports;
  for (const std::string& text : texts) reports.push_back(report_from(text));
  ExecutionResult result;
  add_measurements(result, reports, options.steps);
  add_predictions(result, platform, job, options.steps);
  result.reference_losses = reference.losses;
  for (std::size_t s = 0; s < result.losses.size(); ++s) {
    const double difference = std::abs(result.losses[s] - reference.losses[s]);
    if (!(difference <= result.loss.largest_difference)) result.loss.largest_difference = difference;
  }
  result.loss.tolerance = loss_tolerance(job.training, reference.losses, options.steps);
  result.gradient.tolerance = gradient_tolerance(job.training, job.world_size, options.steps);
  return result;
}

ExecutionResult execute_local(const Job& job, const ExecutionOptions& options) {
  LocalPlatform platform;
  return execute_on(platform, job, options);
}

}  // namespace shardsim::execute
