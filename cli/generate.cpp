// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/manual.hpp"
#include "shardsim/report.hpp"

namespace shardsim {
namespace {

ExitCode run_generate(const Arguments& arguments) {
  const std::string what = arguments.text("WHAT");
  write_output("-", what == "man"    ? man_page(program())
                    : what == "bash" ? bash_completion(program())
                    : what == "zsh"  ? zsh_completion(program())
                                     : fish_completion(program()));
  return ExitCode::done;
}

}  // namespace

Command generate_command() {
  return {.name = "generate",
          .summary = "print the man page or the completion of a shell",
          .details = "For packagers; the installation has them in place.",
          .arguments = {{.name = "WHAT", .help = "what to print", .required = true, .words = {"man", "bash", "zsh", "fish"}}},
          .run = run_generate};
}

}  // namespace shardsim
