// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/fair_share.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace shardsim {
namespace {

TEST(FairShare, FullSpeedWhereEverythingFits) {
  FairShare shares(2);
  const std::size_t a = shares.add_flow();
  shares.use(0, 0.4F);
  const std::size_t b = shares.add_flow();
  shares.use(0, 0.6F);
  shares.use(1, 1);
  const std::size_t c = shares.add_flow();  // uses nothing
  shares.solve();
  EXPECT_EQ(shares.speed(a), 1);
  EXPECT_EQ(shares.speed(b), 1);
  EXPECT_EQ(shares.speed(c), 1);
}

// The textbook example of max-min fairness: one long flow over two links, one short flow on each. The first link is shared by three.
TEST(FairShare, RaisesAllUntilALinkIsFullThenTheRest) {
  FairShare shares(2);
  const std::size_t across = shares.add_flow();
  shares.use(0, 1);
  shares.use(1, 1);
  const std::size_t first = shares.add_flow();
  shares.use(0, 1);
  const std::size_t other = shares.add_flow();
  shares.use(0, 1);
  const std::size_t second = shares.add_flow();
  shares.use(1, 1);
  shares.solve();
  EXPECT_NEAR(shares.speed(across), 1.0 / 3, 1e-9);
  EXPECT_NEAR(shares.speed(first), 1.0 / 3, 1e-9);
  EXPECT_NEAR(shares.speed(other), 1.0 / 3, 1e-9);
  EXPECT_NEAR(shares.speed(second), 2.0 / 3, 1e-9);
}

TEST(FairShare, ForgetsWhatWasCleared) {
  FairShare shares(1);
  for (int i = 0; i < 2; ++i) {
    shares.add_flow();
    shares.use(0, 1);
  }
  shares.solve();
  EXPECT_EQ(shares.speed(0), 0.5);
  shares.clear();
  shares.add_flow();
  shares.use(0, 1);
  shares.solve();
  EXPECT_EQ(shares.speed(0), 1);
}

RC_GTEST_PROP(FairShare, FillsNoResourceBeyondItsCapacityAndHoldsNobodyBackWithoutReason, ()) {
  const auto demands = *rc::gen::container<std::vector<std::vector<int>>>(
      rc::gen::container<std::vector<int>>(3, rc::gen::inRange(0, 5)));  // quarters of each of three resources
  RC_PRE(!demands.empty());
  FairShare shares(3);
  for (const auto& demand : demands) {
    shares.add_flow();
    for (std::size_t r = 0; r < 3; ++r) shares.use(r, static_cast<float>(demand[r]) / 4);
  }
  shares.solve();
  std::vector<double> load(3);
  for (std::size_t i = 0; i < demands.size(); ++i)
    for (std::size_t r = 0; r < 3; ++r) load[r] += shares.speed(i) * demands[i][r] / 4;
  for (double l : load) RC_ASSERT(l <= 1 + 1e-5);
  for (std::size_t i = 0; i < demands.size(); ++i) {
    bool held = shares.speed(i) == 1;
    for (std::size_t r = 0; r < 3; ++r) {  // held by a full resource on which nobody is faster
      bool fastest = true;
      for (std::size_t k = 0; k < demands.size(); ++k)
        fastest = fastest && (demands[k][r] == 0 || shares.speed(k) <= shares.speed(i) + 1e-5);
      held = held || (demands[i][r] > 0 && load[r] > 1 - 1e-5 && fastest);
    }
    RC_ASSERT(held);
  }
}

}  // namespace
}  // namespace shardsim
