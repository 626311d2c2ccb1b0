// SPDX-License-Identifier: Apache-2.0
// The compiled half of the Python package: calls of the facade that take and return plain values. Names, docstrings and objects stand in
// python/shardsim/*.py. The GIL is released while a study runs.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <list>
#include <map>
#include <memory>

#include "scenarios/reader/scenario_cache.hpp"
#include "shardsim/calibrate.hpp"
#include "shardsim/catalogue.hpp"
#include "shardsim/check.hpp"
#include "shardsim/compare.hpp"
#include "shardsim/formula.hpp"
#include "shardsim/plan.hpp"
#include "shardsim/report.hpp"
#include "shardsim/simulate.hpp"
#include "shardsim/sweep.hpp"
#include "shardsim/version.hpp"
#include "studies/simulate/prepared_job.hpp"

namespace nb = nanobind;

namespace shardsim::python {
namespace {

nb::object to_python(const Json& json);

struct ToPython {
  nb::object operator()(std::monostate) const { return nb::none(); }
  nb::object operator()(bool value) const { return nb::bool_(value); }
  nb::object operator()(std::int64_t value) const { return nb::int_(value); }
  nb::object operator()(double value) const { return std::isfinite(value) ? nb::object(nb::float_(value)) : nb::object(nb::none()); }
  nb::object operator()(const std::string& value) const {
    return nb::steal(PyUnicode_DecodeUTF8(value.data(), std::ssize(value), "replace"));
  }
  nb::object operator()(const Json::List& value) const {
    nb::list list;
    for (const Json& item : value) list.append(to_python(item));
    return list;
  }
  nb::object operator()(const Json::Object& value) const {
    nb::dict dict;
    for (const auto& [key, item] : value) dict[key.c_str()] = to_python(item);
    return dict;
  }
};

nb::object to_python(const Json& json) { return std::visit(ToPython{}, json.value()); }

/// What the user named: a file, or text that stands for one.
struct Given {
  std::string name;    ///< as messages call it
  std::string folder;  ///< where relative paths start
  std::optional<std::string> text;

