// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/topo.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <sstream>

#include "sim/costs/collectives/nccl_system.hpp"
#include "sim/costs/collectives/ring_packing.hpp"

namespace shardsim {
namespace {

// Bus bandwidth that NCCL's search gives a link (src/graph/topo.h): up to NVLink 3, NVLink 4 and NVLink 5.
constexpr double nvlink3_gbs = 20, nvlink4_gbs = 20.6, nvlink5_gbs = 40.1, host_bridge_gbs = 10;
constexpr double gen4_slot_gbs = 27.2, gen5_slot_gbs = 54.4;  // 85 % of x16
constexpr double ring_share_of_slot = 0.75;                   // two L40S below one switch: 20 of 27 GB/s (aiconfigurator)
constexpr double same_fabric = 0.25;                          // derived rings are within 6 % of those measured on HGX boards
constexpr int most_nvlinks = 18;                              // of one GPU (Hopper, Blackwell)

bool is_gpu(const std::string& word) { return word.starts_with("GPU") && word.size() > 3 && word[3] >= '0' && word[3] <= '9'; }

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
  static const std::vector<std::string> others{"X", "PIX", "PXB", "PXN", "PHB", "NODE", "SYS", "SOC", "C2C", "N/A"};
  return nvlinks_of(word) > 0 || std::ranges::find(others, word) != others.end();
}

std::string wrong_word(const std::string& word) {
  if (!word.starts_with("NV")) return fmt::format("'{}' is no kind of connection", word);
  return fmt::format("'{}': a GPU has 1 to {} NVLinks, NV1 to NV{}", word, most_nvlinks, most_nvlinks);
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
    if (words.empty() || !is_gpu(words[0])) return;  // rows of NICs repeat the columns
    if (columns_.empty()) {
      if (words.size() > 1 && is_connection(words[1])) return problems_.add({source_, line, 1}, "a row stands before the header");
      // Devices by any name (mlx4_0, hfi1_0, rdmap16s27) up to the columns that tell of CPUs.
      for (const std::string& word : words) {
        if (word == "CPU" || word == "NUMA") break;
        columns_.push_back(word);
        if (!is_gpu(word)) topology_.nics.push_back(word);
      }
      return;
    }
    if (words.size() < 2 || words[1] == "=" || words[1] == ":") return;  // a legend
    if (words.size() < columns_.size() + 1)
      return problems_.add({source_, line, 1},
                           fmt::format("the row has {} values where the header has {}", words.size() - 1, columns_.size()));
    topology_.gpus.push_back(words[0]);
    topology_.between_gpus.emplace_back();
    topology_.gpu_to_nic.emplace_back();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (!is_connection(words[i + 1])) problems_.add({source_, line, 1}, wrong_word(words[i + 1]));
      (is_gpu(columns_[i]) ? topology_.between_gpus : topology_.gpu_to_nic).back().push_back(words[i + 1]);
    }
  }

  std::shared_ptr<const Source> source_;
  Problems problems_;
  std::vector<std::string> columns_;
  NodeTopology topology_;
};

/// Of one NVLink, by the base's GPU; else by their number, which Hopper and Blackwell share.
double nvlink_gbs(const NodeTopology& topology, const Gpu& gpu) {
  if (!gpu.name.empty() && nccl_generation_of(gpu.name) == NcclGeneration::blackwell) return nvlink5_gbs;
  return topology.fewest_nvlinks() >= most_nvlinks ? nvlink4_gbs : nvlink3_gbs;
}

struct Derived {
  ByteRate rate;
  std::string origin;
};

/// A device's slot: the base's, else that of the machines that have so many NVLinks.
Derived slot_of(const NodeTopology& topology, const Gpu& gpu) {
  if (gpu.host_link > ByteRate{}) return {gpu.host_link, {}};
  if (topology.fewest_nvlinks() >= most_nvlinks) return {ByteRate{gen5_slot_gbs * 1e9}, "derived: PCIe Gen5 x16 beside 18 NVLinks"};
  return {ByteRate{gen4_slot_gbs * 1e9}, "assumed: PCIe Gen4 x16"};
}

Derived ring_of(const NodeTopology& topology, double nvlink, ByteRate slot) {
  const int links = topology.fewest_nvlinks();
  if (topology.has_nvswitch())
    return {ByteRate{links * nvlink * 1e9}, fmt::format("derived: {} NVLinks x {} GB/s, what NCCL's search gives a link", links, nvlink)};
  CableMatrix cables(topology.gpus.size(), std::vector<ByteRate>(topology.gpus.size()));
  for (std::size_t i = 0; i < cables.size(); ++i)
    for (std::size_t j = 0; j < cables.size(); ++j)
      if (i != j)
        cables[i][j] = ByteRate{nvlink * 1e9 * std::min(nvlinks_of(topology.between_gpus[i][j]), nvlinks_of(topology.between_gpus[j][i]))};
  if (const ByteRate rings = packed_rings(cables); rings > ByteRate{})
    return {rings, fmt::format("derived: rings over NVLinks of {} GB/s, packed into the mesh", nvlink)};
  for (const auto& row : topology.between_gpus)
    for (const std::string& word : row)
      if (word == "PHB" || word == "NODE" || word == "SYS" || word == "SOC")
        return {ByteRate{host_bridge_gbs * 1e9}, "assumed: 10 GB/s through the host bridge (" + word + "); measure it"};
  return {slot * ring_share_of_slot, "assumed: three quarters of a slot, below one PCIe switch; measure it"};
}

