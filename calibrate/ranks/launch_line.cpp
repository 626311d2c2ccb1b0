// SPDX-License-Identifier: Apache-2.0
// The line between ranks that a launcher started: a star of TCP connections around rank 0.
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "calibrate/ranks/launch.hpp"
#include "sim/base/descriptor.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

using Clock = std::chrono::steady_clock;

/// What a rank says first, in the byte order of the machines that run this.
struct Greeting {
  std::array<char, 8> word{'s', 'h', 'a', 'r', 'd', 's', 'i', 'm'};
  std::int32_t rank = 0, ranks = 0;
  std::uint64_t key = 0;
};

/// Who has connected and not yet said all of its greeting.
struct Visitor {
  Descriptor fd;
  Clock::time_point until;
  std::array<char, sizeof(Greeting)> said{};
  std::size_t size = 0;
};
enum class Arrival : std::uint8_t { speaking, complete, gone };

std::int64_t milliseconds_until(Clock::time_point deadline) {
  return std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count());
}

/// Small messages leave at once.
void do_not_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// False when the deadline passes first.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(milliseconds_until(deadline)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

/// The deadline is of the whole: a peer that trickles does not move it.
bool send_all(int fd, const void* data, std::size_t size, Clock::time_point deadline) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    if (!wait_for(fd, POLLOUT, deadline)) return false;
    const auto sent = ::send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, void* data, std::size_t size, Clock::time_point deadline) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    if (!wait_for(fd, POLLIN, deadline)) return false;
    const auto received = ::recv(fd, at, size, MSG_DONTWAIT);
    if (received < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (received <= 0) return false;
    at += received;
    size -= static_cast<std::size_t>(received);
  }
  return true;
}

bool send_text(int fd, const std::string& text, Clock::time_point deadline) {
  const auto size = static_cast<std::uint64_t>(text.size());
  return send_all(fd, &size, sizeof size, deadline) && send_all(fd, text.data(), text.size(), deadline);
}

std::optional<std::string> receive_text(int fd, Clock::time_point deadline) {
  constexpr std::uint64_t most = 64u << 20;
  std::uint64_t size = 0;
  if (!receive_all(fd, &size, sizeof size, deadline) || size > most) return std::nullopt;
  std::string text(size, '\0');
  if (!receive_all(fd, text.data(), size, deadline)) return std::nullopt;
  return text;
}

/// The address that a name or an IPv4 address stands for.
sockaddr_in resolve(const MeetingPoint& point) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(point.address.c_str(), std::to_string(point.port).c_str(), &hints, &found); error != 0)
    throw EnvironmentError("rank 0's address " + in_quotes(point.address) + " is unknown: " + ::gai_strerror(error));
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof address);
  ::freeaddrinfo(found);
  return address;
}

/// At the address where the ranks look for rank 0; at all of this host where its name leads to the loopback here and not elsewhere.
Descriptor listen_at(const MeetingPoint& point) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  sockaddr_in address = resolve(point);
  const bool loopback = ntohl(address.sin_addr.s_addr) >> 24 == 127;
  if (loopback && point.address != "127.0.0.1" && point.address != "localhost") address.sin_addr.s_addr = htonl(INADDR_ANY);
  const auto bind_to = [&] { return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0; };
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 || !bind_to() ||
      ::listen(fd.get(), SOMAXCONN) != 0)
    throw EnvironmentError("rank 0 cannot listen on port " + std::to_string(point.port) + " of " + point.address + ": " +
                           std::strerror(errno) + "; set MASTER_PORT to another");
  return fd;
}

/// Not a descriptor if nobody listens there yet.
Descriptor try_to_connect(const MeetingPoint& point) {
  const sockaddr_in address = resolve(point);
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool connected = fd.valid() && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return connected ? std::move(fd) : Descriptor();
}

Arrival listen_to(Visitor& visitor) {
  const auto received = ::recv(visitor.fd.get(), visitor.said.data() + visitor.size, visitor.said.size() - visitor.size, MSG_DONTWAIT);
  if (received > 0) visitor.size += static_cast<std::size_t>(received);
  if (visitor.size == visitor.said.size()) return Arrival::complete;
  const bool waiting = received < 0 && (errno == EAGAIN || errno == EINTR);
  return (received > 0 || waiting) && Clock::now() < visitor.until ? Arrival::speaking : Arrival::gone;
}

class TcpLine final : public execute::Line {
 public:
  TcpLine(const Launch& launch, const MeetingPoint& point, std::chrono::milliseconds timeout)
      : launch_(launch), point_(point), timeout_(timeout), deadline_(Clock::now() + timeout) {
    if (launch.ranks == 1) return;
    if (launch.rank == 0)
      accept_all();
    else
      connect();
  }

  std::vector<std::string> gather(const std::string& text) override {
    if (launch_.ranks == 1) return {text};
    return launch_.rank == 0 ? gather_here(text) : gather_there(text);
  }

