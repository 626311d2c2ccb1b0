// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/nccl_tests_text.hpp"

#include <fmt/format.h>

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
    if (const auto info = info_in(line)) return read_info(*info);
    const auto row = row_in(line, header_);
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
    if (const Header header = header_in(line); header.columns > 0) {
      if (!table_.rows.empty()) split();
      header_ = header;
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

  void read_info(const InfoLine& line) {
    info_hosts_.insert(line.host);
    info_.ranks = std::max(info_.ranks, line.ranks);
    info_.nodes = std::max(info_.nodes, line.nodes);
    if (!line.network.empty()) info_.network = line.network;
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
    header_ = {};
    comment_name_.clear();
  }

  void describe() {
    if (table_.test.empty()) table_.test = comment_name_;
    describe_devices();
    describe_by_info();
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
    std::map<std::int64_t, std::set<std::string>> hosts_of_group;
    std::map<std::int64_t, std::set<std::string>> hosts_of_rank;
    std::set<std::string> hosts;
    std::set<std::tuple<std::string, std::int64_t, std::string>> gpus;
    for (const Device& d : devices_) {
      last_rank = std::max(last_rank, d.rank);
      per_node = std::max(per_node, d.index + 1);
      hosts_of_group[d.group].insert(d.host);
      hosts_of_rank[d.rank].insert(d.host);
      hosts.insert(d.host);
      gpus.insert({d.host, d.index, d.bus});
    }
    const auto listed = static_cast<std::int64_t>(hosts_of_rank.size());
    const auto groups = static_cast<std::int64_t>(hosts_of_group.size());
    table_.ranks = (last_rank + 1) / groups;
    table_.gpu = devices_.back().name;
    table_.one_device = devices_.size() > 1 && gpus.size() == 1;
    const std::size_t copies = hosts_of_rank.begin()->second.size();
    if (copies > 1) {
      // Every host counts its ranks from zero: a binary without MPI was started on each, and none knows of the others.
      table_.nodes = 1;
      table_.assumptions.push_back(
          fmt::format("{} copies of the test that were started side by side, without MPI, each on a host of its own", copies));
    } else if (groups > 1) {
      std::size_t most = 0;
      for (const auto& [group, on] : hosts_of_group) most = std::max(most, on.size());
      table_.nodes = static_cast<std::int64_t>(most);
      table_.assumptions.push_back(fmt::format("{} groups at once (NCCL_TESTS_SPLIT)", groups));
    } else {
      const bool whole = listed == last_rank + 1 || hosts.size() > 1;
      table_.nodes = whole ? static_cast<std::int64_t>(hosts.size()) : ceil_div(last_rank + 1, per_node);
    }
  }

  /// Without a device list NCCL's own lines tell, where NCCL_DEBUG=INFO was set.
  void describe_by_info() {
    if (table_.ranks == 0 && info_.ranks > 1) table_.ranks = info_.ranks;
    if (table_.nodes == 0 && info_.nodes > 0) table_.nodes = info_.nodes;
    if (table_.nodes == 0 && info_hosts_.size() > 1) table_.nodes = static_cast<std::int64_t>(info_hosts_.size());
    if (table_.nodes == 0 && !info_.network.empty()) table_.network = info_.network;
    if (!table_.rows.empty()) {
      info_ = {};
      info_hosts_.clear();
    }
  }

  std::shared_ptr<const Source> source_;
  NcclTestsLog log_;
  NcclTestsTable table_;
  std::vector<Device> devices_;
  std::set<std::string> algorithms_, protocols_;
  std::string comment_name_;
  Header header_;
  InfoLine info_;
  std::set<std::string> info_hosts_;
};

}  // namespace

NcclTestsLog tables_of_text(const Source& source) { return Reader(source).read(); }

}  // namespace shardsim::nccl_tests
