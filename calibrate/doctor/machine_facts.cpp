// SPDX-License-Identifier: Apache-2.0
// What a machine says of itself.
#include "calibrate/doctor/machine_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

constexpr const char* gpu_query =
    "nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max --format=csv,noheader,nounits "
    "2>/dev/null";
constexpr const char* topology_query = "nvidia-smi topo -m 2>/dev/null";
/// Versions without importing the libraries, which takes seconds and may touch the GPU.
constexpr const char* library_query =
    "python3 -c \"import importlib.metadata as m\nfor n in "
    "('torch','deepspeed','accelerate','transformers','torchtitan','megatron-core','lightning','flash-attn','liger-kernel','bitsandbytes','"
    "peft'):\n"
    " try: print(n, m.version(n))\n except Exception: pass\" 2>/dev/null";

std::string trimmed_text(std::string text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return trimmed_text(line);
}

std::vector<std::string> fields(const std::string& line, char separator) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, separator);) out.push_back(trimmed_text(field));
  return out;
}

double number_at_start(const std::string& text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// The value behind the first line that begins with `key` and a colon.
std::string proc_value(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key))
      if (const std::size_t colon = line.find(':'); colon != std::string::npos) return trimmed_text(line.substr(colon + 1));
  return {};
}

std::vector<FoundGpu> gpus_in(const std::string& table) {
  std::vector<FoundGpu> gpus;
  std::istringstream in(table);
  for (std::string line; std::getline(in, line);) {
    const auto columns = fields(line, ',');
    if (columns.size() < 5) continue;
    gpus.push_back({columns[0], columns[1], mebibytes(static_cast<std::int64_t>(number_at_start(columns[2]))),
                    static_cast<int>(number_at_start(columns[3])), static_cast<int>(number_at_start(columns[4]))});
  }
  return gpus;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder, error)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

/// RDMA devices with a rate first ("400 Gb/sec (4X NDR)"); where there is none, network interfaces that are up.
std::vector<FoundNic> nics_in(const std::string& root) {
  std::vector<FoundNic> nics;
  for (const fs::path& device : entries_of(root + "/sys/class/infiniband")) {
    const fs::path port = device / "ports/1";
    const double gigabits = number_at_start(first_line(port / "rate"));
    const std::string layer = first_line(port / "link_layer");
    if (gigabits > 0) nics.push_back({device.filename().string(), layer.empty() ? "RDMA" : layer, ByteRate{gigabits * 1e9 / 8}});
  }
  if (!nics.empty()) return nics;
  for (const fs::path& device : entries_of(root + "/sys/class/net")) {
    const double megabits = number_at_start(first_line(device / "speed"));
    std::error_code error;
    const bool is_hardware = fs::exists(device / "device", error);
    if (megabits > 0 && is_hardware) nics.push_back({device.filename().string(), "Ethernet", ByteRate{megabits * 1e6 / 8}});
  }
  return nics;
}

std::vector<FoundLibrary> libraries_in(const std::string& list) {
  std::vector<FoundLibrary> libraries;
  std::istringstream in(list);
  for (std::string line; std::getline(in, line);)
    if (const auto words = fields(line, ' '); words.size() == 2) libraries.push_back({words[0], words[1]});
  return libraries;
}

}  // namespace

Lookout this_machine() {
  return {"", [](const std::string& command) {
            std::string out;
            std::FILE* pipe = ::popen(command.c_str(), "r");
            if (pipe == nullptr) return out;
            std::array<char, 4096> chunk{};
            for (std::size_t got = 0; (got = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) out.append(chunk.data(), got);
            return ::pclose(pipe) == 0 ? out : std::string();
          }};
}

MachineFacts look_at_machine(const Lookout& lookout) {
  MachineFacts facts;
  facts.processor = proc_value(lookout.root + "/proc/cpuinfo", "model name");
  facts.cores = std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  facts.memory = kibibytes(static_cast<std::int64_t>(number_at_start(proc_value(lookout.root + "/proc/meminfo", "MemTotal"))));
  facts.gpus = gpus_in(lookout.run(gpu_query));
  facts.nics = nics_in(lookout.root);
  facts.libraries = libraries_in(lookout.run(library_query));
  if (!facts.gpus.empty()) facts.topology = lookout.run(topology_query);
  return facts;
}

std::string profile_of(const MachineFacts& facts, const std::string& base) {
  const std::string said = "measured: shardsim doctor, as the driver and the kernel report it";
  std::string out =
      "# Written by `shardsim doctor`: what this machine says of itself; speeds are those of the base until they are measured.\n";
  out += fmt::format("base: {}\nname: this-machine\n", base);
  out += fmt::format("description: \"{} x {}\"\n", facts.gpus.size(), facts.gpus.front().name);
  out += fmt::format("node:\n  gpus: {}\n", facts.gpus.size());
  std::vector<std::string> known{"node.gpus"};
  if (facts.memory > Bytes{}) {
    out += fmt::format("  host_memory: {} B\n", facts.memory.value());
    known.emplace_back("node.host_memory");
  }
  if (!facts.nics.empty()) {
    const auto fastest =
        std::max_element(facts.nics.begin(), facts.nics.end(), [](const FoundNic& a, const FoundNic& b) { return a.rate < b.rate; });
    const auto alike = std::count_if(facts.nics.begin(), facts.nics.end(), [&](const FoundNic& nic) { return nic.rate == fastest->rate; });
    out += fmt::format("network:\n  nics_per_node: {}\n  nic_bandwidth: {:.0f} Mbit/s\n", alike, fastest->rate.base() * 8e-6);
    known.insert(known.end(), {"network.nics_per_node", "network.nic_bandwidth"});
  }
  out += "origins:\n";
  for (const std::string& key : known) out += fmt::format("  {}: \"{}\"\n", key, said);
  return out;
}

}  // namespace shardsim