  [[nodiscard]] Source source() const { return text ? Source{name, *text} : value_or_throw(read_source(name)); }
};

ConfigNode tree_of(const Source& source, const std::vector<std::string>& overrides) {
  ConfigNode root = value_or_throw(read_yaml(source));
  Problems problems;
  for (const std::string& assignment : overrides) {
    Result<ConfigNode> changed = with_override(root, assignment);
    if (changed)
      root = std::move(*changed);
    else
      problems.append(changed.error());
  }
  if (!problems.empty()) throw InputError(std::move(problems));
  return root;
}

Scenario scenario_of(const Given& given, const std::vector<std::string>& overrides) {
  return value_or_throw(read_scenario(tree_of(given.source(), overrides), given.name, given.folder));
}

/// Size and time of every file that a tree names: a cached job is that of these contents.
void state_of_files(const ConfigNode& node, const std::string& folder, std::string& state) {
  if (node.kind == ConfigNode::Kind::scalar && node.text.find_first_of("./") != std::string::npos) {
    struct ::stat status {};
    for (const std::string& path :
         {folder.empty() || node.text.starts_with('/') ? node.text : folder + "/" + node.text, shipped_folder() + "/" + node.text})
      if (::stat(path.c_str(), &status) == 0)
        state += fmt::format("{}:{}:{}.{};", path, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  }
  for (const ConfigNode& item : node.items) state_of_files(item, folder, state);
  for (const Entry& entry : node.entries) state_of_files(entry.value, folder, state);
}

/// Calls that differ in a few overrides share what the rows of a sweep share: thousands a second from a loop.
struct Session {
  Session(const std::string& file, const std::string& folder) : scenarios(file, folder) {}
  ScenarioCache scenarios;
  JobCache jobs;
};

class Sessions {
 public:
  SimulationResult simulate(const Given& given, const std::vector<std::string>& overrides) {
    ConfigNode root = tree_of(given.source(), overrides);
    std::string key = given.name + '\n' + given.folder + '\n';
    state_of_files(root, given.folder, key);
    Session& session = find(key, given);
    return session.jobs.simulate(value_or_throw(session.scenarios.read(std::move(root))), Detail{});
  }

 private:
  Session& find(const std::string& key, const Given& given) {
    for (auto known = kept_.begin(); known != kept_.end(); ++known)
      if (known->first == key) {
        kept_.splice(kept_.begin(), kept_, known);
        return *kept_.front().second;
      }
    kept_.emplace_front(key, std::make_unique<Session>(given.name, given.folder));
    if (kept_.size() > most) kept_.pop_back();
    return *kept_.front().second;
  }

  static constexpr std::size_t most = 4;
  std::list<std::pair<std::string, std::unique_ptr<Session>>> kept_;  // the last used first
};

nb::dict simulate(const Given& given, const std::vector<std::string>& overrides, bool explain) {
  std::optional<SimulationResult> result;
  Json json;
  {
    const nb::gil_scoped_release released;
    if (explain) {
      const Scenario scenario = scenario_of(given, overrides);
      result = simulate_scenario(scenario);
      result->explanation = std::make_shared<const MemoryExplanation>(explain_memory(scenario, *result));
    } else {
      thread_local Sessions sessions;
      result = sessions.simulate(given, overrides);
    }
    json = simulate_json(*result);
  }
  return nb::cast<nb::dict>(to_python(json));
}

std::string simulate_report(const Given& given, const std::vector<std::string>& overrides, const std::string& form) {
  const nb::gil_scoped_release released;
  const bool timeline = form == "html" || form == "svg" || form == "trace";
  const SimulationResult result = simulate_scenario(scenario_of(given, overrides), Detail{.timeline = timeline});
  if (form == "html") return html_page(simulate_page(result));
  if (form == "svg") return timeline_svg(result);
  if (form == "trace") return chrome_trace(result);
  if (form == "schedule") return to_text(*result.schedule);
  return simulate_table(result);
}

nb::tuple compare(const Given& given, const std::vector<std::string>& overrides, const std::string& strategies) {
  std::optional<Comparison> comparison;
  Json json;
  std::string page, table;
  {
    const nb::gil_scoped_release released;
    comparison = compare_strategies(scenario_of(given, overrides), strategy_list(strategies));
    json = comparison_json(*comparison);
    page = html_page(comparison_page(*comparison));
    table = comparison_table(*comparison);
  }
  nb::list left_out;
  for (const NotRun& n : comparison->not_run) left_out.append(n.strategy + " left out: " + n.why);
  return nb::make_tuple(to_python(json), left_out, page, table);
}

/// (settled, total), from the thread that called; None where nobody listens.
using PythonProgress = std::optional<std::function<void(std::size_t, std::size_t)>>;

/// Progress from the threads of a study to Python, one call at a time. An exception of the callback ends the reports, and is raised at the
/// end.
class Listener {
 public:
  explicit Listener(const PythonProgress& progress) : progress_(progress) {}

  void advance(std::size_t settled, std::size_t total) {
    const std::size_t done = done_ += settled;
    if (!progress_) return;
    const nb::gil_scoped_acquire held;
    if (failure_) return;
    try {
      (*progress_)(done, total);
    } catch (...) { failure_ = std::current_exception(); }
  }
  void check() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const PythonProgress& progress_;
  std::atomic<std::size_t> done_{0};
  std::exception_ptr failure_;
};

nb::tuple plan(const Given& given, const std::vector<std::string>& overrides, std::int64_t scaling_least, std::int64_t scaling_most,
               const PythonProgress& progress) {
  Listener listener(progress);
  Json json;
  std::string page, table;
  {
    const nb::gil_scoped_release released;
    const Scenario base = scenario_of(given, overrides);
    Plan plan = make_plan(base, [&](std::size_t settled, std::size_t total) { listener.advance(settled, total); });
    if (scaling_most > 0) plan.scaling = scaling_study(base, scaling_least, scaling_most);
    json = plan_json(plan);
    page = html_page(plan_page(plan));
    table = plan_table(plan);
  }
  listener.check();
  return nb::make_tuple(to_python(json), page, table);
}

/// The rows of a sweep as JSON values, in order of their number.
nb::list sweep(const std::string& path, unsigned jobs, const PythonProgress& progress) {
  Listener listener(progress);
  std::vector<std::string> lines;
  {
    const nb::gil_scoped_release released;
    const SweepPlan plan = value_or_throw(load_sweep(path, simulate_columns()));
    lines.resize(plan.size);
    const unsigned threads = jobs == 0 ? available_cores() : jobs;
    std::atomic<std::uint64_t> next{0};
    constexpr std::uint64_t batch = 32;  // neighbours share schedules
    parallel_for(threads, threads, [&](std::size_t) {
      SweepRows rows(plan, RowFormat::json_lines);
      for (std::uint64_t first = next.fetch_add(batch); first < plan.size; first = next.fetch_add(batch)) {
        const std::uint64_t last = std::min(plan.size, first + batch);
        for (std::uint64_t position = first; position < last; ++position) {
          const std::uint64_t row = plan.row_at(position);
          lines[row] = rows.row(row).line;
        }
        listener.advance(last - first, plan.size);
      }
    });
  }
  listener.check();
  nb::list out;
  for (const std::string& line : lines) out.append(nb::str(line.c_str(), line.size()));
  return out;
}

nb::dict formula(const std::string& strategy, double parameters, std::int64_t ranks) {
  if (find_strategy(strategy) == nullptr) throw InputError("unknown strategy " + in_quotes(strategy));
  if (!(parameters >= 1 && parameters <= 1e15)) throw InputError("parameters must be in [1, 1e15]");
  if (ranks < 1 || ranks > (1 << 24)) throw InputError("ranks must be in [1, 16777216]");
  const Model model = bare_model(Elements{static_cast<std::int64_t>(parameters)});
  Job job;
  job.model = &model;
  job.world_size = ranks;
  job.strategy.name = strategy;
  const Derivation derivation = derive(job);
  const auto step = [](const DerivationStep& s) {
    nb::dict d;
    d["what"] = s.what;
    d["formula"] = s.formula;
    d["bytes"] = s.value.value();
    d["reason"] = s.reason;
    return d;
  };
  nb::dict out;
  out["strategy"] = strategy;
  nb::list states;
  for (const DerivationStep& s : derivation.states) states.append(step(s));
  out["states"] = states;
  out["sent"] = step(derivation.sent);
  out["source"] = derivation.source;
  return out;
}

nb::list strategy_catalogue() {
  nb::list out;
  for (const StrategyInfo& info : strategies()) {
    nb::dict d;
    d["name"] = info.name;
    d["summary"] = info.summary;
    d["library"] = info.library;
    nb::dict options;
    for (const OptionSpec& option : info.options) options[option.name.c_str()] = option.help;
    d["options"] = options;
    out.append(d);
  }
  return out;
}

/// Raises shardsim.Problem or shardsim.MachineError with what the program would print.
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const InputError& error) {
    nb::list places;
    for (const Problem& p : error.problems.list()) {
      nb::dict d;
      d["file"] = p.where.source ? p.where.source->name : "";
      d["line"] = p.where.line;
      d["column"] = p.where.column;
      d["message"] = p.message;
      d["notes"] = p.notes;
      places.append(d);
    }
    const nb::object type = nb::module_::import_("shardsim._problem").attr("Problem");
    PyErr_SetObject(type.ptr(), nb::make_tuple(std::string(error.what()), places).ptr());
  } catch (const EnvironmentError& error) {
    const nb::object type = nb::module_::import_("shardsim._problem").attr("MachineError");
    PyErr_SetString(type.ptr(), error.what());
  }
}

}  // namespace
}  // namespace shardsim::python

