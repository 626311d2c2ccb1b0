// SPDX-License-Identifier: Apache-2.0
// The program as a user runs it, without starting a process.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/application.hpp"
#include "cli/commands.hpp"
#include "cli/manual.hpp"
#include "reports/html/assets.hpp"
#include "sim/config/node.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr const char* tiny_scenario =
    "model: {preset: gpt2}\n"
    "cluster: {profile: clusters/h100-sxm.yaml, nodes: 1, gpus_per_node: 8}\n"
    "training: {sequence_length: 1024, micro_batch_size: 1, optimizer: adamw}\n"
    "strategy: {name: zero3, semantics: textbook}\n";

struct Ran {
  ExitCode code;
  std::string out, err;
};

class CommandLine : public testing::Test {
 protected:
  CommandLine() {
    fs::create_directories(folder);
    setenv("SHARDSIM_DATA", SHARDSIM_SOURCE_DIR "/scenarios", 1);
    unsetenv("GITHUB_ACTIONS");
  }
  ~CommandLine() override { fs::remove_all(folder); }

  std::string file(const std::string& name, const std::string& text) const {
    const fs::path path = folder / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  static std::string content(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static Ran run(const std::vector<std::string>& words) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const ExitCode code = run_command_line(words);
    return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
  }

  fs::path folder = fs::temp_directory_path() / ("shardsim-cli-" + std::to_string(getpid()));
};

TEST_F(CommandLine, ImportsNameAClusterThatTheScenarioFinds) {
  const std::string config = file("ds.json", "{\"zero_optimization\": {\"stage\": 1}}");
  const std::string mine = file("mine.yaml", content(SHARDSIM_SOURCE_DIR "/scenarios/clusters/h100-sxm.yaml"));
  fs::create_directories(folder / "sub");
  const std::string scenario_file = (folder / "sub" / "s.yaml").string();
  const auto import = [&](const std::string& cluster) {
    return run({"import", "deepspeed", config, "--model", "gpt2", "--cluster", cluster, "-o", scenario_file});
  };
  EXPECT_EQ(import(mine).code, ExitCode::done);
  EXPECT_THAT(content(scenario_file), HasSubstr("profile: ../mine.yaml"));
  EXPECT_EQ(run({"simulate", scenario_file}).code, ExitCode::done);
  EXPECT_EQ(import("clusters/a100-sxm-80.yaml").code, ExitCode::done);
  EXPECT_THAT(content(scenario_file), HasSubstr("profile: clusters/a100-sxm-80.yaml"));
  const Ran wrong = import("clusters/v100.yaml");
  EXPECT_EQ(wrong.code, ExitCode::bad_input);
  EXPECT_THAT(wrong.err, HasSubstr("--cluster: 'clusters/v100.yaml' is neither a file nor a shipped profile"));
}

TEST_F(CommandLine, PlanTellsMistakesByTheNameOfTheFlag) {
  const std::string path = file("s.yaml", tiny_scenario);
  const std::vector<std::pair<std::string, std::string>> wrong{{"--nodes", "0"},     {"--nodes", "1,,2"}, {"--nodes", "two"},
                                                               {"--tokens", "300B"}, {"--price", "-3"},   {"--global-batch", "0"},
                                                               {"--days", "0"}};
  for (const auto& [flag, value] : wrong) {
    const Ran ran = run({"plan", path, flag, value});
    EXPECT_EQ(ran.code, ExitCode::bad_input) << flag << " " << value;
    EXPECT_THAT(ran.err, HasSubstr("error: " + flag)) << value;
  }
}

TEST_F(CommandLine, SimulatesInEveryForm) {
  const std::string path = file("s.yaml", tiny_scenario);
  const Ran table = run({"simulate", path});
  EXPECT_EQ(table.code, ExitCode::done) << table.err;
  EXPECT_THAT(table.out, ContainsRegex("total +653.31 MB  6.00 Ψ"));  // 6 * 124,439,808 * 7 / 8

  const Ran json = run({"simulate", path, "--format", "json"});
  EXPECT_THAT(json.out, HasSubstr("\"total\": 653308992,"));
  const Ran list = run({"simulate", path, path, "--format", "json", "--set", "training.micro_batch_size=2"});
  const auto tree = read_json(Source{"out", list.out});
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->items.size(), 2U);
  EXPECT_THAT(run({"simulate", path, "--format", "csv"}).out, HasSubstr("traffic.sent_bytes_per_rank.total"));
}

