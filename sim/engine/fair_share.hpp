// SPDX-License-Identifier: Apache-2.0
// Max-min fair sharing of resources of capacity 1 among flows that want to run at speed 1.
#pragma once

#include <cstdint>
#include <vector>

namespace shardsim {

/// Speeds s_i <= 1 such that for every resource sum_i s_i * share_i <= 1 and no speed can grow without shrinking a smaller one.
/// Found by raising all speeds together and freezing the users of each resource as it fills (Bertsekas and Gallager, Data Networks,
/// section 6.5.2). Kept between solutions so that solving allocates nothing.
class FairShare {
 public:
  explicit FairShare(std::size_t resources) : free_(resources), demand_(resources) {}

  void clear();
  /// Starts a new flow, of which the uses that follow are; returns its number.
  std::size_t add_flow();
  void use(std::size_t resource, float share);
  void solve();
  /// A multiple of 2^-32, so that it is the same on every machine.
  [[nodiscard]] double speed(std::size_t flow) const { return flows_[flow].speed; }

 private:
  struct Use {
    std::size_t resource;
    double share;
  };
  struct Flow {
    std::size_t begin, end;  // in uses_
    double speed;
    bool frozen;
  };

  [[nodiscard]] bool fits_at_full_speed();
  void measure_demand();
  [[nodiscard]] double next_level() const;
  [[nodiscard]] bool is_held_at(const Flow& flow, double level) const;
  std::size_t freeze(double level);

  std::vector<Use> uses_;
  std::vector<Flow> flows_;
  std::vector<double> free_, demand_;  // by resource: capacity not frozen yet; sum of shares of the flows not frozen yet
};

}  // namespace shardsim
