// SPDX-License-Identifier: Apache-2.0
// Bad inputs by the thousand, drawn from a seed: each ends in exit code 2 or 3 with a message at the line of the mistake, none in figures,
// in a bug's exit code or in a signal. SHARDSIM_BAD_INPUTS sets how many (5,000 before a release).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "cli/application.hpp"
#include "strategies/strategy.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

/// A scenario with a key on each line, so that the line of a mistake is known.
struct Line {
  std::string block, key, value;  ///< of a block's head, `key` is empty
};
using Lines = std::vector<Line>;

Lines good_scenario(const std::string& strategy) {
  return {{"model", "", ""},
          {"model", "preset", "gpt2"},
          {"cluster", "", ""},
          {"cluster", "profile", "clusters/h100-sxm.yaml"},
          {"cluster", "nodes", "2"},
          {"cluster", "gpus_per_node", "8"},
          {"training", "", ""},
          {"training", "sequence_length", "128"},
          {"training", "micro_batch_size", "1"},
          {"training", "gradient_accumulation_steps", "1"},
          {"training", "activation_checkpointing", "none"},
          {"strategy", "", ""},
          {"strategy", "name", strategy}};
}

std::string text_of(const Lines& lines) {
  std::string text;
  for (const Line& line : lines) text += line.key.empty() ? line.block + ":\n" : "  " + line.key + ": " + line.value + "\n";
  return text;
}

/// Adds a key at the end of its block; the line that it stands on.
std::size_t add(Lines& lines, const std::string& block, const std::string& key, const std::string& value) {
  std::size_t at = lines.size();
  while (lines[at - 1].block != block) --at;
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), {block, key, value});
  return at + 1;
}

/// Sets the value of a key that is there.
std::size_t set(Lines& lines, const std::string& block, const std::string& key, const std::string& value) {
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (lines[i].block == block && lines[i].key == key) {
      lines[i].value = value;
      return i + 1;
    }
  return add(lines, block, key, value);
}

struct BadInput {
  std::string text;
  std::size_t line = 0;  ///< of the mistake; 0: somewhere
  std::string what;
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  BadInput next() {
    const StrategyInfo& strategy = pick(strategies());
    Lines lines = good_scenario(strategy.name);
    switch (below(9)) {
      case 0:
        return unknown_key(lines);
      case 1:
        return wrong_type(lines);
      case 2:
        return rate_out_of_range(lines);
      case 3:
        return option_out_of_range(lines, strategy);
      case 4:
        return option_of_wrong_type(lines, strategy);
      case 5:
        return duplicate_key(lines);
      case 6:
        return missing_key(lines);
      case 7:
        return bytes_that_are_not_text(lines);
      default:
        return expectation(lines);
    }
  }

 private:
  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
  template <class List>
  typename List::value_type& pick(List& list) {
    return list[below(std::size(list))];
  }
  template <class List>
  const typename List::value_type& pick(const List& list) {
    return list[below(std::size(list))];
  }
  std::string word() {
    std::string text;
    for (std::size_t i = 3 + below(8); i > 0; --i) text += static_cast<char>('a' + below(26));
    return "x" + text;  // no key or word begins so
  }
  static BadInput at(const Lines& lines, std::size_t line, std::string what) { return {text_of(lines), line, std::move(what)}; }

  BadInput unknown_key(Lines& lines) {
    const std::array<std::string, 4> blocks{"model", "cluster", "training", "strategy"};
    return at(lines, add(lines, pick(blocks), word(), "1"), "an unknown key");
  }

  BadInput wrong_type(Lines& lines) {
    const std::array<std::pair<const char*, const char*>, 6> numbers{{{"cluster", "nodes"},
                                                                      {"cluster", "gpus_per_node"},
                                                                      {"training", "sequence_length"},
                                                                      {"training", "micro_batch_size"},
                                                                      {"training", "gradient_accumulation_steps"},
                                                                      {"cluster", "nics_per_node"}}};
    const std::array<const char*, 12> values{
        "0", "-1", "1.5", "[1]", "{a: 1}", "eight", "1e30", "nan", "8 GiB", "\"8\"", "9223372036854775808", "true"};
    const auto [block, key] = pick(numbers);
    return at(lines, set(lines, block, key, pick(values)), std::string(key) + " of the wrong type or range");
  }

