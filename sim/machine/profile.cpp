// SPDX-License-Identifier: Apache-2.0
// Reading a cluster profile. The format is documented in docs/profile.md.
#include "sim/machine/profile.hpp"

#include <fmt/format.h>

#include <functional>

#include "sim/machine/gpu_generations.hpp"
#include "sim/machine/ranges.hpp"

namespace shardsim {
namespace {

const std::vector<std::string>& algorithms() {
  static const std::vector<std::string> names{"ring", "tree", "nvls", "pat", "unknown"};
  return names;
}

/// One map of the profile: a MapReader whose values must be in the range of their kind and, in a whole profile, present.
class Section {
 public:
  Section(const ConfigNode& node, Problems& problems, std::string what, Completeness completeness)
      : reader_(node, problems, std::move(what)), completeness_(completeness) {}

  /// A required value; zero where a part lacks it.
  template <class Q>
  void require(std::string_view key, Q& value) {
    if (!present(key)) return;
    read(key, value);
  }

  /// A value that has a default.
  template <class Q>
  void optional(std::string_view key, Q& value) {
    if (reader_.has(key)) read(key, value);
  }

  /// Values of a kind that the type does not say, all with a default.
  void latency(std::string_view key, Seconds& value) { read(key, value, &MapReader::seconds, ranges::latency); }
  void overhead(std::string_view key, Bytes& value) { read(key, value, &MapReader::bytes, ranges::overhead); }
  void efficiency(std::string_view key, double& value, double most = ranges::efficiency.most) {
    value = reader_.number(key, value, ranges::efficiency.least, most);
  }
  void algbw(std::string_view key, ByteRate& value) {
    if (present(key)) read(key, value, &MapReader::byte_rate, ranges::algbw);
  }

  /// The node of a required section; nothing (and a problem, in a whole profile) where it is missing.
  const ConfigNode* section(std::string_view key) { return present(key) ? reader_.find(key) : nullptr; }

  MapReader& reader() { return reader_; }
  [[nodiscard]] Completeness completeness() const { return completeness_; }

 private:
  bool present(std::string_view key) { return completeness_ == Completeness::part ? reader_.has(key) : reader_.require(key) != nullptr; }

  void read(std::string_view key, Bytes& value) { read(key, value, &MapReader::bytes, ranges::memory); }
  void read(std::string_view key, ByteRate& value) { read(key, value, &MapReader::byte_rate, ranges::bandwidth); }
  void read(std::string_view key, FlopRate& value) { read(key, value, &MapReader::flop_rate, ranges::peak); }
  void read(std::string_view key, std::string& value) { value = reader_.text(key, value); }
  void read(std::string_view key, std::int32_t& value) {
    value = static_cast<std::int32_t>(reader_.integer(key, 1, 1, std::numeric_limits<std::int32_t>::max()));
  }

  /// A bad value is one problem: the fallback is in the range.
  template <class Q>
  void read(std::string_view key, Q& value, Q (MapReader::*get)(std::string_view, Q), const Range<Q>& range) {
    if (!reader_.has(key)) return;
    value = (reader_.*get)(key, range.least);
    within(*reader_.find(key), fmt::format("'{}'", key), value, range, reader_.problems());
  }

