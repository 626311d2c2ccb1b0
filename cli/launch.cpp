// SPDX-License-Identifier: Apache-2.0
#include "cli/launch.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace shardsim {
namespace {

struct Variables {
  const char *rank, *size;
};
// A launcher inside a Slurm allocation says more than the allocation: Slurm comes last.
constexpr std::array<Variables, 4> launchers{{{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                              {"PMI_RANK", "PMI_SIZE"},
                                              {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                              {"SLURM_PROCID", "SLURM_NTASKS"}}};

std::optional<std::int64_t> number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view word(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

LaunchedRank launched() {
  for (const Variables& launcher : launchers) {
    const auto rank = number(launcher.rank), size = number(launcher.size);
    if (rank && size && 0 <= *rank && *rank < *size) return {*rank, *size};
  }
  return {};
}

}  // namespace shardsim
