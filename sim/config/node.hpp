// SPDX-License-Identifier: Apache-2.0
// Structured text (YAML, JSON, TOML) as one tree that remembers where everything stands.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/problem.hpp"
#include "sim/base/units.hpp"

namespace shardsim {

struct Entry;

struct ConfigNode {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  bool quoted = false;  ///< a scalar written in quotes is text, whatever it looks like
  Where where;
  std::string text;               ///< of a scalar
  std::vector<ConfigNode> items;  ///< of a list
  std::vector<Entry> entries;     ///< of a map, in the order written

  [[nodiscard]] const ConfigNode* find(std::string_view key) const;
};

struct Entry {
  std::string key;
  Where where;
  ConfigNode value;
};

/// Limits that keep hostile input harmless. Beyond one of them reading stops with a problem that names it.
struct ReadLimits {
  std::size_t bytes = 4u << 20;
  int depth = 64;
  std::size_t nodes = 1u << 20;  ///< after aliases are expanded
};

/// The whole of a file; a missing or unreadable file, a folder, or one above the limit is a problem.
[[nodiscard]] Result<Source> read_source(const std::string& path, const ReadLimits& limits = {});

/// Duplicate keys, unknown tags, several documents and limits exceeded are problems.
[[nodiscard]] Result<ConfigNode> read_yaml(const Source& source, const ReadLimits& limits = {});
[[nodiscard]] Result<ConfigNode> read_json(const Source& source, const ReadLimits& limits = {});

/// Puts `value` at the dotted `path` of a map ("training.micro_batch_size"; "a.3.b" reaches into lists), making maps on the way.
/// The new nodes stand at `--set` in messages.
[[nodiscard]] Result<ConfigNode> with_override(ConfigNode root, std::string_view assignment);

// Scalars as values. Each adds a problem and returns nothing when the node is not of that kind.
[[nodiscard]] std::optional<std::string> as_text(const ConfigNode& node, Problems& problems);
[[nodiscard]] std::optional<bool> as_boolean(const ConfigNode& node, Problems& problems);
[[nodiscard]] std::optional<std::int64_t> as_integer(const ConfigNode& node, Problems& problems, std::int64_t min, std::int64_t max);
[[nodiscard]] std::optional<double> as_number(const ConfigNode& node, Problems& problems, double min, double max);
/// "25 MiB", "80 GB": a unit is required, binary and decimal are kept apart.
[[nodiscard]] std::optional<Bytes> as_bytes(const ConfigNode& node, Problems& problems);
/// "400 Gbit/s", "3.35 TB/s".
[[nodiscard]] std::optional<ByteRate> as_byte_rate(const ConfigNode& node, Problems& problems);
/// "989 TFLOP/s".
[[nodiscard]] std::optional<FlopRate> as_flop_rate(const ConfigNode& node, Problems& problems);
/// "5 us", "2 h".
[[nodiscard]] std::optional<Seconds> as_seconds(const ConfigNode& node, Problems& problems);

/// Reads the keys of one map, remembers which were asked for, and reports the others as unknown with the nearest known key.
/// A key that is absent (or null) yields the fallback; a key with a bad value yields the fallback and a problem.
class MapReader {
 public:
  /// `what` names the map in messages ("training"). A node that is no map is a problem.
  MapReader(const ConfigNode& node, Problems& problems, std::string what);

  [[nodiscard]] bool has(std::string_view key);                ///< present and not null; marks the key as known
  [[nodiscard]] const ConfigNode* find(std::string_view key);  ///< marks the key as known; null counts as absent
  const ConfigNode* require(std::string_view key);             ///< a missing key is a problem at the map
  [[nodiscard]] std::string text(std::string_view key, std::string fallback);
  [[nodiscard]] bool boolean(std::string_view key, bool fallback);
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t min,
                                     std::int64_t max = std::numeric_limits<std::int64_t>::max());
  [[nodiscard]] double number(std::string_view key, double fallback, double min, double max);
  [[nodiscard]] Bytes bytes(std::string_view key, Bytes fallback);
  [[nodiscard]] ByteRate byte_rate(std::string_view key, ByteRate fallback);
  [[nodiscard]] FlopRate flop_rate(std::string_view key, FlopRate fallback);
  [[nodiscard]] Seconds seconds(std::string_view key, Seconds fallback);
  /// One of a closed list of words.
  [[nodiscard]] std::string choice(std::string_view key, const std::vector<std::string>& allowed, std::string fallback);

  /// Keys that may stand here though nobody reads them.
  void ignore(std::string_view key);
  /// Reports every key that was not asked for. Call once, at the end.
  void finish();

  [[nodiscard]] const ConfigNode& node() const { return node_; }
  [[nodiscard]] Problems& problems() { return problems_; }

 private:
  const ConfigNode& node_;
  Problems& problems_;
  std::string what_;
  std::vector<std::string> known_;
};

}  // namespace shardsim
