// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <deque>

#include "shardsim/expected.hpp"

namespace shardsim {
namespace {

/// One command of the table beside the parser's object for it.
struct Bound {
  const Command* command = nullptr;
  CLI::App* app = nullptr;
  std::vector<std::string> path;
  std::map<std::string, std::vector<std::string>> values;  // by argument; the parser keeps pointers into it
};

std::string spelling(const Argument& argument) {
  return argument.short_name.empty() ? argument.name : argument.short_name + "," + argument.name;
}

void bind(Bound& bound, const Argument& argument) {
  auto& store = bound.values[argument.name];
  if (argument.flag()) {
    bound.app->add_flag_function(spelling(argument), [&store](std::int64_t count) { store.assign(static_cast<std::size_t>(count), ""); });
    return;
  }
  auto* option = bound.app->add_option(spelling(argument), store);
  if (argument.positional()) {
    option->expected(1, argument.many ? CLI::detail::expected_max_vector_size : 1)->allow_extra_args(argument.many);
  } else {
    // One value after each mention, so that `--set a=1 scenario.yaml` leaves the file alone.
    option->expected(1)->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
}

void build(std::deque<Bound>& all, const Command& command, CLI::App& app, std::vector<std::string> path) {
  path.push_back(command.name);
  Bound& bound = all.emplace_back(Bound{&command, &app, path, {}});
  app.set_help_flag("");
  app.allow_extras();
  app.require_subcommand(0, 1);
  for (const Argument& argument : common_arguments()) bind(bound, argument);
  for (const Argument& argument : command.arguments) bind(bound, argument);
  for (const Command& sub : command.subcommands) build(all, sub, *app.add_subcommand(sub.name), path);
}

std::string usage_hint(const Bound& bound) { return fmt::format("  = try '{} --help'\n", fmt::join(bound.path, " ")); }

[[noreturn]] void refuse(const Bound& bound, const std::string& message, const std::vector<std::string>& notes = {}) {
  std::string text = message + "\n";
  for (const std::string& note : notes) text += "  = " + note + "\n";
  text += usage_hint(bound);
  text.pop_back();  // InputError ends the line
  throw InputError(text);
}

std::vector<std::string> option_names(const Command& command) {
  std::vector<std::string> names;
  for (const auto* table : {&command.arguments, &common_arguments()})
    for (const Argument& argument : *table)
      if (!argument.positional()) names.push_back(argument.name);
  return names;
}

std::vector<std::string> subcommand_names(const Command& command) {
  std::vector<std::string> names;
  for (const Command& sub : command.subcommands) names.push_back(sub.name);
  return names;
}

void refuse_extras(const Bound& bound) {
  const auto extras = bound.app->remaining();
  if (extras.empty()) return;
  const std::string& word = extras.front();
  const std::string whose = fmt::format("'{}'", fmt::join(bound.path, " "));
  if (word.starts_with("-") && word.size() > 1) {
    const std::string name = word.substr(0, word.find('='));
    refuse(bound, fmt::format("{} has no option '{}'", whose, name), notes_for_unknown(name, option_names(*bound.command)));
  }
  if (!bound.command->subcommands.empty()) {
    refuse(bound, fmt::format("{} has no command '{}'", whose, word), notes_for_unknown(word, subcommand_names(*bound.command)));
  }
  refuse(bound, fmt::format("{} takes no further argument: '{}'", whose, word));
}

void check_words(const Bound& bound, const Argument& argument, const std::vector<std::string>& values) {
  if (argument.words.empty()) return;
  for (const std::string& value : values) {
    if (std::find(argument.words.begin(), argument.words.end(), value) != argument.words.end()) continue;
    refuse(bound, fmt::format("{}: unknown value '{}'", argument.name, value), notes_for_unknown(value, argument.words));
  }
}

Arguments collect(const Bound& bound) {
  Arguments arguments;
  for (const Argument& argument : bound.command->arguments) {
    const auto& values = bound.values.at(argument.name);
    if (values.empty()) {
      if (argument.required) refuse(bound, fmt::format("{} is missing", argument.name));
      continue;
    }
    if (!argument.positional() && !argument.flag() && !argument.many && values.size() > 1)
      refuse(bound, fmt::format("{} is given {} times", argument.name, values.size()));
    check_words(bound, argument, values);
    arguments.add(argument.name, values);
  }
  return arguments;
}

std::size_t count(const std::deque<Bound>& all, const std::string& name) {
  std::size_t sum = 0;
  for (const Bound& bound : all) sum += bound.values.at(name).size();
  return sum;
}

const Bound& chosen(const std::deque<Bound>& all) {
  const Bound* deepest = &all.front();
  for (const Bound& bound : all)
    if (bound.app->parsed() && bound.path.size() > deepest->path.size()) deepest = &bound;
  return *deepest;
}

void parse(CLI::App& app, const std::deque<Bound>& all, std::span<const std::string> words) {
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // the order in which the parser pops them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) { refuse(chosen(all), error.what()); }
}

}  // namespace

const std::vector<Argument>& common_arguments() {
  static const std::vector<Argument> table{
      {.name = "--help", .help = "print this help", .short_name = "-h"},
      {.name = "--version", .help = "print the version"},
      {.name = "--verbose", .help = "say more on standard error", .short_name = "-v"},
      {.name = "--quiet", .help = "say less on standard error", .short_name = "-q"},
  };
  return table;
}

ParsedLine parse_arguments(const Command& program, std::span<const std::string> words) {
  CLI::App app;
  std::deque<Bound> all;
  build(all, program, app, {});
  parse(app, all, words);

  const Bound& bound = chosen(all);
  ParsedLine line{bound.command, bound.path, {}, count(all, "--help") > 0, count(all, "--version") > 0, 0};
  line.verbosity = static_cast<int>(count(all, "--verbose")) - static_cast<int>(count(all, "--quiet"));
  if (line.help || line.version) return line;
  for (const Bound& each : all) refuse_extras(each);
  if (!bound.command->run)
    refuse(bound, "a command is missing", {fmt::format("commands: {}", fmt::join(subcommand_names(*bound.command), ", "))});
  line.arguments = collect(bound);
  return line;
}

void Arguments::add(const std::string& name, std::vector<std::string> values) { values_[name] = std::move(values); }

std::string Arguments::text(std::string_view name, std::string fallback) const {
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? std::move(fallback) : found->second.back();
}

std::vector<std::string> Arguments::texts(std::string_view name) const {
  const auto found = values_.find(std::string(name));
  return found == values_.end() ? std::vector<std::string>{} : found->second;
}

namespace {
/// The whole of `text` as a T between the bounds.
template <class T>
T parse_within(std::string_view name, const std::string& text, T min, T max, std::string_view kind) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) throw InputError(fmt::format("{}: '{}' is not {}", name, text, kind));
  if (!(value >= min && value <= max)) throw InputError(fmt::format("{}: {} is not between {} and {}", name, text, min, max));
  return value;
}
}  // namespace

std::int64_t Arguments::integer(std::string_view name, std::int64_t fallback, std::int64_t min, std::int64_t max) const {
  return given(name) ? parse_within(name, text(name), min, max, "an integer") : fallback;
}

double Arguments::number(std::string_view name, double fallback, double min, double max) const {
  return given(name) ? parse_within(name, text(name), min, max, "a number") : fallback;
}

}  // namespace shardsim
