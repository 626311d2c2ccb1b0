// SPDX-License-Identifier: Apache-2.0
#include "shardsim/formula.hpp"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <optional>

#include "cli/commands.hpp"
#include "shardsim/catalogue.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most_ranks = 1 << 24;
constexpr double most_parameters = 1e15;

/// What a formula is about: a scenario, or a number of parameters alone.
struct Subject {
  std::optional<Scenario> scenario;
  std::shared_ptr<const Model> model;
  Job job;
};

Scenario preset_scenario(const std::string& preset, std::int64_t ranks, const std::string& strategy) {
  const std::int64_t gpus = std::gcd(ranks, std::int64_t{8});
  const Source text{"--model " + preset,
                    fmt::format("model: {{preset: {}}}\ncluster: {{profile: clusters/h100-sxm.yaml, nodes: {}, gpus_per_node: {}}}\n"
                                "training: {{sequence_length: 512}}\nstrategy: {{name: {}}}\n",
                                preset, ranks / gpus, gpus, strategy)};
  return value_or_throw(read_scenario(value_or_throw(read_yaml(text)), text.name, shipped_folder()));
}

Subject subject_of(const Arguments& arguments, const std::string& strategy) {
  const std::int64_t ranks = arguments.integer("--ranks", 64, 1, most_ranks);
  Subject subject;
  if (arguments.given("SCENARIO")) {
    std::vector<std::string> overrides;
    if (!strategy.empty()) overrides.push_back("strategy.name=" + strategy);
    subject.scenario = value_or_throw(load_scenario(arguments.text("SCENARIO"), overrides));
  } else if (arguments.given("--model")) {
    subject.scenario = preset_scenario(arguments.text("--model"), ranks, strategy);
  }
  if (subject.scenario) {
    subject.model = subject.scenario->model;
    subject.job = subject.scenario->job();
    return subject;
  }
  const double parameters = arguments.number("--parameters", 7.5e9, 1, most_parameters);
  subject.model = std::make_shared<const Model>(bare_model(Elements{static_cast<std::int64_t>(parameters)}));
  subject.job.model = subject.model.get();
  subject.job.world_size = ranks;
  subject.job.strategy.name = strategy;
  return subject;
}

std::string head(const Subject& subject) {
  const Symbols symbols = symbols_of(subject.job);
  const auto value = [&](const char* name) { return grouped(symbols.at(name).integer().value_or(0)); };
  std::string out = wrapped(
      fmt::format("psi = {} parameters ({} trainable), n = {} ranks, g = {} micro-batches, bytes of an element: e_p = {} (parameter), "
                  "e_g = {} (gradient); k = {} bytes of optimizer states",
                  value("psi"), value("psi_trainable"), value("n"), value("g"), value("e_p"), value("e_g"), symbols.at("k").text()),
      0, 0);
  return out + "\n";
}

std::string overview(const Arguments& arguments) {
  TextGrid states{.header = {"Strategy", "Parameters", "Gradients", "Optimizer states", "Sum", "Sent in a step"},
                  .right = {false, true, true, true, true, true},
                  .rows = {}};
  std::string out, formulas;
  for (const StrategyInfo& info : strategies()) {
    if (!info.facts.names_stage) continue;
    const std::string& name = info.name;
    const Subject subject = subject_of(arguments, name);
    const Derivation derivation = derive(subject.job);
    if (out.empty()) out = head(subject) + "\n";
    Bytes sum;
    std::vector<std::string> row{name};
    std::string terms;
    for (const DerivationStep& step : derivation.states) {
      sum += step.value;
      row.push_back(to_text_decimal(step.value));
      terms += (terms.empty() ? "" : " + ") + step.formula;
    }
    row.push_back(to_text_decimal(sum));
    row.push_back(to_text_decimal(derivation.sent.value));
    states.rows.push_back(std::move(row));
    formulas += fmt::format("{:<8}holds {}\n        sends {}\n", name, terms, derivation.sent.formula);
  }
  return out + states.text() + "\n" + formulas + "\n" +
         wrapped(
             "fsdp1 and fsdp2 shard as zero3 does. --strategy NAME derives one of them; with --model or a scenario, beside what its "
             "library does.",
             0, 0) +
         "\n";
}

