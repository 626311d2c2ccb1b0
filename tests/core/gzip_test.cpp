// SPDX-License-Identifier: Apache-2.0
#include "sim/config/gzip.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "sim/config/node.hpp"

namespace shardsim {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view compressed =
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x4a\x54\xb2\x52\x30\xac\xe5\x02\x00\xfa\xa1\x47\x5c\x09\x00\x00\x00"sv;

TEST(Gzip, ReadsWhatWasWritten) {
  EXPECT_TRUE(is_gzip(compressed));
  EXPECT_FALSE(is_gzip("{\"a\": 1}\n"));
  EXPECT_EQ(unzipped(compressed, 100).value(), "{\"a\": 1}\n");
  EXPECT_EQ(unzipped(std::string(compressed) + std::string(compressed), 100).value(), "{\"a\": 1}\n{\"a\": 1}\n");
}

TEST(Gzip, DamageAndSizeAreErrors) {
  EXPECT_THAT(unzipped(compressed.substr(0, 20), 100).error(), ::testing::HasSubstr("cut or damaged"));
  std::string damaged(compressed);
  damaged[12] ^= 0x55;
  EXPECT_FALSE(unzipped(damaged, 100));
  EXPECT_THAT(unzipped(compressed, 4).error(), ::testing::HasSubstr("larger than"));
}

TEST(Gzip, FilesAreReadAsWhatTheyHold) {
  const std::string path = ::testing::TempDir() + "gzip_test.json.gz";
  std::ofstream(path, std::ios::binary) << compressed;
  const auto source = read_source(path);
  std::remove(path.c_str());
  ASSERT_TRUE(source) << source.error().text();
  EXPECT_EQ(source->text, "{\"a\": 1}\n");
}

}  // namespace
}  // namespace shardsim
