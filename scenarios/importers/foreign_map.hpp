// SPDX-License-Identifier: Apache-2.0
// The one door by which text of foreign configurations comes in: typed getters that report what they cannot read at its place, and an
// account of every key: used, without effect, not modelled, or unknown.
#pragma once

#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/importers/import_draft.hpp"

namespace shardsim {

/// Spellings of one key, in order of preference.
class Keys {
 public:
  Keys(const char* key) : keys_{key} {}
  Keys(std::string_view key) : keys_{key} {}
  Keys(const std::string& key) : keys_{key} {}
  Keys(std::initializer_list<std::string_view> keys) : keys_(keys) {}
  [[nodiscard]] auto begin() const { return keys_.begin(); }
  [[nodiscard]] auto end() const { return keys_.end(); }

 private:
  std::vector<std::string_view> keys_;
};

/// A map of a foreign file. A key that is absent, null or "auto" yields nothing; one that cannot be read yields nothing and a problem.
class ForeignMap {
 public:
  /// `node` may be null (no such map); one that is not a map is a problem. `path` is put before its keys in messages ("zero_optimization").
  ForeignMap(const ConfigNode* node, std::string path, ScenarioDraft& draft);

  [[nodiscard]] explicit operator bool() const { return node_ != nullptr; }
  /// The value under the first of the spellings that is there; all of them count as taken.
  const ConfigNode* take(const Keys& keys);
  [[nodiscard]] ForeignMap section(const Keys& keys);

  [[nodiscard]] std::optional<std::int64_t> whole(const Keys& keys, std::int64_t min = 0, std::int64_t max = std::int64_t{1} << 31);
  [[nodiscard]] std::optional<double> real(const Keys& keys, double min = std::numeric_limits<double>::lowest(),
                                           double max = std::numeric_limits<double>::max());
  /// true, yes, on, 1 and their opposites.
  [[nodiscard]] std::optional<bool> flag(const Keys& keys);
  [[nodiscard]] std::optional<std::string> word(const Keys& keys);
  /// A word of a closed list, whatever its case; as the list spells it.
  [[nodiscard]] std::optional<std::string> choice(const Keys& keys, std::initializer_list<std::string_view> allowed);
  [[nodiscard]] std::vector<std::string> words(const Keys& keys);
  /// A dtype by any of its names; `allowed` beside fp32, bf16 and fp16.
  [[nodiscard]] std::optional<std::string> dtype(const Keys& keys);
  [[nodiscard]] bool on(const Keys& keys) { return flag(keys).value_or(false); }

  /// What a value that was read came from, for the comment in the scenario: the key's dotted path.
  [[nodiscard]] std::string source(const Keys& keys) const;

  // The rest of the account.
  /// Keys that are known to change nothing in the traffic, memory or time of a step.
  void without_effect(const std::vector<std::string_view>& keys, std::string_view why = "");
  /// All keys of the map, taken or not.
  void all_without_effect(std::string_view why);
  /// A key that changes the step in a way that is not modelled; at one of the `off` values (false, none, 0 and null always) it does not.
  void not_modelled(std::string_view key, std::string why, std::initializer_list<std::string_view> off = {});
  /// The same, refused: the scenario would be another job.
  void refuse(std::string_view key, const std::string& why, std::initializer_list<std::string_view> off = {});
  /// Everything that was not taken becomes an option of the draft's strategy if it has one of that name.
  void rest_as_options();
  /// What nobody took is unknown: assumed to change nothing, and said so.
  void finish();

  [[nodiscard]] const ConfigNode* node() const { return node_; }
  [[nodiscard]] ScenarioDraft& draft() { return draft_; }

 private:
  [[nodiscard]] std::string full(std::string_view key) const;
  /// The taken value if it is neither "auto" nor a list or map where a single value must stand.
  const ConfigNode* single(const Keys& keys, std::string_view expected);
  const ConfigNode* effective(std::string_view key, std::initializer_list<std::string_view> off);
  void add_problem(const ConfigNode& node, std::string_view expected, std::vector<std::string> notes = {});

  const ConfigNode* node_;
  std::string path_;
  ScenarioDraft& draft_;
  std::vector<std::string> taken_;
};

/// True for the word "auto", which Hugging Face fills in from its own arguments.
[[nodiscard]] bool is_auto(const ConfigNode* node);
/// A whole number written in any way ("5e8", "500000000"); nothing if it is not one.
[[nodiscard]] std::optional<std::int64_t> whole_number(const ConfigNode* node);
[[nodiscard]] std::optional<double> real_number(const ConfigNode* node);
[[nodiscard]] std::optional<bool> boolean_word(std::string_view text);
/// "bfloat16", "torch.bfloat16", "BF16", "amp_bf16" to bf16; empty if it is not the name of a dtype.
[[nodiscard]] std::string dtype_by_name(std::string_view text);

}  // namespace shardsim
