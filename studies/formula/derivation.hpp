// SPDX-License-Identifier: Apache-2.0
// What the papers count, as formulas with the numbers put in.
#pragma once

#include <string>
#include <vector>

#include "strategies/strategy.hpp"
#include "studies/check/expression.hpp"

namespace shardsim {

/// One line of a derivation.
struct DerivationStep {
  std::string what;     ///< "optimizer states"
  std::string formula;  ///< over the symbols of `expect` formulas: "k * psi / s"
  std::string reason;   ///< why, in the paper's terms
  Bytes value;          ///< of the formula, rounded up to whole bytes
};

struct Derivation {
  std::vector<DerivationStep> states;  ///< parameters, gradients, optimizer states of one rank
  DerivationStep sent;                 ///< by one rank in one step
  std::string source;                  ///< which paper and section
};

/// The formulas of the scheme that the job's strategy stands for, evaluated with the job's symbols.
[[nodiscard]] Derivation derive(const Job& job);

/// A model of which only the number of parameters is known: enough for what the papers count.
[[nodiscard]] Model bare_model(Elements parameters);

/// The formula with every symbol replaced by its value: "12 * 7.5e+09 / 64".
[[nodiscard]] std::string with_numbers(const std::string& formula, const Symbols& symbols);

}  // namespace shardsim
