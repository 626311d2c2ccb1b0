// SPDX-License-Identifier: Apache-2.0
// How much slower products run while a collective runs beside them.
#include <memory>
#include <vector>

#include "calibrate/gpu/bench.hpp"
#include "calibrate/gpu/gpu_device.hpp"

namespace shardsim::gpu {
namespace {

constexpr int side = 4096;
constexpr int products = 20;

/// A rank of the collective, and products beside it.
struct Side {
  Side(int index, std::size_t bytes) : device(index) {
    SHARDSIM_CHECK(cudaSetDevice(device));
    SHARDSIM_CHECK(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    SHARDSIM_CHECK(cudaStreamCreateWithFlags(&communication, cudaStreamNonBlocking));
    payload = std::make_unique<Memory>(bytes);
    for (auto& matrix : matrices) matrix = std::make_unique<Memory>(2ULL * side * side);
    blas = std::make_unique<Blas>(compute);
    fill_random(*matrices[0], static_cast<std::size_t>(side) * side, 1, compute);
    fill_random(*matrices[1], static_cast<std::size_t>(side) * side, 2, compute);
    SHARDSIM_CHECK(cudaMemset(payload->get(), 0, bytes));
    SHARDSIM_CHECK(cudaDeviceSynchronize());
  }
  ~Side() {
    cudaSetDevice(device);
    cudaDeviceSynchronize();
    if (communicator != nullptr) ncclCommDestroy(communicator);
    if (compute != nullptr) cudaStreamDestroy(compute);
    if (communication != nullptr) cudaStreamDestroy(communication);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void compute_some() const {
    for (int i = 0; i < products; ++i) blas->product(*matrices[0], *matrices[1], *matrices[2], side, side, side);
  }

  int device;
  cudaStream_t compute = nullptr, communication = nullptr;
  ncclComm_t communicator = nullptr;
  std::unique_ptr<Memory> payload, matrices[3];
  std::unique_ptr<Blas> blas;
};

using Sides = std::vector<std::unique_ptr<Side>>;

void reduce_on_all(const Sides& sides, std::size_t count, int calls) {
  for (int call = 0; call < calls; ++call) {
    SHARDSIM_CHECK(ncclGroupStart());
    for (const auto& s : sides)
      SHARDSIM_CHECK(ncclAllReduce(s->payload->get(), s->payload->get(), count, ncclBfloat16, ncclSum, s->communicator, s->communication));
    SHARDSIM_CHECK(ncclGroupEnd());
  }
}

void finish(const Sides& sides) {
  for (const auto& s : sides) {
    SHARDSIM_CHECK(cudaSetDevice(s->device));
    SHARDSIM_CHECK(cudaDeviceSynchronize());
  }
}

}  // namespace

double overlap_slowdown(int devices) {
  constexpr std::size_t bytes = 256U << 20;
  Sides sides;
  for (int i = 0; i < devices; ++i) sides.push_back(std::make_unique<Side>(i, bytes));
  std::vector<ncclComm_t> communicators(static_cast<std::size_t>(devices));
  SHARDSIM_CHECK(ncclCommInitAll(communicators.data(), devices, nullptr));
  for (int i = 0; i < devices; ++i) sides[static_cast<std::size_t>(i)]->communicator = communicators[static_cast<std::size_t>(i)];
  const Side& first = *sides.front();
  SHARDSIM_CHECK(cudaSetDevice(first.device));
  const double alone = device_time(
      7, [&] { first.compute_some(); }, first.compute);
  reduce_on_all(sides, bytes / 2, 2);  // the first calls connect the ranks
  finish(sides);
  // Twice as many collectives until they outlast the products: then the products had one beside them all the time.
  for (int calls = 8; calls <= 4096; calls *= 2) {
    SHARDSIM_CHECK(cudaSetDevice(first.device));
    Stopwatch watch;
    reduce_on_all(sides, bytes / 2, calls);
    SHARDSIM_CHECK(cudaSetDevice(first.device));
    const double together = watch.time([&] { first.compute_some(); }, first.compute);
    const cudaError_t still_running = cudaStreamQuery(first.communication);
    cudaGetLastError();  // "not ready" is kept as an error, which later launches would find
    finish(sides);
    if (still_running == cudaErrorNotReady) return together / alone - 1;
    SHARDSIM_CHECK(still_running);
  }
  throw Failure("no number of collectives outlasted the products beside them");
}

}  // namespace shardsim::gpu
