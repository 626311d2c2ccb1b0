// SPDX-License-Identifier: Apache-2.0
#include "reports/profile_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/config/node.hpp"

namespace shardsim {
namespace {

using ::testing::HasSubstr;

TEST(ProfileText, ShowsMeasuredAgainstFitted) {
  Profile profile;
  profile.name = "logs";
  CollectiveFit fit;
  fit.collective = Collective::all_gather;
  fit.ranks = 8;
  fit.origin = "measured: here";
  fit.segments = {{std::nullopt, microseconds(10), ByteRate{100e9}}};
  // 10 us + 1 MB / 100 GB/s = 20 us fitted, 25 us measured; busbw = 7/8 * 1 MB / 25 us = 35 GB/s.
  fit.samples = {{Bytes{1'000'000}, microseconds(24), microseconds(25), microseconds(26), 3},
                 {Bytes{9'000'000}, microseconds(100), microseconds(100), microseconds(100), 3}};
  fit.leave_one_out_median = 0.021;
  fit.leave_one_out_p90 = 0.11;
  profile.collectives = {fit};
  const std::string text = profile_text(profile);
  EXPECT_THAT(text, HasSubstr("Collectives only"));
  EXPECT_THAT(text, HasSubstr("all_gather, 8 ranks on 1 node, ring\n  measured: here\n"));
  EXPECT_THAT(text, HasSubstr("median 2.1 %, 90 % of the sizes below 11.0 %"));
  EXPECT_THAT(text, HasSubstr("25.0 us"));
  EXPECT_THAT(text, HasSubstr("-20.0 %"));
  EXPECT_THAT(text, HasSubstr("          35\n"));
  EXPECT_THAT(text, HasSubstr("@"));  // both marks fall together at 9 MB
}

TEST(ProfileText, TellsLatencyWithoutARateWhereSizeMakesNoDifference) {
  Profile profile;
  CollectiveFit fit;
  fit.ranks = 2;
  fit.segments = {{kibibytes(64), microseconds(33), ByteRate{2e22}}, {std::nullopt, microseconds(39), ByteRate{345e9}}};
  profile.collectives = {fit};
  EXPECT_THAT(profile_text(profile), HasSubstr("  T = 33.0 us up to 64.00 KiB\n  T = 39.0 us + S / 345 GB/s\n"));
}

TEST(ProfileText, ShippedProfilesFitATerminal) {
  const auto source = read_source(SHARDSIM_SOURCE_DIR "/scenarios/clusters/h200-sxm.yaml");
  const std::string text = profile_text(*read_profile(*read_yaml(*source)));
  EXPECT_THAT(text, HasSubstr("gpu.capacity"));
  EXPECT_THAT(text, HasSubstr("published: total memory"));
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 100u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace shardsim
