// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/ring_timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <sstream>

namespace shardsim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kinds{Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::broadcast};

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<Bytes> sizes_up_to(Bytes largest) {
  std::vector<Bytes> sizes;
  for (std::int64_t size = 1024; Bytes{size} <= largest; size *= 2) {
    sizes.emplace_back(size);
    if (Bytes{size / 2 * 3} <= largest) sizes.emplace_back(size / 2 * 3);
  }
  return sizes;
}

/// The slowest rank's time of one call: a broadcast's root, say, is done long before its last receiver.
double slowest(double own, execute::Line& line) {
  double most = 0;
  for (const std::string& text : line.gather(fmt::format("{}", own))) {
    double seconds = 0;
    std::from_chars(text.data(), text.data() + text.size(), seconds);
    most = std::max(most, seconds);
  }
  return most;
}

/// What an interrupted run measured.
struct Earlier {
  std::string lines;
  double seconds = 0;
};

Earlier earlier_of(const SampleJournal* journal) {
  Earlier earlier;
  if (journal == nullptr) return earlier;
  for (const std::string& line : journal->earlier("ring")) {
    double seconds = 0;
    const auto last = line.rfind(' ') + 1;
    std::from_chars(line.data() + last, line.data() + line.size(), seconds);
    earlier.lines += line + '\n';
    earlier.seconds += seconds;
  }
  return earlier;
}

}  // namespace

std::string time_rings(execute::Collectives& collectives, int rank, int ranks, const RingTiming& options, execute::Line& line) {
  const std::vector<Bytes> sizes = sizes_up_to(options.largest);
  std::vector<int> groups = options.group_sizes;
  groups.push_back(ranks);
  std::vector<std::byte> buffer(static_cast<std::size_t>(sizes.back().value()));
  auto [out, spent] = earlier_of(rank == 0 ? options.journal : nullptr);
  const auto begin = Clock::now();
  const auto used = [&, spent = spent] { return (spent + since(begin)) / options.budget.base(); };
  for (int round = 0;; ++round) {
    // Rank 0 decides when the time is up, and tells it by the barrier.
    if (line.gather(rank == 0 && round > options.warm_up && used() > 1 ? "stop" : "go")[0] == "stop") return out;
    if (rank == 0 && options.progress)
      options.progress(progress_share * std::clamp(used(), 0.0, 1.0), fmt::format("rings between {} ranks", ranks));
    for (const Bytes size : sizes)
      for (const int n : groups)
        for (const Collective kind : kinds) {
          const execute::Members members = execute::members_of(Group{"ring", n, 1}, rank);
          line.barrier();
          const auto start = Clock::now();
          collectives.run(members, {.kind = kind, .full = std::span(buffer).first(static_cast<std::size_t>(size.value()))});
          const double seconds = slowest(since(start), line);
          if (rank != 0 || round < options.warm_up) continue;
          const std::string sample = fmt::format("{} {} {} {}", static_cast<int>(kind), n, size.value(), seconds);
          if (options.journal != nullptr) options.journal->add("ring " + sample);
          out += sample + '\n';
        }
  }
}

void add_timings(const std::string& lines, int hosts, const std::string& origin, CollectiveSamples& samples) {
  std::istringstream in(lines);
  in.imbue(std::locale::classic());
  int kind = 0, ranks = 0;
  std::int64_t size = 0;
  double seconds = 0;
  while (in >> kind >> ranks >> size >> seconds) {
    const CollectiveSamples::Group group{
        .collective = static_cast<Collective>(kind), .ranks = ranks, .nodes = hosts, .algorithm = "ring", .protocol = ""};
    samples.add(group, Bytes{size}, Seconds{seconds});
    samples.note_origin(group, origin);
  }
}

void derive_ring(Profile& profile) {
  for (const CollectiveFit& fit : profile.collectives) {
    if (fit.collective == Collective::broadcast) continue;  // a chain, not a ring
    const auto& large = fit.samples.back();
    const ByteRate busbw = large.size / large.median * bus_factor(fit.collective, fit.ranks);
    profile.node.ring_bandwidth = std::max(profile.node.ring_bandwidth, busbw);
    const Seconds step = fit.samples.front().median / static_cast<double>(ring_steps(fit.collective, fit.ranks));
    if (profile.node.intra_latency == Seconds{} || step < profile.node.intra_latency) profile.node.intra_latency = step;
  }
}

}  // namespace shardsim
