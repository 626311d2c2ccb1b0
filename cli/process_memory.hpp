// SPDX-License-Identifier: Apache-2.0
// A setting of the whole process, which a library must not touch.
#pragma once

namespace shardsim {

/// Simulations allocate and free the same megabytes again and again: from here on they are kept instead of being given back to the
/// system and asked for again, which takes half of the time.
void keep_freed_memory();

}  // namespace shardsim