TEST_F(CommandLine, WritesFilesBesideTheReport) {
  const std::string path = file("s.yaml", tiny_scenario), trace = (folder / "t.json").string(), dump = (folder / "d.txt").string(),
                    html = (folder / "r.html").string();
  const Ran ran = run({"simulate", path, "--trace", trace, "--dump-schedule", dump});
  EXPECT_EQ(ran.code, ExitCode::done) << ran.err;
  EXPECT_TRUE(read_json(Source{trace, content(trace)}));
  EXPECT_THAT(content(dump), HasSubstr("all_gather"));
  const Ran page = run({"simulate", path, "--html", html});
  if (chart_library.empty())
    EXPECT_EQ(page.code, ExitCode::environment);
  else
    EXPECT_THAT(content(html), HasSubstr("653,308,992"));
  EXPECT_THAT(run({"simulate", path, "--dump-schedule", "-"}).out, testing::Not(HasSubstr("MFU")));
  EXPECT_EQ(run({"simulate", path, "--dump-schedule", "-", "--trace", "-"}).code, ExitCode::bad_input);
  EXPECT_EQ(run({"simulate", path, path, "--trace", trace}).code, ExitCode::bad_input);
}

TEST_F(CommandLine, SaysWhatIsWrongWithItsInput) {
  const std::string path = file("s.yaml", std::string(tiny_scenario) + "strategi: 1\n");
  const Ran bad = run({"simulate", path, (folder / "none.yaml").string()});
  EXPECT_EQ(bad.code, ExitCode::bad_input);
  EXPECT_THAT(bad.err, HasSubstr("s.yaml:5:1: error: unknown key 'strategi'"));
  EXPECT_THAT(bad.err, HasSubstr("none.yaml: error: cannot read the file"));
  EXPECT_EQ(bad.out, "");
  EXPECT_EQ(run({"simulate", file("g.yaml", tiny_scenario), "--trace", (folder / "no/such/t.json").string()}).code, ExitCode::environment);
  EXPECT_EQ(run({}).code, ExitCode::bad_input);
  EXPECT_EQ(run({"--version"}).out, "shardsim " SHARDSIM_VERSION "\n");
}

TEST_F(CommandLine, CheckTellsOkFromFailedFromBroken) {
  const std::string good = file("good.yaml", std::string(tiny_scenario) +
                                                 "expect:\n  - {metric: traffic.sent_bytes_per_rank.total, equals: 6 * psi * (n - 1) / n}\n"
                                                 "  - {metric: memory.peak_bytes, at_most: 80 GiB}\n");
  const Ran ok = run({"check", good});
  EXPECT_EQ(ok.code, ExitCode::done) << ok.out << ok.err;
  EXPECT_EQ(ok.out, "2 checked, none failed\n");

  const std::string wrong =
      file("wrong.yaml",
           std::string(tiny_scenario) + "expect:\n  - {metric: traffic.sent_bytes_per_rank.total, equals: 4 * psi * (n - 1) / n}\n");
  const std::string junit = (folder / "j.xml").string();
  const Ran failed = run({"check", good, wrong, "--junit", junit});
  EXPECT_EQ(failed.code, ExitCode::no);
  EXPECT_THAT(failed.out, HasSubstr("FAILED  traffic.sent_bytes_per_rank.total  +50 %"));
  EXPECT_THAT(failed.out, HasSubstr("expected 435,539,328 = 4 * psi * (n - 1) / n"));
  EXPECT_THAT(failed.out, HasSubstr("3 checked, 1 failed"));
  EXPECT_THAT(content(junit), HasSubstr("tests=\"3\" failures=\"1\" errors=\"0\""));

  const Ran nothing = run({"check", file("none.yaml", tiny_scenario)});
  EXPECT_EQ(nothing.code, ExitCode::no);
  EXPECT_THAT(nothing.out, HasSubstr("no expect block"));

  const Ran broken = run(
      {"check", file("broken.yaml", std::string(tiny_scenario) + "expect:\n  - {metric: memory.peak_bytes, equals: \"6 * psy * (n\"}\n")});
  EXPECT_EQ(broken.code, ExitCode::bad_input);
  EXPECT_THAT(broken.err, HasSubstr("broken.yaml:6:46: error: unknown name 'psy' in the formula"));
}

TEST_F(CommandLine, CheckSearchesFoldersAndSkipsWhatIsNoScenario) {
  const std::string expect = "expect:\n  - {metric: world_size, equals: n}\n";
  file("in/a.yaml", tiny_scenario + expect);
  file("in/deeper/b.yml", tiny_scenario + expect);
  file("in/profile.yaml", "name: some cluster\n");
  file("in/.hidden/c.yaml", "model: [\n");
  EXPECT_EQ(run({"check", (folder / "in").string()}).out, "2 checked, none failed\n");
  fs::create_directories(folder / "empty");
  EXPECT_EQ(run({"check", (folder / "empty").string()}).code, ExitCode::bad_input);
}

