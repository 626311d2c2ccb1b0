// SPDX-License-Identifier: Apache-2.0
// One line of an nccl-tests log.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "calibrate/import/nccl_tests.hpp"

namespace shardsim::nccl_tests {

/// Bytes of an element of nccl-tests' type names; 0 if it is none.
[[nodiscard]] std::int64_t size_of_type(std::string_view type);

/// The collective that a text speaks of: "./build/all_reduce_perf -b 8", "AllGather", "h100_reduce_scatter.txt".
struct TestName {
  std::optional<Collective> collective;
  std::string name;  ///< "sendrecv" where it is a test of another kind; empty if none is named
};
[[nodiscard]] TestName test_named_in(std::string_view text);
/// The same where a whole word is the name: for prose, in which "together" is no gather.
[[nodiscard]] TestName test_named_by_a_word_of(std::string_view text);

/// Whitespace-separated words.
[[nodiscard]] std::vector<std::string_view> words(std::string_view line);
[[nodiscard]] std::optional<double> number(std::string_view word);
[[nodiscard]] std::optional<std::int64_t> integer(std::string_view word);

/// The line without what launchers and log collectors put before it: mpirun --tag-output ("[1,0]<stdout>:", wherever it stands), srun
/// --label ("0: ", "[0]"), pdsh and Slurm ("node07: "), kubectl --prefix ("[pod/a/b] ") and time stamps ("2024-05-01T12:00:00Z ").
[[nodiscard]] std::string without_labels(std::string_view line);

/// "#  Rank  0 Group  0 Pid  123 on host device  0 [0000:0a:00] NVIDIA H200".
struct Device {
  std::int64_t rank = 0, group = 0, index = 0;
  std::string host, bus, name;
};
[[nodiscard]] std::optional<Device> device_in(std::string_view line);

/// NCCL's version code as people write it: "22907" -> "2.29.7". Empty if it is no such code.
[[nodiscard]] std::string version_text(std::string_view code);

/// The header of a table. Columns of one side: 4 (time algbw busbw wrong), 5 (copybw), 8 (per-iteration statistics); 0 if it is no header.
struct Header {
  int columns = 0;
  int sides = 2;  ///< out of place and in place; one with -O of rccl-tests
};
[[nodiscard]] Header header_in(std::string_view line);

struct NoRow {};
struct CutRow {
  std::string why;
};
/// `header`: columns are 0 if none was seen.
[[nodiscard]] std::variant<NoRow, CutRow, NcclTestsRow> row_in(std::string_view line, const Header& header);

/// "host:pid:tid [device] NCCL INFO ...": what NCCL says of the run.
struct InfoLine {
  std::string host;
  std::int64_t ranks = 0, nodes = 0;  ///< of the communicator, where the line tells
  std::string network;                ///< "OFI", "IB", "Socket": that a channel between ranks goes by
};
[[nodiscard]] std::optional<InfoLine> info_in(std::string_view line);

}  // namespace shardsim::nccl_tests
