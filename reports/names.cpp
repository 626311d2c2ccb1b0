// SPDX-License-Identifier: Apache-2.0
#include "reports/names.hpp"

#include <algorithm>

namespace shardsim {
namespace {

std::string with(std::string_view name, char separator) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', separator);
  return out;
}

}  // namespace

std::string display_name(Collective collective) { return with(name_of(collective), '-'); }
std::string display_name(Category category) { return with(name_of(category), ' '); }

}  // namespace shardsim
