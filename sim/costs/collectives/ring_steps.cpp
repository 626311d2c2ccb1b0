// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/ring_steps.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace shardsim {
namespace {

constexpr std::int64_t full_chunk = std::int64_t{2} << 20;  // 4 steps of NCCL_BUFFSIZE / NCCL_STEPS = 512 KiB
constexpr std::int64_t least_slice = std::int64_t{32} << 10;
constexpr std::int64_t alignment = 16;
constexpr std::size_t slots = 4;  // slices in flight to a neighbour

RingLoop loop_of(std::int64_t count, std::int64_t chunk) { return {count, chunk, std::min(chunk, std::max(chunk / 2, least_slice))}; }

double over(std::int64_t bytes, ByteRate rate) { return static_cast<double>(bytes) / rate.base(); }

/// All ranks in lock step of their slices, not of time. Only the ends of the last `slots` slices of each rank matter, so that memory does
/// not grow with the length of the ring's program.
class Ranks {
 public:
  Ranks(std::vector<ByteRate> rates, double latency) : rates_(std::move(rates)), latency_(latency), idle_(rates_.size(), 0) {
    for (auto& slot : sent_) slot.assign(rates_.size(), 0);
  }

  void run(const RingLoop& loop, std::int64_t sends) {
    const std::size_t per_chunk = loop.chunk > loop.slice ? 2 : 1, slices = static_cast<std::size_t>(sends) * per_chunk;
    const std::array durations{durations_of(loop.slice), durations_of(loop.chunk - loop.slice)};
    for (std::size_t i = 0; i < slices; ++i) transmit(i, per_chunk, durations[i % per_chunk]);
    // A loop ends on a rank with its last receive, and its sends are done.
    const auto& last = sent_[(slices - 1) % slots];
    for (std::size_t r = 0; r < idle_.size(); ++r) idle_[r] = std::max(last[r], last[before(r)] + latency_);
  }

  [[nodiscard]] double end() const { return *std::ranges::max_element(idle_); }

 private:
  [[nodiscard]] std::size_t before(std::size_t r) const { return r == 0 ? rates_.size() - 1 : r - 1; }

  [[nodiscard]] std::vector<double> durations_of(std::int64_t bytes) const {
    std::vector<double> result;
    result.reserve(rates_.size());
    for (const ByteRate rate : rates_) result.push_back(over(bytes, rate));
    return result;
  }

  /// Slice i leaves a rank when its link is free; when the slice that it reduces or forwards, a chunk earlier, is here; and when the
  /// neighbour has emptied the slot, four slices earlier. Each `ready` is as early as the loop allows where there is no such slice.
  void transmit(std::size_t i, std::size_t per_chunk, const std::vector<double>& durations) {
    const double* free = i == 0 ? idle_.data() : sent_[(i - 1) % slots].data();
    double* sent = sent_[i % slots].data();
    const bool waits_for_data = i >= per_chunk, waits_for_slot = i >= slots;
    const double* arrived = waits_for_data ? sent_[(i - per_chunk) % slots].data() : nullptr;
    const double* slot = waits_for_slot ? sent : free;
    const double slot_latency = waits_for_slot ? latency_ : 0;
    const std::size_t n = durations.size();
    if (!arrived) {
      for (std::size_t r = 0; r < n; ++r) sent[r] = std::max(free[r], slot[r] + slot_latency) + durations[r];
      return;
    }
    sent[0] = std::max({free[0], slot[0] + slot_latency, arrived[n - 1] + latency_}) + durations[0];
    for (std::size_t r = 1; r < n; ++r)
      sent[r] = std::max(std::max(free[r], slot[r] + slot_latency), arrived[r - 1] + latency_) + durations[r];
  }

  std::vector<ByteRate> rates_;  // of the link from each rank to the next
  double latency_;
  std::vector<double> idle_;  // when each rank is done with its last loop
  std::array<std::vector<double>, slots> sent_;
};

}  // namespace

std::vector<RingLoop> ring_loops(Bytes payload, std::int64_t n, std::int64_t channels) {
  std::vector<RingLoop> loops;
  const std::int64_t of_channel = ceil_div(payload.value(), channels);
  const std::int64_t full = of_channel / (n * full_chunk);
  if (full > 0) loops.push_back(loop_of(full, full_chunk));
  const std::int64_t rest = of_channel - full * n * full_chunk;
  if (rest > 0) loops.push_back(loop_of(1, ceil_div(ceil_div(rest, n), alignment) * alignment));
  return loops;
}

Seconds stepwise_ring(Collective collective, Bytes payload, std::int64_t n, const RingChannels& ring) {
  if (n <= 1) return {};
  const ByteRate channel = ring.bandwidth / static_cast<double>(ring.channels);
  const double alpha = ring.latency.base();
  const auto further = static_cast<double>(ring_steps(collective, n) - 1);
  double time = ring.base.base();
  for (const RingLoop& loop : ring_loops(payload, n, ring.channels)) {
    const double chunk = over(loop.chunk, channel);
    time += static_cast<double>(loop.count) * (further * std::max(chunk, over(loop.slice, channel) + alpha) + chunk + alpha);
  }
  return Seconds{time};
}

Seconds explicit_ring(Collective collective, Bytes payload, const std::vector<ByteRate>& bandwidths, const RingChannels& ring) {
  const auto n = static_cast<std::int64_t>(bandwidths.size());
  if (n <= 1) return {};
  std::vector<ByteRate> rates;
  for (const ByteRate rate : bandwidths) rates.push_back(rate / static_cast<double>(ring.channels));
  Ranks ranks(std::move(rates), ring.latency.base());
  for (const RingLoop& loop : ring_loops(payload, n, ring.channels))
    for (std::int64_t i = 0; i < loop.count; ++i) ranks.run(loop, ring_steps(collective, n));
  return ring.base + Seconds{ranks.end()};
}

}  // namespace shardsim
