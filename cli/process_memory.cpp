// SPDX-License-Identifier: Apache-2.0
#include "cli/process_memory.hpp"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace shardsim {

void keep_freed_memory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that it takes
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

}  // namespace shardsim
