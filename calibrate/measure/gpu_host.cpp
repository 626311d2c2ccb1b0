// SPDX-License-Identifier: Apache-2.0
// The host's side of the GPU microbenchmarks: what is measured, and where it goes in the profile.
#ifdef SHARDSIM_GPU

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "calibrate/fit/gemm_fit.hpp"
#include "calibrate/fit/statistics.hpp"
#include "calibrate/gpu/check.hpp"
#include "calibrate/gpu/gpu_device.hpp"
#include "calibrate/import/collective_samples.hpp"
#include "calibrate/measure/gpu.hpp"
#include "calibrate/measure/nccl_rounds.hpp"
#include "calibrate/measure/sample_journal.hpp"
#include "calibrate/ranks/launch.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

/// Products of transformer layers (projections of hidden sizes 2048 to 8192, forward) and a spread of others, some off the tile sizes.
std::vector<std::array<int, 3>> shapes() {
  std::vector<std::array<int, 3>> all;
  for (const int tokens : {1024, 4096, 16384})
    for (const int hidden : {2048, 4096, 8192})
      for (const auto& [n, k] : {std::pair{hidden, hidden}, {3 * hidden, hidden}, {4 * hidden, hidden}, {hidden, 4 * hidden}})
        all.push_back({tokens, n, k});
  for (const int m : {1, 16, 128, 1000, 3000})
    for (const int n : {256, 1000, 4096})
      for (const int k : {256, 4096}) all.push_back({m, n, k});
  return all;
}

template <class Measure>
auto measured(const char* command, const Measure& measure) {
  try {
    return measure();
  } catch (const gpu::Failure& failure) { throw EnvironmentError(fmt::format("calibrate {}: {}", command, failure.what())); }
}

/// Launches, memory-bound kernels and the host's link. The share of HBM that kernels reach is the median of the four kinds.
void measure_memory(Profile& base, const std::string& device) {
  Gpu& gpu = base.gpu;
  const gpu::LaunchCost launch = gpu::launch_cost();
  gpu.device_kernel_gap = Seconds{launch.device_gap};
  base.origins["gpu.device_kernel_gap"] = fmt::format(
      "measured: calibrate cuda on {}; the host issues a kernel in {:.2f} us without a framework", device, 1e6 * launch.host_issue);
  constexpr std::size_t bytes = std::size_t{1} << 30;
  const double copy = gpu::copy_bytes_per_second(bytes);
  const gpu::KernelRates rates = gpu::kernel_rates(bytes);
  const double peak = gpu.memory_bandwidth.base();
  gpu.elementwise_efficiency = median({copy / peak, rates.add / peak, rates.norm / peak, rates.adamw / peak});
  base.origins["gpu.elementwise_efficiency"] =
      fmt::format("measured: calibrate cuda on {}; TB/s read and written: copy {:.3f}, add {:.3f}, norm {:.3f}, fused AdamW {:.3f}", device,
                  1e-12 * copy, 1e-12 * rates.add, 1e-12 * rates.norm, 1e-12 * rates.adamw);
  const gpu::HostLink link = gpu::host_link(std::size_t{256} << 20);
  gpu.host_link = ByteRate{std::min(link.up, link.down)};
  base.origins["gpu.host_link"] =
      fmt::format("measured: calibrate cuda on {}; GB/s to the device {:.1f}, back {:.1f}", device, 1e-9 * link.up, 1e-9 * link.down);
}

