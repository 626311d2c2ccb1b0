// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/backends/mpi_monitoring.hpp"

#include <dlfcn.h>
#include <link.h>

#include <sstream>
#include <string>
#include <string_view>

namespace {

std::int64_t bytes_so_far = 0;

using Record = void (*)(int, std::size_t, int);

/// The function of the same name in the component's library.
Record library_record() {
  Record found = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        if (std::string_view(info->dlpi_name).find("libmca_common_monitoring") == std::string_view::npos) return 0;
        void* library = dlopen(info->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        *static_cast<Record*>(result) =
            library == nullptr ? nullptr : reinterpret_cast<Record>(dlsym(library, "mca_common_monitoring_record_pml"));
        return 1;
      },
      static_cast<void*>(&found));
  return found;
}

}  // namespace

extern "C" void mca_common_monitoring_record_pml(int world_rank, std::size_t data_size, int tag) {
  static const Record library = library_record();
  bytes_so_far += static_cast<std::int64_t>(data_size);
  if (library != nullptr) library(world_rank, data_size, tag);
}

namespace shardsim::execute {

std::int64_t recorded_bytes() { return bytes_so_far; }

std::int64_t bytes_on_record(std::istream& file) {
  std::int64_t sum = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind;
    std::int64_t from = 0, to = 0, bytes = 0;
    if (words >> kind >> from >> to >> bytes && (kind == "E" || kind == "I")) sum += bytes;
  }
  return sum;
}

}  // namespace shardsim::execute
