// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/rank_executor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "calibrate/execute/training/optimizer.hpp"
#include "calibrate/execute/training/reference.hpp"

namespace shardsim::execute {
namespace {

std::array<std::int32_t, 3> key_of(TensorRef ref) { return {ref.layer, ref.tensor, ref.gradient ? 1 : 0}; }

std::span<std::byte> elements_of(std::span<std::byte> bytes, DType type, std::int64_t begin, std::int64_t count) {
  const auto size = static_cast<std::size_t>(size_of(type));
  if (begin < 0 || (static_cast<std::size_t>(begin + count)) * size > bytes.size())
    throw std::logic_error("an access reaches beyond its buffer");
  return bytes.subspan(static_cast<std::size_t>(begin) * size, static_cast<std::size_t>(count) * size);
}

}  // namespace

std::vector<ParameterShape> shapes_of(const Model& model) {
  std::vector<ParameterShape> shapes;
  for (const Parameter& p : *model.parameters) {
    const std::int64_t rows = p.shape.empty() ? 1 : std::max<std::int64_t>(1, p.shape.front());
    shapes.push_back({rows, p.elements.value() / rows});
  }
  return shapes;
}

RankExecutor::RankExecutor(const Schedule& schedule, const MachineParts& parts)
    : schedule_(schedule),
      parts_(parts),
      math_(parts.backend.math()),
      store_(schedule, shapes_of(parts.model), parts.backend),
      trainer_(parts.model, parts.training, math_) {
  for (std::size_t c = 0; c < schedule.communicators.size(); ++c)
    members_.push_back(members_of(schedule.group_of(CommunicatorId{static_cast<std::int32_t>(c)}), static_cast<int>(schedule.rank)));
  fill_start_values();
}

/// Weights that are updated, and everything counted as parameters, start with the model's values; moments and the rest with zeros.
void RankExecutor::fill_start_values() {
  std::vector<bool> weights(schedule_.buffers.size());
  for (const Op& op : schedule_.ops)
    if (const auto* update = std::get_if<Update>(&op.action)) weights[static_cast<std::size_t>(update->parameters.index)] = true;
  const std::vector<bool> alive = initially_alive(schedule_);
  for (std::size_t b = 0; b < schedule_.buffers.size(); ++b) {
    const BufferId id{static_cast<std::int32_t>(b)};
    const Buffer& buffer = schedule_.buffers[b];
    if (!alive[b] || buffer.view_of.valid()) continue;
    store_.allocate(id, true);
    if (!weights[b] && buffer.category != Category::parameters && buffer.role != Role::parameter) continue;
    for (const Piece& piece : store_.pieces(id)) {
      const Parameter& p = parts_.model.at(piece.parameter);
      const std::vector<float> values = start_values(piece.parameter.index, p.name, p.shape);
      write(id, piece.offset,
            math_.numbers(std::span(values).subspan(static_cast<std::size_t>(piece.first), static_cast<std::size_t>(piece.count))));
    }
  }
}

std::vector<double> RankExecutor::step(GradientCheck& check) {
  ++steps_;
  micro_batch_ = -1;
  std::vector<double> losses;
  for (const Op& op : schedule_.ops) {
    std::visit(Overloaded{[&](const Compute& a) { run(op, a); }, [&](const Communicate& a) { run(a); }, [&](const Copy& a) { run(a); },
                          [&](const Update& a) { run(a, check); }, [&](const Allocate& a) { allocate(a.buffer); },
                          [&](const Free& a) { release(a.buffer); }, [](const Wait&) {}, [](const HostWait&) {}, [](const Synchronize&) {}},
               op.action);
    const bool last_of_forward = std::holds_alternative<Compute>(op.action) && op.phase == Phase::forward;
    if (!last_of_forward || micro_batch_ < 0) continue;
    losses.resize(static_cast<std::size_t>(micro_batch_ + 1));
    losses.back() = trainer_.loss();
  }
  parts_.backend.synchronize();
  return losses;
}

// Compute ------------------------------------------------------------------------------------------------------------------------

void RankExecutor::begin_micro_batch(std::int32_t micro_batch) {
  if (micro_batch == micro_batch_) return;
  micro_batch_ = micro_batch;
  trainer_.begin(micro_batch_tokens(parts_.model, parts_.training, parts_.shares, steps_ - 1, schedule_.rank, micro_batch));
}

void RankExecutor::run(const Op& op, const Compute& action) {
  const ModuleRange& range = action.modules;
  if (range.layer < 0) return;
  begin_micro_batch(op.micro_batch);
  if (action.pass == Pass::backward) {
    for (std::int32_t m = range.last - 1; m >= range.first; --m) trainer_.backward(*this, range.layer, m);
  } else {
    for (std::int32_t m = range.first; m < range.last; ++m) trainer_.forward(*this, range.layer, m, action.pass);
  }
}

/// From the newest live buffer that holds all of it.
Numbers RankExecutor::parameter(ParameterId parameter) {
  const std::int64_t elements = parts_.model.at(parameter).elements.value();
  for (BufferId buffer : store_.newest(Role::parameter)) {
    Numbers values = math_.zeros(static_cast<std::size_t>(elements));
    std::int64_t found = 0;
    for (const Piece& piece : store_.pieces(buffer)) {
      if (piece.parameter != parameter) continue;
      math_.put(values, static_cast<std::size_t>(piece.first), read(buffer, piece.offset, piece.count));
      found += piece.count;
    }
    if (found < elements) continue;
    for (float v : math_.on_host(values)) digest_ = (digest_ ^ std::bit_cast<std::uint32_t>(v)) * 0x100000001b3u;
    return values;
  }
  throw std::logic_error(parts_.model.at(parameter).name + " is computed with before it is gathered");
}

void RankExecutor::add_gradient(ParameterId parameter, const Numbers& values) {
  for (BufferId buffer : store_.newest(Role::gradient)) {
    bool found = false;
    for (const Piece& piece : store_.pieces(buffer)) {
      if (piece.parameter != parameter) continue;
      Numbers sums = read(buffer, piece.offset, piece.count);
      Numbers part = math_.slice(values, static_cast<std::size_t>(piece.first), static_cast<std::size_t>(piece.count));
      math_.round(part, schedule_.at(buffer).dtype);
      math_.add(sums, part);
      write(buffer, piece.offset, sums);
      found = true;
    }
    if (found) return;
  }
  throw std::logic_error("there is no memory for the gradient of " + parts_.model.at(parameter).name);
}

BufferId RankExecutor::buffer_of(TensorRef ref) const {
  const auto found = tensors_.find(key_of(producer_of(parts_.model, ref)));
  return found == tensors_.end() ? BufferId{} : found->second;
}

bool RankExecutor::holds(TensorRef ref) { return buffer_of(ref).valid(); }

Numbers RankExecutor::load(TensorRef ref) {
  const BufferId buffer = buffer_of(ref);
  if (!buffer.valid()) {
    const Layer& layer = (*parts_.model.layers)[static_cast<std::size_t>(ref.layer)];
    throw std::logic_error((ref.gradient ? "the gradient of '" : "tensor '") +
                           parts_.model.type_of(layer).tensors[static_cast<std::size_t>(ref.tensor)].name + "' of " + layer.name +
                           " is not in memory when it is read");
  }
  return read(buffer, 0, schedule_.at(buffer).elements.value());
}

void RankExecutor::store(TensorRef ref, const Numbers& values) {
  const BufferId buffer = buffer_of(ref);
  const Layer& layer = (*parts_.model.layers)[static_cast<std::size_t>(ref.layer)];
  const std::string& name = parts_.model.type_of(layer).tensors[static_cast<std::size_t>(ref.tensor)].name;
  if (!buffer.valid()) throw std::logic_error("there is no memory for '" + name + "' of " + layer.name);
  if (schedule_.at(buffer).elements.value() != static_cast<std::int64_t>(values.size()))
    throw std::logic_error("'" + name + "' of " + layer.name + " has " + std::to_string(values.size()) + " elements, its buffer " +
                           std::to_string(schedule_.at(buffer).elements.value()));
  write(buffer, 0, values);
}

// Memory -------------------------------------------------------------------------------------------------------------------------

void RankExecutor::allocate(BufferId id) {
  store_.allocate(id);
  const Buffer& buffer = schedule_.at(id);
  if (buffer.tensor.layer >= 0) tensors_[key_of(producer_of(parts_.model, buffer.tensor))] = id;
}

void RankExecutor::release(BufferId id) {
  store_.free(id);
  const Buffer& buffer = schedule_.at(id);
  if (buffer.tensor.layer < 0) return;
  const auto found = tensors_.find(key_of(producer_of(parts_.model, buffer.tensor)));
  if (found != tensors_.end() && found->second == id) tensors_.erase(found);
}

Numbers RankExecutor::read(BufferId buffer, std::int64_t begin, std::int64_t count) {
  Numbers values = math_.zeros(static_cast<std::size_t>(count));
  const DType type = schedule_.at(buffer).dtype;
  math_.decode(elements_of(store_.bytes_of(buffer), type, begin, count).data(), type, values);
  return values;
}

void RankExecutor::write(BufferId buffer, std::int64_t begin, const Numbers& values) {
  const DType type = schedule_.at(buffer).dtype;
  math_.encode(values, type, elements_of(store_.bytes_of(buffer), type, begin, static_cast<std::int64_t>(values.size())).data());
}

// Communication ------------------------------------------------------------------------------------------------------------------

std::span<std::byte> RankExecutor::payload(BufferId buffer, const Communicate& action) {
  if (schedule_.at(buffer).dtype != action.dtype) throw std::logic_error("a collective's dtype is not its buffer's");
  return elements_of(store_.bytes_of(buffer), action.dtype, action.offset.value(), action.payload.value());
}

/// The shard in a buffer of its own: all of it, or the part that the payload's segment fills.
std::span<std::byte> RankExecutor::own_shard(BufferId buffer, const Communicate& action, const Members& members) {
  if (schedule_.at(buffer).dtype != action.dtype) throw std::logic_error("a collective's dtype is not its shard's");
  const std::int64_t count = ring_segments(action.payload.value(), members.size())[static_cast<std::size_t>(members.index)];
  if (count != schedule_.at(buffer).elements.value())
    throw std::logic_error("shard " + to_text(schedule_.at(buffer).label, schedule_) + " has " +
                           std::to_string(schedule_.at(buffer).elements.value()) + " elements, its part of the payload " +
                           std::to_string(count));
  return store_.bytes_of(buffer);
}

void RankExecutor::run(const Communicate& action) {
  const Members& members = members_[static_cast<std::size_t>(action.communicator.index)];
  CollectiveCall call{.kind = action.kind, .dtype = action.dtype, .reduction = action.reduction, .root = action.root};
  const bool scatter = action.kind == Collective::reduce_scatter;
  const BufferId full = scatter ? action.source : action.target;
  const BufferId shard = scatter ? action.target : action.kind == Collective::all_gather ? action.source : BufferId{};
  std::vector<std::byte> scratch;
  if (action.control) {  // what a flag or a norm says changes nothing here: only that it travels counts
    scratch.resize(static_cast<std::size_t>(bytes(action.payload, action.dtype).value()));
    call.full = scratch;
    return parts_.backend.control().run(members, call);
  }
  call.full = payload(full, action);
  if (shard.valid() && shard != full) call.shard = own_shard(shard, action, members);
  parts_.backend.traffic().run(members, call);
}

// Copies and updates -------------------------------------------------------------------------------------------------------------

const std::vector<Overlap>& RankExecutor::shared(BufferId source, BufferId target) {
  const auto key = std::make_pair(schedule_.at(source).layout, schedule_.at(target).layout);
  const auto found = overlaps_.find(key);
  if (found != overlaps_.end()) return found->second;
  std::vector<Overlap> elements;
  if (key.first.valid() && key.second.valid()) {
    elements = overlaps(store_.pieces(source), store_.pieces(target));
  } else if (!key.first.valid() && !key.second.valid()) {
    const std::int64_t count = std::min(schedule_.at(source).elements, schedule_.at(target).elements).value();
    return overlaps_[key] = {{ParameterId{}, 0, count, 0, 0}};
  }
  return overlaps_[key] = std::move(elements);
}

void RankExecutor::run(const Copy& action) {
  if (!action.source.valid()) {
    parts_.backend.fill(store_.bytes_of(action.target), std::byte{0});
    return;
  }
  for (const Overlap& part : shared(action.source, action.target)) {
    Numbers values = read(action.source, part.source, part.count);
    if (action.scale != 1) math_.scale(values, static_cast<float>(action.scale));
    if (action.accumulate) {
      math_.round(values, schedule_.at(action.target).dtype);
      math_.add(values, read(action.target, part.target, part.count));
    }
    write(action.target, part.target, values);
  }
}

/// The elements of `wanted` in a buffer whose layout may be another (moments without the padding of the weights); nothing of no buffer.
Numbers RankExecutor::elements_in(BufferId buffer, const Overlap& wanted) {
  if (!buffer.valid()) return {};
  Numbers values = math_.zeros(static_cast<std::size_t>(wanted.count));
  std::int64_t found = 0;
  for (const Overlap& part : overlaps(store_.pieces(buffer), {{wanted.parameter, wanted.first, wanted.count, 0}})) {
    math_.put(values, static_cast<std::size_t>(part.target), read(buffer, part.source, part.count));
    found += part.count;
  }
  if (found != wanted.count) throw std::logic_error(to_text(schedule_.at(buffer).label, schedule_) + " lacks elements that are updated");
  return values;
}

void RankExecutor::put_elements(BufferId buffer, const Overlap& wanted, const Numbers& values) {
  if (!buffer.valid()) return;
  for (const Overlap& part : overlaps({{wanted.parameter, wanted.first, wanted.count, 0}}, store_.pieces(buffer)))
    write(buffer, part.target, math_.slice(values, static_cast<std::size_t>(part.source), static_cast<std::size_t>(part.count)));
}

/// Where gradients, weights and moments all have an element: with sharded states the weights may be whole (ZeRO-1 without a master copy).
std::vector<Overlap> RankExecutor::updated(const Update& action) {
  const std::vector<Overlap>& both = shared(action.gradients, action.parameters);
  if (!action.first_moment.valid()) return both;
  std::vector<Overlap> all;
  for (const Overlap& part : both)
    for (const Overlap& state : overlaps(store_.pieces(action.first_moment), {{part.parameter, part.first, part.count, 0}}))
      all.push_back({part.parameter, state.first, state.count, part.source + state.target, part.target + state.target});
  return all;
}

void RankExecutor::run(const Update& action, GradientCheck& check) {
  const std::vector<Overlap> elements = updated(action);
  compare(action, elements, check);
  const UpdateRule rule = rule_of(action.optimizer, {}, steps_);
  for (const Overlap& part : elements) {
    const Numbers gradients = read(action.gradients, part.source, part.count);
    Numbers weights = read(action.parameters, part.target, part.count);
    Numbers first = elements_in(action.first_moment, part), second = elements_in(action.second_moment, part);
    math_.update(rule, weights, gradients, first, second);
    write(action.parameters, part.target, weights);
    put_elements(action.first_moment, part, first);
    put_elements(action.second_moment, part, second);
  }
}

void RankExecutor::compare(const Update& action, const std::vector<Overlap>& elements, GradientCheck& check) {
  if (check.expected == nullptr) return;
  for (const Overlap& part : elements) {
    const auto& expected = check.expected->at(static_cast<std::size_t>(steps_ - 1)).at(static_cast<std::size_t>(part.parameter.index));
    float largest = 0;
    for (float v : expected) largest = std::max(largest, std::abs(v));
    const std::vector<float> gradients = math_.on_host(read(action.gradients, part.source, part.count));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const double difference =
          std::abs(static_cast<double>(gradients[i]) - static_cast<double>(expected[static_cast<std::size_t>(part.first) + i]));
      const double relative = largest > 0 ? difference / static_cast<double>(largest) : difference;
      if (!(relative <= check.largest_difference))
        check.largest_difference = std::isnan(relative) ? std::numeric_limits<double>::infinity() : relative;
    }
  }
}

}  // namespace shardsim::execute
