// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/local_machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "calibrate/fit/gemm_fit.hpp"
#include "calibrate/measure/local_kernels.hpp"
#include "sim/schedule/work.hpp"

namespace shardsim {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with("model name")) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

Bytes physical_memory() { return Bytes{static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE)}; }

ByteRate memory_bandwidth(Seconds budget, SampleJournal& journal) {
  if (const auto known = journal.earlier("memory"); !known.empty()) {
    double rate = 0;
    std::from_chars(known.front().data(), known.front().data() + known.front().size(), rate);
    if (rate > 0) return ByteRate{rate};
  }
  const ByteRate measured = local_memory_bandwidth(budget);
  journal.add(fmt::format("memory {}", measured.base()));
  return measured;
}

GemmPoints products(Seconds budget, SampleJournal& journal) {
  GemmPoints known;
  for (const std::string& line : journal.earlier("product")) {
    std::istringstream in(line);
    in.imbue(std::locale::classic());
    std::int64_t m = 0, n = 0, k = 0;
    double seconds = 0;
    if (in >> m >> n >> k >> seconds) known.push_back({m, n, k, Seconds{seconds}});
  }
  return local_products(budget, known,
                        [&](const GemmModel::Point& p) { journal.add(fmt::format("product {} {} {} {}", p.m, p.n, p.k, p.time.base())); });
}

}  // namespace

std::string journal_job(const std::string& command, int ranks, Seconds budget) {
  return fmt::format("{}, {} ranks, {} s, {}", command, ranks, budget.base(), processor_name());
}

Profile describe_machine(const std::string& command, int cores) {
  const std::string processor = processor_name();
  Profile profile;
  profile.name = command.substr(command.find(' ') + 1);
  profile.description = fmt::format("measured by {}: {}, each core a rank of one node", command, processor);
  profile.gpu.name = "one core of " + processor;
  profile.gpu.capacity = physical_memory() / static_cast<std::int64_t>(cores);
  profile.gpu.multiprocessors = 1;
  profile.node.gpus = cores;
  profile.node.host_memory = physical_memory();
  profile.network.nics_per_node = 1;
  // Host and device are one: issuing a kernel is a function call, and nothing runs beside it.
  profile.gpu.kernel_launch = profile.gpu.collective_launch = profile.gpu.device_kernel_gap = Seconds{};
  profile.gpu.overlap_slowdown = 0;
  profile.origins = {{"gpu", "measured: " + command + ", one core"},
                     {"gpu.attention_efficiency", "derived: as the matrix products"},
                     {"gpu.attention_backward_efficiency", "derived: as the matrix products"},
                     {"gpu.capacity", "this machine's memory divided by its cores"},
                     {"gpu.overlap_slowdown", "assumed: a core computes or communicates"},
                     {"node", "measured: " + command},
                     {"network", "assumed: one node; the loop-back ring stands in for a NIC"},
                     {"overheads", "assumed: none"}};
  return profile;
}

void measure_core(Profile& profile, Seconds budget, double from, SampleJournal& journal, const Progress& progress) {
  Gpu& gpu = profile.gpu;
  progress(from, "memory bandwidth");
  gpu.memory_bandwidth = memory_bandwidth(budget * 0.2, journal);
  gpu.host_link = gpu.memory_bandwidth;
  gpu.elementwise_efficiency = 1;
  profile.node.host_memory_bandwidth = gpu.memory_bandwidth * static_cast<double>(profile.node.gpus);
  progress(from + (1 - from) / 4, "matrix products");
  const GemmPoints points = products(budget * 0.8, journal);
  FlopRate peak;
  for (const auto& p : points) peak = std::max(peak, MatrixProduct{p.m, p.n, p.k, 1}.flops() / p.time);
  // A core has no published peak: the best rate seen stands for it. Half formats are computed in fp32.
  for (const DType type : {DType::fp32, DType::bf16, DType::fp16}) gpu.peak[type] = peak;
  gpu.gemm = fit_gemm(gpu, points, DType::fp32);
  gpu.gemm.table = points;
  gpu.attention_efficiency = gpu.attention_backward_efficiency = gpu.gemm.efficiency;
}

}  // namespace shardsim
