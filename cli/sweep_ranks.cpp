// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_ranks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "shardsim/expected.hpp"
#include "shardsim/sweep.hpp"

namespace shardsim {
namespace {

using namespace std::chrono_literals;

constexpr auto time_to_appear = 60s;  // ranks do not start at once
constexpr auto time_to_answer = 2000ms;

std::string random_key() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

RowNumbers numbers_in(std::string_view text) {
  RowNumbers numbers;
  for (const char* at = text.data(); at < text.data() + text.size();) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(at + 1, text.data() + text.size(), number);  // a space stands before each
    if (error != std::errc{}) break;
    numbers.push_back(number);
    at = end;
  }
  return numbers;
}

/// A file that a killed sweep left behind leads nowhere.
std::optional<LineSocket> connect_to_rank_0(const std::string& place) {
  std::ifstream file(place);
  std::string key, address;
  std::uint16_t port = 0;
  if (!(file >> key >> port)) return std::nullopt;
  while (file >> address) {
    auto socket = LineSocket::connect(address, port, time_to_answer);
    if (!socket) continue;
    socket->limit_patience(time_to_answer);
    if (!socket->send("sweep " + key) || socket->receive() != "welcome") continue;
    socket->limit_patience(0ms);
    return socket;
  }
  return std::nullopt;
}

/// Nothing if the sweep is done already: ranks do not start at once.
std::optional<LineSocket> find_rank_0(const std::string& place, const std::string& output) {
  const auto begin = std::filesystem::file_time_type::clock::now();
  std::error_code error;
  do {
    if (auto socket = connect_to_rank_0(place)) return socket;
    const auto written = std::filesystem::last_write_time(output, error);
    if (!error && written >= begin) return std::nullopt;
    std::this_thread::sleep_for(100ms);
  } while (std::filesystem::file_time_type::clock::now() < begin + time_to_appear);
  if (std::filesystem::exists(output, error)) return std::nullopt;
  throw EnvironmentError(fmt::format("rank 0 of the sweep is not to be found: {} names no host that answers", place));
}

}  // namespace

SweepServer::SweepServer(std::string place, SweepQueue& queue, SweepJournal& journal, ProgressBar& progress)
    : place_(std::move(place)), key_(random_key()), queue_(queue), journal_(journal), progress_(progress) {
  publish();
  listening_ = std::thread([this] { listen(); });
}

SweepServer::~SweepServer() {
  ::unlink(place_.c_str());
  listener_.shut_down();
  listening_.join();
  for (std::thread& thread : serving_) thread.join();
}

void SweepServer::publish() const {
  const std::string draft = place_ + ".new";
  const int descriptor = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  std::string text = fmt::format("{} {}", key_, listener_.port());
  for (const std::string& address : own_addresses()) text += " " + address;
  text += "\n";
  const bool written = descriptor >= 0 && ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (descriptor >= 0) ::close(descriptor);
  if (!written || std::rename(draft.c_str(), place_.c_str()) != 0) throw EnvironmentError("cannot write " + place_);
}

void SweepServer::listen() {
  while (auto socket = listener_.accept()) {
    LineSocket& mine = sockets_.emplace_back(std::move(*socket));
    serving_.emplace_back([this, &mine] { serve(mine); });
  }
}

void SweepServer::serve(LineSocket& socket) {
  socket.limit_patience(time_to_answer);  // whoever else may have found the port
  if (socket.receive() == "sweep " + key_ && socket.send("welcome")) {
    socket.limit_patience(0ms);
    while (socket.receive() == "next" && hand_out(socket)) {}
  }
  socket.shut_down();
}

/// False when the sweep is done or the connection is.
bool SweepServer::hand_out(LineSocket& socket) {
  RowNumbers rows = queue_.take();
  if (rows.empty()) {
    if (!queue_.failed()) (void)socket.send("done");
    return false;
  }
  std::string message = "rows";
  for (const std::uint64_t row : rows) message += fmt::format(" {}", row);
  std::size_t here = 0;
  try {
    for (bool connected = socket.send(std::move(message)); connected && here < rows.size(); ++here) {
      const auto line = socket.receive();
      if (!line || !line->starts_with("row ")) break;
      const std::string_view row = std::string_view(*line).substr(4);
      if (row_number(row) != static_cast<std::int64_t>(rows[here])) break;
      journal_.append(row);
      progress_.advance();
    }
  } catch (...) { queue_.fail(std::current_exception()); }
  rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(here));
  const bool all = rows.empty();
  queue_.put_back(std::move(rows));
  return all;
}

void help_with_sweep(const std::string& place, const std::string& output, const SweepPlan& plan, RowFormat format, unsigned threads) {
  parallel_for(threads, threads, [&](std::size_t) {
    auto found = find_rank_0(place, output);
    if (!found) return;
    LineSocket& socket = *found;
    SweepRows rows(plan, format);
    for (;;) {
      const auto answer = socket.send("next") ? socket.receive() : std::nullopt;
      if (answer == "done") return;
      if (!answer || !answer->starts_with("rows")) throw EnvironmentError("rank 0 of the sweep is gone; what it has written is kept");
      for (const std::uint64_t row : numbers_in(std::string_view(*answer).substr(4)))
        if (!socket.send("row " + rows.line(row))) break;
    }
  });
}

}  // namespace shardsim
