// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/backends/device_backend.hpp"

#include <algorithm>
#include <cstdlib>

#include "calibrate/execute/backends/nccl_collectives.hpp"
#include "calibrate/gpu/check.hpp"
#include "calibrate/ranks/ranks.hpp"
#include "sim/base/problem.hpp"

namespace shardsim::execute {
namespace {

MeshOptions without_fault(MeshOptions options) {
  options.fault.reset();
  return options;
}

/// What devices throw becomes what ranks report.
template <class F>
auto on_device(F&& f) {
  try {
    return f();
  } catch (const gpu::Failure& failure) { throw EnvironmentError(failure.what()); }
}

class DeviceBackend final : public Backend {
 public:
  /// Without a counter payload goes through the host. Three meshes over TCP: for that payload, for scalars, and for groups to meet.
  DeviceBackend(std::unique_ptr<Device> device, const DeviceMaker& maker, std::optional<ByteCounter> counter, int rank, int ranks,
                Line& line, const MeshOptions& network)
      : device_(std::move(device)),
        payload_(rank, ranks, rendezvous(line), network),
        scalars_(rank, ranks, rendezvous(line), without_fault(network)),
        setup_(rank, ranks, rendezvous(line), without_fault(network)) {
    std::optional<std::int64_t> spoilt;
    if (network.fault && network.fault->rank == rank) spoilt = network.fault->byte;
    const LibraryCollectives::Meeting meeting{setup_, maker.make_id, maker.join};
    if (!counter)
      traffic_ = std::make_unique<StagedCollectives>(*device_, ring_);
    else
      traffic_ = std::make_unique<LibraryCollectives>(*device_, meeting, std::move(*counter), spoilt);
  }

  std::byte* allocate(Bytes size, bool host) override {
    const auto bytes = static_cast<std::size_t>(size.value());
    std::byte* memory = host ? static_cast<std::byte*>(std::calloc(std::max<std::size_t>(1, bytes), 1)) : device_->allocate(bytes);
    if (memory == nullptr) throw EnvironmentError(host ? "the host has no memory left" : "the GPU has no memory left");
    return memory;
  }
  void free(std::byte* memory, bool host) override {
    if (host)
      std::free(memory);
    else
      device_->free(memory);
  }
  void read(std::span<const std::byte> memory, std::span<std::byte> to) override {
    device_->download(memory.data(), to.data(), memory.size());
  }
  void write(std::span<const std::byte> from, std::span<std::byte> memory) override {
    device_->upload(from.data(), memory.data(), from.size());
  }
  void fill(std::span<std::byte> memory, std::byte value) override {
    device_->fill(memory.data(), memory.size(), std::to_integer<unsigned char>(value));
  }
  [[nodiscard]] Bytes high_water() const override { return Bytes{static_cast<std::int64_t>(device_->pool().used_high)}; }
  [[nodiscard]] std::string memory_counted_by() const override { return "CUDA: cudaMemPoolAttrUsedMemHigh of the rank's pool"; }
  [[nodiscard]] std::optional<PoolUse> pool() const override { return device_->pool(); }
  [[nodiscard]] Bytes footprint(Bytes size) override {
    return Bytes{static_cast<std::int64_t>(device_->footprint(static_cast<std::size_t>(size.value())))};
  }
  [[nodiscard]] Math& math() override { return device_->math(); }
  void synchronize() override { device_->wait(); }
  [[nodiscard]] Collectives& traffic() override { return *traffic_; }
  [[nodiscard]] Collectives& control() override { return control_; }

 private:
  static Rendezvous rendezvous(Line& line) {
    return [&line](const std::vector<int>& ports) { return line.meet(ports); };
  }

  std::unique_ptr<Device> device_;
  Mesh payload_, scalars_, setup_;
  RingCollectives ring_{payload_}, control_{scalars_};
  std::unique_ptr<Collectives> traffic_;  // before the device goes, its groups do
};

/// A line of text for each GPU, as a rank's process tells them.
std::string to_text(const std::vector<GpuFacts>& gpus) {
  std::vector<std::string> words;
  for (const GpuFacts& gpu : gpus) words.insert(words.end(), {gpu.pci_bus_id, gpu.name, std::to_string(gpu.nvlinks)});
  return pack(words);
}

std::vector<GpuFacts> gpus_from(const std::string& text) {
  const std::vector<std::string> words = unpack(text);
  std::vector<GpuFacts> gpus;
  for (std::size_t i = 0; i + 2 < words.size(); i += 3) gpus.push_back({words[i], words[i + 1], std::stoi(words[i + 2])});
  return gpus;
}

}  // namespace

DevicePlatform::DevicePlatform(DeviceMaker maker, std::string transport) : maker_(std::move(maker)), transport_(std::move(transport)) {
  gpus_ = gpus_from(run_ranks(1, [&](int, Line&) { return to_text(on_device(maker_.find)); }).front());
  plan_ = plan_gpus(gpus_, 1, transport_);
}

std::vector<std::string> DevicePlatform::run(int ranks, const RankBody& body) {
  plan_ = plan_gpus(gpus_, ranks, transport_);
  return run_ranks(ranks, [&](int rank, Line& line) { return on_device([&] { return body(rank, line); }); });
}

std::unique_ptr<Backend> DevicePlatform::open(int rank, int ranks, Line& line, const MeshOptions& network) {
  for (const auto& [name, value] : nccl_environment(plan_, rank)) ::setenv(name.c_str(), value.c_str(), 1);
  const int gpu = plan_.gpu_of_rank.at(static_cast<std::size_t>(rank));
  std::optional<ByteCounter> counter;
  if (plan_.route != Route::host) counter = maker_.counter(plan_.route, gpus_[static_cast<std::size_t>(gpu)]);
  return std::make_unique<DeviceBackend>(maker_.open(gpu), maker_, std::move(counter), rank, ranks, line, network);
}

Bytes DevicePlatform::predicted_payload(const Schedule& schedule) const {
  return plan_.route == Route::host ? Platform::predicted_payload(schedule) : nccl_sent(schedule);
}

Bytes DevicePlatform::tolerance(Bytes predicted, std::int64_t collectives) const {
  return sent_tolerance(plan_.route, predicted, collectives);
}

}  // namespace shardsim::execute
