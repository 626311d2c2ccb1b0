// SPDX-License-Identifier: Apache-2.0
// From the persistent buffers of a schedule to the tensors of a state dict.
#include <algorithm>
#include <map>

#include "sim/schedule/layout.hpp"
#include "strategies/checkpoint.hpp"
#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

using Cut = SavedTensor::Cut;

class StateDict {
 public:
  StateDict(const Job& job, const Schedule& schedule) : job_(job), schedule_(schedule) {
    for (const Parameter& p : *job.model->parameters) {
      const std::int64_t rows = p.shape.empty() ? 1 : std::max<std::int64_t>(p.shape.front(), 1);
      shapes_.push_back({rows, p.elements.value() / rows});
    }
  }

  std::vector<SavedTensor> take(bool with_optimizer) && {
    for (const Buffer& buffer : schedule_.buffers) {
      const bool states = buffer.category == Category::optimizer_states;
      if (!buffer.persistent || buffer.view_of.valid() || !(states ? with_optimizer : buffer.category == Category::parameters)) continue;
      if (!buffer.layout.valid())
        add_opaque(buffer);
      else if (states && facts_of(job_.strategy.name).checkpoints == CheckpointWriter::consolidated)
        add_consolidated(buffer);
      else
        add(buffer, states);
    }
    return std::move(state_);
  }

 private:
  [[nodiscard]] SavedTensor tensor_of(const Buffer& buffer, ParameterId p) const {
    const ParameterShape& shape = shapes_[static_cast<std::size_t>(p.index)];
    return {.parameter = p,
            .state = buffer.label.verb,
            .dtype = buffer.dtype,
            .elements = shape.elements(),
            .columns = shape.columns,
            .host = buffer.host};
  }

  void add(const Buffer& buffer, bool states) {
    Layout layout = schedule_.at(buffer.layout);
    const auto ids = std::span(schedule_.parameter_pool)
                         .subspan(static_cast<std::size_t>(layout.parameters.begin), static_cast<std::size_t>(layout.parameters.count));
    const std::int64_t parts = layout.shard ? layout.n : 1;
    parts_[buffer.label.unit] = {parts, layout.stride};
    layout.shard = false;
    const bool flat = layout.partition == Layout::Partition::flat && parts > 1;
    const Expansion whole = flat ? expand(layout, ids, shapes_, 0) : Expansion{};
    std::map<ParameterId, std::int64_t> starts;
    for (const Piece& piece : whole.pieces) starts.emplace(piece.parameter, piece.offset);
    for (ParameterId p : ids) {
      if (states && !job_.model->at(p).trainable) continue;  // a flat parameter holds frozen ones, too; they have no states
      SavedTensor tensor = tensor_of(buffer, p);
      tensor.parts = parts;
      tensor.stride = layout.stride;
      tensor.cut = parts == 1 ? Cut::whole : cut_of(layout.partition);
      if (tensor.cut == Cut::flat) {
        tensor.start = starts[p];
        tensor.shard = whole.extent / parts;
      }
      state_.push_back(tensor);
    }
  }

  /// FSDP1's SHARDED_STATE_DICT chunks every parameter of the flat one along dimension 0 (_fsdp_extensions.py, _ext_chunk_dtensor).
  [[nodiscard]] Cut cut_of(Layout::Partition partition) const {
    if (partition == Layout::Partition::rows || facts_of(job_.strategy.name).checkpoints_rows) return Cut::rows;
    return partition == Layout::Partition::each ? Cut::each : Cut::flat;
  }

  /// consolidate_state_dict: the states of all trained parameters, whole, once.
  void add_consolidated(const Buffer& buffer) {
    for (ParameterId p : parameters_where(*job_.model, true)) state_.push_back(tensor_of(buffer, p));
  }

  /// Factored states, shared as the unit's weights are.
  void add_opaque(const Buffer& buffer) {
    const auto found = parts_.find(buffer.label.unit);
    const auto [parts, stride] = found == parts_.end() ? std::pair<std::int64_t, std::int64_t>{1, 1} : found->second;
    state_.push_back({.state = buffer.label.verb,
                      .dtype = buffer.dtype,
                      .elements = buffer.elements.value() * parts,
                      .columns = 1,
                      .cut = parts > 1 ? Cut::each : Cut::whole,
                      .parts = parts,
                      .stride = stride,
                      .host = buffer.host});
  }

  const Job& job_;
  const Schedule& schedule_;
  std::vector<ParameterShape> shapes_;
  std::vector<SavedTensor> state_;
  std::map<UnitId, std::pair<std::int64_t, std::int64_t>> parts_;  // of the unit's weights: parts and stride
};

}  // namespace

SavedRange range_of(const SavedTensor& tensor, std::int64_t part) {
  const auto within = [&](std::int64_t begin, std::int64_t end) {
    begin = std::clamp<std::int64_t>(begin, 0, tensor.elements);
    end = std::clamp<std::int64_t>(end, begin, tensor.elements);
    return SavedRange{begin, end - begin};
  };
  switch (tensor.cut) {
    case Cut::whole:
      return {0, tensor.elements};
    case Cut::rows: {
      const std::int64_t chunk = ceil_div(tensor.elements / tensor.columns, tensor.parts) * tensor.columns;
      return within(part * chunk, (part + 1) * chunk);
    }
    case Cut::each: {
      const std::int64_t chunk = ceil_div(tensor.elements, tensor.parts);
      return within(part * chunk, (part + 1) * chunk);
    }
    case Cut::flat:
      return within(part * tensor.shard - tensor.start, (part + 1) * tensor.shard - tensor.start);
  }
  return {};
}

std::vector<SavedTensor> state_dict(const Job& job, const Schedule& schedule, bool with_optimizer) {
  return StateDict(job, schedule).take(with_optimizer);
}

}  // namespace shardsim
