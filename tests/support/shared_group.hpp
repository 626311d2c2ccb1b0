// SPDX-License-Identifier: Apache-2.0
// A communication library that is none: ranks of one machine meet in memory that they share since before they were forked. It counts what
// NCCL's rings would send for the calls it gets.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <span>
#include <stdexcept>
#include <thread>

#include "calibrate/execute/backends/device.hpp"
#include "calibrate/execute/backends/gpu_plan.hpp"
#include "calibrate/execute/training/element.hpp"

namespace shardsim::test {

/// Made before the ranks are.
class SharedArena {
 public:
  static constexpr int groups = 16, most_ranks = 8;
  static constexpr std::size_t room = 1u << 20;

  struct Group {
    std::atomic<int> waiting{0}, round{0};
    std::byte data[most_ranks][room];
  };
  struct Shared {
    std::atomic<int> used{0};
    Group group[groups];
  };

  SharedArena() : shared_(new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared) {}
  ~SharedArena() { ::munmap(shared_, sizeof(Shared)); }
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  /// An id is the number of a group that nobody has used.
  [[nodiscard]] std::string make_id() const {
    const int group = shared_->used++;
    if (group >= groups) throw std::logic_error("the arena has no group left");
    return std::string(1, static_cast<char>('a' + group));
  }
  [[nodiscard]] Group& at(const std::string& id) const { return shared_->group[id.at(0) - 'a']; }

 private:
  Shared* shared_;
};

class SharedGroup final : public execute::Communicator {
 public:
  SharedGroup(SharedArena::Group& group, int rank, int ranks, std::int64_t& sent)
      : group_(group), rank_(rank), ranks_(ranks), sent_(sent) {}

  void begin() override { grouped_ = true; }
  void end() override {
    grouped_ = false;
    for (const auto& send : std::exchange(sends_, {})) send();
    barrier();
    for (const auto& receive : std::exchange(receives_, {})) receive();
    barrier();
    for (const auto& call : std::exchange(calls_, {})) call();
  }

  void all_reduce(void* buffer, std::size_t count, execute::Wire wire, bool largest) override {
    now_or_later([=, this] {
      share(buffer, count, wire);
      sum_into(static_cast<std::byte*>(buffer), 0, count, wire, largest);
      charge(Collective::all_reduce, count, wire);
    });
  }
  void all_gather(const void* part, void* full, std::size_t part_count, execute::Wire wire) override {
    now_or_later([=, this] {
      const std::size_t bytes = part_count * size(wire);
      share(part, part_count, wire);
      for (int r = 0; r < ranks_; ++r)
        std::memcpy(static_cast<std::byte*>(full) + static_cast<std::size_t>(r) * bytes, group_.data[r], bytes);
      barrier();
      charge(Collective::all_gather, part_count * static_cast<std::size_t>(ranks_), wire);
    });
  }
  void reduce_scatter(const void* full, void* part, std::size_t part_count, execute::Wire wire, bool largest) override {
    now_or_later([=, this] {
      share(full, part_count * static_cast<std::size_t>(ranks_), wire);
      sum_into(static_cast<std::byte*>(part), static_cast<std::size_t>(rank_) * part_count, part_count, wire, largest);
      charge(Collective::reduce_scatter, part_count * static_cast<std::size_t>(ranks_), wire);
    });
  }
  void broadcast(const void* from, void* to, std::size_t count, execute::Wire wire, int root) override {
    now_or_later([=, this] {
      share(from, count, wire);
      std::memcpy(to, group_.data[root], count * size(wire));
      barrier();
      charge(Collective::broadcast, count, wire, root);
    });
  }
  void reduce(const void* from, void* to, std::size_t count, execute::Wire wire, bool largest, int root) override {
    now_or_later([=, this] {
      share(from, count, wire);
      std::vector<std::byte> others(rank_ == root ? 0 : count * size(wire));
      sum_into(rank_ == root ? static_cast<std::byte*>(to) : others.data(), 0, count, wire, largest);
      charge(Collective::reduce, count, wire, root);
    });
  }
  void send(const void* buffer, std::size_t count, execute::Wire wire, int peer) override {
    sends_.push_back([=, this] {
      std::memcpy(group_.data[rank_] + static_cast<std::size_t>(peer) * count * size(wire), buffer, count * size(wire));
      sent_ += static_cast<std::int64_t>(count * size(wire));
    });
  }
  void receive(void* buffer, std::size_t count, execute::Wire wire, int peer) override {
    receives_.push_back(
        [=, this] { std::memcpy(buffer, group_.data[peer] + static_cast<std::size_t>(rank_) * count * size(wire), count * size(wire)); });
  }
  void wait() override {}

 private:
  static std::size_t size(execute::Wire wire) { return wire == execute::Wire::bf16 ? 2 : 4; }
  static DType type_of(execute::Wire wire) { return wire == execute::Wire::bf16 ? DType::bf16 : DType::fp32; }

  void now_or_later(std::function<void()> call) {
    if (grouped_)
      calls_.push_back(std::move(call));
    else
      call();
  }
  void barrier() {
    const int round = group_.round;
    if (++group_.waiting == ranks_) {
      group_.waiting = 0;
      ++group_.round;
    }
    while (group_.round == round) std::this_thread::yield();
  }
  void share(const void* values, std::size_t count, execute::Wire wire) {
    if (count * size(wire) > SharedArena::room) throw std::logic_error("a payload is larger than the arena's room");
    std::memcpy(group_.data[rank_], values, count * size(wire));
    barrier();
  }
  void sum_into(std::byte* target, std::size_t begin, std::size_t count, execute::Wire wire, bool largest) {
    const std::size_t bytes = count * size(wire), from = begin * size(wire);
    std::vector<std::byte> sum(group_.data[0] + from, group_.data[0] + from + bytes);
    for (int r = 1; r < ranks_; ++r)
      execute::combine(sum, {group_.data[r] + from, bytes}, type_of(wire), largest ? Reduction::max : Reduction::sum);
    barrier();
    std::copy(sum.begin(), sum.end(), target);
  }
  void charge(Collective kind, std::size_t count, execute::Wire wire, int root = 0) {
    sent_ += execute::nccl_sent(kind, Elements{static_cast<std::int64_t>(count)}, type_of(wire), ranks_, rank_, root).value();
  }

  SharedArena::Group& group_;
  int rank_, ranks_;
  std::int64_t& sent_;
  bool grouped_ = false;
  std::vector<std::function<void()>> calls_, sends_, receives_;
};

}  // namespace shardsim::test
