// SPDX-License-Identifier: Apache-2.0
#include "studies/check/expectations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shardsim {
namespace {

using Outcome = CheckCase::Outcome;

Json json_of(const ExactNumber& number) {
  if (const auto integer = number.integer()) return *integer;
  return number.value();
}

std::string tolerance_text(const Expectation& e) {
  std::string out;
  if (e.relative) out += fmt::format(" within {:.6g} %", *e.relative * 100);
  if (e.absolute) out += fmt::format("{}within {:.6g}", out.empty() ? " " : " or ", *e.absolute);
  return out;
}

/// The larger of the two tolerances, in the figure's own unit.
double tolerance(const Expectation& e, const ExactNumber& expected) {
  return std::max(e.absolute.value_or(0), e.relative.value_or(0) * std::abs(expected.value()));
}

class Checker {
 public:
  Checker(const Expectation& expectation, const Json& result, const Symbols& symbols)
      : e_(expectation), result_(result), symbols_(symbols) {
    case_.line = e_.where.line;
    case_.column = e_.where.column;
    case_.metric = e_.metric;
  }

  Result<CheckCase> check() {
    const Json* actual = result_.find(e_.metric);
    if (!actual || actual->as<Json::Object>() || actual->as<Json::List>()) return refuse_metric();
    case_.actual = *actual;
    if (const auto number = number_of(*actual))
      check_number(*number);
    else
      check_words(*actual);
    if (!problems_.empty()) return tl::unexpected(problems_);
    return std::move(case_);
  }

 private:
  Result<CheckCase> refuse_metric() {
    problems_.add(e_.where, fmt::format("unknown metric '{}'", e_.metric), notes_for_unknown(e_.metric, leaf_paths(result_)));
    return tl::unexpected(problems_);
  }

  void check_number(const ExactNumber& actual) {
    if (e_.equals) {
      const auto expected = evaluate(*e_.equals, e_.equals_where, symbols_);
      if (!expected)
        problems_.append(expected.error());
      else if (!std::isfinite(expected->value()))
        problems_.add(e_.equals_where, "the formula's value is not a finite number");
      else
        compare(actual, *expected, "= " + *e_.equals);
    }
    if (e_.baseline) compare(actual, baseline(), "(baseline)");
    check_bounds(actual);
  }

  /// The baseline as it is written where its digits are exact, so that large integers compare to the last unit.
  ExactNumber baseline() const {
    const auto exact = ExactNumber::parse(fmt::format("{}", *e_.baseline));
    return exact ? *exact : ExactNumber::inexact(*e_.baseline);
  }

  void compare(const ExactNumber& actual, const ExactNumber& expected, const std::string& how) {
    case_.expected = json_of(expected);
    case_.expectation = how + tolerance_text(e_);
    if (!e_.relative && !e_.absolute && !(actual.integer() && expected.integer())) {
      problems_.add(e_.where,
                    fmt::format("{} is compared without a tolerance, but {} is no integer", e_.metric,
                                actual.integer() ? expected.text() : actual.text()),
                    {"add relative: or absolute:", "ceil(...) and floor(...) make a formula whole"});
      return;
    }
    if (actual == expected) return;
    case_.moved = moved_text(expected, actual);
    const double distance = std::abs((actual - expected).value());
    case_.outcome = distance <= tolerance(e_, expected) ? Outcome::moved : Outcome::failed;  // a distance that is no number fails
    case_.message = fmt::format("{} is {}, expected {} {}{}", e_.metric, figure_text(case_.actual), figure_text(case_.expected),
                                case_.expectation, case_.moved.empty() ? "" : ": " + case_.moved);
  }

  void check_bounds(const ExactNumber& actual) {
    check_bound(actual, e_.at_most, "at most", [](double value, double bound) { return value <= bound; });
    check_bound(actual, e_.at_least, "at least", [](double value, double bound) { return value >= bound; });
  }

  template <class Holds>
  void check_bound(const ExactNumber& actual, const std::optional<double>& bound, const char* word, Holds holds) {
    if (!bound) return;
    const ExactNumber limit = *bound == std::floor(*bound) && std::abs(*bound) < 9e15 ? ExactNumber(static_cast<std::int64_t>(*bound))
                                                                                      : ExactNumber::inexact(*bound);
    const bool held = holds(actual.value(), *bound);
    if (held && !case_.expected.is_null()) return;  // another comparison has spoken already
    case_.expected = json_of(limit);
    case_.expectation = fmt::format("({})", word);
    if (held) return;
    case_.moved = moved_text(limit, actual);
    case_.outcome = Outcome::failed;
    case_.message = fmt::format("{} is {}, expected {} {}", e_.metric, figure_text(case_.actual), word, figure_text(case_.expected));
  }

  /// Text, true and false are compared as they are written.
  void check_words(const Json& actual) {
    if (!e_.equals || e_.at_most || e_.at_least || e_.baseline) {
      problems_.add(e_.where, fmt::format("{} is no number: only equals can be asked of it", e_.metric));
      return;
    }
    const std::string text = figure_text(actual);
    case_.expected = *e_.equals;
    if (const auto* flag = actual.as<bool>(); flag && (*e_.equals == "true" || *e_.equals == "false"))
      case_.expected = *e_.equals == "true";
    if (text == *e_.equals) return;
    case_.outcome = Outcome::failed;
    case_.message = fmt::format("{} is '{}', expected '{}'", e_.metric, text, *e_.equals);
  }

  const Expectation& e_;
  const Json& result_;
  const Symbols& symbols_;
  CheckCase case_;
  Problems problems_;
};

}  // namespace

std::optional<ExactNumber> number_of(const Json& value) {
  if (const auto* integer = value.as<std::int64_t>()) return ExactNumber(*integer);
  if (const auto* number = value.as<double>()) return ExactNumber::inexact(*number);
  return std::nullopt;
}

std::string moved_text(const ExactNumber& from, const ExactNumber& to) {
  if (from.value() == 0 || !std::isfinite(from.value()) || !std::isfinite(to.value())) return "";
  return fmt::format("{:+.3g} %", 100 * (to - from).value() / std::abs(from.value()));
}

Result<CheckCase> check_expectation(const Expectation& expectation, const Json& result, const Symbols& symbols) {
  return Checker(expectation, result, symbols).check();
}

}  // namespace shardsim
