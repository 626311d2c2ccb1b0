// SPDX-License-Identifier: Apache-2.0
// The only file that sees zlib.
#include "sim/config/gzip.hpp"

#include <zlib.h>

#include <algorithm>

#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

/// zlib's state, ended in any case.
struct Inflater {
  z_stream stream{};
  bool ready = inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK;  // 16: a gzip header and nothing else
  Inflater() = default;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

}  // namespace

bool is_gzip(std::string_view text) { return text.size() >= 18 && text[0] == '\x1f' && text[1] == '\x8b'; }

tl::expected<std::string, std::string> unzipped(std::string_view compressed, std::size_t most) {
  Inflater inflater;
  if (!inflater.ready) return tl::unexpected(std::string("zlib cannot start"));
  std::string input(compressed), block(1 << 16, '\0'), text;
  z_stream& stream = inflater.stream;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    text.append(block, 0, block.size() - stream.avail_out);
    if (text.size() > most) return tl::unexpected("it is larger than " + to_text(Bytes{static_cast<std::int64_t>(most)}));
    if (result == Z_STREAM_END) {
      if (stream.avail_in == 0 || inflateReset(&stream) != Z_OK) return text;  // members may follow each other
      continue;
    }
    if (result != Z_OK) return tl::unexpected(std::string("its gzip data is cut or damaged"));
  }
}

}  // namespace shardsim