 private:
  void accept_all() {
    constexpr auto time_to_speak = std::chrono::seconds(2);
    others_.resize(static_cast<std::size_t>(launch_.ranks));
    const std::size_t most_visitors = others_.size() + 64;
    const Descriptor listener = listen_at(point_);
    std::vector<Visitor> visitors;
    for (int missing = launch_.ranks - 1; missing > 0;) {
      wait_for_news(listener, visitors);
      if (Clock::now() >= deadline_) throw_missing();
      if (Descriptor fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)); fd.valid() && visitors.size() < most_visitors) {
        do_not_delay(fd.get());
        visitors.push_back({std::move(fd), Clock::now() + time_to_speak});
      }
      std::vector<Visitor> speaking;
      for (Visitor& visitor : visitors) {
        const Arrival arrival = listen_to(visitor);
        if (arrival == Arrival::complete && welcome(visitor)) --missing;
        if (arrival == Arrival::speaking) speaking.push_back(std::move(visitor));
      }
      visitors = std::move(speaking);
    }
  }

  void wait_for_news(const Descriptor& listener, const std::vector<Visitor>& visitors) const {
    std::vector<pollfd> entries{{listener.get(), POLLIN, 0}};
    auto until = deadline_;
    for (const Visitor& visitor : visitors) {
      entries.push_back({visitor.fd.get(), POLLIN, 0});
      until = std::min(until, visitor.until);
    }
    ::poll(entries.data(), entries.size(), static_cast<int>(milliseconds_until(until)));
  }

  /// False for a stranger, whom the end of the connection tells.
  bool welcome(Visitor& visitor) {
    Greeting greeting;
    std::memcpy(&greeting, visitor.said.data(), sizeof greeting);
    if (greeting.word != Greeting().word || greeting.key != point_.key) return false;
    if (greeting.ranks != launch_.ranks || greeting.rank < 1 || greeting.rank >= launch_.ranks) return false;
    Descriptor& place = others_[static_cast<std::size_t>(greeting.rank)];
    if (place.valid())
      throw EnvironmentError("rank " + std::to_string(greeting.rank) + " came twice: another job uses port " + std::to_string(point_.port));
    place = std::move(visitor.fd);
    return true;
  }

  [[noreturn]] void throw_missing() const {
    std::string missing;
    for (std::size_t r = 1; r < others_.size(); ++r)
      if (!others_[r].valid()) missing += (missing.empty() ? " " : ", ") + std::to_string(r);
    throw EnvironmentError("of " + std::to_string(launch_.ranks) + " ranks these did not come to port " + std::to_string(point_.port) +
                           " of rank 0 in " + std::to_string(timeout_.count() / 1000) + " s:" + missing);
  }

  void connect() {
    while (!root_.valid()) {
      root_ = try_to_connect(point_);
      if (root_.valid()) break;
      if (Clock::now() >= deadline_)
        throw EnvironmentError("rank " + std::to_string(launch_.rank) + " cannot reach rank 0 at " + point_.address + ":" +
                               std::to_string(point_.port));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    do_not_delay(root_.get());
    Greeting greeting;
    greeting.rank = launch_.rank;
    greeting.ranks = launch_.ranks;
    greeting.key = point_.key;
    if (!send_all(root_.get(), &greeting, sizeof greeting, deadline_)) throw EnvironmentError("rank 0 is gone");
  }

  std::vector<std::string> gather_here(const std::string& text) {
    const auto deadline = Clock::now() + timeout_;
    std::vector<std::string> texts{text};
    for (std::size_t r = 1; r < others_.size(); ++r) {
      auto answer = receive_text(others_[r].get(), deadline);
      if (!answer) throw EnvironmentError("rank " + std::to_string(r) + " is gone");
      texts.push_back(std::move(*answer));
    }
    const std::string all = execute::pack(texts);
    for (std::size_t r = 1; r < others_.size(); ++r)
      if (!send_text(others_[r].get(), all, deadline)) throw EnvironmentError("rank " + std::to_string(r) + " is gone");
    return texts;
  }

  std::vector<std::string> gather_there(const std::string& text) {
    const auto deadline = Clock::now() + timeout_;
    if (!send_text(root_.get(), text, deadline)) throw EnvironmentError("rank 0 is gone");
    const auto all = receive_text(root_.get(), deadline);
    if (!all) throw EnvironmentError("rank 0 is gone");
    return execute::unpack(*all);
  }

  Launch launch_;
  MeetingPoint point_;
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
  std::vector<Descriptor> others_;  // of rank 0, by rank
  Descriptor root_;                 // of the others
};

}  // namespace

std::unique_ptr<execute::Line> meet(const Launch& launch, const MeetingPoint& point, std::chrono::milliseconds timeout) {
  return std::make_unique<TcpLine>(launch, point, timeout);
}

}  // namespace shardsim
