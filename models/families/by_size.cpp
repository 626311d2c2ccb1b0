// SPDX-License-Identifier: Apache-2.0
// A model of which only the size is known: Llama's layer with the depth and width that models of that size have.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "models/families/architectures.hpp"
#include "models/families/families.hpp"

namespace shardsim {
namespace {

/// Depth of published decoders by size: GPT-3 (arXiv 2005.14165, table 2.1) up to 13 B, Llama 2 70 B, GPT-3 175 B, Llama 3.1 405 B, MT-NLG
/// 530 B.
constexpr std::array<std::pair<double, double>, 11> depths{{{1.25e8, 12},
                                                            {3.5e8, 24},
                                                            {1.3e9, 24},
                                                            {2.7e9, 32},
                                                            {6.7e9, 32},
                                                            {1.3e10, 40},
                                                            {3.3e10, 60},
                                                            {7e10, 80},
                                                            {1.75e11, 96},
                                                            {4.05e11, 126},
                                                            {1e12, 128}}};
constexpr std::int64_t vocabulary = 32000;

std::int64_t depth_of(double parameters) {
  if (parameters <= depths.front().first) return static_cast<std::int64_t>(depths.front().second);
  for (std::size_t i = 1; i < depths.size(); ++i) {
    const auto& [low, shallow] = depths[i - 1];
    const auto& [high, deep] = depths[i];
    if (parameters > high) continue;
    const double share = std::log(parameters / low) / std::log(high / low);
    return static_cast<std::int64_t>(std::lround((shallow + share * (deep - shallow)) / 2) * 2);
  }
  return static_cast<std::int64_t>(depths.back().second);
}

}  // namespace

Result<std::shared_ptr<const Architecture>> model_of_size(double parameters) {
  Problems problems;
  if (!(parameters >= 1e7 && parameters <= 1e13)) {
    problems.add({}, "a model by its size has 10 million to 10^13 parameters");
    return tl::unexpected(std::move(problems));
  }
  const std::int64_t layers = depth_of(parameters);
  const bool grouped = parameters >= 3e10;  // 8 key-value heads from 30 B on, as Llama 2 and 3 have
  // A layer has 4 d^2 of attention (2 d^2 + 2 d * 8 heads * 128 where grouped) and 3 d w of the gated part, w = 8/3 d (7/2 d where
  // grouped).
  const double layer = grouped ? 2 + 10.5 : 4 + 8;
  const double a = layer * static_cast<double>(layers), b = 2.0 * vocabulary, root = (-b + std::sqrt(b * b + 4 * a * parameters)) / (2 * a);
  const std::int64_t head = parameters < 1e9 ? 64 : 128;
  const std::int64_t hidden = std::max<std::int64_t>(head, std::llround(root / static_cast<double>(head)) * head), heads = hidden / head;
  std::int64_t kv_heads = heads;
  if (grouped)
    for (kv_heads = 8; heads % kv_heads != 0; --kv_heads) {}
  // The width of the gated part takes what is left, in steps of 64.
  const double left = (parameters - b * static_cast<double>(hidden)) / static_cast<double>(layers) -
                      static_cast<double>(2 * hidden * (hidden + kv_heads * head));
  const std::int64_t width = std::max<std::int64_t>(64, std::llround(left / static_cast<double>(3 * hidden) / 64) * 64);
  const std::string text = fmt::format(
      R"({{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": {}, "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "intermediate_size": {}, "vocab_size": {}, "tie_word_embeddings": false}})",
      hidden, layers, heads, kv_heads, head, width, vocabulary);
  auto made = read_json({"model.parameters", text}).and_then([](const ConfigNode& config) { return read_hf_config(config); });
  if (!made) return made;
  auto architecture = std::make_shared<Architecture>(**made);
  architecture->name = fmt::format("{:.4g} B parameters", parameters / 1e9);
  architecture->warnings.insert(architecture->warnings.begin(),
                                fmt::format("only the size of the model is given: Llama's layer with {} layers of width {}, {} heads of {} "
                                            "({} key-value heads), a gated part of {} and {} tokens is assumed",
                                            layers, hidden, heads, head, kv_heads, width, vocabulary));
  return std::shared_ptr<const Architecture>(std::move(architecture));
}

Result<std::shared_ptr<const Architecture>> quantised(const std::shared_ptr<const Architecture>& architecture, const std::string& how) {
  static const std::array<std::pair<std::string_view, Quantization>, 5> known{
      {{"nf4", {"bitsandbytes 4-bit", 0.5 + 4.0 / 64, false, {}}},
       {"nf4-double", {"bitsandbytes 4-bit", 0.5 + (1.0 + 4.0 / 256) / 64, false, {}}},
       {"int8", {"bitsandbytes 8-bit", 1, false, {}}},
       {"int4-g128", {"4-bit in groups of 128", 0.5 + 2.5 / 128, false, {}}},
       {"fp8", {"fp8", 1 + 4.0 / (128 * 128), true, {}}}}};
  std::vector<std::string> words;
  for (const auto& [word, quantization] : known) {
    words.emplace_back(word);
    if (word != how) continue;
    auto changed = std::make_shared<Architecture>(*architecture);
    changed->quantization = quantization;
    return std::shared_ptr<const Architecture>(std::move(changed));
  }
  Problems problems;
  problems.add({}, "quantization cannot be " + in_quotes(how), notes_for_unknown(how, words));
  return tl::unexpected(std::move(problems));
}

}  // namespace shardsim
