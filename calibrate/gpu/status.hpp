// SPDX-License-Identifier: Apache-2.0
// Status codes of CUDA, cuBLAS and NCCL as exceptions that name the call and what the library says of it. For nvcc only.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstring>

#include "calibrate/gpu/check.hpp"

namespace shardsim::gpu {

inline void throw_unless_good(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess) throw_failure(call, file, line, cudaGetErrorString(status));
}
inline void throw_unless_good(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) throw_failure(call, file, line, cublasGetStatusString(status));
}
inline void throw_unless_good(ncclResult_t status, const char* call, const char* file, int line) {
  if (status == ncclSuccess) return;
  const char* last = ncclGetLastError(nullptr);
  throw_failure(call, file, line,
                std::string(ncclGetErrorString(status)) + (last != nullptr && *last != '\0' ? std::string("; ") + last : std::string()));
}

/// The bytes that make_unique_id() made, as NCCL has them.
inline ncclUniqueId unique_id_of(const std::string& bytes) {
  ncclUniqueId id;
  if (bytes.size() != sizeof id.internal) throw Failure("an NCCL id of " + std::to_string(bytes.size()) + " bytes arrived");
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  return id;
}

}  // namespace shardsim::gpu

#define SHARDSIM_CHECK(call) ::shardsim::gpu::throw_unless_good((call), #call, __FILE__, __LINE__)