bool beside_it(const std::string& word) { return word == "PIX" || word == "PXB"; }

/// Times of another fabric are not this machine's.
void drop_foreign_times(Profile& profile, bool other_fabric, bool other_nodes, std::vector<std::string>& notes) {
  const auto foreign = [&](const CollectiveFit& fit) { return other_fabric || (other_nodes && fit.nodes > 1); };
  const auto dropped = std::erase_if(profile.collectives, foreign);
  if (dropped > 0)
    notes.push_back(fmt::format("{} measured collectives of the base are left out: they were taken on another fabric", dropped));
}

}  // namespace

bool NodeTopology::has_nvswitch() const { return fewest_nvlinks() * (static_cast<int>(gpus.size()) - 1) > most_nvlinks; }

int nvlinks_of(const std::string& word) {
  if (!word.starts_with("NV") || word.size() < 3 || word[2] < '1' || word[2] > '9') return 0;
  int count = 0;
  const auto [end, error] = std::from_chars(word.data() + 2, word.data() + word.size(), count);
  return error == std::errc{} && end == word.data() + word.size() && count <= most_nvlinks ? count : 0;
}

int NodeTopology::fewest_nvlinks() const {
  int fewest = std::numeric_limits<int>::max();
  for (std::size_t i = 0; i < between_gpus.size(); ++i)
    for (std::size_t j = 0; j < between_gpus[i].size(); ++j)
      if (i != j) fewest = std::min(fewest, nvlinks_of(between_gpus[i][j]));
  return fewest == std::numeric_limits<int>::max() ? 0 : fewest;
}

Result<NodeTopology> read_topology(const Source& source) { return TopologyReader(source).read(); }

std::vector<std::string> leave_out_far_nics(NodeTopology& topology) {
  std::vector<bool> beside(topology.nics.size(), false);
  for (const auto& row : topology.gpu_to_nic)
    for (std::size_t i = 0; i < row.size(); ++i) beside[i] = beside[i] || beside_it(row[i]);
  std::vector<std::string> left_out;
  if (std::ranges::find(beside, true) == beside.end()) return left_out;
  for (std::size_t i = beside.size(); i-- > 0;) {
    if (beside[i]) continue;
    left_out.insert(left_out.begin(), topology.nics[i]);
    const auto at = static_cast<std::ptrdiff_t>(i);
    topology.nics.erase(topology.nics.begin() + at);
    for (auto& row : topology.gpu_to_nic) row.erase(row.begin() + at);
  }
  return left_out;
}

ImportedTopology with_topology(Profile base, NodeTopology topology, const std::string& source) {
  ImportedTopology imported;
  const std::string origin = "nvidia-smi topo -m, " + source;
  if (const auto far = leave_out_far_nics(topology); !far.empty())
    imported.notes.push_back(
        fmt::format("{} left out: no GPU stands beside them, as beside the others (storage or management)", fmt::join(far, ", ")));
  const auto gpus = static_cast<std::int32_t>(topology.gpus.size()), nics = static_cast<std::int32_t>(topology.nics.size());
  const bool other_nodes = base.node.gpus != gpus || (nics > 0 && base.network.nics_per_node != nics);
  base.node.gpus = gpus;
  base.origins["node.gpus"] = origin;
  if (nics > 0) {
    base.network.nics_per_node = nics;
    base.origins["network.nics_per_node"] = origin;
  }
  const double nvlink = nvlink_gbs(topology, base.gpu);
  const Derived slot = slot_of(topology, base.gpu);
  if (!slot.origin.empty()) imported.notes.push_back("slots: " + slot.origin);
  if (!base.topology) base.topology = Topology{};
  base.topology->node_links = links_of(topology, ByteRate{nvlink * 1e9}, slot.rate);
  base.origins["topology.node_links"] = origin + "; bandwidths as NCCL expects them";
  const Derived ring = ring_of(topology, nvlink, slot.rate);
  const bool other_fabric = std::abs(base.node.ring_bandwidth / ring.rate - 1) > same_fabric;
  drop_foreign_times(base, other_fabric, other_nodes, imported.notes);
  if (other_fabric) {
    base.node.ring_bandwidth = ring.rate;
    base.origins["node.ring_bandwidth"] = ring.origin;
  }
  imported.profile = std::move(base);
  return imported;
}

}  // namespace shardsim
