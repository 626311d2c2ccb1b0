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
  /// An option of the named strategy as the foreign file gives it. False if the strategy has no option of that name; a value that the
  /// option cannot have is a problem, one below what is modelled is left out and listed.
  bool option(std::string_view name, const ConfigNode& value, std::string_view written_as);
  /// An option whose value an importer worked out.
  void option(std::string_view name, std::string value, std::string comment);
  [[nodiscard]] bool has_option(std::string_view name) const;

  void ignore(std::string key, Where where, std::string why, Effect effect);
  /// What had to be assumed because the file does not say it.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  void problem(Where where, std::string message, std::vector<std::string> notes = {}) {
    problems_.add(std::move(where), std::move(message), std::move(notes));
  }
  void append(const Problems& problems) { problems_.append(problems); }
  [[nodiscard]] bool has_problems() const { return !problems_.empty(); }

  [[nodiscard]] bool has_training(std::string_view key) const;
  [[nodiscard]] const std::string& strategy_name() const { return strategy_name_; }
  /// The scenario and the account of the file, or what is wrong with it.
  [[nodiscard]] Result<Imported> finish(const ImportOptions& options) &&;

 private:
  static void put(std::vector<DraftLine>& section, std::string key, std::string value, std::string comment);
  [[nodiscard]] std::string yaml() const;

  std::vector<DraftLine> model_, cluster_, training_, strategy_;
  std::string strategy_name_;
  std::vector<IgnoredKey> ignored_;
  std::vector<std::string> notes_;
  Problems problems_;
};

[[nodiscard]] std::string lower(std::string_view text);
/// `text` as a YAML scalar, quoted where it must be.
[[nodiscard]] std::string yaml_scalar(std::string_view text);

/// What importers need to know about the model that the user named.
struct ModelFacts {
  std::int64_t hidden_size = 0;
  std::int64_t sequence_length = 0;  ///< 2048, or what the model's positions allow if that is less
};

/// Writes the draft's `model:` block for `options.model` (a preset or a config.json), or for `named` that stands in the file at `key`;
/// a model that cannot be found is a problem.
[[nodiscard]] ModelFacts describe_model(ScenarioDraft& draft, const ImportOptions& options, const ConfigNode* named = nullptr,
                                        std::string_view key = "");

/// Writes `cluster:` and gives the number of ranks; zero means "not said" and becomes one node of eight GPUs, with a comment.
std::int64_t describe_cluster(ScenarioDraft& draft, const ImportOptions& options, std::int64_t nodes, std::int64_t gpus_per_node,
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
