// SPDX-License-Identifier: Apache-2.0
#include "calibrate/local.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "calibrate/collective_samples.hpp"
#include "calibrate/execute/collectives.hpp"
#include "calibrate/execute/ranks.hpp"
#include "calibrate/gemm_fit.hpp"
#include "calibrate/local_kernels.hpp"

namespace shardsim {
namespace {

using Clock = std::chrono::steady_clock;

Seconds since(Clock::time_point begin) { return Seconds{std::chrono::duration<double>(Clock::now() - begin).count()}; }

constexpr std::array ring_kinds{Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter};

std::vector<Bytes> ring_sizes() {
  std::vector<Bytes> sizes;
  for (int e = 10; e <= 22; ++e)
    for (const std::int64_t half : {2, 3})
      if (const Bytes size{(std::int64_t{1} << (e - 1)) * half}; size <= mebibytes(4)) sizes.push_back(size);
  return sizes;
}

/// One line "KIND SIZE SECONDS" for each measurement, rank 0's clock. Sizes are interleaved, so that a busy moment of the machine hits
/// all of them; rank 0 decides when the time is up, and tells it through the barrier.
std::string ring_rank(int rank, int ranks, Seconds budget, execute::Line& line) {
  execute::Mesh mesh(rank, ranks, [&](const std::vector<int>& ports) { return line.meet(ports); });
  execute::RingCollectives ring(mesh);
  const execute::Members members = execute::members_of(Group{"world", ranks, 1}, rank);
  const std::vector<Bytes> sizes = ring_sizes();
  std::vector<std::byte> buffer(static_cast<std::size_t>(sizes.back().value()));
  std::string out;
  const auto begin = Clock::now();
  for (int round = 0;; ++round) {
    // At least one warm-up and one counted round, whatever the machine.
    if (line.gather(rank == 0 && round > 1 && since(begin) > budget ? "stop" : "go")[0] == "stop") return out;
    for (const Bytes size : sizes)
      for (const Collective kind : ring_kinds) {
        line.barrier();
        const auto start = Clock::now();
        ring.run(members, {.kind = kind, .full = std::span(buffer).first(static_cast<std::size_t>(size.value()))});
        if (rank == 0 && round > 0) out += fmt::format("{} {} {}\n", static_cast<int>(kind), size.value(), since(start).base());
      }
  }
}

void add_measurements(const std::string& lines, int ranks, CollectiveSamples& samples) {
  std::istringstream in(lines);
  in.imbue(std::locale::classic());
  int kind = 0;
  std::int64_t size = 0;
  double seconds = 0;
  while (in >> kind >> size >> seconds) {
    const CollectiveSamples::Group group{.collective = static_cast<Collective>(kind), .ranks = ranks, .nodes = 1, .algorithm = "ring", .protocol = ""};
    samples.add(group, Bytes{size}, Seconds{seconds});
    samples.note_origin(group, "measured: calibrate local, TCP ring between processes over the loop-back device");
  }
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

Bytes physical_memory() { return Bytes{static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE)}; }

/// Bandwidth at the largest size, and latency of a step from the smallest: what the closed form uses for group sizes not measured.
void derive_ring(Profile& profile) {
  for (const CollectiveFit& fit : profile.collectives) {
    const auto& large = fit.samples.back();
    const ByteRate busbw = large.size / large.median * bus_factor(fit.collective, fit.ranks);
    profile.node.ring_bandwidth = std::max(profile.node.ring_bandwidth, busbw);
    const Seconds step = fit.samples.front().median / static_cast<double>(ring_steps(fit.collective, fit.ranks));
    if (profile.node.intra_latency == Seconds{} || step < profile.node.intra_latency) profile.node.intra_latency = step;
  }
}

void describe(Profile& profile, int cores) {
  const std::string processor = processor_name();
  profile.name = "local";
  profile.description = fmt::format("measured by calibrate local: {}, each core a rank of one node", processor);
  profile.gpu.name = "one core of " + processor;
  profile.gpu.capacity = physical_memory() / static_cast<std::int64_t>(cores);
  profile.gpu.multiprocessors = 1;
  profile.node.gpus = cores;
  profile.node.host_memory = physical_memory();
  profile.network.nics_per_node = 1;
  // Host and device are one: issuing a kernel is a function call, and nothing runs beside it.
  profile.gpu.kernel_launch = profile.gpu.collective_launch = profile.gpu.device_kernel_gap = Seconds{};
  profile.gpu.overlap_slowdown = 0;
  profile.origins = {{"gpu", "measured: calibrate local, one core"},
                     {"gpu.attention_efficiency", "derived: as the matrix products"},
                     {"gpu.attention_backward_efficiency", "derived: as the matrix products"},
                     {"gpu.capacity", "this machine's memory divided by its cores"},
                     {"gpu.overlap_slowdown", "assumed: a core computes or communicates"},
                     {"node", "measured: calibrate local"},
                     {"network", "assumed: one node; the loop-back ring stands in for a NIC"},
                     {"overheads", "assumed: none"}};
}

void measure_kernels(Profile& profile, Seconds budget, const Progress& progress) {
  Gpu& gpu = profile.gpu;
  progress(0.6, "memory bandwidth");
  gpu.memory_bandwidth = local_memory_bandwidth(budget * 0.2);
  gpu.host_link = gpu.memory_bandwidth;
  gpu.elementwise_efficiency = 1;
  profile.node.host_memory_bandwidth = gpu.memory_bandwidth * static_cast<double>(profile.node.gpus);
  progress(0.7, "matrix products");
  const GemmPoints points = local_products(budget * 0.8);
  FlopRate peak;
  for (const auto& p : points) peak = std::max(peak, MatrixProduct{p.m, p.n, p.k, 1}.flops() / p.time);
  // A core has no published peak: the best rate seen stands for it. Half formats are computed in fp32.
  for (const DType type : {DType::fp32, DType::bf16, DType::fp16}) gpu.peak[type] = peak;
  gpu.gemm = fit_gemm(gpu, points, DType::fp32);
  gpu.gemm.table = points;
  gpu.attention_efficiency = gpu.attention_backward_efficiency = gpu.gemm.efficiency;
}

}  // namespace

Profile calibrate_local(const LocalOptions& options, const Progress& progress) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int ranks = options.ranks > 0 ? options.ranks : std::clamp(cores, 2, 8);
  Profile profile;
  describe(profile, std::max(cores, ranks));
  progress(0, fmt::format("ring between {} processes", ranks));
  const Seconds ring_budget = options.budget * 0.5;
  const auto lines = execute::run_ranks(ranks, [&](int rank, execute::Line& line) { return ring_rank(rank, ranks, ring_budget, line); });
  CollectiveSamples samples;
  add_measurements(lines[0], ranks, samples);
  profile.collectives = samples.fits();
  derive_ring(profile);
  profile.network.nic_bandwidth = profile.node.ring_bandwidth;
  profile.network.inter_latency = profile.node.intra_latency;
  measure_kernels(profile, options.budget * 0.35, progress);
  progress(1, "done");
  return profile;
}

}  // namespace shardsim
