// SPDX-License-Identifier: Apache-2.0
// calibrate: measure this machine, or turn logs that people already have into a cluster profile.
#include "shardsim/calibrate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "cli/commands.hpp"
#include "cli/html_file.hpp"
#include "cli/log.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"
#include "shardsim/validate.hpp"

namespace shardsim {
namespace {

/// One line on a terminal, rewritten; nothing where nobody watches.
void show_progress(double share, const std::string& what) {
  if (isatty(STDERR_FILENO) == 0) return;
  constexpr int width = 30;
  const int full = static_cast<int>(share * width);
  std::fputs(fmt::format("\r[{:#<{}}{:.<{}}] {:<40.40}", "", full, "", width - full, what).c_str(), stderr);
  if (share >= 1) std::fputs("\n", stderr);
}

/// The profile that --base names: a path, or one of the shipped ("clusters/h100-sxm.yaml").
Profile base_profile(const Arguments& arguments, Completeness completeness) {
  const std::string given = arguments.text("--base");
  if (given.empty()) return {};
  std::filesystem::path path = given;
  if (!std::filesystem::exists(path)) path = std::filesystem::path(shipped_folder()) / given;
  const Source source = value_or_throw(read_source(std::filesystem::exists(path) ? path.string() : given));
  return value_or_throw(read_profile(value_or_throw(read_yaml(source)), completeness));
}

/// A fit that does not predict its own points is worth a word.
void warn_of_bad_fits(const Profile& profile) {
  for (const CollectiveFit& fit : profile.collectives)
    if (fit.leave_one_out_p90 && *fit.leave_one_out_p90 > 0.2)
      log_warning(fmt::format("{} on {} ranks is erratic: a tenth of its sizes are predicted worse than {:.0f} % from the others",
                              name_of(fit.collective), fit.ranks, 100 * *fit.leave_one_out_p90));
}

ExitCode write_profile(const Arguments& arguments, Profile profile) {
  if (arguments.given("--name")) profile.name = arguments.text("--name");
  warn_of_bad_fits(profile);
  write_output(arguments.text("--output"), to_yaml(profile));
  return ExitCode::done;
}

/// The samples are in the profile now: their journal has served.
ExitCode write_measured(const Arguments& arguments, Profile profile) {
  const ExitCode code = write_profile(arguments, std::move(profile));
  remove_journal(journal_path(arguments.text("--output")));
  return code;
}

ExitCode run_local(const Arguments& arguments) {
  LocalOptions options;
  options.ranks = static_cast<int>(arguments.integer("--ranks", 0, 2, 64));
  options.budget = Seconds{arguments.number("--seconds", options.budget.base(), 1, 3600)};
  options.journal = journal_path(arguments.text("--output"));
  return write_measured(arguments, calibrate_local(options, show_progress));
}

ExitCode run_mpi(const Arguments& arguments) {
  const auto platform = execute::open_mpi_platform("calibrate mpi");
  MpiOptions options;
  options.budget = Seconds{arguments.number("--seconds", options.budget.base(), 1, 3600)};
  options.journal = journal_path(arguments.text("--output"));
  Profile profile = calibrate_mpi(
      *platform, options, platform->reports() ? Progress(show_progress) : [](double, const std::string&) {});
  platform->close();
  return platform->reports() ? write_measured(arguments, std::move(profile)) : ExitCode::done;
}

ExitCode run_cuda(const Arguments& arguments) {
  const std::string journal = journal_path(arguments.text("--output"));
  return write_measured(arguments, calibrate_cuda(base_profile(arguments, Completeness::whole), journal, show_progress));
}

ExitCode run_nccl(const Arguments& arguments) {
  const NcclOptions options{.groups = arguments.text("--groups"), .journal = journal_path(arguments.text("--output"))};
  std::optional<Profile> profile = calibrate_nccl(base_profile(arguments, Completeness::whole), options, show_progress);
  return profile ? write_measured(arguments, std::move(*profile)) : ExitCode::done;
}

NcclTestsFacts facts_given(const Arguments& arguments) {
  NcclTestsFacts facts;
  facts.ranks = arguments.integer("--ranks", 0, 2, 1 << 24);
  facts.nodes = arguments.integer("--nodes", 0, 1, 1 << 24);
  const std::string name = arguments.text("--collective");
  for (const Collective c : all_collectives)
    if (name_of(c) == name) facts.collective = c;
  return facts;
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

/// Reads every file with `read` and hands each result on; problems of all files are told at once, and then nothing is written.
template <class Read, class Use>
void read_files(const Arguments& arguments, const Read& read, const Use& use) {
  Problems problems;
  for (const std::string& file : arguments.texts("FILE")) {
    const auto source = read_source(file, {.bytes = std::size_t{256} << 20});
    if (!source) {
      problems.append(source.error());
      continue;
    }
    if (auto result = read(*source))
      use(*result, file_name(file));
    else
      problems.append(result.error());
  }
  if (!problems.empty()) throw InputError(std::move(problems));
}

/// The base with the imported part; without a base, what the machine is stays open.
ExitCode write_part(const Arguments& arguments, Profile profile) {
  if (profile.gpu.name.empty())
    log_warning("the profile holds only what was imported; --base clusters/h100-sxm.yaml, say, adds the rest of the machine");
  if (profile.name.empty()) profile.name = std::filesystem::path(arguments.texts("FILE").front()).stem().string();
  return write_profile(arguments, std::move(profile));
}

ExitCode import_nccl_tests(const Arguments& arguments) {
  CollectiveSamples samples;
  read_files(
      arguments, [&](const Source& source) { return read_nccl_tests(source, facts_given(arguments)); },
      [&](const NcclTestsLog& log, const std::string& file) {
        for (const Warning& warning : log.warnings) log_warning(to_text(warning));
        samples.add(log, file);
      });
  return write_part(arguments, with_fits(base_profile(arguments, Completeness::part), samples.fits()));
}

ExitCode import_kineto(const Arguments& arguments) {
  Profile profile = base_profile(arguments, Completeness::part);
  GemmPoints products;
  std::vector<CollectiveFit> fits;
  read_files(
      arguments, [](const Source& source) { return read_kineto(source); },
      [&](const KinetoTrace& trace, const std::string& file) {
        for (const Warning& warning : trace.warnings) log_warning(to_text(warning));
        log_info(fmt::format("{}: {} compute kernels, {:.3f} s in all", file, trace.kernels, trace.kernel_time.base()));
        products.insert(products.end(), trace.products.begin(), trace.products.end());
        for (const CollectiveFit& fit : samples_of(trace, file).fits()) fits.push_back(fit);
      });
  profile = with_fits(std::move(profile), fits);
  if (products.size() >= 3 && !profile.gpu.peak.empty())
    profile = with_products(std::move(profile), products, 200, file_name(arguments.texts("FILE").front()));
  return write_part(arguments, std::move(profile));
}

ExitCode import_topology(const Arguments& arguments) {
  Profile profile = base_profile(arguments, Completeness::part);
  read_files(arguments, read_topology,
             [&](const NodeTopology& topology, const std::string& file) { profile = with_topology(std::move(profile), topology, file); });
  return write_part(arguments, std::move(profile));
}

ExitCode import_products(const Arguments& arguments) {
  Profile profile = base_profile(arguments, Completeness::whole);
  if (profile.gpu.peak.empty()) throw InputError("--base is missing: efficiencies are shares of a GPU's peak");
  const std::int64_t rows = arguments.integer("--rows", 1024, 1, 1 << 30);
  const auto keep = static_cast<std::size_t>(arguments.integer("--keep", 0, 0, 5000));
  read_files(
      arguments, [&](const Source& source) { return read_products(source, rows); },
      [&](const GemmPoints& points, const std::string& file) { profile = with_products(std::move(profile), points, keep, file); });
  return write_part(arguments, std::move(profile));
}

ExitCode run_import_logs(const Arguments& arguments) {
  const std::string format = arguments.text("FORMAT");
  if (format == "kineto") return import_kineto(arguments);
  if (format == "topo") return import_topology(arguments);
  if (format == "products") return import_products(arguments);
  return import_nccl_tests(arguments);
}

ExitCode run_fit(const Arguments& arguments) {
  const std::string file = arguments.text("RUNS"), base = arguments.text("--base");
  if (base.empty()) throw InputError("--base is missing: the profile whose values the runs correct");
  RunFit fit = fit_runs(file, value_or_throw(load_runs(file)), base, base_profile(arguments, Completeness::whole));
  if (arguments.text("--output") != "-") write_output("-", fit_table(fit));
  return write_profile(arguments, std::move(fit.profile));
}

ExitCode run_show(const Arguments& arguments) {
  HtmlFile html(arguments);
  const Source source = value_or_throw(read_source(arguments.text("PROFILE")));
  const Profile profile = value_or_throw(read_profile(value_or_throw(read_yaml(source)), Completeness::part));
  if (html.wanted()) html.write(profile_page(profile));
  if (html.replaces_report()) return ExitCode::done;
  write_output("-", arguments.text("--format", "table") == "json" ? profile_json(profile).text() + "\n" : profile_text(profile));
  return ExitCode::done;
}

Argument output_argument() {
  return {.name = "--output", .value = "PROFILE", .help = "profile to write ('-': standard output)", .short_name = "-o", .required = true};
}
Argument name_argument() { return {.name = "--name", .value = "NAME", .help = "name of the profile"}; }
Argument base_argument() {
  return {.name = "--base",
          .value = "PROFILE",
          .help = "profile whose other values are kept: a path, or a shipped one such as clusters/h100-sxm.yaml"};
}

std::vector<std::string> collective_words() {
  std::vector<std::string> names;
  for (const Collective c : all_collectives) names.emplace_back(name_of(c));
  return names;
}

Command local_command() {
  return {.name = "local",
          .summary = "measure this machine's cores, memory and loop-back network",
          .arguments = {output_argument(),
                        name_argument(),
                        {.name = "--ranks", .value = "N", .help = "processes of the ring (default: one for each core, 2 to 8)"},
                        {.name = "--seconds", .value = "S", .help = "time to take", .fallback = "20"}},
          .run = run_local};
}

Command mpi_command() {
  return {
      .name = "mpi",
      .summary = "measure collectives over MPI between the ranks that mpirun or srun started",
      .details =
          "mpirun -n 4 shardsim calibrate mpi -o profile.yaml   or   srun --mpi=pmix -n 4 ... All-reduce, all-gather, reduce-scatter and "
          "broadcast "
          "with OpenMPI's ring algorithms, 1 KiB to 4 MiB, the slowest rank's time; one core of the first rank, while the others sleep.",
      .arguments = {output_argument(), name_argument(), {.name = "--seconds", .value = "S", .help = "time to take", .fallback = "20"}},
      .run = run_mpi};
}

Command nccl_command() {
  return {.name = "nccl",
          .summary = "measure collectives between GPUs",
          .details =
              "Between the GPUs of this machine, or, started by torchrun, mpirun or srun with a rank for each GPU, between those of "
              "several; the first "
              "rank writes the profile.",
          .arguments = {output_argument(),
                        name_argument(),
                        base_argument(),
                        {.name = "--groups",
                         .value = "LIST",
                         .help = "group sizes with commas between them: the first ranks are timed together",
                         .fallback = "all ranks"}},
          .run = run_nccl};
}

Command import_logs_command() {
  return {
      .name = "import",
      .summary = "turn logs, traces and tables into a profile",
      .details =
          "nccl-tests: logs of nccl-tests and rccl-tests, every column layout and JSON; only sizes and times are believed. "
          "kineto: traces of the PyTorch profiler. topo: nvidia-smi topo -m. products: CSV with m,n,k,time_us.",
      .arguments =
          {{.name = "FORMAT", .help = "what wrote the files", .required = true, .words = {"nccl-tests", "kineto", "topo", "products"}},
           {.name = "FILE", .help = "what to read; runs of the same collective and ranks are repetitions", .required = true, .many = true},
           output_argument(),
           name_argument(),
           base_argument(),
           {.name = "--collective", .value = "NAME", .help = "where the log does not say it", .words = collective_words()},
           {.name = "--ranks", .value = "N", .help = "where the log does not say it"},
           {.name = "--nodes", .value = "N", .help = "where the log does not say it (default: eight ranks on each)"},
           {.name = "--rows", .value = "M", .help = "products: least m that counts", .fallback = "1024"},
           {.name = "--keep", .value = "N", .help = "products: measured shapes to keep for residuals", .fallback = "0"}},
      .run = run_import_logs};
}

}  // namespace

Command calibrate_command() {
  return {.name = "calibrate",
          .summary = "measure a machine, or read measurements, into a cluster profile",
          .subcommands = {
              local_command(),
              mpi_command(),
              {.name = "cuda",
               .summary = "measure one GPU: launches, products, memory, copies",
               .arguments = {output_argument(), name_argument(), base_argument()},
               .run = run_cuda},
              nccl_command(),
              import_logs_command(),
              {.name = "fit",
               .summary = "correct a profile by the step times of your own runs",
               .details = "Moves what the runs determine (classes of kernels, the host, links), says by how much, and keeps what they "
                          "cannot tell. One run "
                          "on one node is enough to predict the same software at other sizes.",
               .arguments = {{.name = "RUNS",
                              .help = "CSV with the columns scenario, step_time_s or tokens_per_second_per_gpu, optionally peak_bytes; or "
                                      "YAML with these keys",
                              .required = true},
                             output_argument(),
                             name_argument(),
                             base_argument()},
               .run = run_fit},
              {.name = "show",
               .summary = "print a profile: values, origins, measured against fitted",
               .arguments =
                   {{.name = "PROFILE", .help = "profile to print", .required = true},
                    {.name = "--format", .value = "FORMAT", .help = "form of the report", .words = {"table", "json"}, .fallback = "table"},
                    html_argument()},
               .run = run_show}}};
}

}  // namespace shardsim
