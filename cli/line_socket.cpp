// SPDX-License-Identifier: Apache-2.0
#include "cli/line_socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "shardsim/expected.hpp"

namespace shardsim {
namespace {

constexpr int seconds_until_probed = 20;  // of silence; a dead host is given up after three more of them

void set(int descriptor, int level, int option, int value) { ::setsockopt(descriptor, level, option, &value, sizeof value); }

/// A host that vanished sends nothing, not even the end of its connections.
void notice_dead_hosts(int descriptor) {
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, seconds_until_probed);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, seconds_until_probed);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
}

template <class Address>
sockaddr* generic(Address& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

/// Whether a connection that was begun without waiting has come about.
bool is_connected(int descriptor, std::chrono::milliseconds patience) {
  pollfd wanted{.fd = descriptor, .events = POLLOUT, .revents = 0};
  if (::poll(&wanted, 1, static_cast<int>(patience.count())) != 1) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

LineSocket::LineSocket(int descriptor) : descriptor_(descriptor) { notice_dead_hosts(descriptor_); }

LineSocket::~LineSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

LineSocket::LineSocket(LineSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), received_(std::move(other.received_)) {}

std::optional<LineSocket> LineSocket::connect(const std::string& address, std::uint16_t port, std::chrono::milliseconds patience) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  if (::inet_pton(AF_INET, address.c_str(), &place.sin_addr) != 1) return std::nullopt;
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return std::nullopt;
  LineSocket socket(descriptor);
  if (::connect(descriptor, generic(place), sizeof place) != 0 && (errno != EINPROGRESS || !is_connected(descriptor, patience)))
    return std::nullopt;
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return socket;
}

std::optional<std::string> LineSocket::receive() {
  std::array<char, 1 << 14> block;
  for (;;) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    const ssize_t count = ::recv(descriptor_, block.data(), block.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    received_.append(block.data(), static_cast<std::size_t>(count));
  }
}

bool LineSocket::send(std::string line) {
  line += '\n';
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t count = ::send(descriptor_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

void LineSocket::limit_patience(std::chrono::milliseconds patience) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience);
  const timeval limit{.tv_sec = seconds.count(), .tv_usec = std::chrono::microseconds(patience - seconds).count()};
  ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

void LineSocket::shut_down() { ::shutdown(descriptor_, SHUT_RDWR); }

Listener::Listener() {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof place;
  descriptor_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor_ < 0 || ::bind(descriptor_, generic(place), size) != 0 || ::listen(descriptor_, SOMAXCONN) != 0 ||
      ::getsockname(descriptor_, generic(place), &size) != 0)
    throw EnvironmentError(std::string("cannot listen for the other ranks: ") + std::strerror(errno));
  port_ = ntohs(place.sin_port);
}

Listener::~Listener() { ::close(descriptor_); }

std::optional<LineSocket> Listener::accept() {
  for (;;) {
    const int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor >= 0) return LineSocket(descriptor);
    if (errno != EINTR && errno != ECONNABORTED) return std::nullopt;
  }
}

void Listener::shut_down() { ::shutdown(descriptor_, SHUT_RDWR); }

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses{"127.0.0.1"};
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text.data(), text.size());
    if (std::string_view(text.data()) != addresses.front()) addresses.emplace_back(text.data());
  }
  ::freeifaddrs(all);
  return addresses;
}

}  // namespace shardsim
