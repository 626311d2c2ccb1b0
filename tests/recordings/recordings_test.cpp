// SPDX-License-Identifier: Apache-2.0
// The schedule of a scenario against what the real library did with it: every collective of a step in its order and phase, with its
// elements, dtype and group; the peak of memory by category; the bytes of a checkpoint.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "recording.hpp"
#include "scenarios/reader/scenario.hpp"
#include "sim/memory/memory.hpp"
#include "strategies/checkpoint.hpp"

namespace shardsim {
namespace {

Scenario scenario_of(const Recording& recording, const std::filesystem::path& path) {
  auto root = read_yaml({.name = path.string(), .text = recording.scenario});
  if (!root) throw std::runtime_error(root.error().text());
  root = with_override(std::move(*root), "strategy.version=" + recording.version);
  auto scenario = read_scenario(std::move(*root), path.string(), path.parent_path().string());
  if (!scenario) throw std::runtime_error(scenario.error().text());
  return std::move(*scenario);
}

std::string phase_of(const Op& op) {
  return op.phase == Phase::step ? "step" : std::string(name_of(op.phase)) + " " + std::to_string(op.micro_batch);
}

std::string collectives_of(const Schedule& schedule) {
  std::string text;
  for (const Op& op : schedule.ops) {
    const auto* c = std::get_if<Communicate>(&op.action);
    if (!c) continue;
    const Group& group = schedule.group_of(c->communicator);
    if (group.size == 1) continue;
    text += phase_of(op) + ": " + std::string(name_of(c->kind)) + " " + std::to_string(c->payload.value()) + " " +
            std::string(name_of(c->dtype)) + " over " + std::to_string(group.size) +
            (group.stride > 1 ? " stride " + std::to_string(group.stride) : "") + "\n";
  }
  return text;
}

/// By phase: what is allocated, by category, at the moment of the phase that holds most. Bytes as they are, unrounded.
std::map<std::string, ByCategory> peaks_of(const Schedule& schedule) {
  const std::vector<AllocationChange> changes = allocation_changes(schedule, 1);
  ByCategory allocated = fold_memory(schedule, changes).before;
  std::map<std::string, ByCategory> peaks;
  for (const AllocationChange& change : changes) {
    if (change.host || !change.op.valid()) continue;
    allocated[static_cast<std::size_t>(change.category)] += change.bytes;
    ByCategory& peak = peaks[std::string(name_of(schedule.at(change.op).phase))];
    if (sum(allocated) > sum(peak)) peak = allocated;
  }
  return peaks;
}

/// Rows that the library's tracker does not tell apart are added up: "activations+logits".
Bytes bytes_of(const ByCategory& by, const std::string& row) {
  if (row == "total") return sum(by);
  Bytes bytes;
  std::istringstream names(row);
  for (std::string name; std::getline(names, name, '+');) {
    const auto found = std::find(category_names.begin(), category_names.end(), name);
    if (found == category_names.end()) throw std::runtime_error("no category " + name);
    bytes += by[static_cast<std::size_t>(found - category_names.begin())];
  }
  return bytes;
}

void expect_same_memory(const Schedule& schedule, const Recording& recording) {
  constexpr double tolerance = 0.001;
  std::map<std::string, ByCategory> peaks = peaks_of(schedule);
  for (const auto& [phase, rows] : recording.memory) {
    ASSERT_TRUE(peaks.contains(phase)) << phase;
    const double total = static_cast<double>(rows.at("total"));
    for (const auto& [row, size] : rows)
      EXPECT_NEAR(static_cast<double>(bytes_of(peaks[phase], row).value()), static_cast<double>(size), tolerance * total)
          << row << " at the peak of " << phase;
  }
}

std::vector<std::int64_t> values_of(const ByRank& bytes) {
  std::vector<std::int64_t> values;
  for (Bytes b : bytes) values.push_back(b.value());
  return values;
}

/// Equal in sum. Of what several ranks hold, which one writes it is a matter of order: ranks agree within a few tensors.
void expect_same_bytes(std::vector<std::int64_t> predicted, std::vector<std::int64_t> recorded, const char* what) {
  constexpr double tensors = 0.03;
  ASSERT_EQ(predicted.size(), recorded.size()) << what;
  EXPECT_EQ(std::accumulate(predicted.begin(), predicted.end(), std::int64_t{0}),
            std::accumulate(recorded.begin(), recorded.end(), std::int64_t{0}))
      << what;
  std::sort(predicted.begin(), predicted.end());
  std::sort(recorded.begin(), recorded.end());
  for (std::size_t i = 0; i < predicted.size(); ++i)
    EXPECT_NEAR(static_cast<double>(predicted[i]), static_cast<double>(recorded[i]), tensors * static_cast<double>(recorded[i])) << what;
}

void expect_same_checkpoint(const Job& job, const Schedule& schedule, const CheckpointRequest& request, const Recording& recording) {
  const std::vector<SavedTensor> saved = state_dict(job, schedule);
  const Job loading = loading_job(job, request);
  expect_same_bytes(values_of(dcp_written(saved, job.world_size)), recording.checkpoint.at("written"), "written");
  expect_same_bytes(values_of(dcp_read(saved, state_dict(loading, emit(loading)), loading.world_size)), recording.checkpoint.at("read"),
                    "read");
}

class Recorded : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Recorded, AgreesWithTheSchedule) {
  const Recording recording = read_recording(GetParam());
  ASSERT_TRUE(recording.has_collectives || !recording.memory.empty() || !recording.checkpoint.empty());
  const Scenario scenario = scenario_of(recording, GetParam());
  EXPECT_EQ(scenario.model->total().value(), recording.parameters);
  EXPECT_EQ(scenario.model->trainable().value(), recording.trainable);
  const Job job = scenario.job();
  ASSERT_TRUE(check(job).empty()) << check(job).text();
  const Schedule schedule = emit(job);
  if (recording.has_collectives) { EXPECT_EQ(collectives_of(schedule), recording.collectives); }
  expect_same_memory(schedule, recording);
  if (!recording.checkpoint.empty()) {
    ASSERT_TRUE(scenario.checkpoint.has_value());
    expect_same_checkpoint(job, schedule, *scenario.checkpoint, recording);
  }
}

std::string name_of_file(const testing::TestParamInfo<std::filesystem::path>& info) {
  const std::filesystem::path folder = std::filesystem::path(SHARDSIM_SOURCE_DIR) / "tests" / "recordings";
  std::string name = info.param.lexically_relative(folder).replace_extension().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Recordings, Recorded, testing::ValuesIn(recording_files()), name_of_file);

}  // namespace
}  // namespace shardsim
