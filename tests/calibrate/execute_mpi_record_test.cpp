// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <sstream>

#include "calibrate/execute/backends/mpi_monitoring.hpp"

namespace shardsim::execute {
namespace {

// As OpenMPI 4.1.4 writes it: only point-to-point lines count, external and internal ones; collectives are its own estimate.
TEST(MpiRecord, AddsUpPointToPointMessages) {
  std::istringstream file(
      "# POINT TO POINT\n"
      "E\t0\t1\t4000016 bytes\t2 msgs sent\t0,0,2\n"
      "I\t0\t2\t24 bytes\t3 msgs sent\t0,3,0\n"
      "# OSC\n"
      "S\t0\t1\t7 bytes\t1 msgs sent\n"
      "# COLLECTIVES\n"
      "C\t0\t1\t4000016 bytes\t1 msgs sent\n"
      "D\tMPI_COMM_WORLD\tprocs: 0,1,2\n"
      "O2A\t0\t0 bytes\t0 msgs sent\n");
  EXPECT_EQ(bytes_on_record(file), 4'000'040);
}

TEST(MpiRecord, NothingWithoutTheComponent) { EXPECT_EQ(recorded_bytes(), 0); }

}  // namespace
}  // namespace shardsim::execute
