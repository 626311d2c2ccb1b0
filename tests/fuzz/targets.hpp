// SPDX-License-Identifier: Apache-2.0
// What is fuzzed: text in, a value or problems out, and nothing else. Each target is run by libFuzzer (*_fuzz.cpp) and over the corpus
// (corpus_test.cpp).
#pragma once

#include <string_view>

namespace shardsim {

void fuzz_scenario(std::string_view text);
void fuzz_config(std::string_view text);
void fuzz_units(std::string_view text);

}  // namespace shardsim
