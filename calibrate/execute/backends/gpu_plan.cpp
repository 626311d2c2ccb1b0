// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/backends/gpu_plan.hpp"

#include <algorithm>
#include <set>

#include "calibrate/execute/backends/collectives.hpp"
#include "sim/base/problem.hpp"

namespace shardsim::execute {
namespace {

constexpr std::int64_t chunk_bytes = 2 << 20;  // 4 steps of 512 KiB: a connection's buffer of 4 MiB has 8
constexpr std::int64_t alignment_bytes = 16;

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

/// An all-reduce sends every segment twice but its own and the next one's.
std::int64_t all_reduce_elements(std::int64_t count, std::int64_t element, std::int64_t n, std::int64_t index) {
  std::int64_t sent = 0;
  for (std::int64_t begin = 0; begin < count;) {
    const std::int64_t left = count - begin;
    std::int64_t chunk = chunk_bytes / element;
    if (left < n * chunk) chunk = round_up((left + n - 1) / n, alignment_bytes / element);
    const auto segment = [&](std::int64_t i) { return std::clamp<std::int64_t>(left - i % n * chunk, 0, chunk); };
    const std::int64_t loop = std::min(left, n * chunk);
    sent += 2 * loop - segment(index) - segment(index + 1);
    begin += loop;
  }
  return sent;
}

void need_nvlink(const std::vector<GpuFacts>& gpus, int ranks) {
  if (static_cast<int>(gpus.size()) < ranks)
    throw EnvironmentError("execute --backend cuda: NVLink needs a GPU for each of " + std::to_string(ranks) + " ranks, there are " +
                           std::to_string(gpus.size()) + "; use --transport network");
  for (int gpu = 0; gpu < ranks; ++gpu)
    if (gpus[static_cast<std::size_t>(gpu)].nvlinks == 0)
      throw EnvironmentError("execute --backend cuda: GPU " + std::to_string(gpu) +
                             " has no NVLink whose bytes can be counted; use --transport network");
}

}  // namespace

std::string_view name_of(Route route) {
  switch (route) {
    case Route::network:
      return "network";
    case Route::nvlink:
      return "nvlink";
    case Route::host:
      return "host";
  }
  return "?";
}

bool GpuPlan::shares() const { return std::set<int>(gpu_of_rank.begin(), gpu_of_rank.end()).size() < gpu_of_rank.size(); }

GpuPlan plan_gpus(const std::vector<GpuFacts>& gpus, int ranks, std::string_view wanted) {
  if (gpus.empty()) throw EnvironmentError("execute --backend cuda: no CUDA GPU found on this machine");
  GpuPlan plan;
  if (wanted == "nvlink") {
    need_nvlink(gpus, ranks);
    plan.route = Route::nvlink;
  } else if (wanted == "host") {
    plan.route = Route::host;
  }
  for (int rank = 0; rank < ranks; ++rank) plan.gpu_of_rank.push_back(rank % static_cast<int>(gpus.size()));
  return plan;
}

std::vector<std::pair<std::string, std::string>> nccl_environment(const GpuPlan& plan, int rank) {
  std::vector<std::pair<std::string, std::string>> variables{
      {"NCCL_ALGO", "Ring"},        {"NCCL_PROTO", "Simple"},       {"NCCL_MIN_NCHANNELS", "1"},  {"NCCL_MAX_NCHANNELS", "1"},
      {"NCCL_BUFFSIZE", "4194304"}, {"NCCL_NVLS_ENABLE", "0"},      {"NCCL_COLLNET_ENABLE", "0"}, {"NCCL_PAT_ENABLE", "0"},
      {"NCCL_MNNVL_ENABLE", "0"},   {"NCCL_P2P_LL_THRESHOLD", "0"},  // sends and receives of all-to-all: no flags between the data
      {"NCCL_SOCKET_IFNAME", "lo"}};
  if (plan.route == Route::network) {
    const std::pair<std::string, std::string> network[]{{"NCCL_HOSTID", "shardsim-rank-" + std::to_string(rank)},
                                                        {"NCCL_P2P_DISABLE", "1"},
                                                        {"NCCL_SHM_DISABLE", "1"},
                                                        {"NCCL_NET", "Socket"},
                                                        {"NCCL_IB_DISABLE", "1"},
                                                        {"NCCL_PXN_DISABLE", "1"},
                                                        {"NCCL_PROFILER_PLUGIN", "STATIC_PLUGIN"}};
    variables.insert(variables.end(), std::begin(network), std::end(network));
  }
  return variables;
}

Bytes nccl_sent(Collective kind, Elements payload, DType dtype, std::int64_t n, std::int64_t index, std::int64_t root) {
  if (n <= 1) return {};
  const std::int64_t element = size_of(dtype);
  if (kind == Collective::all_reduce) return Bytes{element * all_reduce_elements(payload.value(), element, n, index)};
  return bytes(Elements{ring_sent_elements(kind, ring_segments(payload.value(), n), index, root)}, dtype);
}

Bytes nccl_sent(const Schedule& schedule) {
  Bytes sum;
  for (const Op& op : schedule.ops) {
    const auto* c = std::get_if<Communicate>(&op.action);
    if (c == nullptr || c->control) continue;
    const Members members = members_of(schedule.group_of(c->communicator), static_cast<int>(schedule.rank));
    sum += nccl_sent(c->kind, c->payload, c->dtype, members.size(), members.index, c->root);
  }
  return sum;
}

Bytes sent_tolerance(Route route, Bytes predicted, std::int64_t collectives) {
  if (route != Route::nvlink) return {};
  return Bytes{predicted.value() / 50} + 2 * collectives * kibibytes(1);
}

Bytes pool_high_water(const Schedule& schedule, const std::function<Bytes(Bytes)>& footprint) {
  const auto rounded = [&](const Buffer& buffer) { return buffer.host ? Bytes{} : footprint(buffer.size()); };
  Bytes now;
  const std::vector<bool> alive = initially_alive(schedule);
  for (std::size_t b = 0; b < alive.size(); ++b)
    if (alive[b] && !schedule.buffers[b].view_of.valid()) now += rounded(schedule.buffers[b]);
  Bytes high = now;
  for (const Op& op : schedule.ops) {
    if (const auto* a = std::get_if<Allocate>(&op.action)) now += rounded(schedule.at(a->buffer));
    if (const auto* f = std::get_if<Free>(&op.action)) now -= rounded(schedule.at(f->buffer));
    high = std::max(high, now);
  }
  return high;
}

}  // namespace shardsim::execute
