// SPDX-License-Identifier: Apache-2.0
#include "cli/application.hpp"

#include <csignal>
#include <cstdio>
#include <new>

#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/help.hpp"
#include "cli/log.hpp"
#include "shardsim/expected.hpp"
#include "shardsim/report.hpp"

namespace shardsim {
namespace {

ExitCode fail(ExitCode code, const std::string& message) {
  std::fputs(message.c_str(), stderr);
  return code;
}

ExitCode dispatch(std::span<const std::string> words) {
  const ParsedLine line = parse_arguments(program(), words);
  set_verbosity(line.verbosity);
  if (line.version) {
    write_output("-", "shardsim " SHARDSIM_VERSION "\n");
    return ExitCode::done;
  }
  if (line.help) {
    write_output("-", help_text(*line.command, line.path));
    return ExitCode::done;
  }
  return line.command->run(line.arguments);
}

}  // namespace

ExitCode run_command_line(std::span<const std::string> words) {
  // A closed pipe and a file above the limit show as failed writes, so that no draft is left behind.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return dispatch(words);
  } catch (const ClosedPipe&) {
    return ExitCode::done;  // the reader has seen enough
  } catch (const InputError& error) { return fail(ExitCode::bad_input, error.what()); } catch (const EnvironmentError& error) {
    return fail(ExitCode::environment, std::string("error: ") + error.what() + "\n");
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::environment, "error: not enough memory on this machine\n");
  } catch (const std::exception& error) {
    return fail(ExitCode::bug, std::string("internal error: ") + error.what() +
                                   "\nThis is a bug of shardsim " SHARDSIM_VERSION
                                   "; please report it with the command and its input files.\n");
  }
}

}  // namespace shardsim
