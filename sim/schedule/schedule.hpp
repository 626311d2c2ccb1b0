// SPDX-License-Identifier: Apache-2.0
// The Schedule: the program that one rank's host issues in one optimizer step. It says what happens, in which order and how much work
// it is; never how long it takes. The account, the engine and the executor all consume this and nothing else.
//
// The host issues `ops` in order. An op with a stream is queued there and runs when the stream's earlier ops are done; memory is
// allocated and freed in host order, as a caching allocator does. Ordering across streams comes from Wait (device) and HostWait (host).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/base/collective.hpp"
#include "sim/base/dtype.hpp"
#include "sim/base/ids.hpp"
#include "sim/base/problem.hpp"
#include "sim/base/software.hpp"
#include "sim/base/units.hpp"
#include "sim/schedule/work.hpp"

namespace shardsim {

/// What a buffer is for; the rows of every memory report.
enum class Category : std::uint8_t {
  parameters,             ///< held for the whole step: full copies, or the rank's shard
  gradients,              ///< that the optimizer reads: full, or the rank's shard
  optimizer_states,       ///< moments and the master copy
  unsharded_parameters,   ///< gathered for compute, freed again
  unsharded_gradients,    ///< as autograd leaves them, before reduction to a shard
  communication_buffers,  ///< inputs and outputs of collectives, buckets
  activations,
  logits,  ///< logits, their copies and gradients
  temporaries,
};
inline constexpr std::size_t category_count = 9;
inline constexpr std::array<std::string_view, category_count> category_names{
    "parameters",  "gradients", "optimizer_states", "unsharded_parameters", "unsharded_gradients", "communication_buffers",
    "activations", "logits",    "temporaries"};
[[nodiscard]] constexpr std::string_view name_of(Category c) { return category_names[static_cast<std::size_t>(c)]; }

enum class Phase : std::uint8_t { forward, backward, step };
[[nodiscard]] constexpr std::string_view name_of(Phase p) {
  return p == Phase::forward ? "forward" : p == Phase::backward ? "backward" : "step";
}

/// Why a Compute op runs; recomputation is hardware work but not model work.
enum class Pass : std::uint8_t { forward, recompute, backward };

/// `count` parameter ids in Schedule::parameter_pool, from `begin`.
struct ParameterSpan {
  std::int32_t begin = 0;
  std::int32_t count = 0;
};

/// Which elements of which parameters a buffer holds, and where. A Copy moves exactly the elements that its two layouts share, so that
/// flattening, copy-in, copy-out, chunk_cat and casts are one operation.
struct Layout {
  enum class Partition : std::uint8_t {
    none,  ///< the parameters one after another, each start aligned to `align` elements, the whole padded to a multiple of `multiple`
    flat,  ///< as `none`, cut into n equal parts (uneven by at most one element if the padding does not make it divisible)
    each,  ///< every parameter flattened and cut into n parts of ceil(n_i / n); stored rank by rank (DeepSpeed ZeRO-3)
    rows,  ///< every parameter cut along dimension 0 into n chunks of ceil(d0 / n) rows; stored rank by rank (FSDP2, torch.chunk)
  };
  ParameterSpan parameters{};
  Partition partition = Partition::none;
  bool shard = false;       ///< only the part of the rank that runs the schedule; else the parts of all n ranks
  bool unpadded = false;    ///< of a `rows` or `each` shard: without the padding of the last owners (.grad, optimizer states)
  std::int32_t n = 1;       ///< parts
  std::int32_t stride = 1;  ///< part index of rank r is (r / stride) % n: 1 for a shard group of neighbours
  std::int32_t align = 1;
  std::int32_t multiple = 1;
  /// Of `rows` that are cut in fewer parts than they were padded for: a buffer of chunks for so many ranks, in n parts of several chunks.
  std::int32_t padded_for = 1;
  /// Only elements [first, first + length) of the (unsharded) flat layout; length 0 means all. For slices of buckets that ranks own.
  std::int64_t first = 0;
  std::int64_t length = 0;
};

/// What the executor does with a buffer beyond moving its bytes.
enum class Role : std::uint8_t {
  none,
  parameter,  ///< layers read the parameters of its layout from here while it is alive
  gradient,   ///< backward adds the gradients of the parameters of its layout here while it is alive
};

/// A short text made of a verb and the unit it is about; printed as "verb(unit)". Equal to the library's profiler labels where it has them.
struct Label {
  const char* verb = "";  ///< a string literal
  UnitId unit{};          ///< index into Schedule::units
};

/// A tensor of the model that a buffer holds for the micro-batch under way: an activation or its gradient.
struct TensorRef {
  std::int32_t layer = -1;   ///< -1: the buffer holds no tensor
  std::int32_t tensor = -1;  ///< index into LayerType::tensors; the output of a layer is the input of the next
  bool gradient = false;
};

struct Buffer {
  Label label{};
  Category category = Category::temporaries;
  Role role = Role::none;
  bool persistent = false;  ///< alive after the step, and before it too unless an op allocates it (states made lazily by the first step)
  bool host = false;        ///< in pinned host memory (offload): not counted as GPU memory
  DType dtype = DType::bf16;
  StreamId pool{};      ///< the stream whose allocator pool it comes from
  LayoutId layout{};    ///< none for opaque contents (activations, scratch)
  Elements elements{};  ///< with padding
  /// A view: takes no memory of its own, starts `view_offset` elements into that buffer, is alive while that buffer is; never allocated
  /// or freed. For buckets that are filled again and again (DeepSpeed's ipg buffer).
  BufferId view_of{};
  Elements view_offset{};
  TensorRef tensor{};
  [[nodiscard]] Bytes size() const { return bytes(elements, dtype); }
};

struct Stream {
  std::string name;
};

/// Ranks r0, r0 + stride, ... , r0 + (size - 1) stride, for every r0 that makes them a partition of the world.
struct Group {
  std::string name{};
  std::int64_t size = 1;
  std::int64_t stride = 1;
};

/// A first-in first-out queue of collectives over a group, in host order, whatever streams they sit on.
struct Communicator {
  std::string name{};
  GroupId group{};
};

// Operations ---------------------------------------------------------------------------------------------------------------------

/// Modules [first, last) of a layer of the model.
struct ModuleRange {
  std::int32_t layer = -1;
  std::int32_t first = 0;
  std::int32_t last = 0;
};

struct Compute {
  WorkId work{};
  Pass pass = Pass::forward;
  ModuleRange modules{};  ///< what the executor computes; layer -1: nothing (a kernel that only takes time)
};

enum class Reduction : std::uint8_t { sum, average, max };

struct Communicate {
  Collective kind = Collective::all_reduce;
  CommunicatorId communicator{};
  DType dtype = DType::bf16;
  Reduction reduction = Reduction::sum;
  bool control = false;   ///< a scalar, a flag or a map: control bytes, not traffic
  std::int32_t root = 0;  ///< of broadcast and reduce: index in the group
  Elements payload{};     ///< of the full buffer, padded
  BufferId source{};      ///< all-gather: the shard (none: own part of target, in place); reduce-scatter: the full buffer
  BufferId target{};  ///< all-gather: the full buffer; reduce-scatter: the shard (none: own part of source, in place); others: the buffer,
                      ///< in place
  Elements offset{};  ///< where the payload starts in the full buffer
};

enum class CopyPath : std::uint8_t { device, to_host, to_device };

/// A kernel that moves elements: casts between dtypes, multiplies by `scale`, and adds to the target if `accumulate`.
struct Copy {
  BufferId source{};  ///< none: fill the target with zeros
  BufferId target{};
  Elements count{};  ///< elements moved, for the cost
  CopyPath path = CopyPath::device;
  bool accumulate = false;
  std::int32_t kernels = 1;
  double scale = 1;
};

struct Allocate {
  BufferId buffer;
};
/// Ends the buffer's life in host order. If `also_used_by` names a stream (record_stream), the pool gets the block back only when that
/// stream has passed this point.
struct Free {
  BufferId buffer{};
  StreamId also_used_by{};
};

/// Later ops of the op's stream start after `op` is done.
struct Wait {
  OpId op;
};
/// The host issues nothing more until `op` is done.
struct HostWait {
  OpId op;
};
/// The host waits for everything issued so far.
struct Synchronize {};

enum class OptimizerKind : std::uint8_t { sgd, momentum, adam, adamw, adamw_8bit, lion, adafactor, muon };

/// One optimizer step over the elements of `parameters` (the master copy where there is one).
struct Update {
  OptimizerKind optimizer = OptimizerKind::adamw;
  Elements count{};
  WorkId work{};  ///< bytes of the element-wise kernels and, for muon, the products of Newton-Schulz
  BufferId parameters{};
  BufferId gradients{};
  BufferId first_moment{};  ///< none where the optimizer has none
  BufferId second_moment{};
  bool on_host = false;  ///< CPU optimizer: the host is busy meanwhile
};

using Action = std::variant<Compute, Communicate, Copy, Allocate, Free, Wait, HostWait, Synchronize, Update>;

/// What the host runs before it issues an op, beside the launches of the op itself: how often it makes each call.
struct HostWork {
  std::array<std::int16_t, host_call_count> calls{};
  auto operator<=>(const HostWork&) const = default;
};

struct Op {
  Action action{};
  StreamId stream{};  ///< none for Allocate, Free, HostWait and Synchronize: they happen on the host
  Label label{};
  Phase phase = Phase::forward;
  std::int16_t micro_batch = 0;
  HostWorkId host{};  ///< none: nothing but its launches
};

struct Schedule {
  std::string strategy{};         ///< "fsdp2"
  std::string semantics{};        ///< "framework" or "textbook"
  std::string library{};          ///< "PyTorch 2.13 (torch.distributed.fsdp.fully_shard)"; "textbook: ZeRO paper, section 7" ...
  std::string differs_because{};  ///< one line: why the traffic differs from the textbook's; empty if it does not
  std::vector<std::string> warnings{};
  std::int64_t world_size = 1;
  std::int64_t rank = 0;  ///< the rank whose program this is
  std::int32_t micro_batches = 1;

