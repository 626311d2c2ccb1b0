// SPDX-License-Identifier: Apache-2.0
#include "sim/base/descriptor.hpp"

#include <unistd.h>

#include <cerrno>

namespace shardsim {

bool Descriptor::reset() {
  const int fd = release();
  return fd < 0 || ::close(fd) == 0;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace shardsim
