// SPDX-License-Identifier: Apache-2.0
// What the process says to whoever started it.
#pragma once

namespace shardsim {

enum class ExitCode : int {
  done = 0,
  no = 1,           ///< the answer is no: check failed, execute disagrees, nothing in plan fits
  bad_input = 2,    ///< bad usage or bad input
  environment = 3,  ///< the machine lacks something: a GPU, MPI, a disk with room
  bug = 70,         ///< ours (EX_SOFTWARE of sysexits.h)
};

}  // namespace shardsim
