// SPDX-License-Identifier: Apache-2.0
// What is fuzzed: text in, a value or problems out, and nothing else. Each target is run by libFuzzer (*_fuzz.cpp) and over the corpus
// (corpus_test.cpp).
#pragma once

#include <string_view>

namespace shardsim {

void fuzz_scenario(std::string_view text);
void fuzz_config(std::string_view text);
void fuzz_units(std::string_view text);
/// A profile that reads is written as one that reads back the same.
void fuzz_profile(std::string_view text);
/// The `topology:` block of a cluster of two nodes, expanded to its graph.
void fuzz_topology(std::string_view text);
/// A journal that another process left: lines with the right checksum, and after it a new one.
void fuzz_journal(std::string_view text);
void fuzz_toml(std::string_view text);
/// The first byte chooses the importer.
void fuzz_import(std::string_view text);

}  // namespace shardsim
