// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <numeric>

#include "calibrate/execute/backends/collectives.hpp"
#include "calibrate/execute/training/element.hpp"
#include "calibrate/ranks/ranks.hpp"
#include "sim/base/problem.hpp"

namespace shardsim::execute {
namespace {

TEST(Element, Bf16RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F), 0x3f80);    // a tie goes to the even neighbour, below
  EXPECT_EQ(to_bf16(1.0F + 0x1.8p-7F), 0x3f82);  // and here to the even one above
  EXPECT_EQ(to_bf16(1.0F + 0x1.8p-8F), 0x3f81);  // over the tie
  EXPECT_EQ(to_bf16(3.4e38F), 0x7f80);           // overflow rounds to infinity
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::nanf("")))));
}

TEST(Element, CombineAddsInFp32AndRoundsOnce) {
  std::vector<float> a{1.0F, 256.0F, -2.0F}, b{0x1p-8F, 1.0F, 3.0F}, out(3);
  std::vector<std::byte> x(6), y(6);
  encode(a, DType::bf16, x);
  encode(b, DType::bf16, y);
  combine(x, y, DType::bf16, Reduction::sum);
  decode(x, DType::bf16, out);
  EXPECT_EQ(out, (std::vector<float>{1.0F, 256.0F, 1.0F}));  // 257 is a tie between 256 and 258
  combine(x, y, DType::bf16, Reduction::max);
  decode(x, DType::bf16, out);
  EXPECT_EQ(out, (std::vector<float>{1.0F, 256.0F, 3.0F}));
}

/// What a rank starts with: small integers, exact in bf16 whatever the order of the sum.
std::vector<float> start(int rank, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((static_cast<int>(i) + 3 * rank) % 7);
  return values;
}

std::vector<std::byte> bytes_of(const std::vector<float>& values, DType type) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(type)));
  encode(values, type, bytes);
  return bytes;
}

/// Result of one collective on one rank: the buffer after it, then the bytes that the kernel counted.
struct Outcome {
  std::vector<float> values;
  std::int64_t sent = 0;
};

std::vector<Outcome> run_collective(int n, std::int64_t count, CollectiveCall call) {
  const auto texts = run_ranks(n, [&](int rank, Line& line) {
    Mesh mesh(rank, n, [&](const auto& ports) { return line.meet(ports); });
    RingCollectives ring(mesh);
    auto buffer = bytes_of(start(rank, count), call.dtype);
    CollectiveCall mine = call;
    mine.full = buffer;
    ring.run(members_of(Group{"world", n, 1}, rank), mine);
    line.barrier();
    std::vector<float> values(static_cast<std::size_t>(count));
    decode(buffer, call.dtype, values);
    std::string text = std::to_string(ring.sent().value());
    for (float v : values) text += " " + std::to_string(v);
    return text;
  });
  std::vector<Outcome> outcomes;
  for (const std::string& text : texts) {
    Outcome outcome;
    const char* at = text.c_str();
    char* end = nullptr;
    outcome.sent = std::strtoll(at, &end, 10);
    while (*end != '\0') outcome.values.push_back(std::strtof(end, &end));
    outcomes.push_back(outcome);
  }
  return outcomes;
}

std::vector<float> summed(int n, std::int64_t count) {
  std::vector<float> sum(static_cast<std::size_t>(count));
  for (int rank = 0; rank < n; ++rank) {
    const auto values = start(rank, count);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

struct RingCase {
  int n;
  std::int64_t count;
  DType dtype;
};

class RingTest : public testing::TestWithParam<RingCase> {
 protected:
  void expect_bytes(const std::vector<Outcome>& outcomes, Collective kind, std::int64_t root = 0) const {
    const auto [n, count, dtype] = GetParam();
    for (int rank = 0; rank < n; ++rank)
      EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].sent,
                ring_sent_elements(kind, ring_segments(count, n), rank, root) * size_of(dtype))
          << name_of(kind) << " rank " << rank;
  }
};

TEST_P(RingTest, AllReduce) {
  const auto [n, count, dtype] = GetParam();
  const auto outcomes = run_collective(n, count, {.kind = Collective::all_reduce, .dtype = dtype});
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.values, summed(n, count));
  expect_bytes(outcomes, Collective::all_reduce);
}

TEST_P(RingTest, ReduceScatterInPlace) {
  const auto [n, count, dtype] = GetParam();
  const auto outcomes = run_collective(n, count, {.kind = Collective::reduce_scatter, .dtype = dtype});
  const auto segments = ring_segments(count, n);
  const auto sum = summed(n, count);
  std::size_t at = 0;
  for (int rank = 0; rank < n; ++rank)
    for (std::int64_t i = 0; i < segments[static_cast<std::size_t>(rank)]; ++i, ++at)
      EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].values[at], sum[at]) << rank;
  expect_bytes(outcomes, Collective::reduce_scatter);
}

TEST_P(RingTest, AllGatherInPlace) {
  const auto [n, count, dtype] = GetParam();
  const auto outcomes = run_collective(n, count, {.kind = Collective::all_gather, .dtype = dtype});
  std::vector<float> gathered;
  const auto segments = ring_segments(count, n);
  for (int rank = 0; rank < n; ++rank) {
    const auto values = start(rank, count);
    for (std::int64_t i = 0; i < segments[static_cast<std::size_t>(rank)]; ++i) gathered.push_back(values[gathered.size()]);
  }
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.values, gathered);
  expect_bytes(outcomes, Collective::all_gather);
}

