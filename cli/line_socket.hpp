// SPDX-License-Identifier: Apache-2.0
// TCP connections that carry lines of text.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardsim {

/// One end of a connection. Neither end hangs for long when the other dies or its host does.
class LineSocket {
 public:
  explicit LineSocket(int descriptor);
  ~LineSocket();
  LineSocket(LineSocket&& other) noexcept;
  LineSocket& operator=(LineSocket&&) = delete;

  /// Nothing if there is no such host or nobody listens there.
  [[nodiscard]] static std::optional<LineSocket> connect(const std::string& address, std::uint16_t port,
                                                         std::chrono::milliseconds patience);

  /// Nothing once the other end is gone.
  [[nodiscard]] std::optional<std::string> receive();
  /// False once the other end is gone.
  [[nodiscard]] bool send(std::string line);
  /// receive() gives up after so long; zero: never.
  void limit_patience(std::chrono::milliseconds patience);
  /// Wakes whoever waits in receive(), from any thread.
  void shut_down();

 private:
  int descriptor_;
  std::string received_;
};

/// Listens on a port of the system's choice, on all interfaces.
class Listener {
 public:
  Listener();  ///< EnvironmentError where the system has no sockets to give
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Waits for the next connection; nothing after shut_down().
  [[nodiscard]] std::optional<LineSocket> accept();
  void shut_down();

 private:
  int descriptor_ = -1;
  std::uint16_t port_ = 0;
};

/// IPv4 addresses of this machine, the loopback's first: a rank on the same machine gets through even where others do not.
[[nodiscard]] std::vector<std::string> own_addresses();

}  // namespace shardsim