  std::vector<std::string> units{};  ///< names that labels refer to
  std::vector<Stream> streams{};     ///< 0 is the default (compute) stream
  std::vector<Group> groups{};
  std::vector<Communicator> communicators{};
  std::vector<Work> works{};
  std::vector<HostWork> host_works{};
  std::vector<ParameterId> parameter_pool{};
  std::vector<Layout> layouts{};
  std::vector<Buffer> buffers{};
  std::vector<Op> ops{};

  [[nodiscard]] const Buffer& at(BufferId id) const { return buffers[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Work& at(WorkId id) const { return works[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const HostWork& at(HostWorkId id) const { return host_works[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Layout& at(LayoutId id) const { return layouts[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Communicator& at(CommunicatorId id) const { return communicators[static_cast<std::size_t>(id.index)]; }
  [[nodiscard]] const Group& group_of(CommunicatorId id) const { return groups[static_cast<std::size_t>(at(id).group.index)]; }
  [[nodiscard]] const Op& at(OpId id) const { return ops[static_cast<std::size_t>(id.index)]; }
};

/// What is wrong with a schedule, as sentences; empty if nothing is. A strategy that emits an invalid schedule has a bug.
/// Checks: ids in range, every op labelled, buffers used only while alive, allocated and freed once, waits on earlier ops only,
/// persistent buffers never allocated, every non-persistent buffer freed unless it lives on into the next step by design (none does).
[[nodiscard]] std::vector<std::string> validate(const Schedule& schedule);

/// By buffer: alive before the step begins.
[[nodiscard]] std::vector<bool> initially_alive(const Schedule& schedule);

/// "FSDP::all_gather(layers.3)".
[[nodiscard]] std::string to_text(const Label& label, const Schedule& schedule);

/// Stable, readable text: tables first, then one line an op. The format of golden dumps.
[[nodiscard]] std::string to_text(const Schedule& schedule);

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

}  // namespace shardsim
