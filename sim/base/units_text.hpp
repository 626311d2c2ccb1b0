// SPDX-License-Identifier: Apache-2.0
// Quantities as text: what users write and what they read. Locale-free.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sim/base/units.hpp"

namespace shardsim {

/// "25 MiB", "1.5 GB", "512 B". Binary (KiB, MiB, GiB, TiB) and decimal (kB, MB, GB, TB) are kept apart; a bare number is refused.

template <class Q>
struct Parsed {
  std::optional<Q> value;
  std::string error;
};

[[nodiscard]] Parsed<Bytes> parse_bytes(std::string_view text);
[[nodiscard]] Parsed<ByteRate> parse_byte_rate(std::string_view text);  ///< bit/s, Gbit/s, B/s, GB/s, GiB/s ...
[[nodiscard]] Parsed<FlopRate> parse_flop_rate(std::string_view text);  ///< FLOP/s, GFLOP/s, TFLOP/s, PFLOP/s
[[nodiscard]] Parsed<Seconds> parse_seconds(std::string_view text);     ///< ns, us, ms, s, min, h, d

[[nodiscard]] std::string to_text(Bytes bytes);          ///< "15.66 GiB": three significant digits after the unit is chosen
[[nodiscard]] std::string to_text_decimal(Bytes bytes);  ///< "35.38 GB": traffic is told in decimal units
[[nodiscard]] std::string to_text(ByteRate rate);        ///< "47.1 GB/s"
[[nodiscard]] std::string to_text(FlopRate rate);        ///< "412 TFLOP/s"
[[nodiscard]] std::string to_text(Seconds time);         ///< "1.24 s", "35.0 us"
[[nodiscard]] std::string grouped(std::int64_t number);  ///< "8,030,261,248"

}  // namespace shardsim
