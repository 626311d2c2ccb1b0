// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/backends/nvlink.hpp"

#include <dlfcn.h>

#include <climits>
#include <cstddef>
#include <cstdint>

#include "sim/base/problem.hpp"

namespace shardsim::execute {
namespace {

/// A query and its answer, as NVML lays it out (nvmlFieldValue_t).
struct FieldValue {
  unsigned field = 0, scope = 0;
  long long timestamp = 0, latency = 0;
  int value_type = 0, status = 0;
  std::uint64_t value = 0;
};
static_assert(sizeof(FieldValue) == 40 && offsetof(FieldValue, status) == 28 && offsetof(FieldValue, value) == 32);

constexpr unsigned payload_sent = 138;    // NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, in KiB
constexpr unsigned all_links = UINT_MAX;  // as scope: the sum over the links

}  // namespace

std::optional<NvlinkCounter::Library> NvlinkCounter::driver() {
  void* handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // stays open: it is asked until the end
  if (handle == nullptr) return std::nullopt;
  Library library;
  library.init = reinterpret_cast<int (*)()>(::dlsym(handle, "nvmlInit_v2"));
  library.device_by_bus_id = reinterpret_cast<int (*)(const char*, void**)>(::dlsym(handle, "nvmlDeviceGetHandleByPciBusId_v2"));
  library.field_values = reinterpret_cast<int (*)(void*, int, void*)>(::dlsym(handle, "nvmlDeviceGetFieldValues"));
  if (library.init == nullptr || library.device_by_bus_id == nullptr || library.field_values == nullptr) return std::nullopt;
  return library;
}

NvlinkCounter::NvlinkCounter(const Library& library, const std::string& pci_bus_id) : library_(library) {
  if (const int status = library_.init(); status != 0) throw EnvironmentError("NVML cannot be used: status " + std::to_string(status));
  if (const int status = library_.device_by_bus_id(pci_bus_id.c_str(), &device_); status != 0)
    throw EnvironmentError("NVML does not know GPU " + pci_bus_id + ": status " + std::to_string(status));
}

std::optional<Bytes> NvlinkCounter::sent() const {
  FieldValue query;
  query.field = payload_sent;
  query.scope = all_links;
  if (library_.field_values(device_, 1, &query) != 0 || query.status != 0) return std::nullopt;
  return static_cast<std::int64_t>(query.value) * kibibytes(1);
}

}  // namespace shardsim::execute
