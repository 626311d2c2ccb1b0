// SPDX-License-Identifier: Apache-2.0
// calibrate: measure this machine, or turn logs that people already have into a cluster profile.
#include "shardsim/calibrate.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/commands.hpp"
#include "cli/html_file.hpp"
#include "cli/log.hpp"
#include "shardsim/machine.hpp"
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

/// The profile that --base names: a path, or a shipped one ("h100-sxm", "clusters/h100-sxm.yaml").
Profile base_profile(const Arguments& arguments, Completeness completeness) {
  const std::string given = arguments.text("--base");
  return given.empty() ? Profile{} : value_or_throw(load_profile(given, completeness));
}

/// A fit that does not predict its own points is worth a word.
void warn_of_bad_fits(const Profile& profile) {
  for (const CollectiveFit& fit : profile.collectives)
    if (fit.leave_one_out_p90 && *fit.leave_one_out_p90 > 0.2)
      log_warning(fmt::format("{} on {} ranks is erratic: a tenth of its sizes are predicted worse than {:.0f} % from the others",
                              name_of(fit.collective), fit.ranks, 100 * *fit.leave_one_out_p90));
}

/// The profile to write, opened before the long work, and what is read on the way there.
Output open_profile(const Arguments& arguments) {
  Output output(arguments.text("--output"));
  std::vector<std::string> inputs = arguments.texts("FILE");
  for (const char* argument : {"RUNS", "--base"}) inputs.push_back(arguments.text(argument));
  output.keep_apart_from(inputs);
  return output;
}

/// What is written must be a profile. What is wrong with an imported one is wrong with the file that it was made from.
void check_readable(const Arguments& arguments, const Profile& profile, const std::string& text) {
  const auto completeness = profile.gpu.name.empty() ? Completeness::part : Completeness::whole;
  const auto read = read_yaml(Source{"the profile", text}, {.bytes = text.size() + 1}).and_then([&](const ConfigNode& root) {
    return read_profile(root, completeness);
  });
  if (read) return;
  if (!arguments.given("FILE")) throw std::logic_error("the measured profile cannot be read: " + read.error().text());
  Problems problems;
  const Where where{std::make_shared<Source>(Source{arguments.texts("FILE").front(), {}}), 0, 0};
  for (const Problem& problem : read.error().list())
    problems.add(where, "the profile that it makes is refused: " + problem.message, problem.notes);
  throw InputError(std::move(problems));
}

ExitCode write_profile(const Arguments& arguments, Output output, Profile profile) {
  if (arguments.given("--name")) profile.name = arguments.text("--name");
  warn_of_bad_fits(profile);
  const std::string text = to_yaml(profile);
  check_readable(arguments, profile, text);
  output.write(text);
  output.commit();
  return ExitCode::done;
}

/// The samples are in the profile now: their journal has served.
ExitCode write_measured(const Arguments& arguments, Output output, Profile profile) {
  const ExitCode code = write_profile(arguments, std::move(output), std::move(profile));
  remove_journal(journal_path(arguments.text("--output")));
  return code;
}

/// What is measured beside other work is too slow, and noise makes fits run away.
void warn_if_busy() {
  double load = 0;
  const auto cores = static_cast<double>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  if (::getloadavg(&load, 1) == 1 && load > 0.5 * cores)
    log_warning(
        fmt::format("this machine is busy (load {:.1f} on {:.0f} cores): what is measured now is too slow; measure again when it is idle",
                    load, cores));
}

ExitCode run_local(const Arguments& arguments) {
  Output output = open_profile(arguments);
  warn_if_busy();
  LocalOptions options;
  options.ranks = static_cast<int>(arguments.integer("--ranks", 0, 2, 64));
  options.budget = Seconds{arguments.number("--seconds", options.budget.base(), 1, 3600)};
  options.journal = journal_path(arguments.text("--output"));
  return write_measured(arguments, std::move(output), calibrate_local(options, show_progress));
}

