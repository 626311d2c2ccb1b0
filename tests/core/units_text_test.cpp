// SPDX-License-Identifier: Apache-2.0
#include "sim/base/units_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <clocale>
#include <cmath>
#include <limits>

namespace shardsim {
namespace {

using testing::HasSubstr;

TEST(UnitsText, KeepsBinaryAndDecimalApart) {
  EXPECT_EQ(parse_bytes("25 MiB").value, Bytes{26'214'400});
  EXPECT_EQ(parse_bytes("25 MB").value, Bytes{25'000'000});
  EXPECT_EQ(parse_bytes("1.5GiB").value, Bytes{1'610'612'736});
  EXPECT_EQ(parse_bytes("0 B").value, Bytes{0});
  EXPECT_DOUBLE_EQ(parse_byte_rate("400 Gbit/s").value->base(), 50e9);
  // As data sheets and ethtool have it: a small b is a bit, which is an eighth of "100 GB/s".
  for (const char* text : {"100 Gb/s", "100 Gbps", "100Gbit/s"}) EXPECT_DOUBLE_EQ(parse_byte_rate(text).value->base(), 12.5e9) << text;
  EXPECT_DOUBLE_EQ(parse_byte_rate("3.35 TB/s").value->base(), 3.35e12);
  EXPECT_DOUBLE_EQ(parse_flop_rate("989 TFLOP/s").value->base(), 989e12);
  EXPECT_DOUBLE_EQ(parse_seconds("5 us").value->base(), 5e-6);
  EXPECT_DOUBLE_EQ(parse_seconds("2 h").value->base(), 7200);
}

TEST(UnitsText, LargeWholeNumbersStayExact) {
  EXPECT_EQ(parse_bytes("9223372036854775807 B").value, Bytes{std::numeric_limits<std::int64_t>::max()});
  EXPECT_EQ(parse_bytes("9007199254740993 B").value, Bytes{9'007'199'254'740'993});  // 2^53 + 1 is no double
}

TEST(UnitsText, RefusesWhatIsNoQuantity) {
  EXPECT_THAT(parse_bytes("400").error, HasSubstr("'400' has no unit; known units: B, kB"));
  EXPECT_THAT(parse_bytes("25 M").error, HasSubstr("unknown unit 'M'"));
  EXPECT_THAT(parse_byte_rate("400 Gbot/s").error, HasSubstr("did you mean 'Gbit/s'? known units: bit/s"));
  EXPECT_THAT(parse_bytes("-1 MiB").error, HasSubstr("is negative"));
  EXPECT_THAT(parse_bytes("nan MiB").error, HasSubstr("not a finite quantity"));
  EXPECT_THAT(parse_bytes("1e999 B").error, HasSubstr("out of range"));
  EXPECT_THAT(parse_bytes("9223372036854775808 B").error, HasSubstr("out of range"));
  EXPECT_THAT(parse_bytes("10000000 TiB").error, HasSubstr("out of range"));
  EXPECT_THAT(parse_seconds("1e308 d").error, HasSubstr("out of range"));
  for (const char* bad : {"", " ", "MiB", "0x10 MiB", "1,5 MiB", "1 2 MiB", "1 MiB MiB"}) EXPECT_FALSE(parse_bytes(bad).value) << bad;
}

TEST(UnitsText, IgnoresTheLocale) {
  const char* german = std::setlocale(LC_ALL, "de_DE.UTF-8");
  EXPECT_EQ(parse_bytes("1.5 kB").value, Bytes{1500});
  EXPECT_EQ(to_text(Bytes{1536}), "1.50 KiB");
  if (german) std::setlocale(LC_ALL, "C");
}

TEST(UnitsText, ShowsThreeDigits) {
  EXPECT_EQ(to_text(Bytes{16'817'061'888}), "15.66 GiB");
  EXPECT_EQ(to_text(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_text(Bytes{(1 << 20) - 1}), "1.00 MiB");
  EXPECT_EQ(to_text_decimal(Bytes{35'380'000'000}), "35.38 GB");
  EXPECT_EQ(to_text(ByteRate{47.1e9}), "47.1 GB/s");
  EXPECT_EQ(to_text(ByteRate{999.9e9}), "1.00 TB/s");
  EXPECT_EQ(to_text(FlopRate{412e12}), "412 TFLOP/s");
  EXPECT_EQ(to_text(Seconds{1.236}), "1.24 s");
  EXPECT_EQ(to_text(Seconds{35e-6}), "35.0 us");
  EXPECT_EQ(to_text(Seconds{90}), "90.0 s");
  EXPECT_EQ(to_text(Seconds{7200}), "2.00 h");
  EXPECT_EQ(to_text(Seconds{0}), "0 s");
  EXPECT_EQ(to_text(ByteRate{0}), "0 B/s");
  EXPECT_EQ(to_text(FlopRate{0}), "0 FLOP/s");
}

TEST(UnitsText, GroupsDigits) {
  EXPECT_EQ(grouped(8'030'261'248), "8,030,261,248");
  EXPECT_EQ(grouped(-1234), "-1,234");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

RC_GTEST_PROP(UnitsText, WhatIsShownCanBeReadAgain, ()) {
  const auto value = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 60);
  const auto near = [&](double shown) { return std::abs(shown - static_cast<double>(value)) <= 0.006 * static_cast<double>(value); };
  RC_ASSERT(near(static_cast<double>(parse_bytes(to_text(Bytes{value})).value.value().value())));
  RC_ASSERT(near(static_cast<double>(parse_bytes(to_text_decimal(Bytes{value})).value.value().value())));
  const auto seconds = static_cast<double>(value) * 1e-9;
  RC_ASSERT(std::abs(parse_seconds(to_text(Seconds{seconds})).value.value().base() - seconds) <= 0.006 * seconds);
}

}  // namespace
}  // namespace shardsim
