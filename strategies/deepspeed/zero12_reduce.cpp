// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/zero12_reduce.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "strategies/shared/bucketing.hpp"

namespace shardsim {
GradientReducer::GradientReducer(Program& program, const Zero12Config& config, const FlatGroups& groups)
    : program_(program),
      build_(program.build),
      config_(config),
      groups_(groups),
      stream_(config.overlap_comm ? build_.stream("reduction_stream") : current_stream) {}

void GradientReducer::average_tensor(BufferId tensor, const IpgBucket& bucket) {
  if (config_.overlap_comm) {
    // The bucket waits for its producers; then compute waits for all earlier reductions, so that at most one overlaps it.
    build_.wait_stream(stream_, current_stream);
    build_.wait_stream(current_stream, stream_);
  }
  if (!config_.reduce_scatter) return gradient_reduction_w_predivide(tensor, bucket);
  scale(tensor, bucket.elements, bucket.name);
  const std::vector<Part> parts = parts_of(bucket);
  if (config_.use_multi_rank_bucket_allreduce) return allreduce_and_scatter(tensor, bucket, runs_of(parts));
  reduce_to_owners(tensor, bucket, parts);
}

std::vector<GradientReducer::Part> GradientReducer::parts_of(const IpgBucket& bucket) const {
  std::vector<Part> parts;
  std::int64_t offset = 0;
  for (ParameterId p : bucket.parameters)
    for (const PartitionSlice& slice : groups_.slices(p)) {
      parts.push_back({p, slice, offset});
      offset += slice.length;
    }
  return parts;
}

std::vector<GradientReducer::Run> GradientReducer::runs_of(const std::vector<Part>& parts) const {
  std::vector<Run> runs;
  for (const Part& part : parts) {
    const RankGroup& ranks = groups_.ranks_of(part.parameter);
    if (runs.empty() || runs.back().owner != part.slice.owner || runs.back().ranks->communicator != ranks.communicator)
      runs.push_back({part.slice.owner, part.offset, 0, &ranks});
    runs.back().length += part.slice.length;
  }
  return runs;
}

/// reduce_scatter off: one all-reduce of the bucket as it stands, divided afterwards (postscale).
void GradientReducer::gradient_reduction_w_predivide(BufferId tensor, const IpgBucket& bucket) {
  BufferId wire = tensor;
  if (config_.communication != config_.model) {
    wire = temporary("communication copy", bucket.name, config_.communication, build_.layout({.parameters = bucket.span}), bucket.elements);
    build_.copy({"tensor.to", bucket.name}, stream_, {.source = tensor, .target = wire, .count = bucket.elements});
  }
  collective(groups_.communicator(), wire, Elements{}, bucket.elements, std::nullopt, bucket.name);
  scale(wire, bucket.elements, bucket.name);
  if (wire == tensor) return;
  build_.copy({"tensor.copy_", bucket.name}, stream_, {.source = wire, .target = tensor, .count = bucket.elements});
  build_.free(wire);
}

/// All owners' slices in one all-reduce for each process group: 2 phi an element where a reduce-scatter would send phi. Runs are collected
/// until they exceed the bucket size, which only a parameter above it can do.
void GradientReducer::allreduce_and_scatter(BufferId tensor, const IpgBucket& bucket, const std::vector<Run>& runs) {
  std::vector<std::vector<Run>> by_group;  // in the order in which process groups appear
  for (const Run& run : runs) {
    const auto same = [&](const std::vector<Run>& list) { return list.front().ranks->communicator == run.ranks->communicator; };
    const auto found = std::find_if(by_group.begin(), by_group.end(), same);
    if (found == by_group.end())
      by_group.push_back({run});
    else
      found->push_back(run);
  }
  const std::int64_t limit = config_.reduce_bucket_size.value() + 1;
  for (const std::vector<Run>& list : by_group) {
    std::vector<std::int64_t> sizes;
    for (const Run& run : list) sizes.push_back(run.length);
    for (const BucketRange& range : close_when_full(sizes, std::span(&limit, 1)))
      allreduce_bucket(tensor, message_of(bucket, std::span(list).subspan(range.begin, range.end - range.begin)), std::nullopt,
                       bucket.name);
  }
}

/// Runs that follow one another in the bucket are one stretch of it: with one process group, all of them.
GradientReducer::Message GradientReducer::message_of(const IpgBucket& bucket, std::span<const Run> runs) {
  Message message{.communicator = runs.front().ranks->communicator, .offset = Elements{runs.front().offset}};
  const std::int64_t own = runs.front().ranks->part(program_.job.rank);
  for (std::size_t i = 0; i < runs.size();) {
    const std::int64_t first = runs[i].offset;
    std::int64_t end = first, owned = 0;
    for (; i < runs.size() && runs[i].offset == end; ++i) {
      end += runs[i].length;
      ++message.pieces;
      if (runs[i].owner != own) continue;
      owned += runs[i].length;
      ++message.own_pieces;
    }
    message.elements += Elements{end - first};
    message.stretches.push_back(
        {build_.layout({.parameters = bucket.span, .first = first, .length = end - first}), Elements{end - first}, Elements{owned}});
  }
  return message;
}

/// allreduce_no_retain: one reduce for each owner, in the order in which owners appear.
void GradientReducer::reduce_to_owners(BufferId tensor, const IpgBucket& bucket, const std::vector<Part>& parts) {
  using Owner = std::pair<std::int64_t, std::int32_t>;  // and its process group
  std::vector<Owner> owners;
  std::map<Owner, std::vector<Part>> by_owner;
  for (const Part& part : parts) {
    const Owner owner{part.slice.owner, groups_.ranks_of(part.parameter).communicator.index};
    auto& list = by_owner[owner];
    if (list.empty()) owners.push_back(owner);
    list.push_back(part);
  }
  for (const Owner& owner : owners) {
    if (config_.overlap_comm) build_.synchronize({"ZeRO::allreduce_and_copy", bucket.name});
    allreduce_bucket(tensor, message_of(by_owner[owner], owner.first), owner.first, bucket.name);
  }
}

GradientReducer::Message GradientReducer::message_of(const std::vector<Part>& parts, std::int64_t owner) {
  const RankGroup& ranks = groups_.ranks_of(parts.front().parameter);
  const bool own = owner == ranks.part(program_.job.rank);
  Message message{.communicator = ranks.communicator, .offset = Elements{parts.front().offset}};
  std::map<std::size_t, std::vector<Part>> by_group;
  std::int64_t end = -1;
  for (const Part& part : parts) {
    if (part.offset != end) ++message.pieces;
    end = part.offset + part.slice.length;
    message.elements += Elements{part.slice.length};
    by_group[groups_.group_of(part.parameter)].push_back(part);
  }
  message.own_pieces = own ? message.pieces : 0;
  for (auto& [group, list] : by_group) message.stretches.push_back(stretch_of(std::move(list), own));
  return message;
}

/// One owner's parts of one param group. In the order of the flat buffer only the first can lack its parameter's beginning, and only the
/// last its end, so that one layout names them.
GradientReducer::Stretch GradientReducer::stretch_of(std::vector<Part> parts, bool own) {
  std::sort(parts.begin(), parts.end(),
            [&](const Part& a, const Part& b) { return groups_.start_of(a.parameter) < groups_.start_of(b.parameter); });
  std::vector<ParameterId> ids;
  Elements elements;
  for (const Part& part : parts) {
    ids.push_back(part.parameter);
    elements += Elements{part.slice.length};
  }
  const LayoutId layout =
      build_.layout({.parameters = build_.parameters(ids), .first = parts.front().slice.first, .length = elements.value()});
  return {layout, elements, own ? elements : Elements{}};
}

/// allreduce_bucket, and the copies of allreduce_and_copy: what is not one piece is flattened into a new tensor (cat) and copied back.
void GradientReducer::allreduce_bucket(BufferId tensor, const Message& message, std::optional<std::int64_t> root, UnitId name) {
  const std::vector<BufferId> in_bucket(message.stretches.size(), tensor);
  Flat flat{tensor, in_bucket}, wire = flat;
  const auto copy = [&](const char* verb, const Flat& from, const Flat& to, std::int64_t kernels, bool only_own) {
    for (std::size_t i = 0; i < message.stretches.size(); ++i)
      build_.copy({verb, name}, stream_,
                  {.source = from.views[i],
                   .target = to.views[i],
                   .count = only_own ? message.stretches[i].own : message.stretches[i].elements,
                   .kernels = static_cast<std::int32_t>(std::exchange(kernels, 0))});
  };
  if (message.pieces > 1) {
    flat = flat_for(message, "flatten", config_.model, name);
    copy("ZeRO::flatten", wire, flat, 1, false);
    wire = flat;
  }
  if (config_.communication != config_.model) {
    wire = flat_for(message, "communication copy", config_.communication, name);
    copy("tensor.to", flat, wire, 1, false);
  }
  collective(message.communicator, wire.tensor, wire.tensor == tensor ? message.offset : Elements{}, message.elements, root, name);
  const bool receives = !root || message.own_pieces > 0;
  if (wire.tensor != flat.tensor) {
    if (receives) copy("tensor.copy_", wire, flat, 1, false);
    build_.free(wire.tensor);
  }
  if (flat.tensor == tensor) return;
  if (message.own_pieces > 0) copy("buf.copy_", flat, {tensor, in_bucket}, message.own_pieces, true);
  build_.free(flat.tensor);
}

GradientReducer::Flat GradientReducer::flat_for(const Message& message, const char* verb, DType dtype, UnitId name) {
  const bool one = message.stretches.size() == 1;
  Flat flat;
  flat.tensor = temporary(verb, name, dtype, one ? message.stretches.front().layout : LayoutId{}, message.elements);
  if (one) {
    flat.views = {flat.tensor};
    return flat;
  }
  Elements offset;
  for (const Stretch& stretch : message.stretches) {
    Buffer view = build_.schedule().at(flat.tensor);
    view.layout = stretch.layout;
    view.elements = stretch.elements;
    view.view_of = flat.tensor;
    view.view_offset = offset;
    offset += stretch.elements;
    flat.views.push_back(build_.buffer(view));
  }
  return flat;
}

void GradientReducer::buffered_reduce_fallback(const std::vector<BufferId>& gradients, const IpgBucket& bucket) {
  const LayoutId layout = build_.layout({.parameters = bucket.span});
  BufferId wire = gradients.front(), flat, cast;
  if (gradients.size() > 1) {
    wire = flat = temporary("flatten", bucket.name, config_.model, layout, bucket.elements);
    std::int32_t kernels = 1;  // one cat over all gradients
    for (std::size_t i = 0; i < gradients.size(); ++i)
      build_.copy({"ZeRO::flatten", bucket.name}, stream_,
                  {.source = gradients[i],
                   .target = flat,
                   .count = program_.model().at(bucket.parameters[i]).elements,
                   .kernels = std::exchange(kernels, 0)});
  }
  if (config_.communication != config_.model) {
    cast = temporary("communication copy", bucket.name, config_.communication, layout, bucket.elements);
    build_.copy({"tensor.to", bucket.name}, stream_, {.source = wire, .target = cast, .count = bucket.elements});
    wire = cast;
  }
  scale(wire, bucket.elements, bucket.name);
  collective(groups_.communicator(), wire, Elements{}, bucket.elements, std::nullopt, bucket.name);
  if (cast.valid()) {
    build_.copy({"tensor.copy_", bucket.name}, stream_,
                {.source = cast, .target = flat.valid() ? flat : gradients.front(), .count = bucket.elements});
    build_.free(cast);
  }
  if (!flat.valid()) return;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    build_.copy({"buf.copy_", bucket.name}, stream_,
                {.source = flat, .target = gradients[i], .count = program_.model().at(bucket.parameters[i]).elements});
  build_.free(flat);
}

OpId GradientReducer::collective(CommunicatorId communicator, BufferId buffer, Elements offset, Elements payload,
                                 std::optional<std::int64_t> root, UnitId name) {
  return build_.communicate({root ? "nccl:reduce" : "nccl:all_reduce", name}, stream_,
                            {.kind = root ? Collective::reduce : Collective::all_reduce,
                             .communicator = communicator,
                             .dtype = config_.communication,
                             .root = static_cast<std::int32_t>(root.value_or(0)),
                             .payload = payload,
                             .target = buffer,
                             .offset = offset});
}

/// tensor.div_(dp_world_size)
void GradientReducer::scale(BufferId buffer, Elements count, UnitId name) {
  build_.copy({"tensor.div_", name}, stream_,
              {.source = buffer, .target = buffer, .count = count, .scale = 1.0 / static_cast<double>(program_.job.world_size)});
}

BufferId GradientReducer::temporary(const char* verb, UnitId name, DType dtype, LayoutId layout, Elements elements) {
  return build_.allocate({.label = {verb, name},
                          .category = Category::communication_buffers,
                          .dtype = dtype,
                          .pool = stream_,
                          .layout = layout,
                          .elements = elements});
}

}  // namespace shardsim
