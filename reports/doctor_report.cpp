// SPDX-License-Identifier: Apache-2.0
// What `doctor` found, as text.
#include "reports/doctor_report.hpp"

#include <fmt/format.h>

#include "reports/text.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

std::string fact_line(const std::string& what, const std::string& found) { return beside("  " + what, found, 14) + "\n"; }

std::string found_gpus(const MachineFacts& facts) {
  if (facts.gpus.empty()) return fact_line("GPUs", "none that nvidia-smi knows of");
  const FoundGpu& gpu = facts.gpus.front();
  return fact_line("GPUs", fmt::format("{} x {}, {}, driver {}, PCIe Gen{} x{}", facts.gpus.size(), gpu.name, to_text(gpu.memory),
                                       gpu.driver, gpu.pcie_generation, gpu.pcie_lanes));
}

std::string nics_text(const MachineFacts& facts) {
  std::string found;
  for (const FoundNic& nic : facts.nics)
    found += fmt::format("{}{} ({}, {:.0f} Gbit/s)", found.empty() ? "" : ", ", nic.name, nic.kind, nic.rate.base() * 8e-9);
  return fact_line("NICs", found.empty() ? "none that says its speed" : found);
}

std::string libraries_text(const MachineFacts& facts) {
  std::string found;
  for (const FoundLibrary& library : facts.libraries)
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", library.name, library.version);
  return fact_line("Libraries", found.empty() ? "python3 knows none of torch, deepspeed, accelerate, transformers, megatron-core" : found);
}

std::string next_steps(const MachineFacts& facts, const std::string& base) {
  std::string out = "\nWhat to measure next\n";
  const auto step = [&](const std::string& what, const std::string& command) {
    out += "  - " + wrapped(what + ": " + command, 4, 4) + "\n";
  };
  if (facts.gpus.empty()) {
    step("this machine's cores, for execute and for CI", "shardsim calibrate local -o local.yaml");
    step("a machine with GPUs", "run shardsim doctor -o mine.yaml there");
    return out;
  }
  const std::string from = base.empty() ? "clusters/h100-sxm.yaml" : "mine.yaml";
  if (!base.empty()) step("a profile of what stands above", "shardsim doctor -o mine.yaml");
  step("products, memory, launches of one GPU", fmt::format("shardsim calibrate cuda --base {} -o mine-gpu.yaml", from));
  if (facts.gpus.size() > 1)
    step("collectives between the GPUs",
         fmt::format("shardsim calibrate nccl --groups 2,{} --base {} -o mine-nccl.yaml", facts.gpus.size(), from));
  step("collectives between nodes",
       "run nccl-tests on two nodes and shardsim calibrate import nccl-tests LOGS --base mine.yaml -o mine-net.yaml");
  if (!facts.topology.empty())
    step("how the node is wired",
         "nvidia-smi topo -m > topo.txt; shardsim calibrate import topo topo.txt --base mine.yaml -o mine-topo.yaml");
  return out;
}

}  // namespace

std::string doctor_text(const MachineFacts& facts, const std::string& base, const std::string& written) {
  std::string out = "This machine\n";
  out += fact_line("Processor", fmt::format("{}, {} cores", facts.processor.empty() ? "unknown" : facts.processor, facts.cores));
  out += fact_line("Memory", to_text(facts.memory));
  out += found_gpus(facts) + nics_text(facts) + libraries_text(facts);
  out += fact_line("Profile", base.empty() ? (facts.gpus.empty() ? "none: there is no GPU" : "none of the shipped profiles is of this GPU")
                                           : base + ", the nearest shipped one");
  if (!written.empty() && !base.empty()) out += fact_line("Written", written);
  return out + next_steps(facts, base);
}

}  // namespace shardsim