ExitCode run_mpi(const Arguments& arguments) {
  Output output = open_profile(arguments);
  const auto platform = execute::open_mpi_platform("calibrate mpi");
  MpiOptions options;
  options.budget = Seconds{arguments.number("--seconds", options.budget.base(), 1, 3600)};
  options.journal = journal_path(arguments.text("--output"));
  Profile profile = calibrate_mpi(
      *platform, options, platform->reports() ? Progress(show_progress) : [](double, const std::string&) {});
  platform->close();
  return platform->reports() ? write_measured(arguments, std::move(output), std::move(profile)) : ExitCode::done;
}

ExitCode run_cuda(const Arguments& arguments) {
  Output output = open_profile(arguments);
  const std::string journal = journal_path(arguments.text("--output"));
  return write_measured(arguments, std::move(output), calibrate_cuda(base_profile(arguments, Completeness::whole), journal, show_progress));
}

ExitCode run_nccl(const Arguments& arguments) {
  Output output = open_profile(arguments);
  const NcclOptions options{.groups = arguments.text("--groups"), .journal = journal_path(arguments.text("--output"))};
  std::optional<Profile> profile = calibrate_nccl(base_profile(arguments, Completeness::whole), options, show_progress);
  return profile ? write_measured(arguments, std::move(output), std::move(*profile)) : ExitCode::done;
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
  return write_profile(arguments, open_profile(arguments), std::move(profile));
}

/// The base with the fits, and what they are said for.
Profile with_told_fits(Profile base, const std::vector<CollectiveFit>& fits) {
  for (const std::string& line : told(base, fits)) log_note("imported: " + line);
  Profile profile = with_fits(std::move(base), fits);
  for (const std::string& doubt : doubts(profile, fits)) log_warning(doubt);
  return profile;
}

ExitCode import_nccl_tests(const Arguments& arguments) {
  CollectiveSamples samples;
  read_files(
      arguments, [&](const Source& source) { return read_nccl_tests(source, facts_given(arguments)); },
      [&](const NcclTestsLog& log, const std::string& file) {
        for (const Warning& warning : log.warnings) log_warning(to_text(warning));
        samples.add(log, file);
      });
  return write_part(arguments, with_told_fits(base_profile(arguments, Completeness::part), samples.fits()));
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
  profile = with_told_fits(std::move(profile), fits);
  if (products.size() >= 3 && !profile.gpu.peak.empty())
    profile = with_products(std::move(profile), products, 200, file_name(arguments.texts("FILE").front()));
  return write_part(arguments, std::move(profile));
}

ExitCode import_topology(const Arguments& arguments) {
  Profile profile = base_profile(arguments, Completeness::part);
  read_files(arguments, read_topology, [&](const NodeTopology& topology, const std::string& file) {
    ImportedTopology imported = with_topology(std::move(profile), topology, file);
    for (const std::string& note : imported.notes) log_warning(note);
    profile = std::move(imported.profile);
  });
  return write_part(arguments, std::move(profile));
}

ExitCode import_collective_table(const Arguments& arguments) {
  Profile profile = base_profile(arguments, Completeness::part);
  const CollectiveTableFacts facts{arguments.text("--gpu"), profile.node.ring_bandwidth};
  std::vector<CollectiveFit> fits;
  read_files(
      arguments, [&](const Source& source) { return read_collective_table(source, facts); },
      [&](const std::vector<CollectiveFit>& table, const std::string&) { fits.insert(fits.end(), table.begin(), table.end()); });
  return write_part(arguments, with_told_fits(std::move(profile), fits));
}

ExitCode import_products(const Arguments& arguments) {
  Profile profile = base_profile(arguments, Completeness::whole);
  if (profile.gpu.peak.empty()) throw InputError("--base is missing: efficiencies are shares of a GPU's peak");
  const std::int64_t rows = arguments.integer("--rows", 1024, 1, 1 << 30);
  const auto keep = static_cast<std::size_t>(arguments.integer("--keep", 512, 0, 5000));
  const DType dtype = arguments.text("--dtype") == "fp8" ? DType::fp8 : DType::bf16;
  const std::vector<RowFilter> filters{{"gpu", arguments.text("--gpu")}, {"dtype", dtype == DType::fp8 ? "fp8" : "bf16"}};
  read_files(
      arguments, [&](const Source& source) { return read_products(source, rows, filters); },
      [&](const GemmPoints& points, const std::string& file) { profile = with_products(std::move(profile), points, keep, file, dtype); });
  return write_part(arguments, std::move(profile));
}

