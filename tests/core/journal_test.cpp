// SPDX-License-Identifier: Apache-2.0
// Journals: what survives a kill, a torn line, a flipped bit and a planted link.
#include "sim/base/journal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

struct JournalFile : testing::Test {
  fs::path folder = fs::temp_directory_path() / ("shardsim-journal-file-" + std::to_string(::getpid()));
  std::string path = (folder / "journal").string();

  JournalFile() {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  ~JournalFile() override { fs::remove_all(folder); }

  /// What a new process finds, to which `more` is added.
  std::vector<std::string> lines_then_add(const std::string& title, std::initializer_list<const char*> more = {}) const {
    std::vector<std::string> found;
    Journal journal(path, title, Journal::Pace::each_line, [&](std::string_view text, std::int64_t) { found.emplace_back(text); });
    for (const char* text : more) journal.add(text);
    return found;
  }
  [[nodiscard]] std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  void write(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }
};

TEST_F(JournalFile, LinesStandWithTheirChecksums) {
  EXPECT_THAT(lines_then_add("job", {"123456789"}), IsEmpty());
  EXPECT_THAT(content(), testing::EndsWith("cbf43926 123456789\n"));  // the check value of CRC-32
  EXPECT_THAT(lines_then_add("job", {"", "three"}), ElementsAre("123456789"));
  EXPECT_THAT(lines_then_add("job"), ElementsAre("123456789", "", "three"));
}

TEST_F(JournalFile, ALineCutAtAnyPlaceIsDroppedAndTheNextIsWhole) {
  lines_then_add("job", {"one", "two"});
  const std::string whole = content();
  const std::size_t second = whole.find('\n', whole.find('\n') + 1) + 1;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    const auto found = lines_then_add("job", {"three"});
    EXPECT_EQ(found.size(), size < second ? 0U : 1U) << size;
    EXPECT_EQ(lines_then_add("job").back(), "three") << size;
  }
}

TEST_F(JournalFile, AFlippedBitCostsItsLineAndNoOther) {
  lines_then_add("job", {"one", "two", "three"});
  const std::string whole = content();
  const std::size_t first = whole.find('\n') + 1, second = whole.find('\n', first) + 1;
  for (std::size_t at = first; at < second - 1; ++at)
    for (const int bit : {1, 2, 4, 8, 16, 32, 64}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ bit);
      if (damaged[at] == '\n') continue;  // two lines, neither of which is right
      write(damaged);
      EXPECT_THAT(lines_then_add("job"), ElementsAre("two", "three")) << at << " " << bit;
    }
}

TEST_F(JournalFile, AnotherTitleStartsAnewAndAnotherFileIsLeftAlone) {
  lines_then_add("job", {"one"});
  EXPECT_THAT(lines_then_add("another job"), IsEmpty());
  EXPECT_THAT(lines_then_add("job"), IsEmpty());
  write("somebody's notes\n");
  EXPECT_THROW(lines_then_add("job"), EnvironmentError);
  EXPECT_EQ(content(), "somebody's notes\n");
  write(std::string(10'000, 'x'));
  EXPECT_THROW(lines_then_add("job"), EnvironmentError);
}

TEST_F(JournalFile, NothingIsWrittenThroughALinkOrToASecondNameOfAFile) {
  const std::string victim = (folder / "victim").string();
  std::ofstream(victim) << "";
  fs::create_symlink("victim", path);
  EXPECT_THROW(lines_then_add("job"), EnvironmentError);
  fs::remove(path);
  fs::create_hard_link(victim, path);
  EXPECT_THROW(lines_then_add("job"), EnvironmentError);
  EXPECT_EQ(fs::file_size(victim), 0U);
}

TEST_F(JournalFile, OneProcessWritesAndOthersRead) {
  const auto ignore = [](std::string_view, std::int64_t) {};
  Journal journal(path, "job", Journal::Pace::batches, ignore);
  EXPECT_THROW(Journal(path, "job", Journal::Pace::batches, ignore), EnvironmentError);
  journal.add("one");
  journal.add(std::string(100'000, 'x'));  // more than a batch
  std::vector<std::int64_t> offsets;
  const JournalReader reader(path, "job");
  ASSERT_TRUE(reader.valid());
  EXPECT_EQ(reader.each_line([&](std::string_view, std::int64_t offset) { offsets.push_back(offset); }), 0);
  ASSERT_EQ(offsets.size(), 2U);
  EXPECT_EQ(reader.line_at(offsets[0]), "one");
  EXPECT_EQ(reader.line_at(offsets[1])->size(), 100'000U);
  EXPECT_EQ(reader.line_at(offsets[1] + 1), std::nullopt);
  EXPECT_EQ(reader.line_at(1 << 30), std::nullopt);
  EXPECT_FALSE(JournalReader(path, "another job").valid());
  EXPECT_FALSE(JournalReader(path + "-that-is-not-there", "job").valid());
}

}  // namespace
}  // namespace shardsim
