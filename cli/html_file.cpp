// SPDX-License-Identifier: Apache-2.0
#include "cli/html_file.hpp"

#include "shardsim/expected.hpp"

namespace shardsim {

Argument html_argument() { return {.name = "--html", .value = "FILE", .help = "write a page with charts that opens without a network"}; }

HtmlFile::HtmlFile(const Arguments& arguments) {
  if (!arguments.given("--html")) return;
  const std::string path = arguments.text("--html");
  on_standard_output_ = path == "-";
  if (on_standard_output_ && arguments.given("--format")) throw InputError("standard output can take the report or the page, not both");
  output_.emplace(path);
}

void HtmlFile::keep_apart_from(std::span<const std::string> inputs) const {
  if (output_) output_->keep_apart_from(inputs);
}

void HtmlFile::write(const HtmlPage& page) {
  output_->write(html_page(page));
  output_->commit();
}

}  // namespace shardsim