  MapReader reader_;
  Completeness completeness_;
};

/// Calls `read` with each item that is a list of `size` values; anything else is a problem that shows the expected form.
void for_each_row(const ConfigNode& list, std::size_t size, const std::string& form, Problems& problems,
                  const std::function<void(const std::vector<ConfigNode>&)>& read) {
  if (list.kind != ConfigNode::Kind::list) {
    problems.add(list.where, "expected a list of rows " + form);
    return;
  }
  for (const ConfigNode& row : list.items) {
    if (row.kind == ConfigNode::Kind::list && row.items.size() == size) {
      read(row.items);
    } else {
      problems.add(row.where, "expected a row " + form);
    }
  }
}

void read_gemm(const ConfigNode& node, GemmModel& gemm, Problems& problems, Completeness completeness) {
  Section section(node, problems, "gpu.gemm", completeness);
  section.latency("launch", gemm.launch);
  section.efficiency("efficiency", gemm.efficiency);
  section.efficiency("memory_efficiency", gemm.memory_efficiency, 1.5);
  section.efficiency("power_limit", gemm.power_limit);
  gemm.tile_m = section.reader().integer("tile_m", 0, 0, 4096);
  gemm.tile_n = section.reader().integer("tile_n", 0, 0, 4096);
  if (const ConfigNode* table = section.reader().find("table")) {
    constexpr std::int64_t max = std::int64_t{1} << 40;
    for_each_row(*table, 4, "[m, n, k, time]", problems, [&](const std::vector<ConfigNode>& row) {
      const auto m = as_integer(row[0], problems, 1, max);
      const auto n = as_integer(row[1], problems, 1, max);
      const auto k = as_integer(row[2], problems, 1, max);
      const auto time = as_seconds(row[3], problems);
      const bool timed = time && within(row[3], "a measured time", *time, ranges::measured, problems);
      if (m && n && k && timed) gemm.table.push_back({*m, *n, *k, *time});
    });
  }
  section.reader().finish();
}

AttentionModel read_attention(const ConfigNode& node, Problems& problems, Completeness completeness) {
  AttentionModel attention;
  Section section(node, problems, "gpu.attention", completeness);
  section.latency("launch", attention.launch);
  attention.half_waves = section.reader().number("half_waves", 0, 0, 1000);
  if (const ConfigNode* table = section.reader().find("table")) {
    for_each_row(*table, 3, "[head_dim, sequence, share of the peak]", problems, [&](const std::vector<ConfigNode>& row) {
      const auto head = as_integer(row[0], problems, 1, 1 << 16);
      const auto sequence = as_integer(row[1], problems, 1, std::int64_t{1} << 40);
      const auto share = as_number(row[2], problems, 1e-6, 2);
      if (head && sequence && share) attention.table.push_back({*head, *sequence, *share});
    });
  }
  section.reader().finish();
  return attention;
}

void read_peaks(const ConfigNode& node, std::map<DType, FlopRate>& peak, Problems& problems) {
  MapReader reader(node, problems, "gpu.peak");
  for (const auto& [name, type] : dtype_names)
    if (reader.has(name)) {
      peak[type] = reader.flop_rate(name, ranges::peak.least);
      within(*reader.find(name), "a peak", peak[type], ranges::peak, problems);
    }
  reader.finish();
}

void read_gpu(const ConfigNode& node, Gpu& gpu, Problems& problems, Completeness completeness) {
  Section section(node, problems, "gpu", completeness);
  section.require("name", gpu.name);
  section.require("capacity", gpu.capacity);
  section.require("memory_bandwidth", gpu.memory_bandwidth);
  section.optional("multiprocessors", gpu.multiprocessors);
  if (const ConfigNode* peaks = section.section("peak")) read_peaks(*peaks, gpu.peak, problems);
  if (const ConfigNode* gemm = section.reader().find("gemm")) read_gemm(*gemm, gpu.gemm, problems, completeness);
  if (const ConfigNode* gemm = section.reader().find("gemm_fp8")) {
    gpu.gemm_fp8 = GemmModel{};
    read_gemm(*gemm, *gpu.gemm_fp8, problems, completeness);
  }
  if (const ConfigNode* attention = section.reader().find("attention")) gpu.attention = read_attention(*attention, problems, completeness);
  section.efficiency("attention_efficiency", gpu.attention_efficiency);
  section.efficiency("attention_backward_efficiency", gpu.attention_backward_efficiency);
  section.efficiency("elementwise_efficiency", gpu.elementwise_efficiency);
  section.efficiency("optimizer_efficiency", gpu.optimizer_efficiency);
  section.latency("kernel_launch", gpu.kernel_launch);
  section.latency("collective_launch", gpu.collective_launch);
  section.latency("device_kernel_gap", gpu.device_kernel_gap);
  gpu.overlap_slowdown = section.reader().number("overlap_slowdown", gpu.overlap_slowdown, 0, 10);
  section.require("host_link", gpu.host_link);
  section.reader().finish();
}

void read_node_shape(const ConfigNode& node, NodeShape& shape, Problems& problems, Completeness completeness) {
  Section section(node, problems, "node", completeness);
  section.require("gpus", shape.gpus);
  section.optional("nvlink_nodes", shape.nvlink_nodes);
  section.require("ring_bandwidth", shape.ring_bandwidth);
  section.latency("intra_latency", shape.intra_latency);
  section.optional("host_memory", shape.host_memory);
  section.optional("host_memory_bandwidth", shape.host_memory_bandwidth);
  shape.host_speed = section.reader().number("host_speed", shape.host_speed, 0.01, 100);
  section.reader().finish();
}

void read_network(const ConfigNode& node, Network& network, Problems& problems, Completeness completeness) {
  Section section(node, problems, "network", completeness);
  section.require("nics_per_node", network.nics_per_node);
  section.require("nic_bandwidth", network.nic_bandwidth);
  section.efficiency("efficiency", network.efficiency);
  section.latency("inter_latency", network.inter_latency);
  section.latency("base_latency", network.base_latency);
  static const std::vector<std::string> all_reduces{"library", "ring", "tree", "nvls", "hierarchical", "auto"};
  network.all_reduce_algorithm = section.reader().choice("all_reduce_algorithm", all_reduces, network.all_reduce_algorithm);
  network.ring_model = section.reader().choice("ring_model", {"alpha_beta", "stepwise"}, network.ring_model);
  section.reader().finish();
}

Spread read_spread(const ConfigNode& node, Problems& problems) {
  Spread spread;
  MapReader reader(node, problems, "spread");
  spread.compute = reader.number("compute", 0, 0, 1);
  spread.collectives = reader.number("collectives", 0, 0, 1);
  reader.finish();
  return spread;
}

void read_overheads(const ConfigNode& node, Overheads& overheads, Problems& problems) {
  Section section(node, problems, "overheads", Completeness::part);
  section.overhead("context", overheads.context);
  section.overhead("nccl_per_communicator", overheads.nccl_per_communicator);
  section.overhead("cublas_workspace", overheads.cublas_workspace);
  section.latency("driver_allocation", overheads.driver_allocation);
  section.reader().finish();
}

/// What a profile does not say of the memory outside the allocator: none of it would be a recommendation to fill the device.
void add_usual_overheads(const ConfigNode* block, Profile& profile) {
  const auto missing = [&](std::string_view key) { return block == nullptr || block->find(key) == nullptr; };
  if (missing("context")) {
    const GpuGeneration& generation = generation_of(profile.gpu.name);
    profile.overheads.context = generation.context;
    profile.origins.try_emplace("overheads.context", generation.origin);
  }
  if (missing("nccl_per_communicator")) {
    profile.overheads.nccl_per_communicator = usual_nccl_communicator;
    profile.origins.try_emplace("overheads.nccl_per_communicator", "default: as on A100 and H100 (aiconfigurator, labelled unofficial)");
  }
}

Storage read_storage(const ConfigNode& node, Problems& problems) {
  Storage storage;
  Section section(node, problems, "storage", Completeness::whole);
  section.require("write_per_node", storage.write_per_node);
  section.require("read_per_node", storage.read_per_node);
  section.reader().finish();
  return storage;
}

CollectiveSegment read_segment(const ConfigNode& node, Problems& problems) {
  CollectiveSegment result;
  Section section(node, problems, "segment", Completeness::whole);
  if (section.reader().has("limit")) result.limit = section.reader().bytes("limit", {});
  if (section.reader().require("alpha")) section.latency("alpha", result.alpha);
  section.algbw("algbw", result.algbw);
  section.reader().finish();
  return result;
}

/// Limits must rise, and only the last segment has none: otherwise some sizes would have no segment or two.
void check_limits(const ConfigNode& list, const std::vector<CollectiveSegment>& segments, Problems& problems) {
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const bool last = i + 1 == segments.size();
    if (segments[i].limit.has_value() == last)
      problems.add(list.items[i].where, last ? "the last segment has no 'limit'" : "'limit' is missing: only the last segment has none");
    if (i > 0 && segments[i].limit && segments[i - 1].limit && *segments[i].limit <= *segments[i - 1].limit)
      problems.add(list.items[i].where, "'limit' must be above that of the segment before");
  }
}

void read_samples(const ConfigNode& list, std::vector<CollectiveFit::Sample>& samples, Problems& problems) {
  for_each_row(list, 5, "[size, min, median, p90, repetitions]", problems, [&](const std::vector<ConfigNode>& row) {
    const auto size = as_bytes(row[0], problems);
    const auto least = as_seconds(row[1], problems);
    const auto median = as_seconds(row[2], problems);
    const auto p90 = as_seconds(row[3], problems);
    const auto repetitions = as_integer(row[4], problems, 1, 1 << 30);
    if (!size || !least || !median || !p90 || !repetitions) return;
    for (const std::size_t i : {1, 2, 3})
      if (!within(row[i], "a measured time", i == 1 ? *least : i == 2 ? *median : *p90, ranges::measured, problems)) return;
    if (!samples.empty() && *size <= samples.back().size) return problems.add(row[0].where, "sizes must rise from row to row");
    samples.push_back({*size, *least, *median, *p90, static_cast<std::int32_t>(*repetitions)});
  });
}

Collective collective_from(const std::string& name) {
  for (Collective c : all_collectives)
    if (name_of(c) == name) return c;
  return Collective::all_reduce;
}

CollectiveFit read_fit(const ConfigNode& node, Problems& problems) {
  CollectiveFit fit;
  MapReader reader(node, problems, "collective");
  std::vector<std::string> names;
  for (Collective c : all_collectives) names.emplace_back(name_of(c));
  if (reader.require("collective")) fit.collective = collective_from(reader.choice("collective", names, names.front()));
  if (reader.require("ranks")) fit.ranks = reader.integer("ranks", 2, 2, 1 << 24);
  fit.nodes = reader.integer("nodes", 1, 1, 1 << 24);
  fit.algorithm = reader.choice("algorithm", algorithms(), fit.algorithm);
  fit.protocol = reader.choice("protocol", {"simple", "ll", "ll128"}, "");
  fit.origin = reader.text("origin", "");
  fit.largest = reader.bytes("largest", {});
  if (const ConfigNode* list = reader.find("segments")) {
    if (list->kind != ConfigNode::Kind::list) problems.add(list->where, "expected a list of segments");
    for (const ConfigNode& item : list->items) fit.segments.push_back(read_segment(item, problems));
    check_limits(*list, fit.segments, problems);
  }
  if (const ConfigNode* list = reader.find("samples")) read_samples(*list, fit.samples, problems);
  constexpr double any = std::numeric_limits<double>::max();
  if (reader.has("leave_one_out_median")) fit.leave_one_out_median = reader.number("leave_one_out_median", 0, 0, any);
  if (reader.has("leave_one_out_p90")) fit.leave_one_out_p90 = reader.number("leave_one_out_p90", 0, 0, any);
  if (fit.segments.empty() && fit.samples.empty()) problems.add(node.where, "a collective needs 'segments' or 'samples'");
  reader.finish();
  return fit;
}

void read_collectives(const ConfigNode& list, std::vector<CollectiveFit>& fits, Problems& problems) {
  if (list.kind != ConfigNode::Kind::list) return problems.add(list.where, "expected a list of collectives");
  for (const ConfigNode& item : list.items) fits.push_back(read_fit(item, problems));
}

void read_origins(const ConfigNode& node, std::map<std::string, std::string>& origins, Problems& problems) {
  if (node.kind != ConfigNode::Kind::map) return problems.add(node.where, "expected a map from keys to origins");
  for (const Entry& entry : node.entries)
    if (const auto text = as_text(entry.value, problems)) origins[entry.key] = *text;
}

}  // namespace

