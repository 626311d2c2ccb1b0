// SPDX-License-Identifier: Apache-2.0
// The --html option of every command that has one.
#pragma once

#include <optional>

#include "cli/command.hpp"
#include "shardsim/report.hpp"

namespace shardsim {

[[nodiscard]] Argument html_argument();

/// The page that --html asks for. Opened when made, so that a bad path is known before the long work; written once.
class HtmlFile {
 public:
  /// An InputError if standard output is to take both the page and a report in a form of its own.
  explicit HtmlFile(const Arguments& arguments);

  [[nodiscard]] bool wanted() const { return output_.has_value(); }
  /// The page goes to standard output, in place of the report.
  [[nodiscard]] bool replaces_report() const { return on_standard_output_; }
  /// See Output.
  void keep_apart_from(std::span<const std::string> inputs) const;
  void write(const HtmlPage& page);

 private:
  std::optional<Output> output_;
  bool on_standard_output_ = false;
};

}  // namespace shardsim
