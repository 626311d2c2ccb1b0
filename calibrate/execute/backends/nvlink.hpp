// SPDX-License-Identifier: Apache-2.0
// NVLink's byte counters, from NVML (the driver's management library), which is opened when it is needed: no header or stub of it is.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "sim/base/units.hpp"

namespace shardsim::execute {

class NvlinkCounter {
 public:
  /// NVML's functions as this class uses them, by address: the driver's, or a test's.
  struct Library {
    int (*init)() = nullptr;
    int (*device_by_bus_id)(const char* id, void** device) = nullptr;
    int (*field_values)(void* device, int count, void* values) = nullptr;
  };
  /// libnvidia-ml.so.1; nothing where there is none.
  [[nodiscard]] static std::optional<Library> driver();

  /// Throws EnvironmentError if NVML does not know the GPU.
  NvlinkCounter(const Library& library, const std::string& pci_bus_id);

  /// Bytes that the GPU has sent over all its links, payload only, in steps of 1 KiB, whoever sent them; nothing if it does not count.
  [[nodiscard]] std::optional<Bytes> sent() const;

 private:
  Library library_;
  void* device_ = nullptr;
};

}  // namespace shardsim::execute
