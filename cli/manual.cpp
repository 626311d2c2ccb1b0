// SPDX-License-Identifier: Apache-2.0
#include "cli/manual.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/arguments.hpp"

namespace shardsim {
namespace {

/// Calls `visit(command, path)` for the program and all commands below it, in order.
template <class Visit>
void walk(const Command& command, std::vector<std::string> path, const Visit& visit) {
  path.push_back(command.name);
  visit(command, path);
  for (const Command& sub : command.subcommands) walk(sub, path, visit);
}

std::string joined(const std::vector<std::string>& words, const char* separator = " ") {
  return fmt::format("{}", fmt::join(words, separator));
}

/// Text as roff takes it: hyphens that can be copied, no line that begins with a control character.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '-' || c == '\\') out += '\\';
    out += c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string roff_argument(const Argument& argument) {
  const std::string name = argument.positional() ? "\\fI" + roff(argument.name) + "\\fR" : "\\fB" + roff(argument.name) + "\\fR";
  const std::string short_name = argument.short_name.empty() ? "" : "\\fB" + roff(argument.short_name) + "\\fR, ";
  const std::string value = argument.positional() || argument.value.empty() ? "" : " \\fI" + roff(argument.value) + "\\fR";
  std::string help = argument.help;
  if (!argument.words.empty()) help += ": " + joined(argument.words, ", ");
  if (!argument.fallback.empty()) help += " (default: " + argument.fallback + ")";
  return ".TP\n" + short_name + name + value + "\n" + roff(help) + ".\n";
}

std::string roff_command(const Command& command, const std::vector<std::string>& path) {
  std::string usage;
  for (const Argument& argument : command.arguments)
    if (argument.positional()) usage += " \\fI" + roff(argument.name) + "\\fR" + (argument.many ? "..." : "");
  std::string out =
      ".SS \"" + joined(path) + "\"\n\\fB" + roff(joined(path)) + "\\fR [options]" + usage + "\n.PP\n" + roff(command.summary) + ".\n";
  if (!command.details.empty()) out += roff(command.details) + "\n";
  for (const Argument& argument : command.arguments) out += roff_argument(argument);
  return out;
}

std::vector<std::string> option_spellings(const Command& command) {
  std::vector<std::string> out;
  for (const auto* table : {&command.arguments, &common_arguments()})
    for (const Argument& argument : *table)
      if (!argument.positional()) out.push_back(argument.name);
  return out;
}

/// What may stand where no option does: subcommands, or the words of the positionals.
std::vector<std::string> plain_words(const Command& command) {
  std::vector<std::string> out;
  for (const Command& sub : command.subcommands) out.push_back(sub.name);
  for (const Argument& argument : command.arguments)
    if (argument.positional()) out.insert(out.end(), argument.words.begin(), argument.words.end());
  return out;
}

std::string bash_case(const Command& command, const std::vector<std::string>& path) {
  std::string values;
  for (const Argument& argument : command.arguments)
    if (!argument.positional() && !argument.words.empty())
      values += fmt::format("      [ \"$previous\" = {} ] && words=\"{}\"\n", argument.name, joined(argument.words));
  return fmt::format("    \"{}\")\n      words=\"{} {}\"\n{}      ;;\n", joined(path), joined(plain_words(command)),
                     joined(option_spellings(command)), values);
}

}  // namespace

std::string man_page(const Command& program) {
  std::string out = ".TH SHARDSIM 1\n.SH NAME\nshardsim \\- " + roff(program.summary) +
                    "\n.SH SYNOPSIS\n\\fBshardsim\\fR \\fICOMMAND\\fR [options]\n.SH DESCRIPTION\n" + roff(program.details) +
                    "\n.SH COMMANDS\n";
  walk(program, {}, [&](const Command& command, const std::vector<std::string>& path) {
    if (command.run) out += roff_command(command, path);
  });
  out += ".SH OPTIONS OF EVERY COMMAND\n";
  for (const Argument& argument : common_arguments()) out += roff_argument(argument);
  out +=
      ".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n1\nThe answer is no: \\fBcheck\\fR failed, \\fBexecute\\fR disagrees, nothing in \\fBplan\\fR "
      "fits.\n"
      ".TP\n2\nBad usage or bad input.\n.TP\n3\nThe machine lacks something: a GPU, MPI, a disk with room.\n.TP\n70\nA bug of shardsim.\n"
      ".SH ENVIRONMENT\n.TP\nSHARDSIM_DATA\nFolder of the shipped scenarios, instead of the installed one.\n"
      ".TP\nGITHUB_ACTIONS\nIf \\(lqtrue\\(rq, \\fBcheck\\fR writes workflow annotations to standard error.\n";
  return out;
}

std::string bash_completion(const Command& program) {
  std::string paths, cases;
  walk(program, {}, [&](const Command& command, const std::vector<std::string>& path) {
    if (path.size() > 1) paths += (paths.empty() ? "" : "|") + fmt::format("\"{}\"", joined(path));
    cases += bash_case(command, path);
  });
  return fmt::format(
      "# Completion of shardsim for bash.\n"
      "_shardsim() {{\n"
      "  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" previous=\"${{COMP_WORDS[COMP_CWORD-1]}}\" path=shardsim words=\"\" i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$path ${{COMP_WORDS[i]}}\" in {}) path=\"$path ${{COMP_WORDS[i]}}\" ;; esac\n"
      "  done\n"
      "  case \"$path\" in\n{}  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  [[ \"$path\" == shardsim || \"$current\" == -* ]] || COMPREPLY+=($(compgen -f -- \"$current\"))\n"
      "}}\n"
      "complete -o filenames -F _shardsim shardsim\n",
      paths, cases);
}

std::string zsh_completion(const Command& program) {
  return "#compdef shardsim\nautoload -U +X bashcompinit && bashcompinit\n" + bash_completion(program);
}

std::string fish_completion(const Command& program) {
  std::string out = "# Completion of shardsim for fish.\n";
  const auto quoted = [](const std::string& text) {
    std::string safe;
    for (const char c : text) safe += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string{c};
    return "'" + safe + "'";
  };
  walk(program, {}, [&](const Command& command, const std::vector<std::string>& path) {
    std::string condition = path.size() == 1 ? "__fish_use_subcommand" : "";
    for (std::size_t i = 1; i < path.size(); ++i) condition += (i > 1 ? "; and " : "") + ("__fish_seen_subcommand_from " + path[i]);
    const std::string head = "complete -c shardsim -n " + quoted(condition);
    for (const Command& sub : command.subcommands) out += head + " -f -a " + sub.name + " -d " + quoted(sub.summary) + "\n";
    for (const Argument& argument : command.arguments) {
      if (argument.positional() && argument.words.empty()) continue;
      out += head;
      if (!argument.positional()) out += " -l " + argument.name.substr(2) + (argument.flag() ? "" : " -r");
      if (!argument.short_name.empty()) out += " -s " + argument.short_name.substr(1);
      if (!argument.words.empty()) out += " -f -a " + quoted(joined(argument.words));
      out += " -d " + quoted(argument.help) + "\n";
    }
  });
  return out;
}

}  // namespace shardsim
