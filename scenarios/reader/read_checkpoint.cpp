// SPDX-License-Identifier: Apache-2.0
#include "scenarios/reader/reading.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most_load_ranks = std::int64_t{1} << 24;

}  // namespace

CheckpointRequest read_checkpoint(const ConfigNode& block, const std::optional<Storage>& storage, Problems& problems) {
  CheckpointRequest request;
  MapReader reader(block, problems, "checkpoint");
  const std::string format = reader.choice("format", {"dcp", "deepspeed", "full"}, "");
  for (const CheckpointFormat known : {CheckpointFormat::dcp, CheckpointFormat::deepspeed, CheckpointFormat::full})
    if (name_of(known) == format) request.format = known;
  if (storage) {
    request.write_bandwidth = storage->write_per_node;
    request.read_bandwidth = storage->read_per_node;
  }
  if (const ConfigNode* node = reader.find("storage_bandwidth")) {
    request.write_bandwidth = request.read_bandwidth = as_byte_rate(*node, problems);
  } else if (!storage) {
    problems.add(block.where, "checkpoint needs a key 'storage_bandwidth'", {"the cluster's profile says nothing about storage"});
  }
  request.async = reader.boolean("async", false);
  if (reader.has("load_world_size")) request.load_world_size = reader.integer("load_world_size", 1, 1, most_load_ranks);
  reader.finish();
  return request;
}

}  // namespace shardsim