Result<Profile> read_profile(const ConfigNode& root, Completeness completeness) {
  Problems problems;
  Profile profile;
  if (root.where.source) profile.file = root.where.source->name;
  Section section(root, problems, "profile", completeness);
  section.optional("name", profile.name);
  section.optional("description", profile.description);
  if (const ConfigNode* node = section.section("gpu")) read_gpu(*node, profile.gpu, problems, completeness);
  if (const ConfigNode* node = section.section("node")) read_node_shape(*node, profile.node, problems, completeness);
  if (const ConfigNode* node = section.section("network")) read_network(*node, profile.network, problems, completeness);
  MapReader& reader = section.reader();
  if (const ConfigNode* node = reader.find("spread")) profile.spread = read_spread(*node, problems);
  if (const ConfigNode* node = reader.find("overheads")) read_overheads(*node, profile.overheads, problems);
  if (completeness == Completeness::whole) add_usual_overheads(reader.find("overheads"), profile);
  if (const ConfigNode* node = reader.find("topology")) profile.topology = read_topology_block(*node, problems);
  if (const ConfigNode* node = reader.find("storage")) profile.storage = read_storage(*node, problems);
  if (reader.has("price_per_gpu_hour")) profile.price_per_gpu_hour = reader.number("price_per_gpu_hour", 0, 0, 1e6);
  if (const ConfigNode* node = reader.find("collectives")) read_collectives(*node, profile.collectives, problems);
  if (const ConfigNode* node = reader.find("origins")) read_origins(*node, profile.origins, problems);
  reader.finish();
  if (!problems.empty()) return tl::unexpected(problems);
  return profile;
}

std::string origin_of(const Profile& profile, std::string_view key) {
  while (true) {
    if (const auto found = profile.origins.find(std::string(key)); found != profile.origins.end()) return found->second;
    const auto dot = key.rfind('.');
    if (dot == std::string_view::npos) return {};
    key = key.substr(0, dot);
  }
}

}  // namespace shardsim
