// SPDX-License-Identifier: Apache-2.0
// Files as sources, within a limit.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "sim/base/units_text.hpp"
#include "sim/config/gzip.hpp"
#include "sim/config/node.hpp"

namespace shardsim {
namespace {

class File {
 public:
  explicit File(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

tl::unexpected<Problems> unreadable(const std::string& path, const std::string& why) {
  Problems problems;
  problems.add({std::make_shared<Source>(Source{path, {}}), 0, 0}, "cannot read the file: " + why);
  return tl::make_unexpected(std::move(problems));
}

}  // namespace

Result<Source> read_source(const std::string& path, const ReadLimits& limits) {
  const auto reason = [] { return std::generic_category().message(errno); };
  const File file(path);
  if (file.get() < 0) return unreadable(path, reason());
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && S_ISDIR(status.st_mode)) return unreadable(path, "it is a folder");

  // Read up to one byte above the limit rather than trust st_size: pipes and devices have none.
  Source source{path, {}};
  std::string block(1 << 16, '\0');
  while (source.text.size() <= limits.bytes) {
    const ssize_t count = ::read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return unreadable(path, reason());
    if (count == 0 && is_gzip(source.text)) {
      auto text = unzipped(source.text, limits.bytes);
      if (!text) return unreadable(path, text.error());
      source.text = *std::move(text);
    }
    if (count == 0) return source;
    source.text.append(block, 0, static_cast<std::size_t>(count));
  }
  return unreadable(path, "it is larger than " + to_text(Bytes{static_cast<std::int64_t>(limits.bytes)}));
}

}  // namespace shardsim
