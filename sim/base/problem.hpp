// SPDX-License-Identifier: Apache-2.0
// What is wrong with a user's input, and where: collected, sorted, printed as a compiler does.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

namespace shardsim {

/// A text the user gave: a file's name and content, or `--set` and the argument.
struct Source {
  std::string name;
  std::string text;
};

/// A place in a source. `line` and `column` count from 1; 0 means "the source as a whole".
struct Where {
  std::shared_ptr<const Source> source;
  int line = 0;
  int column = 0;
};

struct Problem {
  Where where;
  std::string message;             ///< one sentence, no full stop: "unknown key 'micro_batch_sise'"
  std::vector<std::string> notes;  ///< what is allowed, the nearest known word
};

/// All problems of one reading, in the order found.
class Problems {
 public:
  void add(Where where, std::string message, std::vector<std::string> notes = {});
  void append(const Problems& others);
  [[nodiscard]] bool empty() const { return list_.empty(); }
  [[nodiscard]] std::size_t size() const { return list_.size(); }
  [[nodiscard]] const std::vector<Problem>& list() const { return list_; }

  /// `FILE:LINE:COLUMN: error: message`, the line, a caret and the notes; sorted by place; ends with a newline.
  /// Long lines are cut around the column; at most 20 problems are printed and the rest counted.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<Problem> list_;
};

template <class T>
using Result = tl::expected<T, Problems>;

/// The text as it may be shown: unprintable bytes as \xNN, cut after `limit` characters.
[[nodiscard]] std::string printable(std::string_view text, std::size_t limit = 300);
/// printable() in single quotes, short: for words of the user inside a message.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// What is closest to `word` among `known`, if it is close enough to be meant (edit distance at most a third of the length).
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& known);

/// "did you mean 'x'?" where something is near, and "allowed: a, b, c".
[[nodiscard]] std::vector<std::string> notes_for_unknown(std::string_view word, const std::vector<std::string>& known);

/// Bad input found outside a reader (exit code 2).
struct InputError : std::runtime_error {
  explicit InputError(Problems p) : std::runtime_error(p.text()), problems(std::move(p)) {}
  explicit InputError(const std::string& message) : std::runtime_error("error: " + message + "\n") {}
  Problems problems;
};

/// The machine lacks something: a GPU, MPI, a writable disk (exit code 3).
struct EnvironmentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace shardsim
