// SPDX-License-Identifier: Apache-2.0
// Where reports go: a file that appears whole or not at all, or standard output ("-").
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace shardsim {

/// The reader at the other end of a pipe has gone. No error: there is nobody left to tell.
struct ClosedPipe : std::exception {
  const char* what() const noexcept override { return "the reader of the output has gone"; }
};

/// One output, opened before the long work so that a bad path is known at once, and written beside its place until `commit`.
/// Devices and pipes are written directly. Whatever fails is an EnvironmentError that names the file, or ClosedPipe.
class Output {
 public:
  explicit Output(std::string path);  ///< "-": standard output
  ~Output();                          ///< removes what was not committed
  Output(Output&& other) noexcept;
  Output& operator=(Output&& other) noexcept;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;   ///< as the user gave it
  std::string place_;  ///< the file that commit replaces; empty: written directly
  std::string temporary_;
  int descriptor_ = -1;
};

void write_output(const std::string& path, std::string_view text);

}  // namespace shardsim
