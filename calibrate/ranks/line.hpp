// SPDX-License-Identifier: Apache-2.0
// What ranks say to each other beside payload: where to meet, barriers and results.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shardsim::execute {

/// A rank's line to all others, and back to itself.
class Line {
 public:
  Line() = default;
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  virtual ~Line() = default;

  /// Everybody's `text`, by rank, once all ranks have called this. Also serves as a barrier.
  [[nodiscard]] virtual std::vector<std::string> gather(const std::string& text) = 0;
  void barrier() { (void)gather({}); }
  /// A Rendezvous for Mesh.
  [[nodiscard]] std::vector<std::vector<int>> meet(const std::vector<int>& ports);
};

/// What a rank does; the text it returns goes to whoever started the ranks.
using RankBody = std::function<std::string(int rank, Line& line)>;

/// A list of texts as one text, and back.
[[nodiscard]] std::string pack(const std::vector<std::string>& texts);
[[nodiscard]] std::vector<std::string> unpack(std::string_view packed);

}  // namespace shardsim::execute