TEST_P(RingTest, BroadcastAndReduceAlongAChain) {
  const auto [n, count, dtype] = GetParam();
  const int root = n - 1;
  const auto sent = run_collective(n, count, {.kind = Collective::broadcast, .dtype = dtype, .root = root});
  for (const Outcome& outcome : sent) EXPECT_EQ(outcome.values, start(root, count));
  expect_bytes(sent, Collective::broadcast, root);
  const auto reduced = run_collective(n, count, {.kind = Collective::reduce, .dtype = dtype, .root = root});
  EXPECT_EQ(reduced[static_cast<std::size_t>(root)].values, summed(n, count));
  EXPECT_EQ(reduced[0].values, n == 1 ? summed(n, count) : start(0, count));  // only the root's buffer changes
  expect_bytes(reduced, Collective::reduce, root);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RingTest,
                         testing::Values(RingCase{1, 5, DType::fp32}, RingCase{2, 7, DType::bf16}, RingCase{3, 50'003, DType::bf16},
                                         RingCase{4, 2, DType::fp32}, RingCase{4, 200'001, DType::fp32}),
                         [](const auto& p) { return "N" + std::to_string(p.param.n) + "Count" + std::to_string(p.param.count); });

TEST(Ring, AllToAllTransposesParts) {
  const auto outcomes = run_collective(3, 6, {.kind = Collective::all_to_all, .dtype = DType::fp32});
  // Rank 1 gets the second part of everybody: elements 2 and 3.
  EXPECT_EQ(outcomes[1].values, (std::vector<float>{2, 3, 5, 6, 1, 2}));
  EXPECT_EQ(outcomes[1].sent, 4 * 4);
}

TEST(Ring, AverageDividesOnceAtTheEnd) {
  const auto outcomes = run_collective(4, 4, {.kind = Collective::all_reduce, .dtype = DType::fp32, .reduction = Reduction::average});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(outcomes[2].values[i], summed(4, 4)[i] / 4);
}

TEST(Ring, GroupsOfStride) {
  const Members members = members_of(Group{"replicate", 2, 2}, 3);
  EXPECT_EQ(members.ranks, (std::vector<int>{1, 3}));
  EXPECT_EQ(members.index, 1);
  EXPECT_EQ(members_of(Group{"shard", 2, 1}, 3).ranks, (std::vector<int>{2, 3}));
}

TEST(Ring, AFlippedByteArrivesFlipped) {
  const auto texts = run_ranks(2, [](int rank, Line& line) {
    Mesh mesh(rank, 2, [&](const auto& ports) { return line.meet(ports); }, {.fault = WireFault{0, 3}});
    auto buffer = bytes_of({1.0F, 2.0F}, DType::fp32);
    RingCollectives(mesh).run(members_of(Group{"world", 2, 1}, rank),
                              {.kind = Collective::broadcast, .dtype = DType::fp32, .full = buffer});
    std::vector<float> values(2);
    decode(buffer, DType::fp32, values);
    return std::to_string(values[0]) + " " + std::to_string(values[1]);
  });
  EXPECT_EQ(texts[0], "1.000000 2.000000");
  EXPECT_EQ(texts[1], "inf 2.000000");  // 0x3f800000 becomes 0x7f800000
}

// Failure ------------------------------------------------------------------------------------------------------------------------

TEST(Ranks, AKilledRankEndsTheOthersSoon) {
  const auto begin = std::chrono::steady_clock::now();
  std::string what;
  try {
    (void)run_ranks(3, [](int rank, Line& line) {
      Mesh mesh(rank, 3, [&](const auto& ports) { return line.meet(ports); });
      std::vector<std::byte> buffer(1 << 20);
      for (int i = 0;; ++i) {
        if (rank == 1 && i == 3) ::raise(SIGKILL);
        RingCollectives(mesh).run(members_of(Group{"world", 3, 1}, rank), {.kind = Collective::all_reduce, .full = buffer});
      }
      return std::string();
    });
  } catch (const EnvironmentError& e) { what = e.what(); }
  EXPECT_EQ(what, "rank 1 was killed by signal 9; the others were ended");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Ranks, ARankThatNeverConnectsIsNamed) {
  std::string what;
  try {
    (void)run_ranks(2,
                    [](int rank, Line& line) {
                      const Rendezvous meet = [&](const auto& ports) { return line.meet(ports); };
                      if (rank == 1) {
                        (void)meet({0, 0});
                        ::pause();
                      }
                      Mesh mesh(rank, 2, meet, {.connect_timeout = std::chrono::milliseconds(200)});
                      return std::string();
                    },
                    {.grace = std::chrono::milliseconds(200)});
  } catch (const EnvironmentError& e) { what = e.what(); }
  EXPECT_EQ(what, "rank 0: rank 1 did not connect in time");
}

TEST(Ranks, ABugOfARankIsABugOfOurs) {
  EXPECT_THROW((void)run_ranks(2,
                               [](int rank, Line&) -> std::string {
                                 if (rank == 1) throw std::logic_error("schedule");
                                 return "fine";
                               }),
               std::logic_error);
}

}  // namespace
}  // namespace shardsim::execute
