// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/backends/nccl_collectives.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "calibrate/execute/backends/gpu_plan.hpp"
#include "calibrate/execute/training/element.hpp"

namespace shardsim::execute {
namespace {

Wire wire_of(DType type) {
  if (!is_real(type)) throw std::logic_error(std::string(name_of(type)) + " is no payload of collectives on a device");
  return type == DType::bf16 ? Wire::bf16 : Wire::fp32;
}

/// One collective under way on a group of more than one.
class LibraryCall {
 public:
  LibraryCall(Communicator& group, Device& device, const Members& members, const CollectiveCall& call)
      : group_(group),
        device_(device),
        members_(members),
        call_(call),
        wire_(wire_of(call.dtype)),
        size_(size_of(call.dtype)),
        counts_(ring_segments(static_cast<std::int64_t>(call.full.size()) / size_, members.size())) {}

  void run() {
    switch (call_.kind) {
      case Collective::all_reduce:
        return all_reduce();
      case Collective::all_gather:
        return all_gather();
      case Collective::reduce_scatter:
        return reduce_scatter();
      case Collective::broadcast:
        return group_.broadcast(call_.full.data(), call_.full.data(), total(), wire_, call_.root);
      case Collective::reduce:
        return reduce();
      case Collective::all_to_all:
        return all_to_all();
    }
  }

 private:
  [[nodiscard]] bool largest() const { return call_.reduction == Reduction::max; }
  [[nodiscard]] std::size_t total() const { return call_.full.size() / static_cast<std::size_t>(size_); }
  [[nodiscard]] std::size_t count(int part) const { return static_cast<std::size_t>(counts_[static_cast<std::size_t>(part)]); }
  [[nodiscard]] bool even() const { return counts_.front() == counts_.back(); }
  [[nodiscard]] std::byte* part(int index) const {
    std::int64_t begin = 0;
    for (int i = 0; i < index; ++i) begin += counts_[static_cast<std::size_t>(i)];
    return call_.full.data() + begin * size_;
  }
  [[nodiscard]] std::byte* own() const { return call_.shard.empty() ? part(members_.index) : call_.shard.data(); }

  void finish(std::byte* sums, std::size_t elements) {
    if (call_.reduction != Reduction::average || elements == 0) return;
    Math& math = device_.math();
    Numbers values = math.zeros(elements);
    math.decode(sums, call_.dtype, values);
    math.scale(values, 1.0F / static_cast<float>(members_.size()));
    math.encode(values, call_.dtype, sums);
  }

  void all_reduce() {
    group_.all_reduce(call_.full.data(), total(), wire_, largest());
    finish(call_.full.data(), total());
  }

  void all_gather() {
    if (even()) return group_.all_gather(own(), call_.full.data(), count(0), wire_);
    group_.begin();
    for (int i = 0; i < members_.size(); ++i)
      if (count(i) > 0) group_.broadcast(i == members_.index ? own() : part(i), part(i), count(i), wire_, i);
    group_.end();
  }

  void reduce_scatter() {
    if (even()) {
      group_.reduce_scatter(call_.full.data(), own(), count(0), wire_, largest());
    } else {
      group_.begin();
      for (int i = 0; i < members_.size(); ++i)
        if (count(i) > 0) group_.reduce(part(i), i == members_.index ? own() : part(i), count(i), wire_, largest(), i);
      group_.end();
    }
    finish(own(), count(members_.index));
  }

  void reduce() {
    group_.reduce(call_.full.data(), call_.full.data(), total(), wire_, largest(), call_.root);
    if (members_.index == call_.root) finish(call_.full.data(), total());
  }

  /// What leaves must not be overwritten by what arrives: it arrives in scratch memory of the same size.
  void all_to_all() {
    if (!even()) throw std::logic_error("an all-to-all of unequal parts");
    Math& math = device_.math();
    Numbers sent = math.zeros(total()), received = math.zeros(total());
    math.decode(call_.full.data(), call_.dtype, sent);
    std::vector<std::size_t> begins(static_cast<std::size_t>(members_.size()));
    for (std::size_t i = 0; i < begins.size(); ++i) begins[i] = i * count(0);
    exchange(received, begins);
    math.put(received, begins[static_cast<std::size_t>(members_.index)],
             math.slice(sent, begins[static_cast<std::size_t>(members_.index)], count(0)));
    math.encode(received, call_.dtype, call_.full.data());
  }

