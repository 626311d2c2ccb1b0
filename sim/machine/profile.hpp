// SPDX-License-Identifier: Apache-2.0
// A cluster profile: how long a unit of work takes on a machine. Shipped as a preset or written by `calibrate`; the YAML format is
// documented in docs/profile.md. Every value has an origin (measured, published, assumed).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/collective.hpp"
#include "sim/base/dtype.hpp"
#include "sim/base/units.hpp"
#include "sim/config/node.hpp"
#include "sim/machine/differences.hpp"
#include "sim/machine/topology.hpp"

namespace shardsim {

/// Time of a matrix product: launch + softmax of (FLOPs / (efficiency * peak), bytes / (memory_efficiency * HBM)), waves of tiles where
/// `tile` is set, times a residual interpolated from `table` where measured shapes are near.
struct GemmModel {
  Seconds launch = microseconds(3.5);   ///< t0 of one product on the device
  double efficiency = 0.8;              ///< epsilon: achieved share of the peak, large products
  double memory_efficiency = 0.8;       ///< eta: achieved share of HBM
  std::int64_t tile_m = 0, tile_n = 0;  ///< wave quantisation; 0: none
  struct Point {
    std::int64_t m, n, k;
    Seconds time;
  };
  double power_limit =
      1;  ///< share of the measured rate that products keep in a step: seconds at the power limit, which a microbenchmark does not meet
  std::vector<Point> table{};  ///< measured points for the residual
};

/// Time of an attention kernel: launch + FLOPs / (peak * share(head size, sequence) * fill), where fill = w / (w + half_waves) and w is how
/// many times the blocks of 128 queries fill the multiprocessors. Backward runs at a fixed ratio of forward's share.
struct AttentionModel {
  Seconds launch;
  double half_waves = 0;
  struct Point {
    std::int64_t head_dim, sequence;
    double share;
  };
  std::vector<Point> table{};  ///< forward, causal; empty: Gpu::attention_efficiency at every size
};

struct Gpu {
  std::string name;  ///< "NVIDIA H100 SXM"
  Bytes capacity;    ///< memory that the driver reports
  ByteRate memory_bandwidth;
  std::map<DType, FlopRate> peak;  ///< dense
  std::int32_t multiprocessors = 132;
  GemmModel gemm;                     ///< of 16-bit products
  std::optional<GemmModel> gemm_fp8;  ///< none: as `gemm`, at the peak of fp8
  AttentionModel attention;
  double attention_efficiency = 0.5;  ///< share of the peak that flash attention reaches, forward, on the FLOPs it really does
  double attention_backward_efficiency = 0.4;
  double elementwise_efficiency = 0.85;          ///< share of HBM that memory-bound kernels reach
  double optimizer_efficiency = 0.85;            ///< share of HBM that an optimizer's kernels reach
  Seconds kernel_launch = microseconds(4.5);     ///< host time to issue one kernel: the driver's, without the framework's
  Seconds collective_launch = microseconds(15);  ///< host time to issue one collective
  Seconds device_kernel_gap = microseconds(1);   ///< device time lost between two kernels
  double overlap_slowdown = 0.15;                ///< compute takes (1 + this) times as long while a collective runs beside it
  ByteRate host_link;                            ///< PCIe or C2C, one direction, pinned memory
};

/// T(S) = alpha + S / algbw for S <= limit (inclusive); the last segment has no limit.
struct CollectiveSegment {
  std::optional<Bytes> limit;
  Seconds alpha;
  ByteRate algbw;
};

/// Measured or fitted time of one collective at one group size and placement.
struct CollectiveFit {
  Collective collective = Collective::all_reduce;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  std::string algorithm = "ring";  ///< ring, tree, nvls, pat: what the library ran; unknown: the log did not say
  std::string protocol;            ///< simple, ll, ll128, or empty if unknown
  std::vector<CollectiveSegment> segments;
  struct Sample {
    Bytes size;
    Seconds min, median, p90;
    std::int32_t repetitions;
  };
  std::vector<Sample> samples;  ///< raw points, kept for interpolation and refits
  Bytes largest;                ///< measured; beyond it a fit of segments is continued. Zero: the samples say it
  std::string origin;
  std::optional<double> leave_one_out_median, leave_one_out_p90;  ///< relative errors of the fit
};

/// Standard deviations between alike ranks and alike calls, as shares of their means: what a job waits for its slowest rank and link.
struct Spread {
  double compute = 0, collectives = 0;
};

struct NodeShape {
  std::int32_t gpus = 8;
  std::int32_t nvlink_nodes = 1;  ///< nodes that one NVLink domain joins: 18 in a rack of GB200 NVL72
  ByteRate ring_bandwidth;        ///< bus bandwidth of a ring inside the node (NVLink, all channels)
  Seconds intra_latency;          ///< per ring step inside the node
  Bytes host_memory;
  ByteRate host_memory_bandwidth;  ///< DRAM of one node: CPU optimizers
  double host_speed = 1;           ///< of one core, over the one that the costs of software stacks are stated for
  bool operator==(const NodeShape&) const = default;
};

struct Network {
  std::int32_t nics_per_node = 8;
  ByteRate nic_bandwidth;   ///< per NIC and direction
  double efficiency = 1.0;  ///< achieved share of line rate
  Seconds inter_latency;    ///< per ring step that crosses nodes
  Seconds base_latency;     ///< c0 of every collective
  /// How an all-reduce runs: library and auto (what the library would choose: the least time of ring, tree and NVLS), or one of ring, tree,
  /// nvls and hierarchical. Under library bytes are counted as a ring's.
  std::string all_reduce_algorithm = "library";
  std::string ring_model = "alpha_beta";  ///< of rings nobody measured: alpha_beta (closed form) or stepwise (chunks and slices)
  bool operator==(const Network&) const = default;
};

/// Memory that is neither tensors nor allocator: seen by the driver only, except the cuBLAS workspaces.
struct Overheads {
  Bytes context;  ///< CUDA context and loaded kernels
  Bytes nccl_per_communicator;
  Seconds driver_allocation{};  ///< of the step, for each cudaMalloc and cudaFree of a segment once the allocator has to empty its cache
  Bytes cublas_workspace;       ///< taken from the caching allocator, so inside "allocated"
};

struct Storage {
  ByteRate write_per_node;
  ByteRate read_per_node;
};

/// The links on which a profile's collectives were measured, where a scenario puts others in their place.
struct MeasuredOn {
  NodeShape node;
  Network network;
  std::optional<Topology> topology;
};

struct Profile {
  std::string name;
  std::string file;  ///< where it was read from
  std::string description;
  Gpu gpu;
  NodeShape node;
  Network network;
  Spread spread;
  Overheads overheads;
  std::optional<Storage> storage;
  std::optional<Topology> topology;
  std::vector<CollectiveFit> collectives;
  std::optional<MeasuredOn> measured_on;       ///< nothing: on the links that the profile describes
  std::optional<double> price_per_gpu_hour;    ///< US dollars
  std::map<std::string, std::string> origins;  ///< dotted key -> where the value is from
};

/// A part holds what one calibration measured (an nccl-tests log knows no GPU peaks): nothing is required of it, and what it lacks is zero.
enum class Completeness : std::uint8_t { whole, part };

/// The profile that `root` describes; the file's name is that of the root's source. Missing required keys, unknown keys and values out
/// of range are problems.
[[nodiscard]] Result<Profile> read_profile(const ConfigNode& root, Completeness completeness = Completeness::whole);
/// The profile as YAML that read_profile gives back unchanged, numbers to the last bit. What a part lacks is left out.
[[nodiscard]] std::string to_yaml(const Profile& profile);

/// Where the value of a dotted key is from: the origin of the key itself or of the nearest enclosing section; empty if none is given.
[[nodiscard]] std::string origin_of(const Profile& profile, std::string_view key);

/// The machine of one scenario: a profile, how much of it is used, and overrides already applied to the profile.
struct Cluster {
  Profile profile;
  std::int64_t nodes = 1;
  std::int64_t gpus_per_node = 8;
  std::int64_t nics_per_node = 8;
  RankStates states{};  ///< where ranks differ
  [[nodiscard]] std::int64_t world_size() const { return nodes * gpus_per_node; }
};

}  // namespace shardsim
