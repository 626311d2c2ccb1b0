// SPDX-License-Identifier: Apache-2.0
// A subcommand as a value: its name, its arguments as a table, and what it does. Help, man page and shell completion are made from the
// same table. The parsing library stands behind arguments.cpp alone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/exit_code.hpp"

namespace shardsim {

/// An option ("--format") or a positional argument ("SCENARIO"). Positionals are filled in the order of the table.
struct Argument {
  std::string name = {};
  std::string value = {};       ///< what its value is called in help ("FILE"); empty for an option: a flag without a value
  std::string help = {};        ///< one line, no full stop
  std::string short_name = {};  ///< "-o"
  bool required = false;
  bool many = false;                    ///< may be given several times (an option), or takes the rest (a positional)
  std::vector<std::string> words = {};  ///< the allowed values, if closed
  std::string fallback = {};            ///< shown in help

  [[nodiscard]] bool positional() const { return !name.starts_with('-'); }
  [[nodiscard]] bool flag() const { return !positional() && value.empty(); }
};

/// What the user gave.
class Arguments {
 public:
  [[nodiscard]] bool given(std::string_view name) const { return values_.contains(std::string(name)); }
  [[nodiscard]] bool flag(std::string_view name) const { return given(name); }
  [[nodiscard]] std::string text(std::string_view name, std::string fallback = {}) const;  ///< the last one given
  [[nodiscard]] std::vector<std::string> texts(std::string_view name) const;               ///< all given, in order
  /// A value that is no integer (number) in [min, max] is an InputError that names the argument.
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t fallback, std::int64_t min, std::int64_t max) const;
  [[nodiscard]] double number(std::string_view name, double fallback, double min, double max) const;

  void add(const std::string& name, std::vector<std::string> values);

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

struct Command {
  std::string name = {};
  std::string summary = {};  ///< one line, no full stop
  std::string details = {};  ///< further sentences of the help and the man page
  std::vector<Argument> arguments = {};
  std::vector<Command> subcommands = {};
  std::function<ExitCode(const Arguments&)> run = {};
};

}  // namespace shardsim