std::string derivation_text(const Subject& subject) {
  const Derivation derivation = derive(subject.job);
  const Symbols symbols = symbols_of(subject.job);
  const auto line = [&](const DerivationStep& step) {
    return fmt::format("  {}\n      = {}\n      = {}\n      {}\n", step.what + " = " + step.formula, with_numbers(step.formula, symbols),
                       to_text_decimal(step.value), wrapped(step.reason, 6, 6));
  };
  std::string out = fmt::format("{}: {}\n\nStates of each rank\n", subject.job.strategy.name,
                                wrapped(derivation.source, 4, subject.job.strategy.name.size() + 2));
  Bytes sum;
  for (const DerivationStep& step : derivation.states) {
    out += line(step);
    sum += step.value;
  }
  out += fmt::format("  sum = {}\n\nSent by each rank in one step\n", to_text_decimal(sum));
  return out + line(derivation.sent);
}

/// The same quantities as the library has them, from its own schedule.
std::string framework_text(Subject& subject) {
  Scenario& scenario = *subject.scenario;
  scenario.strategy.semantics = Semantics::framework;
  const SimulationResult result = simulate_scenario(scenario);
  const Derivation derivation = derive(scenario.job());
  TextGrid grid{.header = {"", "textbook", "framework"}, .right = {false, true, true}, .rows = {}};
  constexpr std::array<Category, 3> categories{Category::parameters, Category::gradients, Category::optimizer_states};
  for (std::size_t i = 0; i < categories.size(); ++i)
    grid.rows.push_back({derivation.states[i].what, to_text_decimal(derivation.states[i].value),
                         to_text_decimal(result.memory.persistent[static_cast<std::size_t>(categories[i])])});
  grid.rows.push_back({"sent", to_text_decimal(derivation.sent.value), to_text_decimal(result.traffic.total)});
  const std::string why =
      result.traffic.textbook_differs_because.empty() ? "the same traffic as the textbook" : result.traffic.textbook_differs_because;
  return fmt::format("\nWhat {} does\n{}\n{}\n", result.schedule->library, grid.text(), wrapped("Why: " + why, 2, 0));
}

std::string gib(Bytes bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes.value()) / static_cast<double>(1 << 30)); }

/// What the simulation says of the same model: the estimators count states only.
std::string simulated_states(const Arguments& arguments, std::int64_t ranks) {
  if (!arguments.given("--model")) return "";
  TextGrid grid{.header = {"Simulated", "States", "Peak allocated", "Peak on the device"}, .right = {false, true, true, true}, .rows = {}};
  for (const char* name : {"zero2", "zero3"}) {
    const Memory memory = simulate_scenario(preset_scenario(arguments.text("--model"), ranks, name)).memory;
    grid.rows.push_back({name, gib(sum(memory.persistent)), gib(memory.peak), gib(memory.device_peak)});
  }
  return "\n" + grid.text();
}

/// As DeepSpeed finds it: the module with the most parameters of its own, those of its children left out.
Elements largest_layer(const Model& model) {
  std::map<std::string, Elements> by_module;
  for (const Parameter& parameter : *model.parameters) by_module[parameter.name.substr(0, parameter.name.rfind('.'))] += parameter.elements;
  Elements largest{};
  for (const auto& [module, elements] : by_module) largest = std::max(largest, elements);
  return largest;
}

