// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "models/families/families.hpp"

namespace shardsim {

std::string_view ConfigReader::present(Keys keys) {
  for (const std::string_view key : keys)
    if (map_.has(key)) return key;
  return *keys.begin();
}

std::int64_t ConfigReader::size(Keys keys, std::int64_t max) {
  const std::string_view key = present(keys);
  if (map_.require(key) == nullptr) return 1;
  return map_.integer(key, 1, 1, max);
}

std::int64_t ConfigReader::size_or(Keys keys, std::int64_t fallback, std::int64_t max, std::int64_t min) {
  return map_.integer(present(keys), fallback, min, max);
}

bool ConfigReader::flag(Keys keys, bool fallback) { return map_.boolean(present(keys), fallback); }

double ConfigReader::real(std::string_view key, double fallback) {
  const ConfigNode* written = node_.find(key);
  return written != nullptr && written->kind == ConfigNode::Kind::null ? 0 : map_.number(key, fallback, 0, 1e9);
}

std::string ConfigReader::text(Keys keys, std::string fallback) { return map_.text(present(keys), std::move(fallback)); }

std::vector<std::int64_t> ConfigReader::integers(std::string_view key) {
  std::vector<std::int64_t> values;
  const ConfigNode* list = map_.find(key);
  if (list == nullptr) return values;
  if (list->kind != ConfigNode::Kind::list) {
    problems_.add(list->where, "'" + std::string(key) + "' must be a list of integers");
    return values;
  }
  for (const ConfigNode& item : list->items)
    if (const auto value = as_integer(item, problems_, 0, 1 << 20)) values.push_back(*value);
  return values;
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  std::vector<std::string> values;
  const ConfigNode* list = map_.find(key);
  if (list == nullptr) return values;
  if (list->kind != ConfigNode::Kind::list) {
    problems_.add(list->where, "'" + std::string(key) + "' must be a list of words");
    return values;
  }
  for (const ConfigNode& item : list->items)
    if (auto value = as_text(item, problems_)) values.push_back(std::move(*value));
  return values;
}

std::int64_t ConfigReader::entries(std::string_view key) {
  const ConfigNode* node = map_.find(key);
  return node == nullptr ? 0 : static_cast<std::int64_t>(std::max(node->items.size(), node->entries.size()));
}

const ConfigNode* ConfigReader::section(std::string_view key) {
  const ConfigNode* node = map_.find(key);
  if (node != nullptr && node->kind != ConfigNode::Kind::map) {
    problems_.add(node->where, "'" + std::string(key) + "' must be a map");
    return nullptr;
  }
  return node;
}

Activation ConfigReader::activation(Keys keys, std::string fallback, std::vector<std::string>& warnings) {
  const std::string name = text(keys, std::move(fallback));
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu" || name == "gelu_pytorch_tanh" || name == "gelu_python") return Activation::gelu;
  if (name == "gelu_new" || name == "gelu_fast") return Activation::gelu_composite;
  if (name == "relu") return Activation::relu;
  if (name == "tanh" || name == "sigmoid") return Activation::tanh;
  warnings.push_back("activation '" + name + "' is taken as one kernel that keeps its input");
  return Activation::other;
}

void ConfigReader::problem(std::string_view key, std::string message) {
  const ConfigNode* node = map_.find(key);
  problems_.add(node != nullptr ? node->where : node_.where, std::move(message));
}

}  // namespace shardsim
