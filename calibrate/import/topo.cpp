// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/topo.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <sstream>

namespace shardsim {
namespace {

// Bus bandwidth that NCCL's search gives a link (src/graph/topo.h): NVLink 3 and 4 by the number of links that a GPU has.
constexpr double nvlink3_gbs = 20, nvlink4_gbs = 20.6, pcie_gbs = 12, host_bridge_gbs = 10;

bool is_gpu(const std::string& word) { return word.starts_with("GPU") && word.size() > 3 && word[3] >= '0' && word[3] <= '9'; }
bool is_nic(const std::string& word) {
  return (word.starts_with("NIC") && word.size() > 3) || word.starts_with("mlx5_") || word.starts_with("rdma") || word.starts_with("bnxt_");
}

/// nvidia-smi underlines the header and colours nothing else, but copies keep the escape sequences.
std::string without_escapes(const std::string& line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      out += line[i];
      continue;
    }
    while (i < line.size() && line[i] != 'm') ++i;
  }
  return out;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(without_escapes(line));
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

bool is_connection(const std::string& word) {
  static const std::vector<std::string> others{"X", "PIX", "PXB", "PXN", "PHB", "NODE", "SYS", "SOC", "C2C"};
  return word.starts_with("NV") || std::ranges::find(others, word) != others.end();
}

class TopologyReader {
 public:
  explicit TopologyReader(const Source& source) : source_(std::make_shared<const Source>(source)) {}

  Result<NodeTopology> read() {
    std::istringstream in(source_->text);
    int line = 0;
    for (std::string text; std::getline(in, text);) read_line(words_of(text), ++line);
    if (columns_.empty())
      problems_.add({source_, 0, 0}, "no matrix of nvidia-smi topo -m found");
    else if (topology_.gpus.empty())
      problems_.add({source_, 0, 0}, "the matrix has no row of a GPU");
    else if (topology_.gpus.size() != static_cast<std::size_t>(std::ranges::count_if(columns_, is_gpu)))
      problems_.add({source_, 0, 0}, "rows of GPUs are missing");
    if (!problems_.empty()) return tl::unexpected(problems_);
    return topology_;
  }

 private:
  void read_line(const std::vector<std::string>& words, int line) {
    if (words.empty() || !(is_gpu(words[0]) || is_nic(words[0]))) return;
    if (columns_.empty()) {
      if (words.size() > 1 && is_connection(words[1])) return problems_.add({source_, line, 1}, "a row stands before the header");
      for (const std::string& word : words)
        if (is_gpu(word) || is_nic(word)) columns_.push_back(word);
      for (const std::string& word : columns_)
        if (is_nic(word)) topology_.nics.push_back(word);
      return;
    }
    if (!is_gpu(words[0]) || words.size() < 2 || words[1] == "=" || words[1] == ":")
      return;  // NIC rows repeat the columns; legends explain
    if (words.size() < columns_.size() + 1)
      return problems_.add({source_, line, 1},
                           fmt::format("the row has {} values where the header has {}", words.size() - 1, columns_.size()));
    topology_.gpus.push_back(words[0]);
    topology_.between_gpus.emplace_back();
    topology_.gpu_to_nic.emplace_back();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (!is_connection(words[i + 1])) problems_.add({source_, line, 1}, fmt::format("'{}' is no kind of connection", words[i + 1]));
      (is_gpu(columns_[i]) ? topology_.between_gpus : topology_.gpu_to_nic).back().push_back(words[i + 1]);
    }
  }

  std::shared_ptr<const Source> source_;
  Problems problems_;
  std::vector<std::string> columns_;
  NodeTopology topology_;
};

struct Ring {
  ByteRate bandwidth;
  std::string origin;
};

/// Of one NVLink: GPUs with 18 of them are of the fourth generation.
double nvlink_gbs(const NodeTopology& topology) { return topology.fewest_nvlinks() >= 18 ? nvlink4_gbs : nvlink3_gbs; }

Ring ring_of(const NodeTopology& topology) {
  const int links = topology.fewest_nvlinks();
  if (links > 0) {
    const double each = nvlink_gbs(topology);
    return {ByteRate{links * each * 1e9}, fmt::format("derived: {} NVLinks x {} GB/s, what NCCL's search gives a link", links, each)};
  }
  for (const auto& row : topology.between_gpus)
    for (const std::string& word : row)
      if (word == "PHB" || word == "NODE" || word == "SYS" || word == "SOC")
        return {ByteRate{host_bridge_gbs * 1e9}, "assumed: 10 GB/s through the host bridge (" + word + "); measure it"};
  return {ByteRate{pcie_gbs * 1e9}, "assumed: 12 GB/s, PCIe Gen3 x16 below one switch; measure it"};
}

}  // namespace

int nvlinks_of(const std::string& word) {
  int count = 0;
  if (word.starts_with("NV")) std::from_chars(word.data() + 2, word.data() + word.size(), count);
  return count;
}

int NodeTopology::fewest_nvlinks() const {
  int fewest = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < between_gpus.size(); ++i)
    for (std::size_t j = 0; j < between_gpus[i].size(); ++j)
      if (i != j) fewest = std::min(fewest, nvlinks_of(between_gpus[i][j]));
  return fewest == std::numeric_limits<int>::max() ? 0 : fewest;
}

Result<NodeTopology> read_topology(const Source& source) { return TopologyReader(source).read(); }

Profile with_topology(Profile base, const NodeTopology& topology, const std::string& source) {
  base.node.gpus = static_cast<std::int32_t>(topology.gpus.size());
  base.origins["node.gpus"] = "nvidia-smi topo -m, " + source;
  if (!topology.nics.empty()) {
    base.network.nics_per_node = static_cast<std::int32_t>(topology.nics.size());
    base.origins["network.nics_per_node"] = "nvidia-smi topo -m, " + source;
  }
  if (!base.topology) base.topology = Topology{};
  const ByteRate slot = base.gpu.host_link > ByteRate{} ? base.gpu.host_link : ByteRate{pcie_gbs * 1e9};
  base.topology->node_links = links_of(topology, ByteRate{nvlink_gbs(topology) * 1e9}, slot);
  base.origins["topology.node_links"] = "nvidia-smi topo -m, " + source + "; bandwidths as NCCL expects them";
  if (base.node.ring_bandwidth > ByteRate{} && topology.fewest_nvlinks() > 0) return base;
  const Ring ring = ring_of(topology);
  base.node.ring_bandwidth = ring.bandwidth;
  base.origins["node.ring_bandwidth"] = ring.origin;
  return base;
}

}  // namespace shardsim
