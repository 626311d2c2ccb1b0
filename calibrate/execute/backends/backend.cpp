// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/backends/backend.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "calibrate/execute/backends/device_backend.hpp"
#include "calibrate/execute/backends/mpi_platform.hpp"
#include "calibrate/execute/execution.hpp"
#include "calibrate/execute/training/host_math.hpp"
#include "calibrate/ranks/ranks.hpp"
#include "sim/base/problem.hpp"

namespace shardsim::execute {
namespace {

/// For the rest of this process's life.
void enter_namespace(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() || ::setns(file.get(), CLONE_NEWNET) != 0)
    throw EnvironmentError("cannot enter the network namespace " + path + ": " + std::strerror(errno));
}

class LocalBackend final : public HostBackend {
 public:
  /// Scalars have connections of their own, so that each kind of traffic has its counters. A fault is for payload only.
  LocalBackend(int rank, int ranks, Line& line, const MeshOptions& network)
      : payload_(rank, ranks, rendezvous(line), network), scalars_(rank, ranks, rendezvous(line), without_fault(network)) {}
  Collectives& traffic() override { return traffic_; }
  Collectives& control() override { return control_; }

 private:
  static Rendezvous rendezvous(Line& line) {
    return [&line](const std::vector<int>& ports) { return line.meet(ports); };
  }
  static MeshOptions without_fault(MeshOptions options) {
    options.fault.reset();
    return options;
  }

  Mesh payload_, scalars_;
  RingCollectives traffic_{payload_}, control_{scalars_};
};

}  // namespace

std::byte* HostBackend::allocate(Bytes size, bool) {
  auto* memory = static_cast<std::byte*>(std::calloc(std::max<std::size_t>(1, static_cast<std::size_t>(size.value())), 1));
  if (memory == nullptr) throw EnvironmentError("the host has no memory left");
  return memory;
}

void HostBackend::free(std::byte* memory, bool) { std::free(memory); }
void HostBackend::read(std::span<const std::byte> memory, std::span<std::byte> to) { std::ranges::copy(memory, to.begin()); }
void HostBackend::write(std::span<const std::byte> from, std::span<std::byte> memory) { std::ranges::copy(from, memory.begin()); }
void HostBackend::fill(std::span<std::byte> memory, std::byte value) { std::ranges::fill(memory, value); }

Math& HostBackend::math() { return host_math(); }

Bytes HostBackend::high_water() const {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return kibibytes(usage.ru_maxrss);
}

Bytes Platform::predicted_payload(const Schedule& schedule) const { return predicted_bytes(schedule).payload; }

std::vector<std::string> LocalPlatform::run(int ranks, const RankBody& body) { return run_ranks(ranks, body); }

std::unique_ptr<Backend> LocalPlatform::open(int rank, int ranks, Line& line, const MeshOptions& network) {
  if (!network.namespaces.empty()) enter_namespace(network.namespaces.at(static_cast<std::size_t>(rank)));
  return std::make_unique<LocalBackend>(rank, ranks, line, network);
}

std::unique_ptr<Platform> open_platform(std::string_view name, std::string_view transport) {
  if (name == "local") return std::make_unique<LocalPlatform>();
  if (name == "mpi") return open_mpi_platform("execute --backend mpi");
  if (name == "cuda") return open_cuda_platform(transport);
  throw std::logic_error("there is no backend " + std::string(name));
}

}  // namespace shardsim::execute
