// SPDX-License-Identifier: Apache-2.0
// Families of models: one function a family, from the keys of config.json to a Transformer. Private to models/.
//
// Key names, defaults and module names are those of transformers' configuration_*.py and modeling_*.py (4.5x); where registration order
// differs from the order of use, the family says so.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/architecture.hpp"
#include "sim/config/node.hpp"

namespace shardsim {

/// Reads a config.json with bounds, so that no product of sizes overflows. A key may have several spellings (attribute_map).
class ConfigReader {
 public:
  using Keys = std::initializer_list<std::string_view>;
  ConfigReader(const ConfigNode& node, Problems& problems) : map_(node, problems, "config.json"), node_(node), problems_(problems) {}

  /// A positive size that must be there.
  std::int64_t size(Keys keys, std::int64_t max = 1 << 20);
  /// A size that may be absent or null; `min` may be 0 to allow "none".
  std::int64_t size_or(Keys keys, std::int64_t fallback, std::int64_t max = 1 << 20, std::int64_t min = 1);
  bool flag(Keys keys, bool fallback);
  /// A number that is not negative; null counts as 0, absence as the fallback.
  double real(std::string_view key, double fallback);
  std::string text(Keys keys, std::string fallback);
  /// A list of integers; empty if absent.
  std::vector<std::int64_t> integers(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  /// Entries of a map or a list ("id2label"); 0 if absent.
  std::int64_t entries(std::string_view key);
  /// A map below the config; null if absent.
  const ConfigNode* section(std::string_view key);
  Activation activation(Keys keys, std::string fallback, std::vector<std::string>& warnings);
  void problem(std::string_view key, std::string message);

  [[nodiscard]] Problems& problems() { return problems_; }

 private:
  std::string_view present(Keys keys);
  MapReader map_;
  const ConfigNode& node_;
  Problems& problems_;
};

/// A transformer before it is cut into layers.
struct Transformer {
  std::int64_t layers = 0;
  EmbeddingSpec embedding;
  PatchSpec patches;  ///< instead of the embedding where `vision`
  bool vision = false;
  BlockSpec block;
  std::string_view blocks = "model.layers";
  std::vector<std::string_view> block_registration;
  std::vector<std::string_view> registration;  ///< of the whole model
  std::vector<std::int64_t> windows;           ///< by layer, where layers differ
  MlpSpec dense;                               ///< the feed-forward part of layers without experts
  std::vector<bool> dense_layers;              ///< by layer; empty: all as `block`
  HeadSpec head;
  LossSpec loss;
  std::int64_t learned_positions = 0;  ///< longest sequence; 0: any
  std::vector<std::string> warnings;
};

struct Family {
  std::string_view name;
  std::vector<std::string_view> model_types;  ///< besides the name itself
  Transformer (*describe)(ConfigReader& config);
};

// One table a file.
[[nodiscard]] std::span<const Family> llama_families();
[[nodiscard]] std::span<const Family> gpt_families();
[[nodiscard]] std::span<const Family> moe_families();
[[nodiscard]] std::span<const Family> encoder_families();

// Shared beginnings: Llama's shape, which most families vary.
[[nodiscard]] Transformer llama_like(ConfigReader& config);
/// Heads, grouped heads and head_dim, checked against each other. `head_dim_fallback` 0: hidden / heads.
void read_heads(ConfigReader& config, AttentionSpec& attention, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                std::int64_t head_dim_fallback = 0);
/// Width of embedding, blocks and head; vocabulary of embedding, head and loss.
void set_sizes(Transformer& t, std::int64_t hidden, std::int64_t vocabulary);
/// The weight of the head is the token table.
void tie(Transformer& t, bool tied);

}  // namespace shardsim
