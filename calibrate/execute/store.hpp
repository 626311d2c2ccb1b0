// SPDX-License-Identifier: Apache-2.0
// The buffers of a schedule as real memory, counted to the byte.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "calibrate/execute/backends/backend.hpp"
#include "sim/schedule/layout.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim::execute {

/// What a process holds by category, and the most it held at once. Pinned host memory is not counted.
struct MemoryCount {
  Bytes now, peak;
  std::vector<Bytes> by_category = std::vector<Bytes>(category_count);
  std::vector<Bytes> at_peak = std::vector<Bytes>(category_count);
  std::vector<Bytes> highest = std::vector<Bytes>(category_count);  ///< of each category by itself
};

class BufferStore {
 public:
  /// Takes apart the layouts of `schedule`. Nothing is allocated yet. Schedule and backend outlive the store.
  BufferStore(const Schedule& schedule, std::span<const ParameterShape> shapes, Backend& backend);
  BufferStore(const BufferStore&) = delete;
  BufferStore& operator=(const BufferStore&) = delete;
  ~BufferStore();

  /// New memory: zeros for gradients and activations' gradients, which are added to; NaN for everything else, so that whoever reads
  /// what nobody wrote is found out. `zeros`: zeros for everything.
  void allocate(BufferId buffer, bool zeros = false);
  void free(BufferId buffer);

  [[nodiscard]] bool alive(BufferId buffer) const;
  /// Memory of the backend. Throws std::logic_error if the buffer is not alive.
  [[nodiscard]] std::span<std::byte> bytes_of(BufferId buffer);
  /// Which parameters stand where in it; empty for opaque contents.
  [[nodiscard]] const std::vector<Piece>& pieces(BufferId buffer) const;
  /// Live buffers of a role, the newest first.
  [[nodiscard]] const std::vector<BufferId>& newest(Role role) const { return by_role_[static_cast<std::size_t>(role)]; }
  [[nodiscard]] const MemoryCount& count() const { return count_; }

 private:
  [[nodiscard]] std::size_t index(BufferId buffer) const { return static_cast<std::size_t>(buffer.index); }
  void set_role(BufferId buffer, bool on);
  void change(const Buffer& buffer, std::int64_t sign);

  const Schedule& schedule_;
  Backend& backend_;
  std::vector<std::byte*> memory_;            // by buffer; null: not alive
  std::vector<Expansion> expansions_;         // by layout
  std::vector<std::vector<BufferId>> views_;  // by buffer: those that lie in it
  std::vector<std::vector<BufferId>> by_role_{3};
  std::vector<Piece> none_;
  MemoryCount count_;
};

}  // namespace shardsim::execute
