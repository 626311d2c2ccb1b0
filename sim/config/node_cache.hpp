// SPDX-License-Identifier: Apache-2.0
// Values by the tree they were made from: neighbours in a sweep share most of their blocks.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "sim/config/node.hpp"

namespace shardsim {

/// Whether two trees say the same; where they stand in a file does not matter.
[[nodiscard]] inline bool say_the_same(const ConfigNode& a, const ConfigNode& b) {
  return a.kind == b.kind && a.quoted == b.quoted && a.text == b.text &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), say_the_same) &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(),
                    [](const Entry& x, const Entry& y) { return x.key == y.key && say_the_same(x.value, y.value); });
}

/// The last few values, the one used last first. Keys need an `==` of their own, or are compared by `Same`.
template <class Key, class Value, class Same = std::equal_to<Key>>
class RecentValues {
 public:
  explicit RecentValues(std::size_t most) : most_(most) {}

  /// Null if it is not there.
  [[nodiscard]] std::shared_ptr<const Value> find(const Key& key) {
    const auto found = std::find_if(values_.begin(), values_.end(), [&](const auto& value) { return Same{}(value.first, key); });
    if (found == values_.end()) return nullptr;
    std::rotate(values_.begin(), found, found + 1);
    return values_.front().second;
  }

  void add(Key key, std::shared_ptr<const Value> value) {
    if (most_ == 0) return;
    if (values_.size() == most_) values_.pop_back();
    values_.insert(values_.begin(), {std::move(key), std::move(value)});
  }
  void clear() { values_.clear(); }

 private:
  std::size_t most_;
  std::vector<std::pair<Key, std::shared_ptr<const Value>>> values_;
};

struct SayTheSame {
  bool operator()(const ConfigNode& a, const ConfigNode& b) const { return say_the_same(a, b); }
};
template <class Value>
using ByTree = RecentValues<ConfigNode, Value, SayTheSame>;

}  // namespace shardsim
