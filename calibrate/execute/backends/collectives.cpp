// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/backends/collectives.hpp"

#include <algorithm>
#include <stdexcept>

#include "calibrate/execute/training/element.hpp"

namespace shardsim::execute {
namespace {

using Span = std::span<std::byte>;

void move_bytes(std::span<const std::byte> from, Span to) {
  if (from.size() != to.size()) throw std::logic_error("a shard and its part of the full buffer differ in size");
  if (from.data() != to.data()) std::copy(from.begin(), from.end(), to.begin());
}

/// One collective under way: the ring's geometry and the payload cut into segments.
class Ring {
 public:
  Ring(Transport& transport, const Members& members, const CollectiveCall& call)
      : transport_(transport), members_(members), call_(call), n_(members.size()) {
    const std::int64_t size = size_of(call.dtype);
    const auto bytes = static_cast<std::int64_t>(call.full.size());
    if (bytes % size != 0) throw std::logic_error("a payload ends inside an element");
    std::int64_t begin = 0;
    for (std::int64_t count : ring_segments(bytes / size, n_)) {
      segments_.push_back(call.full.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count * size)));
      begin += count * size;
    }
  }

  void run() {
    switch (call_.kind) {
      case Collective::all_gather:
        return all_gather();
      case Collective::reduce_scatter:
        return reduce_scatter(call_.shard.empty() ? own() : call_.shard);
      case Collective::all_reduce:
        return all_reduce();
      case Collective::broadcast:
        return broadcast();
      case Collective::reduce:
        return reduce();
      case Collective::all_to_all:
        return all_to_all();
    }
  }

 private:
  [[nodiscard]] Span segment(int i) const { return segments_[static_cast<std::size_t>(((i % n_) + n_) % n_)]; }
  [[nodiscard]] Span own() const { return segment(members_.index); }
  [[nodiscard]] int member(int i) const { return members_.ranks[static_cast<std::size_t>(((i % n_) + n_) % n_)]; }
  [[nodiscard]] int next() const { return member(members_.index + 1); }
  [[nodiscard]] int previous() const { return member(members_.index - 1); }

  void finish(Span sum) const {
    if (call_.reduction == Reduction::average) scale(sum, call_.dtype, 1.0F / static_cast<float>(n_));
  }

  void all_gather() {
    if (!call_.shard.empty()) move_bytes(call_.shard, own());
    circulate();
  }

  /// Step k passes on segment r - k and receives segment r - k - 1.
  void circulate() {
    for (int k = 0; k < n_ - 1; ++k) transport_.exchange(next(), segment(members_.index - k), previous(), segment(members_.index - k - 1));
  }

  /// Step k passes on the running sum of segment r - k - 1 and adds the own values to that of segment r - k - 2, which arrives.
  void reduce_scatter(Span target) {
    const Span last = own();
    if (n_ == 1) {
      move_bytes(last, target);
      return finish(target);
    }
    const std::size_t longest = segments_.front().size();
    std::vector<std::byte> running(longest), arriving(longest);
    const Span first = segment(members_.index - 1);
    std::copy(first.begin(), first.end(), running.begin());
    for (int k = 0; k < n_ - 1; ++k) {
      const Span mine = segment(members_.index - k - 2);
      const Span in(arriving.data(), mine.size());
      transport_.exchange(next(), {running.data(), segment(members_.index - k - 1).size()}, previous(), in);
      combine(in, mine, call_.dtype, call_.reduction);
      running.swap(arriving);
    }
    move_bytes({running.data(), last.size()}, target);
    finish(target);
  }

  void all_reduce() {
    reduce_scatter(own());
    circulate();
  }

  /// Places from the head of the chain: the root's own place is 0.
  [[nodiscard]] int place_after(int head) const { return ((members_.index - head) % n_ + n_) % n_; }

  /// Chunks flow down the chain: each is received while the one before is passed on.
  void broadcast() {
    const int place = place_after(call_.root);
    const bool receives = place > 0;
    const bool sends = place < n_ - 1;
    Span waiting{};
    for (std::size_t begin = 0; begin < call_.full.size() || !waiting.empty(); begin += chunk) {
      const Span now = begin < call_.full.size() ? call_.full.subspan(begin, std::min(chunk, call_.full.size() - begin)) : Span{};
      const Span out = receives ? waiting : now;
      transport_.exchange(next(), sends ? out : Span{}, previous(), receives ? now : Span{});
      waiting = receives ? now : Span{};
    }
  }

  /// The chain begins just after the root and ends there: partial sums flow towards the root.
  void reduce() {
    const int place = place_after(call_.root + 1);
    const bool root = place == n_ - 1;
    std::vector<std::byte> sum(call_.full.begin(), call_.full.end());
    std::vector<std::byte> arriving(place > 0 ? sum.size() : 0);
    transport_.exchange(next(), {}, previous(), arriving);
    if (place > 0) combine(sum, arriving, call_.dtype, call_.reduction);
    if (!root) return transport_.exchange(next(), sum, previous(), {});
    move_bytes(sum, call_.full);
    finish(call_.full);
  }

  void all_to_all() {
    if (segments_.front().size() != segments_.back().size()) throw std::logic_error("an all-to-all of unequal parts");
    std::vector<std::byte> received(call_.full.size());
    const std::size_t part = segments_.front().size();
    const auto slot = [&](int i) { return Span(received).subspan(static_cast<std::size_t>(((i % n_) + n_) % n_) * part, part); };
    move_bytes(own(), slot(members_.index));
    for (int k = 1; k < n_; ++k)
      transport_.exchange(member(members_.index + k), segment(members_.index + k), member(members_.index - k), slot(members_.index - k));
    move_bytes(received, call_.full);
  }

  static constexpr std::size_t chunk = 64u << 10;

  Transport& transport_;
  const Members& members_;
  const CollectiveCall& call_;
  int n_;
  std::vector<Span> segments_;
};

}  // namespace

Members members_of(const Group& group, int rank) {
  const auto size = static_cast<int>(group.size);
  const auto stride = static_cast<int>(group.stride);
  Members members;
  members.index = (rank / stride) % size;
  const int first = rank - members.index * stride;
  for (int i = 0; i < size; ++i) members.ranks.push_back(first + i * stride);
  return members;
}

void run_ring(Transport& transport, const Members& members, const CollectiveCall& call) { Ring(transport, members, call).run(); }

}  // namespace shardsim::execute