  void exchange(Numbers& received, const std::vector<std::size_t>& begins) {
    Math& math = device_.math();
    const std::size_t bytes = call_.full.size();
    // Arrivals have the wire's format: half of the numbers' memory is enough for bf16.
    Numbers arriving = math.zeros((bytes + sizeof(float) - 1) / sizeof(float));
    auto* arrivals = reinterpret_cast<std::byte*>(arriving.data());
    group_.begin();
    for (int i = 0; i < members_.size(); ++i) {
      if (i == members_.index) continue;
      group_.send(part(i), count(0), wire_, i);
      group_.receive(arrivals + static_cast<std::int64_t>(begins[static_cast<std::size_t>(i)]) * size_, count(0), wire_, i);
    }
    group_.end();
    group_.wait();
    math.decode(arrivals, call_.dtype, received);
  }

  Communicator& group_;
  Device& device_;
  const Members& members_;
  const CollectiveCall& call_;
  Wire wire_;
  std::int64_t size_;
  std::vector<std::int64_t> counts_;
};

/// Alone there is nobody to talk to: the shard and its part of the full buffer are copies of each other.
void run_alone(Device& device, const CollectiveCall& call) {
  if (call.shard.empty()) return;
  const bool gathers = call.kind == Collective::all_gather;
  const std::span<std::byte> from = gathers ? call.shard : call.full, to = gathers ? call.full : call.shard;
  Math& math = device.math();
  Numbers values = math.zeros(from.size() / static_cast<std::size_t>(size_of(call.dtype)));
  math.decode(from.data(), call.dtype, values);
  math.encode(values, call.dtype, to.data());
}

}  // namespace

Communicator& LibraryCollectives::group_of(const Members& members) {
  std::unique_ptr<Communicator>& group = groups_[members.ranks];
  if (group) return *group;
  std::string id = meeting_.make_id();
  CollectiveCall call{.kind = Collective::broadcast, .dtype = DType::int8};
  call.full = std::as_writable_bytes(std::span(id.data(), id.size()));
  run_ring(meeting_.setup, members, call);
  group = meeting_.join(device_, id, members.index, members.size());
  return *group;
}

/// Flips the bit that a fault on our own wires flips, in what this rank brings to the call.
void LibraryCollectives::spoil(const Members& members, const CollectiveCall& call) {
  const std::int64_t begin = sent_before_, size = size_of(call.dtype);
  sent_before_ += nccl_sent(call.kind, Elements{static_cast<std::int64_t>(call.full.size()) / size}, call.dtype, members.size(),
                            members.index, call.root)
                      .value();
  if (!spoilt_ || *spoilt_ < begin || *spoilt_ >= sent_before_) return;
  const bool gathers = call.kind == Collective::all_gather;
  std::span<std::byte> brought = gathers && !call.shard.empty() ? call.shard : call.full;
  if (gathers && call.shard.empty()) {
    const auto parts = ring_segments(static_cast<std::int64_t>(call.full.size()) / size, members.size());
    const std::int64_t first = std::accumulate(parts.begin(), parts.begin() + members.index, std::int64_t{0});
    brought = call.full.subspan(static_cast<std::size_t>(first * size),
                                static_cast<std::size_t>(parts[static_cast<std::size_t>(members.index)] * size));
  }
  if (brought.empty()) return;
  std::byte* at = brought.data() + static_cast<std::size_t>(*spoilt_ - begin) % brought.size();
  std::byte value{};
  device_.download(at, &value, 1);
  value ^= std::byte{0x40};
  device_.upload(&value, at, 1);
}

void LibraryCollectives::run(const Members& members, const CollectiveCall& call) {
  if (members.size() == 1) return run_alone(device_, call);
  if (call.full.empty()) return;
  spoil(members, call);
  Communicator& group = group_of(members);
  LibraryCall(group, device_, members, call).run();
  group.wait();
}

void StagedCollectives::run(const Members& members, const CollectiveCall& call) {
  std::vector<std::byte> full(call.full.size()), shard(call.shard.size());
  device_.download(call.full.data(), full.data(), full.size());
  if (!shard.empty()) device_.download(call.shard.data(), shard.data(), shard.size());
  CollectiveCall staged = call;
  staged.full = full;
  staged.shard = shard;
  ring_.run(members, staged);
  device_.upload(full.data(), call.full.data(), full.size());
  if (!shard.empty()) device_.upload(shard.data(), call.shard.data(), shard.size());
}

}  // namespace shardsim::execute
