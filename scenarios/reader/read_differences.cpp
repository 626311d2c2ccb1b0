// SPDX-License-Identifier: Apache-2.0
// cluster.differences: which ranks are unlike the rest, as a state for each rank.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <random>

#include "scenarios/reader/reading.hpp"

namespace shardsim {
namespace {

/// "2 %" or 0.02.
std::optional<double> as_share(const ConfigNode& node, Problems& problems, double most) {
  const std::string_view text = node.text;
  const std::size_t percent = text.find('%');
  const std::string_view digits = text.substr(0, std::min(percent, text.find_last_not_of(" %") + 1));
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool read = node.kind == ConfigNode::Kind::scalar && error == std::errc{} && end == digits.data() + digits.size() &&
                    (percent == std::string_view::npos || percent + 1 == text.size());
  if (read && percent != std::string_view::npos) value /= 100;
  if (read && value > 0 && value <= most) return value;
  problems.add(node.where, in_quotes(node.text) + " is not a share", {fmt::format("allowed: more than 0 %, at most {:g} %", 100 * most)});
  return std::nullopt;
}

struct World {
  std::int64_t nodes, gpus_per_node;
  [[nodiscard]] std::int64_t size() const { return nodes * gpus_per_node; }
};

/// Numbers of a list, or one number, each in [0, count).
std::vector<std::int64_t> numbers(const ConfigNode& node, std::int64_t count, const char* what, Problems& problems) {
  std::vector<std::int64_t> out;
  const auto add = [&](const ConfigNode& item) {
    const std::size_t before = problems.size();
    const auto number = as_integer(item, problems, 0, count - 1);
    if (number && problems.size() == before) out.push_back(*number);
  };
  if (node.kind == ConfigNode::Kind::list)
    for (const ConfigNode& item : node.items) add(item);
  else
    add(node);
  if (node.kind == ConfigNode::Kind::list && node.items.empty()) problems.add(node.where, fmt::format("no {} named", what));
  return out;
}

/// The ranks that an entry is about.
std::vector<std::int64_t> ranks_of(MapReader& reader, const World& world) {
  std::vector<std::int64_t> ranks;
  Problems& problems = reader.problems();
  int ways = 0;
  if (const ConfigNode* node = reader.find("ranks")) {
    ++ways;
    ranks = numbers(*node, world.size(), "ranks", problems);
  }
  if (const ConfigNode* node = reader.find("nodes")) {
    ++ways;
    for (const std::int64_t n : numbers(*node, world.nodes, "nodes", problems))
      for (std::int64_t g = 0; g < world.gpus_per_node; ++g) ranks.push_back(n * world.gpus_per_node + g);
  }
  if (const ConfigNode* node = reader.find("share")) {
    ++ways;
    if (const auto share = as_share(*node, problems, 1)) {
      const auto count = std::max<std::int64_t>(1, std::llround(*share * static_cast<double>(world.size())));
      for (std::int64_t i = 0; i < count; ++i) ranks.push_back(i * world.size() / count);  // spread evenly over the world
    }
  }
  if (ways != 1) problems.add(reader.node().where, "a difference is about ranks, nodes or a share of the ranks: one of them");
  return ranks;
}

void slow_down(double& value, double factor, const char* word, std::string& why) {
  if (factor == 1) return;
  value *= factor;
  why += fmt::format("{}{} x{:g}", why.empty() ? "" : ", ", word, factor);
}

class Differences {
 public:
  Differences(const World& world, const std::string& folder)
      : world_(world), folder_(folder), states_(static_cast<std::size_t>(world.size())) {}

  void read(const ConfigNode& entry, Problems& problems) {
    MapReader reader(entry, problems, "differences");
    if (const ConfigNode* spread = reader.find("spread"))
      read_spread(*spread, reader);
    else
      read_named(reader);
    reader.finish();
  }

  [[nodiscard]] RankStates take() && {
    RankStates out;
    std::map<std::tuple<double, double, double, double, const Profile*>, std::uint32_t> known;
    for (RankState& state : states_) {
      const auto [at, fresh] = known.try_emplace({state.compute, state.host, state.nic, state.collectives, state.profile.get()},
                                                 static_cast<std::uint32_t>(out.states.size()));
      if (fresh) out.states.push_back(std::move(state));
      out.of_rank.push_back(at->second);
    }
    if (out.states.size() == 1 && out.states.front() == RankState{}) return {};
    return out;
  }