NB_MODULE(_core, m) {
  using namespace shardsim;
  using namespace shardsim::python;
  m.doc() = "The compiled half of shardsim: use the functions of the package shardsim.";
  nb::register_exception_translator(translate);
  nb::class_<Given>(m, "Given")
      .def(
          "__init__",
          [](Given* self, std::string name, std::string folder, std::optional<std::string> text) {
            new (self) Given{std::move(name), std::move(folder), std::move(text)};
          },
          nb::arg("name"), nb::arg("folder"), nb::arg("text").none());
  m.attr("version") = std::string(shardsim::version);
  m.def("simulate", &python::simulate, nb::arg("given"), nb::arg("overrides"), nb::arg("explain"));
  m.def("simulate_report", &simulate_report, nb::arg("given"), nb::arg("overrides"), nb::arg("form"));
  m.def("compare", &python::compare, nb::arg("given"), nb::arg("overrides"), nb::arg("strategies"));
  m.def("plan", &python::plan, nb::arg("given"), nb::arg("overrides"), nb::arg("scaling_least"), nb::arg("scaling_most"),
        nb::arg("progress").none());
  m.def("sweep", &python::sweep, nb::arg("path"), nb::arg("jobs"), nb::arg("progress").none());
  m.def("check", [](const std::vector<std::string>& paths) {
    Json json;
    {
      const nb::gil_scoped_release released;
      CheckCases cases;
      for (const std::string& file : scenario_files(paths))
        for (CheckCase& c : check_file(file).cases) cases.push_back(std::move(c));
      json = check_json(cases);
    }
    return to_python(json);
  });
  m.def("formula", &formula, nb::arg("strategy"), nb::arg("parameters"), nb::arg("ranks"));
  m.def("strategies", &strategy_catalogue);
  m.def("models", [] { return preset_names(); });
  m.def("families", [] { return family_names(); });
  m.def("shipped_folder", [] { return shipped_folder(); });
  m.def("import_scenario", [](const std::string& format, const std::string& file, const std::string& model, const std::string& cluster,
                              std::int64_t nodes, std::int64_t gpus_per_node) {
    ImportOptions options;
    options.model = model;
    if (!cluster.empty()) options.cluster = cluster;
    options.nodes = nodes;
    options.gpus_per_node = gpus_per_node;
    const Imported imported = value_or_throw(import_file(format, file, options));
    std::vector<std::string> notes;
    for (const std::string& note : imported.notes) notes.push_back("assumed: " + note);
    return nb::make_tuple(imported.yaml, notes);
  });
}