/// What attention in pieces reaches, on the half of the products that the mask leaves: a floor under any fused kernel.
void note_attention(Profile& base, const std::string& device) {
  constexpr int maps = 64, tokens = 4096, head_dim = 128;
  const double seconds = gpu::attention_seconds(maps, tokens, head_dim);
  const double flops = 2.0 * maps * static_cast<double>(tokens) * tokens * head_dim;  // 4 s^2 d for each map, half of it masked
  const auto found = base.gpu.peak.find(DType::bf16);
  const double share = found == base.gpu.peak.end() ? 0 : flops / seconds / found->second.base();
  std::string& origin = base.origins["gpu.attention_efficiency"];
  origin += fmt::format("{}calibrate cuda on {}: attention in pieces (products and softmax, {} tokens) reaches {:.3f}, a fused kernel more",
                        origin.empty() ? "of the base; " : "; ", device, tokens, share);
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Times every group between the GPUs of this process.
void time_here(const NcclRounds& plan, const NcclOptions& options, int devices, CollectiveSamples& samples, const Progress& progress) {
  const std::string origin = "measured: calibrate nccl, NCCL " + gpu::nccl_version() + ", one process";
  SampleJournal journal(options.journal, fmt::format("nccl {}, {} x {}", gpu::nccl_version(), devices, gpu::describe_device().name));
  const NcclRecord record{measurements_in(journal.earlier()), [&](const std::string& line) { journal.add(line); }};
  for (const int ranks : group_sizes(options.groups, devices)) {
    const auto timer = gpu::time_devices(ranks, plan.largest.value());
    measure_rounds(plan, {timer.get(), ranks, 1, nullptr, origin}, record, samples, progress);
  }
}

/// Times every group between launched ranks. Rank 0 makes the groups' ids and keeps the journal; who is not in a group waits for the others
/// at each sample.
void time_together(const NcclRounds& plan, const NcclOptions& options, const Launch& launch, CollectiveSamples& samples,
                   const Progress& progress) {
  const std::unique_ptr<execute::Line> line = meet(launch, meeting_point(launch, process_environment()));
  const std::vector<std::string> hosts = line->gather(host_name());
  const std::string origin = "measured: calibrate nccl, NCCL " + gpu::nccl_version() + ", a process for each GPU, " + launch.launcher;
  const bool first = launch.rank == 0;
  const std::string job = fmt::format("nccl {}, {} ranks on {} hosts, {}", gpu::nccl_version(), launch.ranks, nodes_of(hosts, launch.ranks),
                                      gpu::describe_device().name);
  SampleJournal journal(first ? options.journal : std::string(), job);
  NcclRecord record;
  record.earlier = measurements_in(execute::unpack(line->gather(execute::pack(journal.earlier())).front()));
  if (first) record.keep = [&](const std::string& text) { journal.add(text); };
  for (const int ranks : group_sizes(options.groups, launch.ranks)) {
    const std::string id = line->gather(first ? gpu::make_unique_id() : std::string()).front();
    std::unique_ptr<gpu::CollectiveTimer> timer;
    if (launch.rank < ranks) timer = gpu::time_rank(launch.local_rank % gpu::device_count(), id, launch.rank, ranks, plan.largest.value());
    measure_rounds(
        plan, {timer.get(), ranks, nodes_of(hosts, ranks), line.get(), origin}, record, samples,
        first ? progress : [](double, const std::string&) {});
  }
}

/// Products, those of an interrupted run first.
GemmPoints time_products(const std::string& device, const std::string& journal_file, const Progress& progress) {
  SampleJournal journal(journal_file, "cuda, " + device);
  std::map<std::array<int, 3>, double> earlier;
  for (const std::string& line : journal.earlier("product")) {
    int m = 0, n = 0, k = 0;
    double seconds = 0;
    if (std::sscanf(line.c_str(), "%d %d %d %lf", &m, &n, &k, &seconds) == 4) earlier[{m, n, k}] = seconds;
  }
  GemmPoints points;
  const auto all = shapes();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto [m, n, k] = all[i];
    progress(0.1 + 0.9 * static_cast<double>(i) / static_cast<double>(all.size()), fmt::format("product {} x {} x {}", m, n, k));
    const auto found = earlier.find(all[i]);
    const double seconds = found != earlier.end() ? found->second : gpu::product_seconds(m, n, k);
    if (found == earlier.end()) journal.add(fmt::format("product {} {} {} {:.17g}", m, n, k, seconds));
    points.push_back({m, n, k, Seconds{seconds}});
  }
  return points;
}

}  // namespace

Profile calibrate_cuda(Profile base, const std::string& journal, const Progress& progress) {
  if (gpu::device_count() == 0) throw EnvironmentError("calibrate cuda: no CUDA GPU found on this machine");
  return measured("cuda", [&] {
    Gpu& gpu = base.gpu;
    const gpu::Device device = gpu::describe_device();
    gpu.name = device.name;
    gpu.capacity = Bytes{device.memory};
    gpu.multiprocessors = device.multiprocessors;
    if (gpu.peak.empty())
      throw EnvironmentError("calibrate cuda: --base is missing: the peak of this GPU is taken from a profile, not measured");
    progress(0, "launches and copies");
    measure_memory(base, device.name);
    progress(0.05, "attention");
    note_attention(base, device.name);
    if (const int devices = gpu::device_count(); devices > 1) {
      progress(0.08, "products beside a collective");
      gpu.overlap_slowdown = std::max(0.0, gpu::overlap_slowdown(devices));
      base.origins["gpu.overlap_slowdown"] =
          fmt::format("measured: calibrate cuda, products of 4096 beside all-reduces of {} GPUs", devices);
    }
    const GemmPoints points = time_products(device.name, journal, progress);
    gpu.gemm = fit_gemm(gpu, points);
    gpu.gemm.table = points;
    for (const char* key : {"gpu.name", "gpu.capacity", "gpu.multiprocessors", "gpu.gemm"})
      base.origins[key] = "measured: calibrate cuda on " + device.name;
    progress(1, "done");
    return base;
  });
}

std::optional<Profile> calibrate_nccl(Profile base, const NcclOptions& options, const Progress& progress) {
  const int devices = gpu::device_count();
  const std::optional<Launch> launch = launch_of(process_environment());
  const bool together = launch && launch->ranks > 1;
  if (devices == 0) throw EnvironmentError("calibrate nccl: no CUDA GPU found on this machine");
  if (!together && devices < 2)
    throw EnvironmentError(
        "calibrate nccl: 1 GPU found on this machine, two are needed; on several machines start a rank for each GPU with torchrun, mpirun "
        "or srun");
  return measured("nccl", [&]() -> std::optional<Profile> {
    const NcclRounds plan;
    CollectiveSamples samples;
    if (together)
      time_together(plan, options, *launch, samples, progress);
    else
      time_here(plan, options, devices, samples, progress);
    if (together && launch->rank != 0) return std::nullopt;
    progress(1, "done");
    return with_fits(std::move(base), samples.fits());
  });
}

}  // namespace shardsim

#endif
