// SPDX-License-Identifier: Apache-2.0
// A small result written by hand, for tests of reports: one gather beside one product, one reduction after it.
#pragma once

#include <memory>

#include "sim/engine/result.hpp"
#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {

inline Schedule sample_schedule() {
  ScheduleBuilder build;
  const UnitId unit = build.unit("layers.0");
  const StreamId gather = build.stream("all-gather");
  const CommunicatorId communicator = build.communicator("shard", "world", 4);
  const BufferId full = build.allocate({.label = {"FSDP::unsharded", unit},
                                        .category = Category::unsharded_parameters,
                                        .dtype = DType::bf16,
                                        .pool = gather,
                                        .layout = {},
                                        .elements = Elements{1024}});
  Communicate action;
  action.kind = Collective::all_gather;
  action.communicator = communicator;
  action.payload = Elements{1024};
  action.target = full;
  const OpId gathered = build.communicate({"FSDP::all_gather", unit}, gather, action);
  build.wait(ScheduleBuilder::compute_stream(), gathered);
  Work product;
  product.products.push_back({8, 16, 32, 1});
  product.kernels = 1;
  build.compute({"forward \"quoted\"", unit}, build.work(product), Pass::forward, {});
  build.free(full);
  Schedule schedule = std::move(build).take();
  schedule.strategy = "fsdp2";
  schedule.semantics = "framework";
  schedule.library = "PyTorch (fully_shard)";
  schedule.world_size = 4;
  return schedule;
}

/// Times in nanoseconds with a fraction, so that rounding shows.
inline Timeline sample_timeline() {
  const auto at = [](double ns) { return SimTime{static_cast<std::int64_t>(ns * 1000)}; };
  Timeline timeline;
  timeline.slices = {{OpId{1}, StreamId{1}, at(100.4), at(1500.6)}, {OpId{3}, StreamId{0}, at(1500.6), at(2'000'000'123.0)}};
  timeline.host = {{OpId{1}, at(0), at(100.4)}, {OpId{3}, at(100.4), at(200)}};
  timeline.end = at(2'000'000'123.0);
  return timeline;
}

inline SimulationResult sample_result() {
  SimulationResult r;
  r.scenario = "sample.yaml";
  r.model_name = "sample model";
  r.parameters = Elements{1'000'000};
  r.trainable_parameters = Elements{250'000};
  r.world_size = 4;
  r.schedule = std::make_shared<const Schedule>(sample_schedule());

  r.traffic.sent_per_rank[static_cast<std::size_t>(Collective::all_gather)] = Bytes{3'000'000};
  r.traffic.sent_per_rank[static_cast<std::size_t>(Collective::reduce_scatter)] = Bytes{1'500'000};
  r.traffic.total = r.traffic.by_rank_max = Bytes{4'500'000};
  r.traffic.by_rank_min = Bytes{4'499'999};
  r.traffic.by_rank_mean = 4'499'999.5;
  r.traffic.by_group = {
      {"world", Collective::all_gather, DType::bf16, Bytes{2'000'000}, 2, Bytes{3'000'000}, "ring", "ring alpha-beta", false, "", 0},
      {"world", Collective::reduce_scatter, DType::bf16, Bytes{2'000'000}, 1, Bytes{1'500'000}, "ring", "ring alpha-beta", false, "", 0},
      {"world", Collective::all_reduce, DType::fp32, Bytes{4}, 1, Bytes{6}, "ring", "ring alpha-beta", true, "", 0}};
  r.traffic.control = Bytes{6};
  r.traffic.psi_units = 6;
  r.traffic.textbook = Bytes{4'400'000};
  r.traffic.textbook_differs_because = "dimension 0 is padded";

  r.memory.at_peak = {Bytes{500'000}, Bytes{}, Bytes{3'000'000}, Bytes{2'048}, Bytes{}, Bytes{}, Bytes{70'000'000}, Bytes{}, Bytes{}};
  r.memory.peak = sum(r.memory.at_peak);
  r.memory.peak_at = "forward(layers.0), micro-batch 0";
  r.memory.capacity = gibibytes(80);
  r.memory.persistent = {Bytes{500'000}, Bytes{500'000}, Bytes{3'000'000}, Bytes{}, Bytes{}, Bytes{}, Bytes{}, Bytes{}, Bytes{}};
  r.memory.resident = Bytes{3'500'000};
  r.memory.reserved_peak = mebibytes(72);
  r.memory.overhead = mebibytes(900);
  r.memory.device_peak = mebibytes(972);
  r.memory.before = r.memory.at_peak;
  const AllocationChange nothing{.bytes = Bytes{0}, .op = OpId{0}};
  r.memory.timeline = {std::make_shared<const std::vector<AllocationChange>>(1, nothing), {SimTime{0}}};

  r.step.time = Seconds{2.0};
  r.step.compute = Seconds{1.5};
  r.step.communication = Seconds{0.75};
  r.step.exposed_communication = Seconds{0.25};
  r.step.host_bound = Seconds{0.15};
  r.step.optimizer = Seconds{0.1};
  r.step.tokens_per_second = 4096;
  r.step.tokens_per_second_per_gpu = 1024;
  r.step.model_flops = Flops{3e12};
  r.step.hardware_flops = Flops{4e12};
  r.step.flop_convention = "6 FLOPs a parameter and token";
  r.step.mfu = 0.3;
  r.step.hfu = 0.4;
  r.step.bound_by = "compute";
  r.timeline = sample_timeline();
  r.warnings = {"a warning"};
  return r;
}

}  // namespace shardsim
