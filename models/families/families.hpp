// SPDX-License-Identifier: Apache-2.0
// Families of models: one function a family, from the keys of config.json to a Transformer. Private to models/.
//
// Key names, defaults and module names are those of transformers' configuration_*.py and modeling_*.py (4.5x); where registration order
// differs from the order of use, the family says so.
#pragma once

#include <initializer_list>
#include <set>
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
  /// `defaults`: what the family's config class takes for a key that is not there; null: nothing is.
  ConfigReader(const ConfigNode& node, Problems& problems, const ConfigNode* defaults = nullptr)
      : map_(node, problems, "config.json"), node_(node), problems_(problems), defaults_(defaults) {}

  /// A positive size that must be there, or in the family's defaults.
  std::int64_t size(Keys keys, std::int64_t max = 1 << 20);
  /// A size that may be absent or null; `min` may be 0 to allow "none". The family's default comes before the fallback.
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
  /// Key-value heads: absent, what the config class takes if that divides the heads, else as many as heads; null: as many as heads.
  std::int64_t kv_heads(std::int64_t heads);
  void problem(std::string_view key, std::string message);
  /// Keys that nobody asked for and that are not known to change nothing.
  [[nodiscard]] std::vector<std::string> unread() const;
  /// The class that the checkpoint is of: architectures[0]; empty if it is not said.
  [[nodiscard]] std::string architecture() const;
  /// Keys that were taken from the family's defaults, with their values.
  [[nodiscard]] const std::vector<std::string>& defaulted() const { return defaulted_; }
  [[nodiscard]] const ConfigNode& node() const { return node_; }

  [[nodiscard]] Problems& problems() { return problems_; }

 private:
  std::string_view present(Keys keys);
  const ConfigNode* default_of(Keys keys);
  MapReader map_;
  const ConfigNode& node_;
  Problems& problems_;
  const ConfigNode* defaults_;
  std::vector<std::string> defaulted_;
  std::set<std::string, std::less<>> asked_;
};

/// A layer outside of the main stack, or a stack of equal ones: towers and encoders before it.
struct Part {
  std::string name;
  LayerSpec spec;
  std::int64_t repeat = 0;  ///< 0: one layer of that name, its parameters named in full; else layers name.0, name.1 ...
  bool prefixed = false;    ///< one layer whose parameters start with its name
  std::int64_t first = 0;   ///< index of the first of a stack
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
  /// Layers of several kinds: the kind of each, and what each kind is; instead of `block`, `windows` and `dense_layers`.
  std::vector<std::size_t> kinds;
  std::vector<BlockSpec> variants;
  std::vector<Part> before;         ///< towers and encoders
  std::vector<Part> after;          ///< between the head's norm and the loss
  std::int64_t features = 0;        ///< elements a sample that the last of them hands over
  std::int64_t block_sequence = 0;  ///< LayerSpec::sequence of embedding, blocks and head
  std::int64_t fixed_sequence = 0;  ///< the only length of a sequence, as Architecture has it
  double before_widest = 1;         ///< bound on the elements a token of any tensor of `before`
  bool no_embedding = false;        ///< `before` ends in what the blocks read
  bool head_is_set = false;         ///< the family has read `architectures` itself
  HeadSpec head;
  LossSpec loss;
  std::int64_t learned_positions = 0;  ///< longest sequence; 0: any
  std::vector<std::string> warnings;
};

struct Family {
  std::string_view name;
  std::vector<std::string_view> model_types;  ///< besides the name itself
  Transformer (*describe)(ConfigReader& config);
  bool several_towers = false;       ///< its text_config is not the whole model's text part (CLIP)
  std::string_view defaults = "{}";  ///< JSON: sizes that the config class takes for keys that are not there
};

// One table a file.
[[nodiscard]] std::span<const Family> llama_families();
[[nodiscard]] std::span<const Family> gpt_families();
[[nodiscard]] std::span<const Family> moe_families();
[[nodiscard]] std::span<const Family> encoder_families();
[[nodiscard]] std::span<const Family> dense_families();
[[nodiscard]] std::span<const Family> expert_families();
[[nodiscard]] std::span<const Family> hybrid_families();
[[nodiscard]] std::span<const Family> encoder_decoder_families();
[[nodiscard]] std::span<const Family> vision_families();

/// The vision tower of a multimodal config in front of its text model. False if its kind is not known.
[[nodiscard]] bool add_vision_tower(const ConfigNode& config, Transformer& text, Problems& problems);
/// Classes from num_labels or id2label.
[[nodiscard]] std::int64_t labels_of(ConfigReader& config, std::int64_t fallback = 2);
/// The head that `architectures` names on a decoder: classes of sequences or tokens, spans, none.
void set_decoder_head(ConfigReader& config, Transformer& t);

// Shared beginnings: Llama's shape, which most families vary.
[[nodiscard]] Transformer llama_like(ConfigReader& config);
[[nodiscard]] Transformer gpt_like(ConfigReader& config, std::int64_t hidden, std::int64_t layers, std::int64_t heads,
                                   std::int64_t vocabulary, std::int64_t width, Activation activation);
/// All layers use a window but every `period`-th, or as `layer_types` lists them.
void alternate_windows(ConfigReader& config, Transformer& t, std::int64_t window, std::int64_t period);
/// Heads, grouped heads and head_dim, checked against each other. `head_dim_fallback` 0: hidden / heads.
void read_heads(ConfigReader& config, AttentionSpec& attention, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                std::int64_t head_dim_fallback = 0);
/// Width of embedding, blocks and head; vocabulary of embedding, head and loss.
void set_sizes(Transformer& t, std::int64_t hidden, std::int64_t vocabulary);
/// The weight of the head is the token table.
void tie(Transformer& t, bool tied);

}  // namespace shardsim
