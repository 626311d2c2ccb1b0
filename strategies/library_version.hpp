// SPDX-License-Identifier: Apache-2.0
// Which release of its library a strategy follows: the releases that changed what it does, and the job's `strategy.version` among them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shardsim {

/// A release that changed what a strategy does.
struct Release {
  std::string version{};  ///< "2.15", "0.19.6"
  std::string changes{};  ///< what is different since then, one sentence; of the first one: that it is the oldest that is modelled
};

/// Dotted numbers: "2.9" is older than "2.15". What one of them leaves out does not count: "2.15" is neither older nor newer than "2.15.1".
[[nodiscard]] bool older(std::string_view version, std::string_view than);
/// "2.15", "0.19.6"; not "newest" and not "".
[[nodiscard]] bool is_version(std::string_view text);

/// `text` with "{}" replaced by the newest of the releases that is not newer than `version` (empty: the newest of all).
[[nodiscard]] std::string with_version(std::string text, const std::vector<Release>& releases, std::string_view version);

/// What there is to say about a version that no release of the table stands for; empty if there is nothing.
[[nodiscard]] std::string outside_range(std::string_view strategy, const std::vector<Release>& releases, std::string_view version);

}  // namespace shardsim
