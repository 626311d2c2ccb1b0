// SPDX-License-Identifier: Apache-2.0
// Files that appear whole or not at all, or standard output ("-").
#pragma once

#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/descriptor.hpp"

namespace shardsim {

/// The reader at the other end of a pipe has gone. Not an error: there is nobody left to tell.
struct ClosedPipe : std::exception {
  const char* what() const noexcept override { return "the reader of the output has gone"; }
};

/// One output, made before the long work so that a bad path is known at once. It is written to a draft next to its place, under a name that
/// nobody can foresee, and gets its own name by `commit`. Devices and pipes are written directly. An empty name is an InputError; whatever
/// else fails is an EnvironmentError that names the file, or ClosedPipe.
class Output {
 public:
  explicit Output(std::string path);  ///< "-": standard output
  ~Output();                          ///< removes what was not committed
  Output(Output&& other) noexcept;
  Output& operator=(Output&& other) noexcept;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// Throws an InputError if one of `inputs` is the file that this would replace, under whatever name.
  void keep_apart_from(std::span<const std::string> inputs) const;
  void write(std::string_view text);
  /// To the disk itself, for what stands in for files that are removed afterwards.
  void synchronize();
  void commit();

 private:
  void make_draft();
  [[noreturn]] void fail(const char* what) const;

  std::string path_;   ///< as the user gave it
  std::string place_;  ///< the file that commit replaces; empty: written directly
  std::string draft_;
  Descriptor file_;  ///< not valid before the first write, nor for standard output
};

void write_output(const std::string& path, std::string_view text, std::span<const std::string> inputs = {});

}  // namespace shardsim
