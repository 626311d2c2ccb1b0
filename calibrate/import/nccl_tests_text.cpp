// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/nccl_tests_text.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "calibrate/import/nccl_tests_line.hpp"

namespace shardsim::nccl_tests {
namespace {

std::string value_after(std::string_view line, std::string_view key) {
  const auto at = line.find(key);
  if (at == std::string_view::npos) return {};
  const auto rest = words(line.substr(at + key.size()));
  return rest.empty() ? std::string() : std::string(rest[0]);
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

class Reader {
 public:
  explicit Reader(const Source& source) : source_(std::make_shared<const Source>(source)) {}

  NcclTestsLog read() {
    std::string_view rest = source_->text;
    for (int line = 1; !rest.empty(); ++line) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      read_line(without_labels(rest.substr(0, end)), line);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    close();
    return std::move(log_);
  }

 private:
  void read_line(const std::string& line, int number_of_line) {
    read_hints(line);
    if (line.find('#') != std::string::npos || line.find("_perf") != std::string::npos) {
      read_preamble(line);
      return;
    }
    const auto row = row_in(line, columns_);
    if (const auto* cut = std::get_if<CutRow>(&row)) log_.warn(source_, number_of_line, "row is cut and left out: " + cut->why);
    if (const auto* complete = std::get_if<NcclTestsRow>(&row)) {
      table_.rows.push_back(*complete);
      table_.rows.back().line = number_of_line;
    }
  }

  /// Comments and command lines. Whatever opens a new run closes the table before it.
  void read_preamble(const std::string& line) {
    const bool starts_test = line.find("_perf") != std::string::npos && line.find("concluded") == std::string::npos;
    const auto device = device_in(line);
    if ((starts_test || device || line.find("nThread") != std::string::npos || line.find("nccl-tests version") != std::string::npos ||
         line.find("Using devices") != std::string::npos) &&
        !table_.rows.empty())
      close();
    if (starts_test) table_.test = test_named_in(line).name;
    if (device) devices_.push_back(*device);
    if (const std::string version = version_text(value_after(line, "nccl-library=")); !version.empty()) table_.nccl_version = version;
    if (const int columns = columns_in_header(line); columns > 0) {
      if (!table_.rows.empty()) split();
      columns_ = columns;
    }
    if (table_.test.empty() && comment_name_.empty()) comment_name_ = test_named_by_a_word_of(line).name;
  }

  /// What the environment or NCCL's own log says about algorithm and protocol.
  void read_hints(const std::string& line) {
    for (const auto& [key, words_seen] : {std::pair{"NCCL_ALGO", &algorithms_}, std::pair{"NCCL_PROTO", &protocols_}}) {
      if (const std::string word = value_after(line, std::string(key) + "="); !word.empty()) words_seen->insert(lower(word));
      if (line.find(key) != std::string::npos)
        if (const std::string word = value_after(line, "set by environment to "); !word.empty()) words_seen->insert(lower(word));
    }
    if (line.find(" -> Algo ") == std::string::npos) return;
    algorithms_.insert(lower(value_after(line, "Algo ")));
    protocols_.insert(lower(value_after(line, "proto ")));
  }

  /// A header without a preamble repeats a run on the same devices.
  void split() {
    const auto devices = devices_;
    const std::string test = table_.test;
    close();
    devices_ = devices;
    table_.test = test;
  }

  void close() {
    describe();
    if (!table_.rows.empty()) log_.tables.push_back(std::move(table_));
    table_ = {};
    devices_.clear();
    columns_ = 0;
    comment_name_.clear();
  }

  void describe() {
    if (table_.test.empty()) table_.test = comment_name_;
    describe_devices();
    static const std::set<std::string> known_algorithms{"ring", "tree", "nvls", "pat"}, known_protocols{"simple", "ll", "ll128"};
    if (algorithms_.size() == 1 && known_algorithms.contains(*algorithms_.begin())) table_.algorithm = *algorithms_.begin();
    if (protocols_.size() == 1 && known_protocols.contains(*protocols_.begin())) table_.protocol = *protocols_.begin();
    algorithms_.clear();
    protocols_.clear();
  }

  /// Ranks and nodes from the device list, which publishers like to abridge: the last rank and the largest device index still tell.
  void describe_devices() {
    if (devices_.empty()) return;
    std::int64_t last_rank = 0, per_node = 0;
    std::set<std::int64_t> groups;
    std::map<std::string, std::int64_t> hosts;
    std::set<std::tuple<std::string, std::int64_t, std::string>> gpus;
    for (const Device& d : devices_) {
      last_rank = std::max(last_rank, d.rank);
      per_node = std::max(per_node, d.index + 1);
      groups.insert(d.group);
      ++hosts[d.host];
      gpus.insert({d.host, d.index, d.bus});
    }
    const auto listed = static_cast<std::int64_t>(devices_.size());
    table_.ranks = (last_rank + 1) / static_cast<std::int64_t>(groups.size());
    table_.gpu = devices_.back().name;
    table_.one_device = listed > 1 && gpus.size() == 1;
    if (groups.size() > 1) return;
    table_.nodes =
        listed == last_rank + 1 || hosts.size() > 1 ? static_cast<std::int64_t>(hosts.size()) : ceil_div(last_rank + 1, per_node);
  }

  std::shared_ptr<const Source> source_;
  NcclTestsLog log_;
  NcclTestsTable table_;
  std::vector<Device> devices_;
  std::set<std::string> algorithms_, protocols_;
  std::string comment_name_;
  int columns_ = 0;
};

}  // namespace

NcclTestsLog tables_of_text(const Source& source) { return Reader(source).read(); }

}  // namespace shardsim::nccl_tests
