// SPDX-License-Identifier: Apache-2.0
// Writing a cluster profile as YAML. Every number reads back to the last bit: a unit is used only if it gives the value back exactly.
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "sim/base/units_text.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {
namespace {

/// The shortest decimal that reads back as the same double; never in another locale.
std::string shortest(double value) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

struct PrintedUnit {
  const char* name;
  double factor;
};

/// As few digits as read back as the same value, in the first unit in which that takes no more than people write: 84.8 ms, not
/// 84.79999999999999 ms. A value that comes from arithmetic may need them all.
template <class Q, class Parse, std::size_t N>
std::string exact(Q quantity, const std::array<PrintedUnit, N>& units, Parse parse) {
  constexpr int most_digits = 12;
  const double value = quantity.base();
  for (const PrintedUnit& unit : units) {
    if (value < unit.factor) continue;
    for (int digits = 1; digits <= most_digits; ++digits) {
      const std::string text =
          shortest(std::strtod(fmt::format("{:.{}g}", value / unit.factor, digits).c_str(), nullptr)) + " " + unit.name;
      const auto back = parse(text);
      if (back.value && *back.value == quantity) return text;
    }
  }
  return shortest(value) + " " + units.back().name;
}

std::string exact(ByteRate rate) {
  static constexpr std::array<PrintedUnit, 4> units{{{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"B/s", 1}}};
  return exact(rate, units, parse_byte_rate);
}

/// A NIC's rate, as data sheets give it.
std::string exact_bits(ByteRate rate) {
  static constexpr std::array<PrintedUnit, 2> units{{{"Gbit/s", 1e9 / 8}, {"B/s", 1}}};
  return exact(rate, units, parse_byte_rate);
}

std::string exact(FlopRate rate) {
  static constexpr std::array<PrintedUnit, 3> units{{{"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"FLOP/s", 1}}};
  return exact(rate, units, parse_flop_rate);
}

std::string exact(Seconds time) {
  static constexpr std::array<PrintedUnit, 4> units{{{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"s", 1}}};
  return exact(time, units, parse_seconds);
}

std::string exact(Bytes bytes) {
  static constexpr std::array<std::pair<const char*, std::int64_t>, 4> units{
      {{"TiB", std::int64_t{1} << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}};
  for (const auto& [name, factor] : units)
    if (bytes.value() >= factor && bytes.value() % factor == 0) return fmt::format("{} {}", bytes.value() / factor, name);
  for (const auto& [name, factor] : units)
    if (bytes.value() >= factor) {
      const std::string text = fmt::format("{:.2f} {}", static_cast<double>(bytes.value()) / static_cast<double>(factor), name);
      if (parse_bytes(text).value == bytes) return text;
    }
  return fmt::format("{} B", bytes.value());
}

/// Text in double quotes, escaped: any origin reads back as it was.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

/// Lines of one map at one indent. A quantity of zero is left out where `required` says that zero means "not known".
class Writer {
 public:
  Writer(std::string& out, int indent) : out_(out), indent_(indent) {}
  void line(std::string_view text) { out_ += fmt::format("{:{}}{}\n", "", indent_, text); }
  void value(std::string_view key, const std::string& text) { line(fmt::format("{}: {}", key, text)); }
  void text(std::string_view key, const std::string& text) {
    if (!text.empty()) value(key, quoted(text));
  }
  void number(std::string_view key, double v) { value(key, shortest(v)); }
  void integer(std::string_view key, std::int64_t v) { value(key, std::to_string(v)); }
  template <class Q>
  void amount(std::string_view key, Q v) {
    value(key, exact(v));
  }
  template <class Q>
  void known(std::string_view key, Q v) {
    if (v > Q{}) amount(key, v);
  }

 private:
  std::string& out_;
  int indent_;
};

void write_gemm(std::string& out, const GemmModel& gemm) {
  Writer w(out, 4);
  w.amount("launch", gemm.launch);
  w.number("efficiency", gemm.efficiency);
  w.number("memory_efficiency", gemm.memory_efficiency);
  w.number("power_limit", gemm.power_limit);
  if (gemm.tile_m > 0) w.integer("tile_m", gemm.tile_m);
  if (gemm.tile_n > 0) w.integer("tile_n", gemm.tile_n);
  if (gemm.table.empty()) return;
  w.line("table:  # [m, n, k, time]");
  for (const auto& p : gemm.table) w.line(fmt::format("  - [{}, {}, {}, {}]", p.m, p.n, p.k, exact(p.time)));
}

void write_attention(std::string& out, const AttentionModel& attention) {
  if (attention.table.empty()) return;
  Writer(out, 2).line("attention:");
  Writer w(out, 4);
  w.amount("launch", attention.launch);
  w.number("half_waves", attention.half_waves);
  w.line("table:  # [head_dim, sequence, share of the peak]");
  for (const auto& p : attention.table) w.line(fmt::format("  - [{}, {}, {}]", p.head_dim, p.sequence, shortest(p.share)));
}

void write_gpu(std::string& out, const Gpu& gpu) {
  out += "gpu:\n";
  Writer w(out, 2);
  w.text("name", gpu.name);
  w.known("capacity", gpu.capacity);
  w.known("memory_bandwidth", gpu.memory_bandwidth);
  w.integer("multiprocessors", gpu.multiprocessors);
  if (!gpu.peak.empty()) {
    w.line("peak:");
    for (const auto& [type, rate] : gpu.peak) w.line(fmt::format("  {}: {}", name_of(type), exact(rate)));
  }
  w.line("gemm:");
  write_gemm(out, gpu.gemm);
  if (gpu.gemm_fp8) {
    w.line("gemm_fp8:");
    write_gemm(out, *gpu.gemm_fp8);
  }
  write_attention(out, gpu.attention);
  w.number("attention_efficiency", gpu.attention_efficiency);
  w.number("attention_backward_efficiency", gpu.attention_backward_efficiency);
  w.number("elementwise_efficiency", gpu.elementwise_efficiency);
  w.number("optimizer_efficiency", gpu.optimizer_efficiency);
  w.amount("kernel_launch", gpu.kernel_launch);
  w.amount("collective_launch", gpu.collective_launch);
  w.amount("device_kernel_gap", gpu.device_kernel_gap);
  w.number("overlap_slowdown", gpu.overlap_slowdown);
  w.known("host_link", gpu.host_link);
}

void write_machine(std::string& out, const Profile& profile) {
  Writer w(out, 2);
  out += "node:\n";
  w.integer("gpus", profile.node.gpus);
  if (profile.node.nvlink_nodes > 1) w.integer("nvlink_nodes", profile.node.nvlink_nodes);
  w.known("ring_bandwidth", profile.node.ring_bandwidth);
  w.amount("intra_latency", profile.node.intra_latency);
  w.known("host_memory", profile.node.host_memory);
  w.known("host_memory_bandwidth", profile.node.host_memory_bandwidth);
  w.number("host_speed", profile.node.host_speed);
  out += "network:\n";
  w.integer("nics_per_node", profile.network.nics_per_node);
  if (profile.network.nic_bandwidth > ByteRate{}) w.value("nic_bandwidth", exact_bits(profile.network.nic_bandwidth));
  w.number("efficiency", profile.network.efficiency);
  w.amount("inter_latency", profile.network.inter_latency);
  w.amount("base_latency", profile.network.base_latency);
  const Network usual;
  const Network& network = profile.network;
  if (network.all_reduce_algorithm != usual.all_reduce_algorithm) w.value("all_reduce_algorithm", network.all_reduce_algorithm);
  if (network.ring_model != usual.ring_model) w.value("ring_model", network.ring_model);
  out += "spread:\n";
  w.number("compute", profile.spread.compute);
  w.number("collectives", profile.spread.collectives);
  out += "overheads:\n";
  w.amount("context", profile.overheads.context);
  w.amount("nccl_per_communicator", profile.overheads.nccl_per_communicator);
  w.amount("cublas_workspace", profile.overheads.cublas_workspace);
  w.amount("driver_allocation", profile.overheads.driver_allocation);
  if (profile.storage) {
    out += "storage:\n";
    w.amount("write_per_node", profile.storage->write_per_node);
    w.amount("read_per_node", profile.storage->read_per_node);
  }
}

void write_links(std::string& out, std::string_view key, const std::vector<TopologyLinks>& links) {
  if (links.empty()) return;
  Writer(out, 2).line(fmt::format("{}:", key));
  for (const TopologyLinks& l : links) {
    const char* wiring = l.wiring == Wiring::all ? "" : l.wiring == Wiring::blocks ? ", wiring: blocks" : ", wiring: modulo";
    const std::string ends = fmt::format("from: {}, to: {}", quoted(l.from), quoted(l.to));
    Writer(out, 4).line(fmt::format("- {{{}, bandwidth: {}, latency: {}{}}}", ends, exact(l.bandwidth), exact(l.latency), wiring));
  }
}

void write_topology(std::string& out, const Topology& topology) {
  out += "topology:\n";
  Writer w(out, 2);
  if (topology.nodes_per_leaf > 0) w.integer("nodes_per_leaf", topology.nodes_per_leaf);
  if (topology.rails) w.value("rails", "true");
  if (topology.nodes_per_leaf > 0 || topology.rails) {
    w.number("oversubscription", topology.oversubscription);
    w.integer("spines", topology.spines);
    w.amount("spine_latency", topology.spine_latency);
  }
  w.value("placement", topology.scattered ? "scattered" : "packed");
  write_links(out, "node_links", topology.node_links);
  write_links(out, "links", topology.links);
}

void write_fit(std::string& out, const CollectiveFit& fit) {
  out += fmt::format("  - collective: {}\n", name_of(fit.collective));
  Writer w(out, 4);
  w.integer("ranks", fit.ranks);
  w.integer("nodes", fit.nodes);
  w.value("algorithm", fit.algorithm);
  if (!fit.protocol.empty()) w.value("protocol", fit.protocol);
  w.text("origin", fit.origin);
  if (fit.largest > Bytes{}) w.amount("largest", fit.largest);
  if (fit.leave_one_out_median) w.number("leave_one_out_median", *fit.leave_one_out_median);
  if (fit.leave_one_out_p90) w.number("leave_one_out_p90", *fit.leave_one_out_p90);
  if (!fit.segments.empty()) w.line("segments:");
  for (const CollectiveSegment& s : fit.segments) {
    const std::string limit = s.limit ? fmt::format("limit: {}, ", exact(*s.limit)) : "";
    w.line(fmt::format("  - {{{}alpha: {}, algbw: {}}}", limit, exact(s.alpha), exact(s.algbw)));
  }
  if (!fit.samples.empty()) w.line("samples:  # [size, min, median, p90, repetitions]");
  for (const auto& s : fit.samples)
    w.line(fmt::format("  - [{}, {}, {}, {}, {}]", exact(s.size), exact(s.min), exact(s.median), exact(s.p90), s.repetitions));
}

/// Of a part, sections that nothing is known of are left out: their defaults would look like facts.
bool describes_gpu(const Profile& p) { return !p.gpu.name.empty() || p.gpu.capacity > Bytes{}; }
bool describes_machine(const Profile& p) { return describes_gpu(p) || p.node.ring_bandwidth > ByteRate{}; }

}  // namespace

std::string to_yaml(const Profile& profile) {
  std::string out;
  Writer w(out, 0);
  w.text("name", profile.name);
  w.text("description", profile.description);
  if (describes_gpu(profile)) write_gpu(out, profile.gpu);
  if (describes_machine(profile)) write_machine(out, profile);
  if (profile.topology) write_topology(out, *profile.topology);
  if (profile.price_per_gpu_hour) w.number("price_per_gpu_hour", *profile.price_per_gpu_hour);
  if (!profile.collectives.empty()) w.line("collectives:");
  for (const CollectiveFit& fit : profile.collectives) write_fit(out, fit);
  if (!profile.origins.empty()) w.line("origins:");
  for (const auto& [key, origin] : profile.origins) w.line(fmt::format("  {}: {}", key, quoted(origin)));
  return out;
}

}  // namespace shardsim
