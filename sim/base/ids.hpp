// SPDX-License-Identifier: Apache-2.0
// Positions in the tables of a Schedule and of a Model, one type for each table.
#pragma once

#include <compare>
#include <cstdint>

namespace shardsim {

/// An index into one table; -1 means "none".
template <class Tag>
struct Id {
  std::int32_t index = -1;
  [[nodiscard]] constexpr bool valid() const { return index >= 0; }
  constexpr auto operator<=>(const Id&) const = default;
};

using OpId = Id<struct OpTag>;
using StreamId = Id<struct StreamTag>;
using BufferId = Id<struct BufferTag>;
using LayoutId = Id<struct LayoutTag>;
using GroupId = Id<struct GroupTag>;
using CommunicatorId = Id<struct CommunicatorTag>;
using WorkId = Id<struct WorkTag>;
using HostWorkId = Id<struct HostWorkTag>;
using UnitId = Id<struct UnitTag>;
using ParameterId = Id<struct ParameterTag>;

}  // namespace shardsim
