// SPDX-License-Identifier: Apache-2.0
// doctor: what this machine says of itself, the profile that it comes to, and what to measure next.
#include "cli/commands.hpp"
#include "shardsim/machine.hpp"
#include "shardsim/report.hpp"

namespace shardsim {
namespace {

/// The shipped profile of the GPUs that were found; empty where there are none or they are unknown.
std::string known_profile(const MachineFacts& facts) {
  if (facts.gpus.empty()) return {};
  try {
    return profile_for_gpu(facts.gpus.front().name);
  } catch (const InputError&) { return {}; }
}

ExitCode run_doctor(const Arguments& arguments) {
  const MachineFacts facts = look_at_machine(this_machine());
  const std::string base = known_profile(facts);
  write_output("-", doctor_text(facts, base, arguments.text("--output")));
  if (!arguments.given("--output")) return facts.gpus.empty() ? ExitCode::environment : ExitCode::done;
  if (facts.gpus.empty())
    throw EnvironmentError("no GPU was found: there is no profile to write; 'shardsim calibrate local' measures a machine without GPUs");
  if (base.empty())
    throw EnvironmentError("no shipped profile knows " + facts.gpus.front().name +
                           "; 'shardsim calibrate cuda --base' starts from the nearest");
  write_output(arguments.text("--output"), profile_of(facts, base));
  return ExitCode::done;
}

}  // namespace

Command doctor_command() {
  return {
      .name = "doctor",
      .summary = "look at this machine: GPUs, driver, NICs, memory, libraries, and what to measure next",
      .details = "Nothing is measured, and the network is not touched. Exit code 3 where there is no GPU.",
      .arguments = {{.name = "--output", .value = "PROFILE", .help = "write the profile that the machine comes to", .short_name = "-o"}},
      .run = run_doctor};
}

}  // namespace shardsim
