// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/store.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shardsim::execute {
namespace {

/// Buckets of this size are taken from the system but not filled: DeepSpeed's, of a gigabyte, serve a tiny model's megabyte.
constexpr std::size_t untouched = 16u << 20;

}  // namespace

BufferStore::BufferStore(const Schedule& schedule, std::span<const ParameterShape> shapes, Backend& backend)
    : schedule_(schedule), backend_(backend), memory_(schedule.buffers.size()), views_(schedule.buffers.size()) {
  for (std::size_t l = 0; l < schedule.layouts.size(); ++l)
    expansions_.push_back(expand(schedule, LayoutId{static_cast<std::int32_t>(l)}, shapes));
  for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
    const Buffer& buffer = schedule.buffers[b];
    if (buffer.view_of.valid()) views_[index(buffer.view_of)].push_back(BufferId{static_cast<std::int32_t>(b)});
    if (!buffer.layout.valid()) continue;
    if (const std::int64_t extent = expansions_[static_cast<std::size_t>(buffer.layout.index)].extent; extent > buffer.elements.value())
      throw std::logic_error("buffer " + to_text(buffer.label, schedule) + " of " + std::to_string(buffer.elements.value()) +
                             " elements is too small for its layout of " + std::to_string(extent));
  }
}

BufferStore::~BufferStore() {
  for (std::size_t b = 0; b < memory_.size(); ++b)
    if (memory_[b] != nullptr) backend_.free(memory_[b], schedule_.buffers[b].host);
}

void BufferStore::allocate(BufferId id, bool zeros) {
  const Buffer& buffer = schedule_.at(id);
  if (alive(id)) throw std::logic_error("buffer " + to_text(buffer.label, schedule_) + " is allocated twice");
  const auto size = static_cast<std::size_t>(buffer.size().value());
  std::byte*& memory = memory_[index(id)];
  memory = backend_.allocate(buffer.size(), buffer.host);
  const bool added_to = buffer.tensor.gradient || buffer.role == Role::gradient;
  if (!added_to && !zeros && size < untouched) backend_.fill({memory, size}, std::byte{0xff});
  change(buffer, +1);
  set_role(id, true);
  for (BufferId view : views_[index(id)]) set_role(view, true);
}

void BufferStore::free(BufferId id) {
  if (!alive(id)) throw std::logic_error("buffer " + to_text(schedule_.at(id).label, schedule_) + " is freed but not alive");
  backend_.free(std::exchange(memory_[index(id)], nullptr), schedule_.at(id).host);
  change(schedule_.at(id), -1);
  set_role(id, false);
  for (BufferId view : views_[index(id)]) set_role(view, false);
}

bool BufferStore::alive(BufferId id) const {
  const Buffer& buffer = schedule_.at(id);
  return memory_[index(buffer.view_of.valid() ? buffer.view_of : id)] != nullptr;
}

std::span<std::byte> BufferStore::bytes_of(BufferId id) {
  const Buffer& buffer = schedule_.at(id);
  if (!alive(id)) throw std::logic_error("buffer " + to_text(buffer.label, schedule_) + " is used but not alive");
  const auto size = static_cast<std::size_t>(buffer.size().value());
  if (!buffer.view_of.valid()) return {memory_[index(id)], size};
  const auto begin = static_cast<std::size_t>(bytes(buffer.view_offset, schedule_.at(buffer.view_of).dtype).value());
  return bytes_of(buffer.view_of).subspan(begin, size);
}

const std::vector<Piece>& BufferStore::pieces(BufferId id) const {
  const LayoutId layout = schedule_.at(id).layout;
  return layout.valid() ? expansions_[static_cast<std::size_t>(layout.index)].pieces : none_;
}

void BufferStore::set_role(BufferId id, bool on) {
  auto& list = by_role_[static_cast<std::size_t>(schedule_.at(id).role)];
  if (on)
    list.insert(list.begin(), id);
  else
    list.erase(std::remove(list.begin(), list.end(), id), list.end());
}

void BufferStore::change(const Buffer& buffer, std::int64_t sign) {
  if (buffer.host) return;
  const Bytes size = sign * buffer.size();
  const auto category = static_cast<std::size_t>(buffer.category);
  count_.by_category[category] += size;
  count_.highest[category] = std::max(count_.highest[category], count_.by_category[category]);
  count_.now += size;
  if (count_.now <= count_.peak) return;
  count_.peak = count_.now;
  count_.at_peak = count_.by_category;
}

}  // namespace shardsim::execute
