// SPDX-License-Identifier: Apache-2.0
#include "studies/check/expression.hpp"

#include <algorithm>
#include <vector>

#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

constexpr int deepest_nesting = 200;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return begins_name(c) || is_digit(c); }

/// Thrown to leave the recursion at the first thing that makes no sense; unknown names do not end the reading.
struct Stop {};

using Function = ExactNumber (*)(const std::vector<ExactNumber>&);

ExactNumber smallest(const std::vector<ExactNumber>& values) { return *std::min_element(values.begin(), values.end()); }
ExactNumber largest(const std::vector<ExactNumber>& values) { return *std::max_element(values.begin(), values.end()); }
ExactNumber rounded_down(const std::vector<ExactNumber>& values) { return values.front().floor(); }
ExactNumber rounded_up(const std::vector<ExactNumber>& values) { return ExactNumber(0) - (ExactNumber(0) - values.front()).floor(); }

struct NamedFunction {
  std::string_view name;
  Function call;
  bool single;  ///< takes exactly one value
};
constexpr NamedFunction functions[]{
    {"min", smallest, false}, {"max", largest, false}, {"floor", rounded_down, true}, {"ceil", rounded_up, true}};

class Reader {
 public:
  Reader(std::string_view text, const Where& where, const Symbols& symbols) : text_(text), where_(where), symbols_(symbols) {}

  Result<ExactNumber> read() {
    ExactNumber value;
    try {
      value = sum();
      if (peek() != '\0') stop(at_, std::string("unexpected '") + peek() + "' in the formula", {"expected an operator or the end"});
    } catch (const Stop&) {}
    if (!problems_.empty()) return tl::unexpected(problems_);
    return value;
  }

 private:
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void note(std::size_t at, std::string message, std::vector<std::string> notes) {
    Where place = where_;
    if (place.column > 0) place.column += static_cast<int>(at);
    problems_.add(std::move(place), std::move(message), std::move(notes));
  }
  [[noreturn]] void stop(std::size_t at, std::string message, std::vector<std::string> notes = {}) {
    note(at, std::move(message), std::move(notes));
    throw Stop{};
  }

  ExactNumber sum() {
    ExactNumber value = product();
    while (true) {
      if (accept('+'))
        value = value + product();
      else if (accept('-'))
        value = value - product();
      else
        return value;
    }
  }

  ExactNumber product() {
    ExactNumber value = signed_power();
    while (true) {
      if (accept('*')) {
        value = value * signed_power();
      } else if (accept('/')) {
        const std::size_t place = at_ - 1;
        const ExactNumber divisor = signed_power();
        if (divisor == ExactNumber(0) && problems_.empty()) stop(place, "division by zero in the formula");
        value = value / divisor;
      } else {
        return value;
      }
    }
  }

  ExactNumber signed_power() {
    if (++depth_ > deepest_nesting) stop(at_, "the formula is nested too deeply");
    ExactNumber value;
    if (accept('-'))
      value = ExactNumber(0) - signed_power();
    else if (accept('+'))
      value = signed_power();
    else
      value = power();
    --depth_;
    return value;
  }

  ExactNumber power() {
    const ExactNumber base = primary();
    return accept('^') ? base.power(signed_power()) : base;
  }

  ExactNumber primary() {
    const char c = peek();
    if (is_digit(c) || c == '.') return number();
    if (begins_name(c)) return name();
    const std::size_t open = at_;
    if (accept('(')) {
      const ExactNumber value = sum();
      close(open);
      return value;
    }
    if (c == '\0') stop(at_, "the formula ends too early", {"expected a number, a name or '('"});
    stop(at_, std::string("unexpected '") + c + "' in the formula", {"expected a number, a name or '('"});
  }

  void close(std::size_t open) {
    if (!accept(')')) stop(open, "this '(' is not closed");
  }

  ExactNumber number() {
    const std::size_t begin = at_;
    const auto digits = [&] {
      while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    };
    digits();
    if (at_ < text_.size() && text_[at_] == '.') ++at_;
    digits();
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      const std::size_t letter = at_++;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      const std::size_t first = at_;
      digits();
      if (at_ == first) at_ = letter;
    }
    const auto value = ExactNumber::parse(text_.substr(begin, at_ - begin));
    if (!value) stop(begin, "'" + std::string(text_.substr(begin, at_ - begin)) + "' is not a number");
    return begins_name(peek()) ? *value * unit() : *value;
  }

  ExactNumber unit() {
    const std::size_t begin = at_;
    const std::string word(take_name());
    const auto size = parse_bytes("1 " + word);
    if (!size.value)
      stop(begin, "'" + word + "' is not a unit of size", {"expected an operator, or one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"});
    return {size.value->value()};
  }

  std::string_view take_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && continues_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  ExactNumber name() {
    const std::size_t begin = at_;
    const std::string_view word = take_name();
    if (peek() == '(') return call(word, begin);
    if (const auto found = symbols_.find(word); found != symbols_.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& [symbol, value] : symbols_) known.push_back(symbol);
    note(begin, "unknown name '" + std::string(word) + "' in the formula", notes_for_unknown(word, known));
    return {1};  // reading goes on, so that all unknown names are told at once
  }

  ExactNumber call(std::string_view word, std::size_t begin) {
    const auto* function = std::find_if(std::begin(functions), std::end(functions), [&](const NamedFunction& f) { return f.name == word; });
    if (function == std::end(functions)) stop(begin, "unknown function '" + std::string(word) + "'", {"known: min, max, floor, ceil"});
    const std::size_t open = at_++;
    std::vector<ExactNumber> values{sum()};
    while (accept(',')) values.push_back(sum());
    close(open);
    if (function->single && values.size() > 1) stop(begin, std::string(word) + " takes one value");
    return function->call(values);
  }

  std::string_view text_;
  const Where& where_;
  const Symbols& symbols_;
  Problems problems_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<ExactNumber> evaluate(std::string_view formula, const Where& where, const Symbols& symbols) {
  return Reader(formula, where, symbols).read();
}

}  // namespace shardsim
