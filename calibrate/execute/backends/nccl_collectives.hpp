// SPDX-License-Identifier: Apache-2.0
// Collectives of a schedule on the memory of a device: over a communication library, or through the host over TCP.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/execute/backends/collectives.hpp"
#include "calibrate/execute/backends/device.hpp"
#include "calibrate/ranks/transport.hpp"

namespace shardsim::execute {

/// Something outside this program that counts what this rank sends.
struct ByteCounter {
  std::function<Bytes()> read;
  std::string name;
};

/// One collective call of the library for each of the schedule's, and several at once where the library knows only equal parts: uneven
/// all-gathers are a broadcast of each part, uneven reduce-scatters a reduction of each part to its owner, as in PyTorch.
/// Averages are sums that are divided once, at the end.
class LibraryCollectives final : public Collectives {
 public:
  /// How groups come together: the first member makes an id, and `setup` carries it to the others.
  struct Meeting {
    Transport& setup;
    MakeUniqueId make_id;
    JoinGroup join;
  };
  /// `spoilt`: a test's sabotage; the byte of that number among those that this rank sends is changed in the payload of the call that sends
  /// it.
  LibraryCollectives(Device& device, Meeting meeting, ByteCounter counter, std::optional<std::int64_t> spoilt = {})
      : device_(device), meeting_(std::move(meeting)), counter_(std::move(counter)), spoilt_(spoilt) {}

  void run(const Members& members, const CollectiveCall& call) override;
  [[nodiscard]] Bytes sent() const override { return groups_.empty() ? Bytes{} : counter_.read(); }
  [[nodiscard]] std::string counted_by() const override { return counter_.name; }

 private:
  [[nodiscard]] Communicator& group_of(const Members& members);
  void spoil(const Members& members, const CollectiveCall& call);

  Device& device_;
  Meeting meeting_;
  ByteCounter counter_;
  std::optional<std::int64_t> spoilt_;
  std::int64_t sent_before_ = 0;                                      // only to find the byte
  std::map<std::vector<int>, std::unique_ptr<Communicator>> groups_;  // by members
};

/// Payload is copied to the host, travels with `ring`, and is copied back.
class StagedCollectives final : public Collectives {
 public:
  StagedCollectives(Device& device, Collectives& ring) : device_(device), ring_(ring) {}
  void run(const Members& members, const CollectiveCall& call) override;
  [[nodiscard]] Bytes sent() const override { return ring_.sent(); }
  [[nodiscard]] std::string counted_by() const override { return ring_.counted_by(); }
  [[nodiscard]] const WireDigests* digests() const override { return ring_.digests(); }

 private:
  Device& device_;
  Collectives& ring_;
};

}  // namespace shardsim::execute
