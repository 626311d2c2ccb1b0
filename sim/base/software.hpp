// SPDX-License-Identifier: Apache-2.0
// Words for the software that a job runs on: schedules and models count with them, a Stack (sim/machine/stack.hpp) says what each costs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace shardsim {

/// What the host runs beside launches: Python and C++ of the framework around kernels, modules, gradients and steps.
enum class HostCall : std::uint8_t {
  data_loading,      ///< the next micro-batch from the loader to the device
  module,            ///< torch.nn.Module.__call__ of one module
  checkpoint,        ///< torch.utils.checkpoint around one block
  fsdp_pre_forward,  ///< FSDP's hooks of one wrapped module, beyond the collectives and copies that they launch
  fsdp_post_forward,
  fsdp_pre_backward,
  fsdp_post_backward,
  ddp_gradient,       ///< Reducer::autograd_hook of one parameter
  ddp_bucket,         ///< Reducer: one bucket reduced and its gradients written back
  zero_gradient,      ///< ZeRO-1's hook of one gradient
  zero_partition,     ///< what ZeRO-2 does more for one gradient: it goes to its owner at once, and is freed
  zero_step,          ///< DeepSpeedEngine.step and the optimizer around the kernels: once a step
  zero3_fetch,        ///< PartitionedParameterCoordinator.fetch_sub_module of one submodule
  zero3_release,      ///< release_sub_module of one submodule
  zero3_gradient,     ///< ZeRO-3's hook of one gradient
  megatron_gradient,  ///< Megatron's and OLMo-core's hook of one gradient
  optimizer_tensor,   ///< an optimizer's Python for one tensor
};
inline constexpr std::array<std::string_view, 17> host_call_names{
    "data_loading",       "module",        "checkpoint",     "fsdp_pre_forward",  "fsdp_post_forward", "fsdp_pre_backward",
    "fsdp_post_backward", "ddp_gradient",  "ddp_bucket",     "zero_gradient",     "zero_partition",    "zero_step",
    "zero3_fetch",        "zero3_release", "zero3_gradient", "megatron_gradient", "optimizer_tensor"};
inline constexpr std::size_t host_call_count = host_call_names.size();
[[nodiscard]] constexpr std::string_view name_of(HostCall call) { return host_call_names[static_cast<std::size_t>(call)]; }

/// Which chains of pointwise operations one kernel does, without compile. False: kernel by kernel, as the Python of transformers is
/// written.
struct FusedKernels {
  bool norms = false;
  bool rotary = false;
  bool activation = false;  ///< the activation and, where it is gated, the product after it
  bool operator==(const FusedKernels&) const = default;
};

}  // namespace shardsim
