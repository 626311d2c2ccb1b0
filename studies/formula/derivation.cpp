// SPDX-License-Identifier: Apache-2.0
#include "studies/formula/derivation.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <stdexcept>

#include "strategies/textbook/textbook.hpp"
#include "studies/formula/symbols.hpp"

namespace shardsim {
namespace {

struct Scheme {
  const char* parameters;
  const char* gradients;
  const char* states;
  const char* sent;
  const char* reason;
  const char* source;
};

// By stage: what is sharded besides what the stage before shards.
constexpr std::array<Scheme, 4> schemes{
    {{"e_p * psi", "e_g * psi_trainable", "k * psi_trainable", "2 * e_g * psi_trainable * (s - 1) / s",
      "an all-reduce of the gradients is a reduce-scatter and an all-gather: each sends (s - 1) / s of them",
      "ring all-reduce; ZeRO (arXiv 1910.02054), section 7.1"},
     {"e_p * psi", "e_g * psi_trainable", "k * psi_trainable / s", "(e_g * psi_trainable + e_p * psi) * (s - 1) / s",
      "gradients are reduced to their owners, which update their parameters and gather them: as much as an all-reduce",
      "ZeRO (arXiv 1910.02054), sections 5.1 and 7.2"},
     {"e_p * psi", "e_g * psi_trainable / s", "k * psi_trainable / s", "(g * e_g * psi_trainable + e_p * psi) * (s - 1) / s",
      "each micro-batch reduces its gradients to their owners; the updated parameters are gathered once",
      "ZeRO (arXiv 1910.02054), sections 5.2 and 7.2.1"},
     {"e_p * psi / s", "e_g * psi_trainable / s", "k * psi_trainable / s", "g * (2 * e_p * psi + e_g * psi_trainable) * (s - 1) / s",
      "each micro-batch gathers the parameters for forward and again for backward, and reduces the gradients",
      "ZeRO (arXiv 1910.02054), sections 5.3 and 7.2.2; FSDP (arXiv 2304.11277)"}}};
constexpr const char* among_replicas = " + 2 * e_g * psi_trainable / s * (r - 1) / r";

/// psi_trainable is psi where everything trains: say so, it reads better.
std::string simplified(std::string formula, const Job& job) {
  if (job.model->total() != job.model->trainable()) return formula;
  static const std::string longer = "psi_trainable";
  for (std::size_t at = formula.find(longer); at != std::string::npos; at = formula.find(longer, at))
    formula.replace(at, longer.size(), "psi");
  return formula;
}

DerivationStep step(std::string what, std::string formula, std::string reason, const Symbols& symbols) {
  const auto value = evaluate("ceil(" + formula + ")", {}, symbols);
  if (!value || !value->integer()) throw std::logic_error("formula without an exact value: " + formula);
  return {std::move(what), std::move(formula), std::move(reason), Bytes{*value->integer()}};
}

}  // namespace

Derivation derive(const Job& job) {
  const TextbookPlan plan = textbook_plan(job);
  const Scheme& scheme = schemes[static_cast<std::size_t>(plan.stage)];
  const Symbols symbols = symbols_of(job);
  const auto make = [&](const char* what, std::string formula, const char* reason) {
    return step(what, simplified(std::move(formula), job), reason, symbols);
  };
  Derivation out;
  out.states = {make("parameters", scheme.parameters, plan.stage >= 3 ? "each rank holds its shard" : "each rank holds a copy"),
                make("gradients", scheme.gradients, plan.stage >= 2 ? "each rank holds its shard" : "each rank holds all of them"),
                make("optimizer states", scheme.states, plan.stage >= 1 ? "each rank holds its shard" : "each rank holds a copy")};
  out.sent = make("sent", std::string(scheme.sent) + (plan.replicas > 1 ? among_replicas : ""), scheme.reason);
  out.source = scheme.source;
  return out;
}

std::string with_numbers(const std::string& formula, const Symbols& symbols) {
  const auto in_name = [&](std::size_t i) {
    return i < formula.size() && (std::isalnum(static_cast<unsigned char>(formula[i])) || formula[i] == '_');
  };
  std::string out;
  for (std::size_t i = 0; i < formula.size();) {
    std::size_t end = i;
    while (in_name(end)) ++end;
    if (end == i) {
      out += formula[i++];
      continue;
    }
    const auto found = symbols.find(formula.substr(i, end - i));
    out += found == symbols.end() ? formula.substr(i, end - i) : fmt::format("{:.6g}", found->second.value());
    i = end;
  }
  return out;
}

Model bare_model(Elements parameters) {
  Model model;
  model.name = "a model";
  model.parameters = std::make_shared<const std::vector<Parameter>>(
      std::vector<Parameter>{{.name = "all", .shape = {parameters.value()}, .elements = parameters}});
  model.layers = std::make_shared<const std::vector<Layer>>();
  return model;
}

}  // namespace shardsim
