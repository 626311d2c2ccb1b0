// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/zero12_buckets.hpp"

#include <utility>

#include "strategies/shared/bucketing.hpp"

namespace shardsim {

IpgBuckets::IpgBuckets(Program& program, const Zero12Config& config, const std::vector<ParameterId>& order)
    : program_(program), config_(config), bucket_of_(program.model().parameters->size(), -1) {
  ScheduleBuilder& build = program_.build;
  std::vector<std::int64_t> sizes;
  for (ParameterId p : order) sizes.push_back(program_.model().at(p).elements.value());
  for (const BucketRange& range : flush_before_exceeding(sizes, config_.reduce_bucket_size.value())) {
    IpgBucket bucket{.index = static_cast<std::int32_t>(buckets_.size()), .name = build.unit("bucket " + std::to_string(buckets_.size()))};
    for (std::size_t i = range.begin; i < range.end; ++i) {
      bucket.parameters.push_back(order[i]);
      bucket.elements += Elements{sizes[i]};
      bucket_of_[static_cast<std::size_t>(order[i].index)] = bucket.index;
    }
    bucket.span = build.parameters(bucket.parameters);
    bucket.extra_large = bucket.elements > config_.reduce_bucket_size;
    buckets_.push_back(std::move(bucket));
  }
}

void IpgBuckets::setup() {
  if (ready_for_gradients_) return;
  ready_for_gradients_ = true;
  if (!config_.contiguous_gradients) return;
  const std::size_t count = config_.overlap_comm ? 2 : 1;
  for (std::size_t i = 0; i < count; ++i)
    tensors_[i].buffer = program_.build.allocate({.label = {"ipg buffer", {}},
                                                  .category = Category::communication_buffers,
                                                  .dtype = config_.model,
                                                  .pool = ScheduleBuilder::compute_stream(),
                                                  .elements = config_.reduce_bucket_size});
}

BufferId IpgBuckets::view(const IpgBucket& bucket) {
  Tensor& tensor = tensors_[config_.overlap_comm ? static_cast<std::size_t>(bucket.index % 2) : 0];
  if (tensor.bucket == bucket.index) return tensor.view;
  tensor.bucket = bucket.index;
  Buffer filled = program_.build.schedule().at(tensor.buffer);
  filled.label = {"ipg bucket", bucket.name};
  filled.layout = program_.build.layout({.parameters = bucket.span});
  filled.elements = bucket.elements;
  filled.view_of = tensor.buffer;
  return tensor.view = program_.build.buffer(filled);
}

void IpgBuckets::release() {
  for (Tensor& tensor : tensors_)
    if (tensor.buffer.valid()) program_.build.free(std::exchange(tensor, {}).buffer);
  ready_for_gradients_ = false;
}

}  // namespace shardsim
