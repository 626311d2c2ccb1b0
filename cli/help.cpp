// SPDX-License-Identifier: Apache-2.0
#include "cli/help.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/arguments.hpp"
#include "shardsim/report.hpp"

namespace shardsim {
namespace {

constexpr std::size_t help_column = 28;

std::string row(const std::string& left, const std::string& help) { return beside("  " + left, help, help_column) + "\n"; }

std::string left_column(const Argument& argument) {
  std::string out = argument.short_name.empty() ? argument.name : argument.short_name + ", " + argument.name;
  if (!argument.positional() && !argument.value.empty()) out += " " + argument.value;
  return out;
}

std::string right_column(const Argument& argument) {
  std::string out = argument.help;
  if (!argument.words.empty()) out += fmt::format(": {}", fmt::join(argument.words, ", "));
  if (!argument.fallback.empty()) out += fmt::format(" (default: {})", argument.fallback);
  return out;
}

std::string usage(const Command& command, const std::vector<std::string>& path) {
  std::string out = fmt::format("Usage: {}", fmt::join(path, " "));
  const std::size_t indent = out.size() + 1;
  std::string rest;
  for (const Argument& argument : command.arguments) {
    std::string item = argument.positional() || argument.value.empty() ? argument.name : argument.name + "\u00a0" + argument.value;
    if (argument.many) item += "...";
    rest += argument.required ? item + " " : "[" + item + "] ";
  }
  if (!command.subcommands.empty()) rest += "COMMAND ... ";
  if (rest.empty()) return out + "\n";
  rest.pop_back();
  out += " " + wrapped(rest, indent, indent) + "\n";
  // The no-break space kept an option and its value on one line.
  for (std::size_t at = out.find("\u00a0"); at != std::string::npos; at = out.find("\u00a0", at)) out.replace(at, 2, " ");
  return out;
}

}  // namespace

std::string help_text(const Command& command, const std::vector<std::string>& path) {
  std::string out = usage(command, path) + "\n";
  out += wrapped(fmt::format("{}: {}.", fmt::join(path, " "), command.summary), 0, 0) + "\n";
  if (!command.details.empty()) out += "\n" + wrapped(command.details, 0, 0) + "\n";
  if (!command.subcommands.empty()) {
    out += "\nCommands:\n";
    for (const Command& sub : command.subcommands) out += row(sub.name, sub.summary);
  }
  std::string positionals, options;
  for (const Argument& argument : command.arguments)
    (argument.positional() ? positionals : options) += row(left_column(argument), right_column(argument));
  for (const Argument& argument : common_arguments()) options += row(left_column(argument), right_column(argument));
  if (!positionals.empty()) out += "\nArguments:\n" + positionals;
  out += "\nOptions:\n" + options;
  return out;
}

}  // namespace shardsim
