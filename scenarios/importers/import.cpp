// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/import.hpp"

#include <fmt/format.h>

#include <array>

namespace shardsim {
namespace {

struct Format {
  std::string_view name;
  Result<Imported> (*read)(const Source&, const ImportOptions&);
};

constexpr std::array<Format, 4> formats{{{"deepspeed", import_deepspeed},
                                         {"accelerate", import_accelerate},
                                         {"llm-foundry", import_llm_foundry},
                                         {"torchtitan", import_torchtitan}}};

}  // namespace

const std::vector<std::string>& import_formats() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& format : formats) list.emplace_back(format.name);
    return list;
  }();
  return names;
}

Result<Imported> import_file(const std::string& format, const std::string& file, const ImportOptions& options) {
  const auto source = read_source(file);
  if (!source) return tl::unexpected(source.error());
  for (const auto& known : formats)
    if (known.name == format) return known.read(*source, options);
  throw InputError(fmt::format("unknown format '{}'", format));
}

}  // namespace shardsim
