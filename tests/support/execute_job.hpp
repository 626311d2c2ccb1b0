// SPDX-License-Identifier: Apache-2.0
// A Llama small enough to train in a test, as a job.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "models/families/hf_config.hpp"
#include "strategies/strategy.hpp"

namespace shardsim::test {

/// A job that keeps its model alive.
struct OwnedJob : Job {
  std::shared_ptr<const Model> owner;
};

inline std::shared_ptr<const Model> small_llama(const Training& training, int layers = 2) {
  const std::string config = R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 56, "vocab_size": 48,
                                 "num_hidden_layers": )" +
                             std::to_string(layers) + R"(,
                                 "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": false})";
  const auto node = read_json(Source{"small-llama.json", config});
  if (!node) throw std::runtime_error(node.error().text());
  const auto architecture = read_hf_config(*node);
  if (!architecture) throw std::runtime_error(architecture.error().text());
  auto model = build_model(*architecture, training);
  if (!model) throw std::runtime_error(model.error().text());
  return *model;
}

/// fp32 throughout, two sequences of twelve tokens a micro-batch.
inline OwnedJob small_job(AttentionKind attention, const std::string& strategy = "ddp", Semantics semantics = Semantics::textbook) {
  OwnedJob job;
  job.training.sequence_length = 12;
  job.training.micro_batch_size = 2;
  job.training.attention = attention;
  job.training.precision.parameters = job.training.precision.compute = job.training.precision.gradients = DType::fp32;
  job.training.precision.master.reset();
  job.training.precision.name = "fp32";
  job.owner = small_llama(job.training);
  job.model = job.owner.get();
  job.strategy.name = strategy;
  job.strategy.semantics = semantics;
  return job;
}

inline void use_mixed_precision(OwnedJob& job) {
  job.training.precision = Precision{};
  job.owner = small_llama(job.training);
  job.model = job.owner.get();
}

}  // namespace shardsim::test
