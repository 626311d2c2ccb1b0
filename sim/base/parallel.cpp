// SPDX-License-Identifier: Apache-2.0
#include "sim/base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace shardsim {

unsigned available_cores() { return std::max(1U, std::thread::hardware_concurrency()); }

void parallel_for(std::size_t count, unsigned threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_lock;
  const auto loop = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::scoped_lock lock(failure_lock);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::thread> others;
  const std::size_t wanted = std::min<std::size_t>(std::max(1U, threads), count);
  for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(loop);
  loop();
  for (auto& thread : others) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace shardsim
