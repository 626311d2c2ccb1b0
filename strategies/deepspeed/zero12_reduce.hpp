// SPDX-License-Identifier: Apache-2.0
// How DeepSpeed's ZeRO stages 1 and 2 reduce one bucket of gradients: average_tensor and what it calls.
// Source: DeepSpeed runtime/zero/stage_1_and_2.py.
#pragma once

#include <optional>
#include <vector>

#include "strategies/deepspeed/zero12_buckets.hpp"
#include "strategies/deepspeed/zero12_groups.hpp"

namespace shardsim {

class GradientReducer {
 public:
  GradientReducer(Program& program, const Zero12Config& config, const FlatGroups& groups);

  /// The stream that reductions, and the copies after them, run on: reduction_stream under overlap_comm, else the current one.
  [[nodiscard]] StreamId stream() const { return stream_; }

  /// Averages the bucket's gradients, which stand in `tensor` from its start. Afterwards this rank's slices are right there; those of
  /// others are not, unless reduce_scatter is off.
  void average_tensor(BufferId tensor, const IpgBucket& bucket);

  /// Without contiguous_gradients: flattens, divides, all-reduces and copies back to every gradient. `gradients` follow bucket.parameters.
  void buffered_reduce_fallback(const std::vector<BufferId>& gradients, const IpgBucket& bucket);

 private:
  /// A part of one parameter's gradient in the bucket.
  struct Part {
    ParameterId parameter;
    PartitionSlice slice;
    std::int64_t offset;
  };
  /// Neighbouring parts of one owner.
  struct Run {
    std::int64_t owner, offset, length;
    const RankGroup* ranks;
  };
  /// Elements that one layout can name, and how many of them this rank owns.
  struct Stretch {
    LayoutId layout;
    Elements elements, own;
  };
  /// What one collective takes out of the tensor: one piece of it, at `offset`, or pieces that are flattened into a tensor of their own.
  struct Message {
    CommunicatorId communicator{};
    std::vector<Stretch> stretches{};
    Elements elements{}, offset{};
    std::int64_t pieces = 0, own_pieces = 0;
  };
  /// A tensor of its own for a message, and a view of it for each stretch.
  struct Flat {
    BufferId tensor;
    std::vector<BufferId> views;
  };

  [[nodiscard]] std::vector<Part> parts_of(const IpgBucket& bucket) const;
  [[nodiscard]] std::vector<Run> runs_of(const std::vector<Part>& parts) const;
  [[nodiscard]] static std::int64_t pieces_of(const std::vector<Part>& parts);
  void gradient_reduction_w_predivide(BufferId tensor, const IpgBucket& bucket);
  void allreduce_and_scatter(BufferId tensor, const IpgBucket& bucket, const std::vector<Run>& runs);
  [[nodiscard]] Message message_of(const IpgBucket& bucket, std::span<const Run> runs);
  void reduce_to_owners(BufferId tensor, const IpgBucket& bucket, const std::vector<Part>& parts);
  [[nodiscard]] Message message_of(const std::vector<Part>& parts, std::int64_t owner);
  [[nodiscard]] Stretch stretch_of(std::vector<Part> parts, bool own);
  void allreduce_bucket(BufferId tensor, const Message& message, std::optional<std::int64_t> root, UnitId name);
  [[nodiscard]] Flat flat_for(const Message& message, const char* verb, DType dtype, UnitId name);
  OpId collective(CommunicatorId communicator, BufferId buffer, Elements offset, Elements payload, std::optional<std::int64_t> root,
                  UnitId name);
  void scale(BufferId buffer, Elements count, UnitId name);
  [[nodiscard]] BufferId temporary(const char* verb, UnitId name, DType dtype, LayoutId layout, Elements elements);

  Program& program_;
  ScheduleBuilder& build_;
  const Zero12Config& config_;
  const FlatGroups& groups_;
  StreamId stream_;
};

}  // namespace shardsim