  BadInput rate_out_of_range(Lines& lines) {
    static const std::map<std::string, std::vector<std::string>> bad{
        {"nic_bandwidth", {"0 B/s", "1e-300 GB/s", "1 kbit/s", "400 bit/s", "1e30 GB/s", "400", "400 Gb/s", "5 us", "-1 GB/s"}},
        {"ring_bandwidth", {"0 B/s", "1e-300 GB/s", "1 B/s", "1e300 TB/s", "nan GB/s", "inf GB/s"}},
        {"memory_bandwidth", {"0 TB/s", "1e-300 TB/s", "3.35", "3.35 TFLOP/s"}},
        {"host_link", {"0 GB/s", "1e-9 B/s", "16 GiB"}},
        {"efficiency", {"0", "-0.5", "1.01", "1e-300", "76 %", "inf", "7"}},
        {"optimizer_efficiency", {"0", "7", "1.0001", "-1"}},
        {"attention_efficiency", {"0", "1e-300", "65"}},
        {"elementwise_efficiency", {"0", "2", "[0.8]"}},
        {"inter_latency", {"1e10 s", "2 s", "-1 us", "5", "5 GB/s", "1e300 us"}},
        {"intra_latency", {"100000 s", "1 h", "nan us"}},
        {"kernel_launch", {"1 d", "-4 us", "4.5"}},
        {"overlap_slowdown", {"-0.1", "11", "1e9"}},
        {"capacity", {"0 B", "-1 GiB", "80", "1e40 GiB", "80 Gbit/s"}},
        {"multiprocessors", {"0", "-1", "1.5", "99999999999"}}};
    auto entry = bad.begin();
    std::advance(entry, static_cast<std::ptrdiff_t>(below(bad.size())));
    return at(lines, add(lines, "cluster", entry->first, pick(entry->second)), entry->first + " out of range");
  }

  static bool is_number(const OptionSpec& option) { return option.kind == OptionKind::integer || option.kind == OptionKind::number; }

  BadInput option_out_of_range(Lines& lines, const StrategyInfo& strategy) {
    std::vector<const OptionSpec*> options;
    for (const OptionSpec& option : strategy.options)
      if (is_number(option)) options.push_back(&option);
    if (options.empty()) return unknown_key(lines);
    const OptionSpec& option = *pick(options);
    std::vector<std::string> values{"-1", "-9223372036854775808", "1e300", "9223372036854775807", "nan", "-inf"};
    if (option.minimum >= 1e-6) values.emplace_back("0");
    return at(lines, add(lines, "strategy", option.name, pick(values)), strategy.name + ": " + option.name + " out of range");
  }

  BadInput option_of_wrong_type(Lines& lines, const StrategyInfo& strategy) {
    if (strategy.options.empty()) return unknown_key(lines);
    const OptionSpec& option = pick(strategy.options);
    const std::string value = option.kind == OptionKind::list || (option.kind == OptionKind::word && option.words.empty())
                                  ? "{a: 1}"
                                  : (below(2) == 0 ? word() : "{a: [1, 2]}");
    return at(lines, add(lines, "strategy", option.name, value), strategy.name + ": " + option.name + " of the wrong type");
  }

  BadInput duplicate_key(Lines& lines) {
    std::vector<std::size_t> keys;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (!lines[i].key.empty()) keys.push_back(i);
    const std::size_t i = pick(keys);
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(i), Line(lines[i]));
    return at(lines, i + 2, "a key twice");
  }

  BadInput missing_key(Lines& lines) {
    const std::array<std::string, 2> keys{"profile", "name"};
    const std::string key = pick(keys);
    std::erase_if(lines, [&](const Line& line) { return line.key == key; });
    return at(lines, 0, "no " + key);
  }

  BadInput bytes_that_are_not_text(Lines& lines) {
    std::string text = text_of(lines);
    const std::array<std::string, 5> bad{std::string(1, '\0'), "\x1b[31m", "\xff\xfe", "\xc0\xaf", "\x7f"};
    const std::size_t place = below(text.size());
    const auto line = static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place), '\n')) + 1;
    text.insert(place, pick(bad));
    return {text, line, "bytes that are not text"};
  }

  BadInput expectation(Lines& lines) {
    const std::array<const char*, 7> bad{"{metric: memory.peak_bytes, at_most: 80 Gbit/s}",
                                         "{metric: step.time_s, at_most: 1 GiB}",
                                         "{metric: step.tokens_per_second, at_least: 1 GiB}",
                                         "{metric: traffic.sent_bytes_per_rank.total, at_most: 5 ms}",
                                         "{metric: memory.peak_bytes}",
                                         "{metric: step.time_s, relative: 0.1}",
                                         "{at_most: 1}"};
    const std::string text = text_of(lines) + "expect:\n  - " + pick(bad) + "\n";
    return {text, lines.size() + 2, "a bad expectation"};
  }

  std::mt19937 random_;
};

struct RanBadly {
  ExitCode code;
  std::string out, err;
};

RanBadly run(const std::vector<std::string>& words) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const ExitCode code = run_command_line(words);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

struct BadInputs : testing::Test {
  fs::path folder = fs::temp_directory_path() / ("shardsim-bad-" + std::to_string(::getpid()));
  BadInputs() {
    fs::create_directories(folder);
    ::setenv("SHARDSIM_DATA", SHARDSIM_SOURCE_DIR "/scenarios", 1);
    ::unsetenv("GITHUB_ACTIONS");
  }
  ~BadInputs() override { fs::remove_all(folder); }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name, std::ios::binary) << text;
    return (folder / name).string();
  }
};

