// SPDX-License-Identifier: Apache-2.0
#include "sim/base/json_value.hpp"

#include <charconv>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace shardsim {
namespace {

using Library = nlohmann::ordered_json;

Library convert(const Json& json);

struct Converter {
  Library operator()(std::monostate) const { return nullptr; }
  Library operator()(bool value) const { return value; }
  Library operator()(std::int64_t value) const { return value; }
  Library operator()(double value) const { return value; }
  Library operator()(const std::string& value) const { return value; }
  Library operator()(const Json::List& list) const {
    Library out = Library::array();
    for (const Json& item : list) out.push_back(convert(item));
    return out;
  }
  Library operator()(const Json::Object& object) const {
    // Members are appended to the vector behind the object: its own look-up of every key would make large objects slow.
    Library::object_t out;
    for (const auto& [key, value] : object)
      static_cast<std::vector<std::pair<const std::string, Library>>&>(out).emplace_back(key, convert(value));
    return out;
  }
};

Library convert(const Json& json) { return std::visit(Converter{}, json.value()); }

std::string dump(const Json& json, int indent) {
  return convert(json).dump(indent, ' ', false, Library::error_handler_t::replace);  // file names need not be UTF-8
}

const Json* child(const Json& json, std::string_view key) {
  if (const auto* object = json.as<Json::Object>()) {
    for (const auto& [name, value] : *object)
      if (name == key) return &value;
  }
  if (const auto* list = json.as<Json::List>()) {
    std::size_t index = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
    if (error == std::errc{} && end == key.data() + key.size() && index < list->size()) return &(*list)[index];
  }
  return nullptr;
}

void collect_leaves(const Json& json, const std::string& prefix, std::vector<std::string>& out) {
  const auto* object = json.as<Json::Object>();
  if (!object) {
    if (!json.as<Json::List>()) out.push_back(prefix);
    return;
  }
  for (const auto& [key, value] : *object) collect_leaves(value, prefix.empty() ? key : prefix + "." + key, out);
}

}  // namespace

void Json::add(std::string key, Json value) {
  if (is_null()) value_ = Object{};
  auto* object = std::get_if<Object>(&value_);
  if (!object) throw std::logic_error("Json: '" + key + "' added to something that is no object");
  object->emplace_back(std::move(key), std::move(value));
}

void Json::add(Json value) {
  if (is_null()) value_ = List{};
  auto* list = std::get_if<List>(&value_);
  if (!list) throw std::logic_error("Json: an item added to something that is no list");
  list->push_back(std::move(value));
}

const Json* Json::find(std::string_view path) const {
  const Json* at = this;
  while (at && !path.empty()) {
    const std::size_t dot = path.find('.');
    at = child(*at, path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view{} : path.substr(dot + 1);
  }
  return at;
}

std::string Json::text() const { return dump(*this, 2); }
std::string Json::line() const { return dump(*this, -1); }

std::vector<std::string> leaf_paths(const Json& json) {
  std::vector<std::string> out;
  collect_leaves(json, "", out);
  return out;
}

}  // namespace shardsim
