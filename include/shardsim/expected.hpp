// SPDX-License-Identifier: Apache-2.0
// How calls of the library fail: with a value that says whose mistake it was. Nothing is thrown across the facade.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "sim/base/problem.hpp"

namespace shardsim {

struct Failure {
  enum class Kind : std::uint8_t {
    input,        ///< the scenario, profile or argument is wrong: `problems` says where (exit code 2 of the program)
    environment,  ///< the machine lacks something: a GPU, a launcher, a writable disk (3)
    bug,          ///< of shardsim (70)
  };
  Kind kind = Kind::bug;
  std::string message;  ///< as the program prints it, ending in a newline
  Problems problems{};  ///< each with file, line and column; empty where there is no place to point at
};

template <class T>
using Expected = tl::expected<T, Failure>;

/// What `work()` returns, or why it could not.
template <class Work>
[[nodiscard]] auto expected_from(Work&& work) -> Expected<std::invoke_result_t<Work>> {
  try {
    return std::forward<Work>(work)();
  } catch (const InputError& error) {
    return tl::unexpected(Failure{Failure::Kind::input, error.what(), error.problems});
  } catch (const EnvironmentError& error) {
    return tl::unexpected(Failure{Failure::Kind::environment, std::string("error: ") + error.what() + "\n"});
  } catch (const std::exception& error) {
    return tl::unexpected(Failure{Failure::Kind::bug, std::string("internal error: ") + error.what() + "\n"});
  }
}

}  // namespace shardsim
