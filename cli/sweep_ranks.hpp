// SPDX-License-Identifier: Apache-2.0
// A sweep on several ranks: rank 0 hands out rows over TCP and writes what comes back; the others simulate.
//
// Rank 0 says where it listens in OUTPUT.<fingerprint>.rank0, a file that only its user may read. Each thread of the other ranks has a
// connection of its own:
//   thread: sweep <key>          rank 0: welcome
//   thread: next                 rank 0: rows 16 17 18 ...   or, when the sweep is done: done
//   thread: row <line>, once for each
// When a connection ends, the rows that it still owed are handed out again. Every row that came back is in rank 0's journal.
#pragma once

#include <list>
#include <string>
#include <thread>
#include <vector>

#include "cli/line_socket.hpp"
#include "cli/progress.hpp"
#include "cli/sweep_queue.hpp"
#include "shardsim/sweep.hpp"

namespace shardsim {

/// Rank 0's side. Serves until it is destroyed; the sweep must be done or failed then.
class SweepServer {
 public:
  SweepServer(std::string place, SweepQueue& queue, SweepJournal& journal, ProgressBar& progress);
  ~SweepServer();
  SweepServer(const SweepServer&) = delete;
  SweepServer& operator=(const SweepServer&) = delete;

 private:
  void publish() const;
  void listen();
  void serve(LineSocket& socket);
  bool hand_out(LineSocket& socket);

  std::string place_, key_;
  SweepQueue& queue_;
  SweepJournal& journal_;
  ProgressBar& progress_;
  Listener listener_;
  std::list<LineSocket> sockets_;  // of the listening thread, and of the destructor once that has ended
  std::vector<std::thread> serving_;
  std::thread listening_;
};

/// What another rank does: simulates rows on `threads` threads until rank 0 has all, or nothing where `output` is there before rank 0 is
/// found. EnvironmentError if rank 0 is not found within a minute or goes away.
void help_with_sweep(const std::string& place, const std::string& output, const SweepPlan& plan, RowFormat format, unsigned threads);

}  // namespace shardsim
