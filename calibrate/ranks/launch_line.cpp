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
#include "calibrate/ranks/mesh.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

using Clock = std::chrono::steady_clock;
using execute::Descriptor;

/// What a rank says first, in the byte order of the machines that run this.
struct Greeting {
  std::array<char, 8> word{'s', 'h', 'a', 'r', 'd', 's', 'i', 'm'};
  std::int32_t rank = 0, ranks = 0;
};

std::int64_t milliseconds_until(Clock::time_point deadline) {
  return std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count());
}

/// A read or write that takes longer is given up.
void limit(int fd, std::chrono::milliseconds timeout) {
  const timeval time{timeout.count() / 1000, timeout.count() % 1000 * 1000};
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool send_all(int fd, const void* data, std::size_t size) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    const auto sent = ::send(fd, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, void* data, std::size_t size) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    const auto received = ::recv(fd, at, size, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    at += received;
    size -= static_cast<std::size_t>(received);
  }
  return true;
}

bool send_text(int fd, const std::string& text) {
  const auto size = static_cast<std::uint64_t>(text.size());
  return send_all(fd, &size, sizeof size) && send_all(fd, text.data(), text.size());
}

std::optional<std::string> receive_text(int fd) {
  constexpr std::uint64_t most = 64u << 20;
  std::uint64_t size = 0;
  if (!receive_all(fd, &size, sizeof size) || size > most) return std::nullopt;
  std::string text(size, '\0');
  if (!receive_all(fd, text.data(), size)) return std::nullopt;
  return text;
}

Descriptor listen_at(int port) {
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(fd.get(), SOMAXCONN) != 0)
    throw EnvironmentError("rank 0 cannot listen on port " + std::to_string(port) + ": " + std::strerror(errno) +
                           "; set MASTER_PORT to another");
  return fd;
}

/// Not a descriptor if nobody listens there yet.
Descriptor try_to_connect(const Launch& launch) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(launch.address.c_str(), std::to_string(launch.port).c_str(), &hints, &found); error != 0)
    throw EnvironmentError("rank 0's address '" + launch.address + "' is unknown: " + ::gai_strerror(error));
  Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool connected = fd.valid() && ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  return connected ? std::move(fd) : Descriptor();
}

class TcpLine final : public execute::Line {
 public:
  TcpLine(const Launch& launch, std::chrono::milliseconds timeout) : launch_(launch), timeout_(timeout), deadline_(Clock::now() + timeout) {
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
    others_.resize(static_cast<std::size_t>(launch_.ranks));
    const Descriptor listener = listen_at(launch_.port);
    for (int missing = launch_.ranks - 1; missing > 0;) {
      pollfd entry{listener.get(), POLLIN, 0};
      if (::poll(&entry, 1, static_cast<int>(milliseconds_until(deadline_))) <= 0) {
        if (Clock::now() >= deadline_) throw_missing();
        continue;
      }
      Descriptor fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (fd.valid() && welcome(std::move(fd))) --missing;
    }
    for (std::size_t r = 1; r < others_.size(); ++r) limit(others_[r].get(), timeout_);
  }

  /// A stranger that says nothing must not hold up the others for long.
  bool welcome(Descriptor fd) {
    limit(fd.get(), std::chrono::seconds(2));
    Greeting greeting;
    if (!receive_all(fd.get(), &greeting, sizeof greeting) || greeting.word != Greeting().word) return false;
    if (greeting.ranks != launch_.ranks || greeting.rank < 1 || greeting.rank >= launch_.ranks) return false;
    Descriptor& place = others_[static_cast<std::size_t>(greeting.rank)];
    if (place.valid())
      throw EnvironmentError("rank " + std::to_string(greeting.rank) + " came twice: another job uses port " +
                             std::to_string(launch_.port));
    place = std::move(fd);
    return true;
  }

  [[noreturn]] void throw_missing() const {
    std::string missing;
    for (std::size_t r = 1; r < others_.size(); ++r)
      if (!others_[r].valid()) missing += (missing.empty() ? " " : ", ") + std::to_string(r);
    throw EnvironmentError("of " + std::to_string(launch_.ranks) + " ranks these did not come to port " + std::to_string(launch_.port) +
                           " of rank 0 in " + std::to_string(timeout_.count() / 1000) + " s:" + missing);
  }

  void connect() {
    while (!root_.valid()) {
      root_ = try_to_connect(launch_);
      if (root_.valid()) break;
      if (Clock::now() >= deadline_)
        throw EnvironmentError("rank " + std::to_string(launch_.rank) + " cannot reach rank 0 at " + launch_.address + ":" +
                               std::to_string(launch_.port));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    limit(root_.get(), timeout_);
    Greeting greeting;
    greeting.rank = launch_.rank;
    greeting.ranks = launch_.ranks;
    if (!send_all(root_.get(), &greeting, sizeof greeting)) throw EnvironmentError("rank 0 is gone");
  }

  std::vector<std::string> gather_here(const std::string& text) {
    std::vector<std::string> texts{text};
    for (std::size_t r = 1; r < others_.size(); ++r) {
      auto answer = receive_text(others_[r].get());
      if (!answer) throw EnvironmentError("rank " + std::to_string(r) + " is gone");
      texts.push_back(std::move(*answer));
    }
    const std::string all = execute::pack(texts);
    for (std::size_t r = 1; r < others_.size(); ++r)
      if (!send_text(others_[r].get(), all)) throw EnvironmentError("rank " + std::to_string(r) + " is gone");
    return texts;
  }

  std::vector<std::string> gather_there(const std::string& text) {
    if (!send_text(root_.get(), text)) throw EnvironmentError("rank 0 is gone");
    const auto all = receive_text(root_.get());
    if (!all) throw EnvironmentError("rank 0 is gone");
    return execute::unpack(*all);
  }

  Launch launch_;
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
  std::vector<Descriptor> others_;  // of rank 0, by rank
  Descriptor root_;                 // of the others
};

}  // namespace

std::unique_ptr<execute::Line> meet(const Launch& launch, std::chrono::milliseconds timeout) {
  return std::make_unique<TcpLine>(launch, timeout);
}

}  // namespace shardsim
