// SPDX-License-Identifier: Apache-2.0
// A scenario in the making: what every importer fills and one writer prints, with a comment for each value that was not in the file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/importers/import.hpp"
#include "strategies/strategy.hpp"

namespace shardsim {

struct DraftLine {
  std::string key, value, comment;
};

/// The part of a scenario that a foreign configuration decides. Sections keep the order in which keys were set.
class ScenarioDraft {
 public:
  std::string origin;  ///< "DeepSpeed configuration ds_config.json"

  void model(std::string key, std::string value, std::string comment = {}) {
    put(model_, std::move(key), std::move(value), std::move(comment));
  }
  void cluster(std::string key, std::string value, std::string comment = {}) {
    put(cluster_, std::move(key), std::move(value), std::move(comment));
  }
  void training(std::string key, std::string value, std::string comment = {}) {
    put(training_, std::move(key), std::move(value), std::move(comment));
  }
  /// Names the strategy; options set before it was named are checked against it by `option`.
  void strategy(std::string name, std::string comment = {});
  /// An option of the named strategy as the foreign file gives it: kept if the strategy has it and accepts the value, listed as ignored if
  /// not.
  void option(std::string_view name, const ConfigNode& value, std::string_view written_as);
  /// An option whose value an importer worked out.
  void option(std::string_view name, std::string value, std::string comment);

  void ignore(std::string key, Where where, std::string why);
  void note(std::string text) { notes_.push_back(std::move(text)); }

  [[nodiscard]] const std::string& strategy_name() const { return strategy_name_; }
  [[nodiscard]] Imported finish() &&;

 private:
  static void put(std::vector<DraftLine>& section, std::string key, std::string value, std::string comment);
  [[nodiscard]] std::string yaml() const;

  std::vector<DraftLine> model_, cluster_, training_, strategy_;
  std::string strategy_name_;
  std::vector<IgnoredKey> ignored_;
  std::vector<std::string> notes_;
};

/// Reads the keys of a foreign map; what nobody took is listed as ignored, never refused.
class ForeignMap {
 public:
  /// `node` may be null (no such map). `path` is put before its keys in messages ("zero_optimization").
  ForeignMap(const ConfigNode* node, std::string path, ScenarioDraft& draft);

  [[nodiscard]] explicit operator bool() const { return node_ != nullptr; }
  /// The value under `key`, which counts as taken; null values count as absent.
  [[nodiscard]] const ConfigNode* take(std::string_view key);
  /// The first of several spellings.
  [[nodiscard]] const ConfigNode* take_any(std::initializer_list<std::string_view> keys);
  void ignore(std::string_view key, std::string why);
  void ignore_all(std::initializer_list<std::string_view> keys, std::string_view why);
  /// Everything that was not taken becomes an option of the draft's strategy if it has one of that name.
  void rest_as_options();
  /// Lists everything that was not taken as ignored.
  void finish(std::string_view why = "nothing that shardsim models depends on it");

 private:
  [[nodiscard]] std::string full(std::string_view key) const;

  const ConfigNode* node_;
  std::string path_;
  ScenarioDraft& draft_;
  std::vector<std::string> taken_;
};

/// True for the word "auto", which Hugging Face fills in from its own arguments.
[[nodiscard]] bool is_auto(const ConfigNode* node);
/// A whole number written in any way ("5e8", "500000000"); nothing if it is none.
[[nodiscard]] std::optional<std::int64_t> whole_number(const ConfigNode* node);
[[nodiscard]] std::optional<double> real_number(const ConfigNode* node);
/// True for true, yes, on and 1.
[[nodiscard]] bool truthy(const ConfigNode* node);
[[nodiscard]] std::string lower(std::string_view text);
/// `text` as a YAML scalar, quoted where it must be.
[[nodiscard]] std::string yaml_scalar(std::string_view text);

/// What importers need to know about the model that the user named.
struct ModelFacts {
  std::int64_t hidden_size = 0;
  std::int64_t sequence_length = 0;  ///< 2048, or what the model's positions allow if that is less
};

/// Writes the draft's `model:` block for `options.model` (a preset or a config.json) and says how wide it is.
[[nodiscard]] Result<ModelFacts> describe_model(ScenarioDraft& draft, const ImportOptions& options);
/// The width of a model given as the tree of a config.json.
[[nodiscard]] Result<ModelFacts> model_facts(const std::shared_ptr<const Architecture>& architecture);

/// Writes `cluster:`; zero means "not said" and becomes one node of eight GPUs, with a comment.
void describe_cluster(ScenarioDraft& draft, const ImportOptions& options, std::int64_t nodes, std::int64_t gpus_per_node,
                      std::string comment = {});

/// `precision:` from the dtype that a framework computes in and the one it reduces in.
[[nodiscard]] std::string precision_map(std::string_view parameters, std::string_view gradients, std::string_view reduce,
                                        std::string_view master);

/// The name of an optimizer class as shardsim names it, with a comment where it is only alike in its states; empty if unknown.
struct OptimizerName {
  std::string name, comment;
};
[[nodiscard]] OptimizerName optimizer_name(std::string_view foreign);

}  // namespace shardsim
