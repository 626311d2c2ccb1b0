// SPDX-License-Identifier: Apache-2.0
// What OpenMPI's monitoring component has counted.
//
// [Note: counting bytes] The component (pml_monitoring) sits below OpenMPI's collectives and sees every message that leaves the process.
// Its record can be read in two ways: from a file per rank, which MPI_Finalize writes (its MPI_T variables are gone before a program can
// read them, seen with OpenMPI 4.1.4), and through the function that it calls for each message, because a program's symbol comes before a
// library's of the same name. Ours adds up and passes the call on. Thus the bytes of each collective are known while MPI runs, and at the
// end the file must agree with the sum.
#pragma once

#include <cstdint>
#include <istream>

namespace shardsim::execute {

/// Bytes of all messages that this process has sent so far. Stays 0 where the component is not in use.
[[nodiscard]] std::int64_t recorded_bytes();

/// The sum over a rank's file: lines "E|I  FROM  TO  N bytes  M msgs sent ..." of its point-to-point part.
[[nodiscard]] std::int64_t bytes_on_record(std::istream& file);

}  // namespace shardsim::execute
