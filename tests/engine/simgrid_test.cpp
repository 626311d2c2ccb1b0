// SPDX-License-Identifier: Apache-2.0
// Rings beside SimGrid (https://simgrid.org, LGPL; Debian: libsimgrid-dev), where it is installed. SimGrid shares links max-min fairly,
// too, but by an implementation of its own: actors that send slices as messages. Its model is set to plain bandwidths: no TCP factors.
#include <gtest/gtest.h>

#ifdef SHARDSIM_SIMGRID
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <simgrid/s4u.hpp>

#include "sim/costs/collectives/collective_models.hpp"
#include "sim/costs/collectives/ring_steps.hpp"
#include "sim/engine/engine.hpp"
#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {
namespace {

namespace s4u = simgrid::s4u;

constexpr int ranks = 4;

/// Links by rate, the links that the step from each rank to the next passes, and the payload of each all-gather that runs at once.
struct Platform {
  std::vector<double> rates;
  std::array<std::vector<std::size_t>, ranks> hops;
  std::vector<Bytes> rings;
};

/// One rank's program: a slice leaves when the one that arrived a chunk ago is here and the one before has left.
void gather(int ring, int rank, Bytes payload, double* end) {
  auto* out = s4u::Mailbox::by_name("ring" + std::to_string(ring) + "-" + std::to_string(rank));
  auto* in = s4u::Mailbox::by_name("ring" + std::to_string(ring) + "-" + std::to_string((rank + ranks - 1) % ranks));
  static int token = 0;
  for (const RingLoop& loop : ring_loops(payload, ranks, 1))
    for (std::int64_t l = 0; l < loop.count; ++l) {
      const std::size_t per_chunk = loop.chunk > loop.slice ? 2 : 1, slices = per_chunk * (ranks - 1);
      std::vector<int*> received(slices);
      std::vector<s4u::CommPtr> arrivals;
      for (std::size_t i = 0; i < slices; ++i) arrivals.push_back(in->get_async<int>(&received[i]));
      for (std::size_t i = 0; i < slices; ++i) {
        if (i >= per_chunk) arrivals[i - per_chunk]->wait();
        out->put(&token, static_cast<std::uint64_t>(i % per_chunk == 0 ? loop.slice : loop.chunk - loop.slice));
      }
      for (const auto& arrival : arrivals) arrival->wait();
    }
  *end = std::max(*end, s4u::Engine::get_clock());
}

std::vector<double> ends_in_simgrid(const Platform& platform) {
  std::array<std::string, 5> words{"rings", "--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0", "--cfg=network/crosstraffic:0",
                                   "--log=root.thres:critical"};
  std::array<char*, 5> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  int count = static_cast<int>(words.size());
  s4u::Engine engine(&count, arguments.data());
  auto* zone = s4u::create_full_zone("cluster");
  std::vector<s4u::Host*> hosts;
  std::vector<s4u::Link*> links;
  for (int i = 0; i < ranks; ++i) hosts.push_back(zone->create_host("gpu" + std::to_string(i), 1e9)->seal());
  for (std::size_t i = 0; i < platform.rates.size(); ++i)
    links.push_back(zone->create_link("link" + std::to_string(i), platform.rates[i])->set_latency(0)->seal());
  for (std::size_t i = 0; i < ranks; ++i) {
    std::vector<s4u::LinkInRoute> route;
    for (const std::size_t link : platform.hops[i]) route.emplace_back(links[link]);
    zone->add_route(hosts[i]->get_netpoint(), hosts[(i + 1) % ranks]->get_netpoint(), nullptr, nullptr, route, false);
  }
  zone->seal();
  std::vector<double> ends(platform.rings.size(), 0);
  for (std::size_t r = 0; r < ends.size(); ++r)
    for (int i = 0; i < ranks; ++i)
      s4u::Actor::create("rank", hosts[static_cast<std::size_t>(i)],
                         [&ends, &platform, r, i] { gather(static_cast<int>(r), i, platform.rings[r], &ends[r]); });
  engine.run();
  return ends;
}

/// In a process of its own: SimGrid has one engine a process.
std::vector<double> simgrid(const Platform& platform) {
  std::array<int, 2> pipe_ends{};
  EXPECT_EQ(pipe(pipe_ends.data()), 0);
  const std::size_t size = platform.rings.size() * sizeof(double);
  const pid_t child = fork();
  if (child == 0) {
    const std::vector<double> ends = ends_in_simgrid(platform);
    _exit(write(pipe_ends[1], ends.data(), size) == static_cast<ssize_t>(size) ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::vector<double> ends(platform.rings.size(), 0);
  EXPECT_EQ(read(pipe_ends[0], ends.data(), size), static_cast<ssize_t>(size));
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  return ends;
}

constexpr double tolerance = 1e-3;

TEST(SimGrid, AgreesOnARingWithOneSlowLink) {
  const std::vector<ByteRate> links{ByteRate{50e9}, ByteRate{50e9}, ByteRate{10e9}, ByteRate{50e9}};
  for (const Bytes payload : {gibibytes(1), mebibytes(9) + Bytes{1000}, kibibytes(200)}) {
    const Seconds ours = explicit_ring(Collective::all_gather, payload, links, {1, ByteRate{50e9}, {}, {}});
    EXPECT_NEAR(ours.base() / simgrid({{50e9, 50e9, 10e9, 50e9}, {{{0}, {1}, {2}, {3}}}, {payload}})[0], 1, tolerance) << payload.value();
  }
}

TEST(SimGrid, AgreesOnTwoRingsThatShareEveryLink) {
  const std::array payloads{mebibytes(256), mebibytes(512)};
  ScheduleBuilder b;
  std::vector<OpCost> costs;
  for (const Bytes payload : payloads) {
    const std::string name = "ring" + std::to_string(payload.value());
    const StreamId stream = b.stream(name);
    const BufferId full =
        b.allocate({.label = {"buffer", {}}, .dtype = DType::fp32, .pool = {}, .layout = {}, .elements = Elements{payload.value() / 4}});
    b.communicate({"all_gather", {}}, stream,
                  {.kind = Collective::all_gather,
                   .communicator = b.communicator(name, name, ranks),
                   .dtype = DType::fp32,
                   .payload = Elements{payload.value() / 4},
                   .source = {},
                   .target = full,
                   .offset = {}});
  }
  for (const Op& op : b.schedule().ops) {
    OpCost cost;
    if (const auto* c = std::get_if<Communicate>(&op.action)) {
      cost.collective = true;
      cost.device = SimTime::from(stepwise_ring(Collective::all_gather, bytes(c->payload, c->dtype), ranks, {1, ByteRate{50e9}, {}, {}}));
      cost.share[static_cast<std::size_t>(Resource::network)] = 1;
    }
    costs.push_back(cost);
  }
  const RankProgram program = priced_op_by_op(b.schedule(), costs);
  const Timeline timeline = simulate({&program, 1}, {}).front();
  const std::vector<double> theirs = simgrid({{50e9, 50e9, 50e9, 50e9}, {{{0}, {1}, {2}, {3}}}, {payloads[0], payloads[1]}});
  ASSERT_EQ(timeline.slices.size(), 2u);
  EXPECT_NEAR(timeline.slices[0].end.seconds().base() / theirs[0], 1, 2e-3);
  EXPECT_NEAR(timeline.slices[1].end.seconds().base() / theirs[1], 1, 2e-3);
}

/// An all-to-all: every rank has a message for every other in flight at once. Links by rate, and those between every two ranks.
struct Exchange {
  std::vector<double> rates;
  std::array<std::array<std::vector<std::size_t>, ranks>, ranks> hops;
  Bytes payload;
};

double end_of_exchange(const Exchange& exchange) {
  std::array<std::string, 5> words{"exchange", "--cfg=network/model:CM02", "--cfg=network/TCP-gamma:0", "--cfg=network/crosstraffic:0",
                                   "--log=root.thres:critical"};
  std::array<char*, 5> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  int count = static_cast<int>(words.size());
  s4u::Engine engine(&count, arguments.data());
  auto* zone = s4u::create_full_zone("cluster");
  std::vector<s4u::Host*> hosts;
  std::vector<s4u::Link*> links;
  for (int i = 0; i < ranks; ++i) hosts.push_back(zone->create_host("gpu" + std::to_string(i), 1e9)->seal());
  for (std::size_t i = 0; i < exchange.rates.size(); ++i)
    links.push_back(zone->create_link("link" + std::to_string(i), exchange.rates[i])->set_latency(0)->seal());
  for (std::size_t i = 0; i < ranks; ++i)
    for (std::size_t j = 0; j < ranks; ++j) {
      if (i == j) continue;
      std::vector<s4u::LinkInRoute> route;
      for (const std::size_t link : exchange.hops[i][j]) route.emplace_back(links[link]);
      zone->add_route(hosts[i]->get_netpoint(), hosts[j]->get_netpoint(), nullptr, nullptr, route, false);
    }
  zone->seal();
  double end = 0;
  static int token = 0;
  for (int i = 0; i < ranks; ++i)
    s4u::Actor::create("rank", hosts[static_cast<std::size_t>(i)], [&end, &exchange, i] {
      std::vector<s4u::CommPtr> all;
      std::vector<int*> received(ranks);
      for (int j = 0; j < ranks; ++j) {
        if (i == j) continue;
        const auto box = [](int from, int to) { return s4u::Mailbox::by_name(std::to_string(from) + "-" + std::to_string(to)); };
        all.push_back(box(j, i)->get_async<int>(&received[static_cast<std::size_t>(j)]));
        all.push_back(box(i, j)->put_async(&token, static_cast<std::uint64_t>(exchange.payload.value() / ranks)));
      }
      for (const auto& comm : all) comm->wait();
      end = std::max(end, s4u::Engine::get_clock());
    });
  engine.run();
  return end;
}

/// In a process of its own, as above.
double simgrid(const Exchange& exchange) {
  std::array<int, 2> pipe_ends{};
  EXPECT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const double end = end_of_exchange(exchange);
    _exit(write(pipe_ends[1], &end, sizeof end) == static_cast<ssize_t>(sizeof end) ? 0 : 1);
  }
  close(pipe_ends[1]);
  double end = 0;
  EXPECT_EQ(read(pipe_ends[0], &end, sizeof end), static_cast<ssize_t>(sizeof end));
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  return end;
}

TEST(SimGrid, AgreesOnAnAllToAllUnderOversubscribedLeaves) {
  for (const bool scattered : {false, true}) {
    Cluster cluster;
    cluster.nodes = ranks;
    cluster.gpus_per_node = cluster.nics_per_node = 1;
    cluster.profile.node.gpus = 1;
    cluster.profile.node.ring_bandwidth = ByteRate{400e9};
    cluster.profile.network.nics_per_node = 1;
    cluster.profile.network.nic_bandwidth = ByteRate{50e9};
    cluster.profile.topology = Topology{};
    cluster.profile.topology->nodes_per_leaf = 2;
    cluster.profile.topology->oversubscription = 2;
    cluster.profile.topology->scattered = scattered;
    cluster.profile.topology->spine_latency = {};
    const ClosedForm ours = flat_ring(Collective::all_to_all, gibibytes(1), ring_path(Group{"world", ranks, 1}, cluster, true));
    Exchange exchange{std::vector<double>(12, 50e9), {}, gibibytes(1)};
    for (std::size_t i = 0; i < ranks; ++i)
      for (std::size_t j = 0; j < ranks; ++j) {
        const std::size_t from = scattered ? i % 2 : i / 2, to = scattered ? j % 2 : j / 2;
        exchange.hops[i][j] = from == to ? std::vector<std::size_t>{i, 4 + j} : std::vector<std::size_t>{i, 8 + from, 10 + to, 4 + j};
      }
    EXPECT_NEAR(ours.time.base() / simgrid(exchange), 1, tolerance) << scattered;
    EXPECT_NEAR(ours.time.base(), 1073741824 / 50e9, 1e-6);  // half of every buffer leaves its leaf, two over 50 GB/s
  }
}

TEST(SimGrid, AgreesOnAnOversubscribedLeaf) {
  // Nodes 0 and 2 under one leaf, 1 and 3 under the other: every step leaves its leaf, two share an uplink of one NIC's rate.
  Cluster cluster;
  cluster.nodes = ranks;
  cluster.gpus_per_node = cluster.nics_per_node = 1;
  cluster.profile.node.gpus = 1;
  cluster.profile.node.ring_bandwidth = ByteRate{400e9};
  cluster.profile.network.nics_per_node = 1;
  cluster.profile.network.nic_bandwidth = ByteRate{50e9};
  cluster.profile.topology = Topology{};
  cluster.profile.topology->nodes_per_leaf = 2;
  cluster.profile.topology->oversubscription = 2;
  cluster.profile.topology->scattered = true;
  cluster.profile.topology->spine_latency = {};
  const ClosedForm ours = flat_ring(Collective::all_gather, gibibytes(1), ring_path(Group{"world", ranks, 1}, cluster));
  // Links 0 to 3: NICs, outwards; 4 to 7: inwards; 8 and 9: leaves to the spine; 10 and 11: back.
  Platform platform{std::vector<double>(12, 50e9), {}, {gibibytes(1)}};
  for (std::size_t i = 0; i < ranks; ++i) platform.hops[i] = {i, 8 + i % 2, 10 + (i + 1) % 2, 4 + (i + 1) % ranks};
  EXPECT_NEAR(ours.time.base() / simgrid(platform)[0], 1, tolerance);
  EXPECT_NEAR(ours.time.base(), 0.75 * 1073741824 / 25e9, 1e-6);
}

}  // namespace
}  // namespace shardsim

#else

TEST(SimGrid, AgreesOnARingWithOneSlowLink) { GTEST_SKIP() << "SimGrid (libsimgrid-dev) is not installed"; }
TEST(SimGrid, AgreesOnTwoRingsThatShareEveryLink) { GTEST_SKIP() << "SimGrid (libsimgrid-dev) is not installed"; }
TEST(SimGrid, AgreesOnAnAllToAllUnderOversubscribedLeaves) { GTEST_SKIP() << "SimGrid (libsimgrid-dev) is not installed"; }
TEST(SimGrid, AgreesOnAnOversubscribedLeaf) { GTEST_SKIP() << "SimGrid (libsimgrid-dev) is not installed"; }

#endif