 private:
  void read_named(MapReader& reader) {
    const std::vector<std::int64_t> ranks = ranks_of(reader, world_);
    const double slow = reader.number("slow", 1, 0.01, 1000), host = reader.number("host", 1, 0.01, 1000),
                 nic = reader.number("nic", 1, 0.001, 1);
    std::shared_ptr<const Profile> profile;
    if (const ConfigNode* name = reader.find("profile")) profile = read_profile_of(*name, reader.problems());
    if (slow == 1 && host == 1 && nic == 1 && !reader.has("slow") && !reader.has("host") && !reader.has("nic") && !reader.has("profile"))
      reader.problems().add(reader.node().where, "a difference has an effect", {"allowed: slow, nic, host, profile"});
    for (const std::int64_t rank : ranks) {
      RankState& state = states_[static_cast<std::size_t>(rank)];
      slow_down(state.compute, slow, "compute", state.why);
      slow_down(state.host, host, "host", state.why);
      slow_down(state.nic, nic, "NIC", state.why);
      if (profile) {
        state.profile = profile;
        state.why += (state.why.empty() ? "" : ", ") + profile->gpu.name;
      }
    }
  }

  /// Lognormal factors of mean one around what the profile says; the seed decides them.
  void read_spread(const ConfigNode& node, MapReader& outer) {
    MapReader reader(node, outer.problems(), "spread");
    const auto sigma = [&](const char* key) {
      const ConfigNode* value = reader.find(key);
      return value ? as_share(*value, outer.problems(), 1).value_or(0) : 0;
    };
    const double compute = sigma("compute"), collectives = sigma("collectives");
    reader.finish();
    std::mt19937_64 generator(static_cast<std::uint64_t>(outer.integer("seed", 1, 0)));
    const auto factor = [&](double spread) {
      const double width = std::sqrt(std::log1p(spread * spread));
      // A sum of twelve uniform numbers: the same on every standard library, which std::normal_distribution is not.
      double normal = -6;
      for (int i = 0; i < 12; ++i) normal += static_cast<double>(generator() >> 11) * 0x1.0p-53;
      return std::exp(width * normal - width * width / 2);
    };
    if (compute == 0 && collectives == 0) outer.problems().add(node.where, "a spread is of compute, of collectives, or of both");
    for (RankState& state : states_) {
      if (compute > 0) state.compute *= factor(compute);
      if (collectives > 0) state.collectives *= factor(collectives);
      state.why = "random spread";
    }
  }

  std::shared_ptr<const Profile> read_profile_of(const ConfigNode& name, Problems& problems) {
    const auto tree = read_named_file(name, folder_, FileFormat::yaml, problems);
    if (!tree) return nullptr;
    auto profile = read_profile(*tree);
    if (profile) return std::make_shared<const Profile>(std::move(*profile));
    for (const Problem& problem : profile.error().list()) problems.add(problem.where, problem.message, problem.notes);
    return nullptr;
  }

  World world_;
  const std::string& folder_;
  std::vector<RankState> states_;  // by rank
};

constexpr std::int64_t most_unlike_ranks = std::int64_t{1} << 16;

}  // namespace

RankStates read_differences(const ConfigNode& node, const Cluster& cluster, const std::string& folder, Problems& problems) {
  if (node.kind != ConfigNode::Kind::list) {
    problems.add(node.where, "differences is a list", {"- {ranks: [3], slow: 1.2}"});
    return {};
  }
  if (cluster.world_size() > most_unlike_ranks) {
    problems.add(node.where, fmt::format("differences between more than {} ranks are not simulated", most_unlike_ranks));
    return {};
  }
  const std::size_t before = problems.size();
  Differences differences({cluster.nodes, cluster.gpus_per_node}, folder);
  for (const ConfigNode& entry : node.items) differences.read(entry, problems);
  return problems.size() == before ? std::move(differences).take() : RankStates{};
}

}  // namespace shardsim