/// --kernels vllm,trtllm: the first is what counts, the others add the head sizes that it lacks.
ExitCode import_attention(const Arguments& arguments) {
  Profile profile = base_profile(arguments, Completeness::whole);
  if (profile.gpu.peak.empty()) throw InputError("--base is missing: shares are of a GPU's peak");
  std::vector<AttentionPoints> lists;
  std::string rest = arguments.text("--kernels");
  for (bool more = true; more;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    more = comma < rest.size();
    const std::vector<RowFilter> filters{{"gpu", arguments.text("--gpu")}, {"stack", rest.substr(0, comma)}};
    rest.erase(0, std::min(comma + 1, rest.size()));
    AttentionPoints& list = lists.emplace_back();
    read_files(
        arguments, [&](const Source& source) { return read_attention(source, filters); },
        [&](const AttentionPoints& points, const std::string&) { list.insert(list.end(), points.begin(), points.end()); });
  }
  const std::string source = file_name(arguments.texts("FILE").front());
  return write_part(arguments, with_attention(std::move(profile), lists, source));
}

ExitCode run_import_logs(const Arguments& arguments) {
  open_profile(arguments);  // a bad name is known before the reading
  const std::string format = arguments.text("FORMAT");
  if (format == "kineto") return import_kineto(arguments);
  if (format == "topo") return import_topology(arguments);
  if (format == "products") return import_products(arguments);
  if (format == "collectives") return import_collective_table(arguments);
  if (format == "attention") return import_attention(arguments);
  return import_nccl_tests(arguments);
}

ExitCode run_fit(const Arguments& arguments) {
  const std::string file = arguments.text("RUNS"), base = arguments.text("--base");
  if (base.empty()) throw InputError("--base is missing: the profile whose values the runs correct");
  Output output = open_profile(arguments);
  RunFit fit = fit_runs(file, value_or_throw(load_runs(file)), base, base_profile(arguments, Completeness::whole));
  if (arguments.text("--output") != "-") write_output("-", fit_table(fit));
  return write_profile(arguments, std::move(output), std::move(fit.profile));
}

ExitCode run_show(const Arguments& arguments) {
  HtmlFile html(arguments);
  html.keep_apart_from(std::vector<std::string>{arguments.text("PROFILE")});
  const Profile profile = value_or_throw(load_profile(arguments.text("PROFILE"), Completeness::part));
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
          "kineto: traces of the PyTorch profiler. topo: nvidia-smi topo -m. products: CSV with m,n,k,time_us. attention: CSV with "
          "batch,sequence,heads,head_dim,time_us, causal forward. collectives: CSV with gpu,collective,ranks,bytes,time_us of one node.",
      .arguments =
          {{.name = "FORMAT",
            .help = "what wrote the files",
            .required = true,
            .words = {"nccl-tests", "kineto", "topo", "products", "attention", "collectives"}},
           {.name = "FILE", .help = "what to read; runs of the same collective and ranks are repetitions", .required = true, .many = true},
           output_argument(),
           name_argument(),
           base_argument(),
           {.name = "--collective", .value = "NAME", .help = "where the log does not say it", .words = collective_words()},
           {.name = "--ranks", .value = "N", .help = "where the log does not say it"},
           {.name = "--nodes", .value = "N", .help = "where the log does not say it (default: eight ranks on each)"},
           {.name = "--rows", .value = "M", .help = "products: least m that counts", .fallback = "1024"},
           {.name = "--keep", .value = "N", .help = "products: measured shapes to keep for residuals", .fallback = "512"},
           {.name = "--gpu",
            .value = "NAME",
            .help = "products, attention: rows whose column gpu begins so; collectives: the GPU whose rows to take"},
           {.name = "--dtype", .value = "NAME", .help = "products: format", .words = {"bf16", "fp8"}, .fallback = "bf16"},
           {.name = "--kernels", .value = "A,B", .help = "attention: rows whose column stack begins so; later ones add head sizes"}},
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
