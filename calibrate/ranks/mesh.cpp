// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks/mesh.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "sim/base/problem.hpp"

namespace shardsim::execute {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& what) { throw EnvironmentError(what + ": " + std::strerror(errno)); }

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) throw EnvironmentError("'" + host + "' is not an IPv4 address");
  return address;
}

Descriptor tcp_socket() {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) fail("cannot make a TCP socket");
  return fd;
}

/// Every segment leaves at once (a ring step waits for it), and no call blocks (both directions move at the same time).
void make_ready(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("cannot set TCP_NODELAY");
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) fail("cannot make a socket non-blocking");
}

std::int64_t acknowledged_on(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) fail("cannot read TCP_INFO");
  if (size < offsetof(tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked)
    throw EnvironmentError("this kernel does not count acknowledged bytes (tcpi_bytes_acked needs Linux 4.1)");
  return static_cast<std::int64_t>(info.tcpi_bytes_acked);
}

/// A listener on an ephemeral port, and that port.
std::pair<Descriptor, int> listen_on(const std::string& host) {
  Descriptor fd = tcp_socket();
  sockaddr_in address = address_of(host, 0);
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) fail("cannot bind a port on " + host);
  if (::listen(fd.get(), SOMAXCONN) != 0) fail("cannot listen on " + host);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) fail("cannot read the port bound on " + host);
  return {std::move(fd), ntohs(address.sin_port)};
}

/// Waits for `events` on a descriptor; false when the deadline passes.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(0, left)));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) fail("cannot poll a socket");
  }
}

Descriptor connect_to(const std::string& host, int port, int peer, Clock::time_point deadline) {
  const std::string whom = "cannot connect to rank " + std::to_string(peer) + " at " + host + ":" + std::to_string(port);
  Descriptor fd = tcp_socket();
  make_ready(fd.get());
  const sockaddr_in address = address_of(host, port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EINPROGRESS) fail(whom);
    if (!wait_for(fd.get(), POLLOUT, deadline)) throw EnvironmentError(whom + ": timed out");
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) fail(whom);
    if (error != 0) {
      errno = error;
      fail(whom);
    }
  }
  return fd;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

int port_of(int fd, NameOf name) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.sin_port);
}

/// The connection that comes from `port`; others are strangers, and closed.
Descriptor accept_from(int listener, int peer, int port, Clock::time_point deadline) {
  for (;;) {
    if (!wait_for(listener, POLLIN, deadline)) throw EnvironmentError("rank " + std::to_string(peer) + " did not connect in time");
    Descriptor fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid() && errno != ECONNABORTED && errno != EINTR) fail("cannot accept rank " + std::to_string(peer));
    if (!fd.valid() || port_of(fd.get(), ::getpeername) != port) continue;
    make_ready(fd.get());
    return fd;
  }
}

[[noreturn]] void lost(int peer, const std::string& why) {
  throw EnvironmentError("the connection with rank " + std::to_string(peer) + " was lost: " + why);
}

/// Sends what fits; returns how much did.
std::size_t send_some(int fd, std::span<const std::byte> out, int peer) {
  const auto sent = ::send(fd, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  lost(peer, std::strerror(errno));
}

std::size_t receive_some(int fd, std::span<std::byte> in, int peer) {
  const auto received = ::recv(fd, in.data(), in.size(), MSG_DONTWAIT);
  if (received > 0) return static_cast<std::size_t>(received);
  if (received == 0) lost(peer, "it ended");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  lost(peer, std::strerror(errno));
}

}  // namespace

Mesh::Mesh(int rank, int ranks, const Rendezvous& rendezvous, const MeshOptions& options)
    : rank_(rank), options_(options), peers_(static_cast<std::size_t>(ranks)), saboteur_(rank, options.fault), digests_(ranks) {
  const auto deadline = Clock::now() + options.connect_timeout;
  // One listener for each higher rank, which is known by the port that it says it connects from: not a byte is spent on that.
  std::vector<Descriptor> listeners(static_cast<std::size_t>(ranks));
  std::vector<int> ports(static_cast<std::size_t>(ranks), 0);
  for (int peer = rank + 1; peer < ranks; ++peer) {
    auto [listener, port] = listen_on(options.peers.empty() ? options.address : options.peers.at(static_cast<std::size_t>(rank)));
    listeners[static_cast<std::size_t>(peer)] = std::move(listener);
    ports[static_cast<std::size_t>(peer)] = port;
  }
  const auto table = rendezvous(ports);
  for (int peer = 0; peer < rank; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    peers_[p].socket =
        connect_to(options.peers.empty() ? options.address : options.peers[p], table[p][static_cast<std::size_t>(rank)], peer, deadline);
  }
  std::vector<int> sources(static_cast<std::size_t>(ranks), 0);
  for (int peer = 0; peer < rank; ++peer)
    sources[static_cast<std::size_t>(peer)] = port_of(peers_[static_cast<std::size_t>(peer)].socket.get(), ::getsockname);
  const auto connecting = rendezvous(sources);
  for (int peer = rank + 1; peer < ranks; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    peers_[p].socket = accept_from(listeners[p].get(), peer, connecting[p][static_cast<std::size_t>(rank)], deadline);
  }
  for (Peer& peer : peers_)
    if (peer.socket.valid()) peer.acknowledged_before = acknowledged_on(peer.socket.get());
}

void Mesh::exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) {
  digests_.add_sent(to, out);
  const std::span<const std::byte> arriving = in;
  out = saboteur_.next(out);
  const int sender = out.empty() ? -1 : peers_[static_cast<std::size_t>(to)].socket.get();
  const int receiver = in.empty() ? -1 : peers_[static_cast<std::size_t>(from)].socket.get();
  while (!out.empty() || !in.empty()) {
    const std::size_t sent = out.empty() ? 0 : send_some(sender, out, to);
    const std::size_t received = in.empty() ? 0 : receive_some(receiver, in, from);
    out = out.subspan(sent);
    in = in.subspan(received);
    if (sent + received > 0) continue;
    pollfd entries[2]{{out.empty() ? -1 : sender, POLLOUT, 0}, {in.empty() ? -1 : receiver, POLLIN, 0}};
    const int ready = ::poll(entries, 2, static_cast<int>(options_.idle_timeout.count()));
    if (ready < 0 && errno != EINTR) fail("cannot poll the ranks' sockets");
    if (ready == 0) lost(in.empty() ? to : from, "nothing moved for " + std::to_string(options_.idle_timeout.count() / 1000) + " s");
  }
  digests_.add_received(from, arriving);
}

Bytes Mesh::acknowledged() const {
  const auto deadline = Clock::now() + options_.idle_timeout;
  Bytes sum;
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    const Peer& peer = peers_[p];
    if (!peer.socket.valid()) continue;
    int unacknowledged = 0;
    while (ioctl(peer.socket.get(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0) {
      if (Clock::now() > deadline) lost(static_cast<int>(p), "it does not acknowledge what was sent");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    sum += Bytes{acknowledged_on(peer.socket.get()) - peer.acknowledged_before};
  }
  return sum;
}

}  // namespace shardsim::execute