TEST_F(CommandLine, CheckUpdatesBaselinesAndNothingElse) {
  const std::string before = std::string(tiny_scenario) +
                             "expect:   # kept\n  - metric: traffic.sent_bytes_per_rank.total\n    baseline: 653308990   # old\n"
                             "  - {metric: step.time_s, baseline: 9.5, relative: 0.02}\n";
  const std::string path = file("s.yaml", before);
  EXPECT_EQ(run({"check", path}).code, ExitCode::no);
  const Ran updated = run({"check", path, "--update"});
  EXPECT_EQ(updated.code, ExitCode::done) << updated.out << updated.err;
  EXPECT_THAT(updated.out, HasSubstr("653308990 -> 653308992"));
  const std::string after = content(path);
  EXPECT_THAT(after, HasSubstr("expect:   # kept\n"));
  EXPECT_THAT(after, HasSubstr("baseline: 653308992   # old\n"));
  EXPECT_THAT(after, ContainsRegex("step.time_s, baseline: 0.0[0-9]+, relative: 0.02"));
  EXPECT_EQ(run({"check", path}).code, ExitCode::done);
  const Ran again = run({"check", path, "--update"});
  EXPECT_EQ(content(path), after);
  EXPECT_THAT(again.out, testing::Not(HasSubstr("->")));
}

TEST_F(CommandLine, CheckAnnotatesOnGithub) {
  setenv("GITHUB_ACTIONS", "true", 1);
  const std::string path = file("s.yaml", std::string(tiny_scenario) + "expect:\n  - {metric: world_size, equals: 9}\n");
  EXPECT_THAT(run({"check", path, "--format", "json"}).err, HasSubstr("::error file=" + path + ",line=6,col="));
  unsetenv("GITHUB_ACTIONS");
}

TEST_F(CommandLine, FormulaReproducesThePapersTable) {
  const Ran ran = run({"formula", "--parameters", "7.5e9", "--ranks", "64"});
  EXPECT_EQ(ran.code, ExitCode::done) << ran.err;
  EXPECT_THAT(ran.out, ContainsRegex("ddp .* 120.00 GB"));
  EXPECT_THAT(ran.out, ContainsRegex("zero1 .* 31.41 GB"));
  EXPECT_THAT(ran.out, ContainsRegex("zero2 .* 16.64 GB"));
  EXPECT_THAT(ran.out, ContainsRegex("zero3 .* 1.88 GB"));
  const Ran one = run({"formula", "--strategy", "ddp", "--model", "gpt2", "--ranks", "8"});
  EXPECT_THAT(one.out, HasSubstr("sent = 2 * e_g * psi * (s - 1) / s"));
  EXPECT_THAT(one.out, HasSubstr("framework"));
  EXPECT_EQ(run({"formula", "--estimator", "deepspeed"}).code, ExitCode::bad_input);
  // The model's own largest layer (128,256 x 4,096), and what the simulation says beside it.
  const Ran estimates = run({"formula", "--estimator", "deepspeed", "--model", "llama-3-8b", "--ranks", "8"});
  EXPECT_THAT(estimates.out, HasSubstr("L =\n525,336,576"));
  EXPECT_THAT(estimates.out, ContainsRegex("zero3 +[0-9.]+ +[0-9.]+ +[0-9.]+"));
}

TEST_F(CommandLine, ListsWhatScenariosCanName) {
  for (const char* what : {"models", "strategies", "clusters", "stacks", "optimizers", "gpus"})
    EXPECT_EQ(run({"list", what}).code, ExitCode::done) << what;
  EXPECT_THAT(run({"list", "models"}).out, ContainsRegex("llama-3-8b +8,030,261,248"));
  EXPECT_THAT(run({"list", "clusters"}).out, HasSubstr("clusters/h100-sxm.yaml"));
  // Every optimizer that is listed can be used, and the other way round.
  std::istringstream lines(run({"list", "optimizers"}).out);
  std::string line;
  std::getline(lines, line);
  int count = 0;
  for (; std::getline(lines, line) && !line.empty(); ++count) {
    const std::string name = line.substr(0, line.find(' '));
    EXPECT_EQ(run({"simulate", file("s.yaml", tiny_scenario), "--set", "training.optimizer=" + name}).code, ExitCode::done) << name;
  }
  EXPECT_EQ(count, static_cast<int>(OptimizerKind::muon) + 1);
}

TEST_F(CommandLine, GeneratesAManualAndCompletionOfEveryCommand) {
  const std::string man = man_page(program()), bash = bash_completion(program()), fish = fish_completion(program());
  for (const Command& command : program().subcommands) {
    EXPECT_THAT(man, HasSubstr(".SS \"shardsim " + command.name));
    EXPECT_THAT(bash, HasSubstr("\"shardsim " + command.name + "\")"));
    EXPECT_THAT(fish, HasSubstr(" -f -a " + command.name + " -d "));
  }
  const std::string script = file(
      "completion.bash", bash +
                             "COMP_WORDS=(shardsim simulate --fo) COMP_CWORD=2\n_shardsim\n[ \"${COMPREPLY[*]}\" = --format ] || exit 1\n"
                             "COMP_WORDS=(shardsim simulate --format j) COMP_CWORD=3\n_shardsim\n[ \"${COMPREPLY[0]}\" = json ] || exit 2\n"
                             "COMP_WORDS=(shardsim form) COMP_CWORD=1\n_shardsim\n[ \"${COMPREPLY[*]}\" = formula ] || exit 3\n");
  EXPECT_EQ(std::system(("bash " + script).c_str()), 0);
}

}  // namespace
}  // namespace shardsim