TEST_F(BadInputs, EachEndsInOneMessageAtItsPlace) {
  const char* wanted = std::getenv("SHARDSIM_BAD_INPUTS");
  const int count = wanted == nullptr ? 600 : std::atoi(wanted);
  Generator generator(20260103);
  for (int i = 0; i < count; ++i) {
    const BadInput bad = generator.next();
    const std::string path = file("s.yaml", bad.text);
    const RanBadly ran = run({i % 5 == 0 ? "check" : "simulate", path});
    ASSERT_TRUE(ran.code == ExitCode::bad_input || ran.code == ExitCode::environment)
        << i << ", " << bad.what << ": exit " << static_cast<int>(ran.code) << "\n"
        << bad.text << ran.err;
    if (i % 5 != 0) { ASSERT_EQ(ran.out, "") << bad.what; }
    const std::string place = path + ":" + (bad.line > 0 ? std::to_string(bad.line) + ":" : "");
    ASSERT_NE(ran.err.find(place), std::string::npos) << i << ", " << bad.what << " at " << place << "\n" << bad.text << ran.err;
    ASSERT_NE(ran.err.find("error: "), std::string::npos) << ran.err;
  }
}

/// Whatever an option's value: figures or a message, soon.
TEST_F(BadInputs, OptionsAtTheirLimitsAndBeyondEndInFiguresOrAMessage) {
  for (const StrategyInfo& strategy : strategies())
    for (const OptionSpec& option : strategy.options)
      for (const char* value : {"0", "-1", "99999999999", "9223372036854775807"}) {
        Lines lines = good_scenario(strategy.name);
        add(lines, "strategy", option.name, value);
        const RanBadly ran = run({"simulate", file("s.yaml", text_of(lines)), "--format", "json"});
        EXPECT_TRUE(ran.code == ExitCode::done || ran.code == ExitCode::bad_input)
            << strategy.name << " " << option.name << ": " << value << ": exit " << static_cast<int>(ran.code) << "\n"
            << ran.err;
      }
}

TEST_F(BadInputs, AnOutputThatIsAnInputIsRefusedAndKept) {
  const std::string text = text_of(good_scenario("ddp")) + "expect:\n  - {metric: memory.peak_bytes, at_most: 80 GiB}\n";
  const std::string a = file("a.yaml", text), sweep = file("x.csv", "base: a.yaml\ngrid: {training.micro_batch_size: [1]}\n");
  const std::string ds = file("ds.json", R"({"zero_optimization": {"stage": 1}})"), link = (folder / "link.yaml").string();
  fs::create_symlink("a.yaml", link);
  std::vector<std::vector<std::string>> commands{{"check", a, "--junit", a},
                                                 {"compare", a, "--html", link},
                                                 {"plan", a, "--html", a},
                                                 {"sweep", sweep, "-o", sweep},
                                                 {"import", "deepspeed", ds, "--model", "gpt2", "-o", ds}};
  for (const char* option : {"--html", "--trace", "--svg", "--dump-schedule"}) {
    commands.push_back({"simulate", a, option, a});
    commands.push_back({"simulate", a, option, link});
    commands.push_back({"simulate", a, option, ""});
  }
  for (const auto& words : commands) EXPECT_EQ(run(words).code, ExitCode::bad_input) << testing::PrintToString(words);
  std::stringstream kept;
  kept << std::ifstream(a).rdbuf();
  EXPECT_EQ(kept.str(), text);
}

TEST_F(BadInputs, LinksThatLeadInACircleAreSaid) {
  const std::string loop = (folder / "loop.yaml").string();
  fs::create_symlink("loop.yaml", loop);
  for (const char* command : {"check", "simulate", "compare", "plan"}) EXPECT_EQ(run({command, loop}).code, ExitCode::bad_input) << command;
  EXPECT_EQ(run({"sweep", loop, "-o", (folder / "o.csv").string()}).code, ExitCode::bad_input);
}

TEST_F(BadInputs, ATopologyWithoutGpusIsSaid) {
  for (const char* links : {"{from: host0, to: pcie0, bandwidth: 1 GB/s}", "{from: gpu0, to: gpu0, bandwidth: 1 GB/s}"})
    for (const char* nodes : {"1", "2"}) {
      Lines lines = good_scenario("ddp");
      set(lines, "cluster", "nodes", nodes);
      add(lines, "cluster", "topology", std::string("{node_links: [") + links + "]}");
      const RanBadly ran = run({"simulate", file("s.yaml", text_of(lines))});
      EXPECT_EQ(ran.code, ExitCode::bad_input) << links;
      EXPECT_THAT(ran.err, testing::HasSubstr("and the topology has 0"));
    }
}

TEST_F(BadInputs, ArgumentsOfAFormulaAreUsedOrRefused) {
  EXPECT_EQ(run({"formula", "--parameters", "1e9", "--model", "gpt2"}).code, ExitCode::bad_input);
  EXPECT_EQ(run({"formula", file("s.yaml", text_of(good_scenario("ddp"))), "--parameters", "1e9"}).code, ExitCode::bad_input);
  EXPECT_EQ(run({"formula", "--largest-layer", "5"}).code, ExitCode::bad_input);
}

}  // namespace
}  // namespace shardsim
