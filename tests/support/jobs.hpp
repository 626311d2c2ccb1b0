// SPDX-License-Identifier: Apache-2.0
// Jobs that tests run: models from presets or inline layers, one call to a schedule and its account.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "models/families/hf_config.hpp"
#include "sim/engine/account.hpp"
#include "strategies/strategy.hpp"

namespace shardsim::testing {

inline std::shared_ptr<const Architecture> inline_layers(const std::string& text) {
  const auto node = read_yaml({"layers", text});
  if (!node) throw std::runtime_error(node.error().text());
  auto architecture = read_layers(*node);
  if (!architecture) throw std::runtime_error(architecture.error().text());
  return *architecture;
}

struct ToySizes {
  std::int64_t vocabulary = 101, width = 8, hidden = 10, blocks = 2;
};

/// Embedding, blocks of four parameters, a norm and a head: 1,980 elements with the default sizes.
inline std::shared_ptr<const Architecture> toy(const ToySizes& sizes = {}) {
  const std::string v = std::to_string(sizes.vocabulary), d = std::to_string(sizes.width), h = std::to_string(sizes.hidden);
  return inline_layers("- {name: embed, parameters: {weight: [" + v + ", " + d + "]}}\n" +
                       "- {name: block, repeat: " + std::to_string(sizes.blocks) + ", block: true, parameters: {w1: [" + h + ", " + d +
                       "], b1: [" + h + "], w2: [" + d + ", " + h + "], b2: [" + d + "]}}\n" + "- {name: norm, parameters: {weight: [" + d +
                       "]}}\n" + "- {name: head, parameters: {weight: [" + v + ", " + d + "]}}\n");
}

/// Blocks of one square matrix each and nothing else.
inline std::shared_ptr<const Architecture> equal_blocks(int count, int width = 64) {
  return inline_layers("- {name: block, repeat: " + std::to_string(count) + ", block: true, parameters: {w: [" + std::to_string(width) +
                       ", " + std::to_string(width) + "]}}\n");
}

inline std::shared_ptr<const Architecture> preset_named(const std::string& name) {
  auto architecture = preset(name);
  if (!architecture) throw std::runtime_error(architecture.error().text());
  return *architecture;
}

/// A job that owns its model.
struct OwnedJob {
  std::shared_ptr<const Model> model;
  Job job;
};

struct JobOptions {
  std::int64_t ranks = 8;
  std::int32_t micro_batches = 1;
  Semantics semantics = Semantics::framework;
  DType parameters = DType::bf16, gradients = DType::bf16;
  std::optional<DType> reduce{};
  std::optional<DType> master = DType::fp32;
  Checkpointing checkpointing = Checkpointing::none;
  std::int64_t sequence = 16;
  bool warm = true;
  std::int64_t rank = 0;
  std::vector<std::pair<std::string, Options::Value>> options{};
  OptimizerKind optimizer = OptimizerKind::adamw;
  bool split_weight_decay = false;
};

inline OwnedJob make_job(std::shared_ptr<const Architecture> architecture, const std::string& strategy, const JobOptions& o = {}) {
  OwnedJob owned;
  Job& job = owned.job;
  job.training.sequence_length = o.sequence;
  job.training.gradient_accumulation_steps = o.micro_batches;
  job.training.precision.parameters = o.parameters;
  job.training.precision.compute = o.parameters;
  job.training.precision.gradients = o.gradients;
  job.training.precision.reduce = o.reduce;
  job.training.precision.master = o.master;
  job.training.checkpointing.kind = o.checkpointing;
  job.training.optimizer.kind = o.optimizer;
  job.training.optimizer.split_weight_decay = o.split_weight_decay;
  job.training.warm = o.warm;
  auto model = build_model(std::move(architecture), job.training);
  if (!model) throw std::runtime_error(model.error().text());
  owned.model = *model;
  job.model = owned.model.get();
  job.strategy.name = strategy;
  job.strategy.semantics = o.semantics;
  for (const auto& [name, value] : o.options) job.strategy.options.set(name, value);
  job.world_size = o.ranks;
  job.gpus_per_node = std::min<std::int64_t>(o.ranks, 8);
  job.rank = o.rank;
  return owned;
}

/// Emits, checks that the schedule is valid, and returns it.
inline Schedule valid_schedule(const OwnedJob& owned) {
  const Problems problems = check(owned.job);
  EXPECT_TRUE(problems.empty()) << problems.text();
  Schedule schedule = emit(owned.job);
  const std::vector<std::string> wrong = validate(schedule);
  EXPECT_TRUE(wrong.empty()) << owned.job.strategy.name << ": " << (wrong.empty() ? "" : wrong.front());
  return schedule;
}

inline Traffic traffic_of(const OwnedJob& owned) { return account(valid_schedule(owned), owned.model->total()); }

inline std::int64_t sent(std::shared_ptr<const Architecture> architecture, const std::string& strategy, const JobOptions& o = {}) {
  return traffic_of(make_job(std::move(architecture), strategy, o)).total.value();
}

}  // namespace shardsim::testing