std::string estimator_text(const Arguments& arguments) {
  const std::int64_t ranks = arguments.integer("--ranks", 64, 1, most_ranks);
  EstimatorInput input;
  input.gpus_per_node = arguments.integer("--gpus-per-node", std::min<std::int64_t>(ranks, 8), 1, ranks);
  if (ranks % input.gpus_per_node != 0)
    throw InputError(fmt::format("--gpus-per-node {} does not divide --ranks {}", input.gpus_per_node, ranks));
  input.nodes = ranks / input.gpus_per_node;
  if (arguments.given("--model")) {
    const auto model = preset_scenario(arguments.text("--model"), ranks, "zero3").model;
    input.parameters = model->total();
    input.largest_layer = largest_layer(*model);
  } else {
    input.parameters = Elements{static_cast<std::int64_t>(arguments.number("--parameters", 7.5e9, 1, most_parameters))};
    if (!arguments.given("--largest-layer"))
      throw InputError("--estimator deepspeed needs --largest-layer, the parameters of the largest layer, or --model");
  }
  if (arguments.given("--largest-layer"))
    input.largest_layer = Elements{static_cast<std::int64_t>(arguments.number("--largest-layer", 1, 1, most_parameters))};

  TextGrid grid{.header = {"ZeRO", "Offload", "GPU, code", "GPU, docs", "CPU", "Rule of the code"},
                .right = {false, false, true, true, true, false},
                .rows = {}};
  for (const EstimatorRow& row : deepspeed_estimates(input)) {
    const std::string rule = row.gpu_rule == row.documented_rule ? row.gpu_rule : row.gpu_rule + " (docs: " + row.documented_rule + ")";
    grid.rows.push_back({std::to_string(row.stage), row.offload, gib(row.gpu), gib(row.gpu_documented), gib(row.cpu), rule});
  }
  std::string out = wrapped(fmt::format("DeepSpeed's estimators for P = {} parameters, the largest layer L = {}, n = {} GPUs on {} node{}; "
                                        "GiB of each GPU and of each "
                                        "node's memory",
                                        grouped(input.parameters.value()), grouped(input.largest_layer.value()), ranks, input.nodes,
                                        input.nodes == 1 ? "" : "s"),
                            0, 0) +
                    "\n\n";
  out += grid.text() + simulated_states(arguments, ranks) + "\n";
  return out +
         wrapped(
             "They count model states alone. Left out: activations and logits, parameters gathered and alive (stage3_max_live_parameters, "
             "up to 1e9 "
             "elements), buckets of reduction and prefetch, the CUDA context and NCCL, and blocks that the caching allocator keeps.",
             0, 0) +
         "\n";
}

/// What would be passed over in silence: where two arguments say the same thing, and where one has no effect.
void check_arguments(const Arguments& arguments) {
  const auto refuse_both = [&](const std::string& one, const std::string& other) {
    if (arguments.given(one) && arguments.given(other))
      throw InputError(fmt::format("{} and {} both say what the formula is about: give one of them", one, other));
  };
  refuse_both("--model", "--parameters");
  for (const char* option : {"--model", "--parameters", "--ranks"}) refuse_both("SCENARIO", option);
  const bool estimates = arguments.given("--estimator");
  for (const char* option : {"--largest-layer", "--gpus-per-node"})
    if (arguments.given(option) && !estimates) throw InputError(fmt::format("{} has no effect without --estimator", option));
  for (const char* option : {"SCENARIO", "--strategy"})
    if (arguments.given(option) && estimates) throw InputError(fmt::format("{} has no effect with --estimator", option));
}

ExitCode run_formula(const Arguments& arguments) {
  check_arguments(arguments);
  if (arguments.given("--estimator")) {
    write_output("-", estimator_text(arguments));
    return ExitCode::done;
  }
  if (!arguments.given("--strategy") && !arguments.given("SCENARIO")) {
    write_output("-", overview(arguments));
    return ExitCode::done;
  }
  Subject subject = subject_of(arguments, arguments.text("--strategy"));
  std::string out = head(subject) + "\n" + derivation_text(subject);
  if (subject.scenario) out += framework_text(subject);
  write_output("-", out);
  return ExitCode::done;
}

std::vector<std::string> derivable_strategies() {
  std::vector<std::string> names;
  for (const StrategyInfo& info : strategies()) names.push_back(info.name);
  return names;
}

}  // namespace

Command formula_command() {
  return {
      .name = "formula",
      .summary = "derive what the papers count, with the numbers put in",
      .details = "Without a strategy: the ZeRO paper's table of states for a number of parameters and ranks, in mixed precision with Adam.",
      .arguments = {{.name = "SCENARIO", .help = "take model, ranks, precision and strategy from a scenario"},
                    {.name = "--strategy", .value = "NAME", .help = "derive one strategy", .words = derivable_strategies()},
                    {.name = "--parameters", .value = "P", .help = "number of parameters", .fallback = "7.5e9"},
                    {.name = "--model", .value = "PRESET", .help = "take the parameters of a preset (see 'list models')"},
                    {.name = "--ranks", .value = "N", .help = "world size", .fallback = "64"},
                    {.name = "--estimator", .value = "NAME", .help = "print what another tool's estimator says", .words = {"deepspeed"}},
                    {.name = "--largest-layer",
                     .value = "L",
                     .help = "parameters of the largest layer, for the estimator (default: the model's)"},
                    {.name = "--gpus-per-node", .value = "G", .help = "for the estimator", .fallback = "8"}},
      .run = run_formula};
}

}  // namespace shardsim
