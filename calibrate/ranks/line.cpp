// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks/line.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace shardsim::execute {

std::string pack(const std::vector<std::string>& texts) {
  std::string packed;
  for (const auto& text : texts) packed.append(std::to_string(text.size())).append(1, ':').append(text);
  return packed;
}

std::vector<std::string> unpack(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    std::size_t size = 0;
    const auto colon = packed.find(':');
    if (colon == std::string_view::npos) throw std::logic_error("a message between ranks is cut off");
    std::from_chars(packed.data(), packed.data() + colon, size);
    texts.emplace_back(packed.substr(colon + 1, size));
    packed.remove_prefix(std::min(packed.size(), colon + 1 + size));
  }
  return texts;
}

std::vector<std::vector<int>> Line::meet(const std::vector<int>& ports) {
  std::vector<std::string> texts;
  for (int port : ports) texts.push_back(std::to_string(port));
  std::vector<std::vector<int>> table;
  for (const std::string& row : gather(pack(texts))) {
    table.emplace_back();
    for (const std::string& port : unpack(row)) table.back().push_back(std::stoi(port));
  }
  return table;
}

}  // namespace shardsim::execute
