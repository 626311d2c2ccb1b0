// SPDX-License-Identifier: Apache-2.0
// A file descriptor that closes itself, and writes to it.
#pragma once

#include <string_view>
#include <utility>

namespace shardsim {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = other.release();
    }
    return *this;
  }
  ~Descriptor() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  /// Closes it; false (and errno) where the system reports what it could not write.
  bool reset();

 private:
  int fd_ = -1;
};

/// All of `text`, whatever interrupts; false (and errno) where that fails.
[[nodiscard]] bool write_all(int fd, std::string_view text);

}  // namespace shardsim
