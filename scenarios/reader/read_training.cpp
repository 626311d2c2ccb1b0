// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "scenarios/reader/reading.hpp"

namespace shardsim {
namespace {

// Beyond these a job is a slip of the pen, and products of shapes would leave 64 bits.
constexpr std::int64_t largest_sequence = std::int64_t{1} << 24;
constexpr std::int64_t largest_batch = std::int64_t{1} << 20;
constexpr std::int64_t most_tokens = std::int64_t{1} << 30;  // of a micro-batch
constexpr std::int64_t most_scores = std::int64_t{1} << 44;  // of plain attention, for each head
constexpr std::int64_t most_micro_batches = std::int64_t{1} << 16;

template <class T>
struct Word {
  const char* name;
  T value;
};

constexpr std::array<Word<Checkpointing>, 4> checkpointing_words{{{"none", Checkpointing::none},
                                                                  {"core_attention", Checkpointing::core_attention},
                                                                  {"selective_ops", Checkpointing::selective_ops},
                                                                  {"full", Checkpointing::full}}};
constexpr std::array<Word<AttentionKind>, 2> attention_words{{{"flash", AttentionKind::flash}, {"plain", AttentionKind::plain}}};
constexpr std::array<Word<Loss::Kind>, 3> loss_words{
    {{"cross_entropy", Loss::Kind::cross_entropy}, {"fused", Loss::Kind::fused}, {"fused_linear", Loss::Kind::fused_linear}}};
constexpr std::array<Word<LogitsLife>, 3> logits_words{
    {{"dropped", LogitsLife::dropped}, {"held", LogitsLife::held}, {"replaced", LogitsLife::replaced}}};
constexpr std::array<Word<OptimizerKind>, 8> optimizer_words{{{"sgd", OptimizerKind::sgd},
                                                              {"momentum", OptimizerKind::momentum},
                                                              {"adam", OptimizerKind::adam},
                                                              {"adamw", OptimizerKind::adamw},
                                                              {"adamw_8bit", OptimizerKind::adamw_8bit},
                                                              {"lion", OptimizerKind::lion},
                                                              {"adafactor", OptimizerKind::adafactor},
                                                              {"muon", OptimizerKind::muon}}};
constexpr std::array<Word<std::string_view>, 2> variant_words{{{"keller_jordan", "keller_jordan"}, {"dion", "dion"}}};  // of muon
constexpr std::array<Word<Optimizer::Implementation>, 3> implementation_words{{{"foreach", Optimizer::Implementation::foreach},
                                                                               {"fused", Optimizer::Implementation::fused},
                                                                               {"for_loop", Optimizer::Implementation::for_loop}}};
constexpr std::array<Word<OffloadTarget>, 3> offload_words{
    {{"none", OffloadTarget::none}, {"cpu", OffloadTarget::cpu}, {"nvme", OffloadTarget::nvme}}};
constexpr std::array<Word<bool>, 2> weight_decay_words{{{"single", false}, {"split", true}}};
constexpr std::array<Word<bool>, 2> zero_grad_words{{{"set_to_none", true}, {"zero", false}}};

/// The value that a word stands for; a problem and the fallback if it is not among them. `also`: forms that are no words.
template <class T>
T word_value(const ConfigNode& node, std::string_view key, std::span<const Word<T>> words, T fallback, Problems& problems,
             const char* also = nullptr) {
  std::vector<std::string> names;
  for (const Word<T>& word : words) {
    if (node.kind == ConfigNode::Kind::scalar && node.text == word.name) return word.value;
    names.emplace_back(word.name);
  }
  if (also) names.emplace_back(also);
  const std::string got = node.kind == ConfigNode::Kind::scalar ? in_quotes(node.text)
                          : node.kind == ConfigNode::Kind::list ? "a list"
                                                                : "a map";
  problems.add(node.where, fmt::format("{} cannot be {}", key, got), notes_for_unknown(node.text, names));
  return fallback;
}

template <class T, std::size_t N>
T read_word(MapReader& reader, std::string_view key, const std::array<Word<T>, N>& words, T fallback) {
  const ConfigNode* node = reader.find(key);
  return node ? word_value<T>(*node, key, words, fallback, reader.problems()) : fallback;
}

ActivationCheckpointing read_checkpointing(const ConfigNode& node, Problems& problems) {
  ActivationCheckpointing result;
  if (node.kind != ConfigNode::Kind::map) {
    result.kind = word_value<Checkpointing>(node, "activation_checkpointing", checkpointing_words, result.kind, problems, "{every: k}");
    return result;
  }
  MapReader reader(node, problems, "activation_checkpointing");
  if (!reader.has("kind")) reader.require("every");
  result.kind = read_word(reader, "kind", checkpointing_words, Checkpointing::full);
  result.every = static_cast<std::int32_t>(reader.integer("every", 1, 1, 1 << 20));
  result.use_reentrant = reader.boolean("use_reentrant", false);
  result.around_unit = reader.boolean("around_unit", false);
  reader.finish();
  return result;
}

Loss read_loss(const ConfigNode& node, Problems& problems) {
  Loss loss;
  if (node.kind != ConfigNode::Kind::map) {
    loss.kind = word_value<Loss::Kind>(node, "loss", loss_words, loss.kind, problems, "{chunked: k}");
    return loss;
  }
  MapReader reader(node, problems, "loss");
  if (reader.require("chunked")) loss = {Loss::Kind::chunked, static_cast<std::int32_t>(reader.integer("chunked", 1, 1, 1 << 20))};
  reader.finish();
  return loss;
}

Optimizer read_optimizer(const ConfigNode& node, Problems& problems) {
  Optimizer optimizer;
  if (node.kind != ConfigNode::Kind::map) {
    optimizer.kind = word_value<OptimizerKind>(node, "optimizer", optimizer_words, optimizer.kind, problems, "{name: adamw, ...}");
    return optimizer;
  }
  MapReader reader(node, problems, "optimizer");
  if (reader.require("name")) optimizer.kind = read_word(reader, "name", optimizer_words, optimizer.kind);
  optimizer.implementation = read_word(reader, "implementation", implementation_words, optimizer.implementation);
  optimizer.split_weight_decay = read_word(reader, "weight_decay_groups", weight_decay_words, false);
  optimizer.set_to_none = read_word(reader, "zero_grad", zero_grad_words, true);
  if (reader.has("clip_grad_norm")) optimizer.clip_grad_norm = reader.number("clip_grad_norm", 1, 0, 1e12);
  if (const ConfigNode* variant = reader.find("variant")) {
    optimizer.variant = word_value<std::string_view>(*variant, "variant", variant_words, "", problems);
    if (optimizer.kind != OptimizerKind::muon) problems.add(variant->where, "only muon has variants", {"leave out variant"});
  }
  reader.finish();
  return optimizer;
}

Offload read_offload(const ConfigNode& node, Problems& problems) {
  Offload offload;
  if (node.kind == ConfigNode::Kind::scalar && node.text == "none") return offload;
  if (node.kind != ConfigNode::Kind::map) {
    problems.add(node.where, "offload is 'none' or a map", {"for example: {parameters: cpu, optimizer: cpu}"});
    return offload;
  }
  MapReader reader(node, problems, "offload");
  offload.parameters = read_word(reader, "parameters", offload_words, OffloadTarget::none);
  offload.optimizer = read_word(reader, "optimizer", offload_words, OffloadTarget::none);
  reader.finish();
  return offload;
}

/// Keys are those of PYTORCH_CUDA_ALLOC_CONF.
Allocator read_allocator(const ConfigNode& node, Problems& problems) {
  constexpr std::int64_t large_segment_mb = 20;  // PyTorch refuses to split below the segments that it shares
  Allocator allocator;
  MapReader reader(node, problems, "allocator");
  allocator.expandable_segments = reader.boolean("expandable_segments", allocator.expandable_segments);
  if (reader.has("max_split_size_mb"))
    allocator.max_split_size = mebibytes(reader.integer("max_split_size_mb", large_segment_mb + 1, large_segment_mb + 1, 1 << 20));
  reader.finish();
  return allocator;
}

void check_sizes(const Training& training, const ConfigNode& block, Problems& problems) {
  const ConfigNode* at = block.find("micro_batch_size");
  const Where where = at ? at->where : block.where;
  const std::int64_t tokens = training.tokens_per_micro_batch().value();
  if (tokens > most_tokens)
    problems.add(where, fmt::format("a micro-batch of {} tokens; at most {} are simulated", tokens, most_tokens));
  else if (training.attention == AttentionKind::plain && tokens > most_scores / training.sequence_length)
    problems.add(where, "plain attention over such a sequence has more scores than are simulated", {"attention: flash never holds them"});
}

}  // namespace

Training read_training(const ConfigNode& block, Problems& problems) {
  Training training;
  MapReader reader(block, problems, "training");
  training.sequence_length = reader.integer("sequence_length", training.sequence_length, 1, largest_sequence);
  training.micro_batch_size = reader.integer("micro_batch_size", training.micro_batch_size, 1, largest_batch);
  training.gradient_accumulation_steps = static_cast<std::int32_t>(reader.integer("gradient_accumulation_steps", 1, 1, most_micro_batches));
  if (const ConfigNode* node = reader.find("precision")) training.precision = read_precision(*node, problems);
  if (const ConfigNode* node = reader.find("activation_checkpointing")) training.checkpointing = read_checkpointing(*node, problems);
  training.attention = read_word(reader, "attention", attention_words, training.attention);
  training.dropout = reader.number("dropout", training.dropout, 0, 1);
  if (const ConfigNode* node = reader.find("loss")) training.loss = read_loss(*node, problems);
  training.logits = read_word(reader, "logits", logits_words, training.logits);
  training.loss_in_model = reader.boolean("loss_in_model", training.loss_in_model);
  if (const ConfigNode* node = reader.find("optimizer")) training.optimizer = read_optimizer(*node, problems);
  if (const ConfigNode* node = reader.find("offload")) training.offload = read_offload(*node, problems);
  if (const ConfigNode* node = reader.find("allocator")) training.allocator = read_allocator(*node, problems);
  training.compile = reader.boolean("compile", training.compile);
  training.warm = reader.boolean("warm", training.warm);
  reader.ignore("stack");  // read with the strategy, which has a usual one
  reader.finish();
  check_sizes(training, block, problems);
  return training;
}

}  // namespace shardsim
