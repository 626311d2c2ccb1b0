// SPDX-License-Identifier: Apache-2.0
// A network whose bandwidth is known: every rank in a network namespace of its own, behind a link that the kernel's token bucket shapes.
// Needs no privileges where user namespaces are allowed.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "calibrate/ranks/mesh.hpp"
#include "calibrate/ranks/ranks.hpp"
#include "command.hpp"
#include "sim/base/problem.hpp"
#include "sim/config/node.hpp"

namespace shardsim::test {

struct Laboratory {
  int ranks = 2;
  std::string rate = "100mbit";  ///< of each link, in each rank's sending direction, as tc reads it

  /// How `execute` reaches the ranks: for rank r the namespace rk<r> and the address 10.77.0.<10 + r>.
  [[nodiscard]] execute::MeshOptions network() const {
    execute::MeshOptions options;
    for (int r = 0; r < ranks; ++r) {
      options.peers.push_back("10.77.0." + std::to_string(10 + r));
      options.namespaces.push_back("/run/netns/rk" + std::to_string(r));
    }
    return options;
  }

  /// What the kernel has counted on each rank's interface: bytes sent, headers included.
  [[nodiscard]] std::vector<std::int64_t> sent_bytes() const {
    std::vector<std::int64_t> bytes;
    for (int r = 0; r < ranks; ++r) {
      const CommandResult ran = run_command("ip -n rk" + std::to_string(r) + " -s -j link show eth0");
      const auto json = read_json(Source{"ip", ran.output});
      if (ran.code != 0 || !json) throw EnvironmentError("cannot read an interface's counters: " + ran.output);
      bytes.push_back(std::stoll(json->items.at(0).find("stats64")->find("tx")->find("bytes")->text));
    }
    return bytes;
  }

  /// Builds it around this process, which never leaves again. Throws EnvironmentError where that is forbidden.
  void enter() const {
    const auto uid = ::getuid();
    const auto gid = ::getgid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) != 0) throw EnvironmentError("user namespaces are forbidden here");
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << gid << " 1";
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || ::mount("none", "/run", "tmpfs", 0, nullptr) != 0)
      throw EnvironmentError("mounts are forbidden in user namespaces here");
    must("ip link add lab type bridge && ip link set lab up");
    for (int r = 0; r < ranks; ++r) add_rank("rk" + std::to_string(r), "v" + std::to_string(r), "10.77.0." + std::to_string(10 + r));
  }

 private:
  static void must(const std::string& line) {
    if (const CommandResult ran = run_command(line); ran.code != 0) throw EnvironmentError("no laboratory: " + line + ": " + ran.output);
  }
  /// The bucket is small: whatever passes in a burst passes faster than the link.
  void add_rank(const std::string& space, const std::string& link, const std::string& address) const {
    must("ip netns add " + space);
    must("ip link add " + link + " type veth peer name eth0 netns " + space + " && ip link set " + link + " master lab up");
    must("ip -n " + space + " addr add " + address + "/24 dev eth0 && ip -n " + space + " link set eth0 up && ip -n " + space +
         " link set lo up");
    must("tc -n " + space + " qdisc add dev eth0 root tbf rate " + rate + " burst 8kb latency 200ms");
  }
};

/// Runs `body` in a process of its own inside the laboratory, and returns its text.
inline std::string in_laboratory(const Laboratory& laboratory, const std::function<std::string()>& body) {
  return execute::run_ranks(1, [&](int, execute::Line&) {
    laboratory.enter();
    return body();
  })[0];
}

/// Why there can be none here; empty if there can.
inline std::string laboratory_forbidden() {
  try {
    (void)in_laboratory({.ranks = 1}, [] { return std::string(); });
    return {};
  } catch (const EnvironmentError& error) { return error.what(); }
}

}  // namespace shardsim::test
