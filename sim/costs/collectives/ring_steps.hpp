// SPDX-License-Identifier: Apache-2.0
// A ring as NCCL's Simple protocol runs it: per channel, loops of chunks, chunks of slices, the next step forwarded slice by slice.
#pragma once

#include <vector>

#include "sim/base/collective.hpp"
#include "sim/base/units.hpp"

namespace shardsim {

struct RingChannels {
  std::int64_t channels = 1;
  ByteRate bandwidth;  ///< of a link, all channels together
  Seconds latency;     ///< alpha: from the end of a slice's transmission until the receiver may use it
  Seconds base;        ///< once per collective
};

/// One pass of a channel over the ring: `chunk` bytes from each rank per step, the first slice of `slice` bytes.
struct RingLoop {
  std::int64_t count = 0;  ///< loops of this shape, one after the other
  std::int64_t chunk = 0;
  std::int64_t slice = 0;
};

/// The loops of one channel for `payload` on n ranks: full loops of 2 MiB chunks, then one with what remains, rounded up to 16 bytes.
/// Chunks from 64 KiB up are two equal slices, between 32 and 64 KiB two unequal ones, below that one slice.
[[nodiscard]] std::vector<RingLoop> ring_loops(Bytes payload, std::int64_t n, std::int64_t channels);

/// T = base + sum over loops [ (k - 1) max(c / B, s / B + alpha) + c / B + alpha ], k = sends of a rank (N - 1, or 2 (N - 1) for
/// all-reduce), B a channel's bandwidth. alpha is paid once a loop: the last receive of a loop ends before the next loop begins.
/// For all-gather, reduce-scatter and all-reduce.
[[nodiscard]] Seconds stepwise_ring(Collective collective, Bytes payload, std::int64_t n, const RingChannels& ring);

/// The same slice by slice, with n ranks that each send and receive in order and four slots between neighbours. Slow: the test of the
/// formula, and the model of rings whose links differ: `bandwidths` gives that of the link from each rank to the next.
[[nodiscard]] Seconds explicit_ring(Collective collective, Bytes payload, const std::vector<ByteRate>& bandwidths,
                                    const RingChannels& ring);

}  // namespace shardsim
