// SPDX-License-Identifier: Apache-2.0
// SOURCE of the contexts: PyTorch's out-of-memory messages in public issues and logs, each "in use by this process" less "allocated by
// PyTorch" less "reserved but unallocated", which leaves the CUDA context with the kernels that are loaded. One GPU, no NCCL.
#include "sim/machine/gpu_generations.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace shardsim {
namespace {

constexpr GpuGeneration unknown{"", mebibytes(512),
                                "default: about what a process takes on data-centre GPUs (386 to 712 MiB); measure with calibrate cuda"};
constexpr GpuGeneration volta{"Volta", mebibytes(386),
                              "default for Volta: median of 4 public out-of-memory reports of V100 (379 to 399 MiB)"};
constexpr GpuGeneration ga100{"Ampere", mebibytes(512), "default for Ampere: 4 public out-of-memory reports of A100 (489 to 522 MiB)"};
constexpr GpuGeneration ga102{"Ampere (GA102)", mebibytes(354),
                              "default for GA102: median of 3 public out-of-memory reports of RTX 3090 (307 to 420 MiB)"};
constexpr GpuGeneration ada{"Ada", mebibytes(441),
                            "default for Ada: median of 8 public out-of-memory reports of RTX 4090, L40 and RTX 6000 Ada (379 to 507 MiB)"};
constexpr GpuGeneration hopper{"Hopper", mebibytes(525), "default for Hopper: a public out-of-memory report of H200"};
constexpr GpuGeneration blackwell{"Blackwell", mebibytes(712), "default for Blackwell: a public out-of-memory report of B200"};
constexpr GpuGeneration gb20x{"Blackwell (GB20x)", mebibytes(599),
                              "default for GB20x: median of 5 public out-of-memory reports of RTX 5090 and RTX PRO 6000 (594 to 692 MiB)"};

struct Product {
  std::string_view word;
  const GpuGeneration* generation;
};
/// Words that name a product; the first that stands in a GPU's name decides.
constexpr std::array<Product, 44> products{
    {{"V100", &volta},     {"A100", &ga100},     {"A800", &ga100},     {"A30", &ga100},     {"GB200", &blackwell}, {"GB300", &blackwell},
     {"B200", &blackwell}, {"B300", &blackwell}, {"B100", &blackwell}, {"GH200", &hopper},  {"H100", &hopper},     {"H200", &hopper},
     {"H800", &hopper},    {"H20", &hopper},     {"L4", &ada},         {"L40", &ada},       {"L40S", &ada},        {"L20", &ada},
     {"Ada", &ada},        {"4090", &ada},       {"4080", &ada},       {"4070", &ada},      {"PRO", &gb20x},       {"5090", &gb20x},
     {"5080", &gb20x},     {"5070", &gb20x},     {"A10", &ga102},      {"A10G", &ga102},    {"A16", &ga102},       {"A40", &ga102},
     {"A6000", &ga102},    {"A5000", &ga102},    {"A4000", &ga102},    {"A4500", &ga102},   {"3090", &ga102},      {"3080", &ga102},
     {"3070", &ga102},     {"3060", &ga102},     {"RTX4090", &ada},    {"RTX3090", &ga102}, {"RTX5090", &gb20x},   {"RTX6000Ada", &ada},
     {"4060", &ada},       {"5060", &gb20x}}};

bool same(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

/// Is `word` one of the words of `name`, which end at anything but letters and digits?
bool has_word(std::string_view name, std::string_view word) {
  for (std::size_t begin = 0; begin < name.size();) {
    std::size_t end = begin;
    while (end < name.size() && std::isalnum(static_cast<unsigned char>(name[end]))) ++end;
    if (same(name.substr(begin, end - begin), word)) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

const GpuGeneration& generation_of(std::string_view gpu) {
  const auto found = std::find_if(products.begin(), products.end(), [&](const Product& p) { return has_word(gpu, p.word); });
  return found == products.end() ? unknown : *found->generation;
}

}  // namespace shardsim
