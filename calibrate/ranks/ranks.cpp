// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks/ranks.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "sim/base/problem.hpp"

namespace shardsim::execute {
namespace {

using Clock = std::chrono::steady_clock;

enum class Kind : char { gather = 'g', result = 'r', environment = 'e', bug = 'b' };

struct Message {
  Kind kind = Kind::gather;
  std::string text;
};

/// Writes all of it; false if the other side is gone.
bool write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const auto sent = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool read_all(int fd, char* data, std::size_t size) {
  while (size > 0) {
    const auto received = ::recv(fd, data, size, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    data += received;
    size -= static_cast<std::size_t>(received);
  }
  return true;
}

// A message is its kind, its length as eight bytes and its text.
bool write_message(int fd, const Message& message) {
  const auto size = static_cast<std::uint64_t>(message.text.size());
  const char kind = static_cast<char>(message.kind);
  return write_all(fd, {&kind, 1}) && write_all(fd, {reinterpret_cast<const char*>(&size), sizeof size}) && write_all(fd, message.text);
}

std::optional<Message> read_message(int fd) {
  char kind = 0;
  std::uint64_t size = 0;
  if (!read_all(fd, &kind, 1) || !read_all(fd, reinterpret_cast<char*>(&size), sizeof size)) return std::nullopt;
  Message message{static_cast<Kind>(kind), std::string(size, '\0')};
  if (!read_all(fd, message.text.data(), size)) return std::nullopt;
  return message;
}

/// A rank's line to the parent, who answers when all have spoken.
class ParentLine final : public Line {
 public:
  explicit ParentLine(Descriptor socket) : socket_(std::move(socket)) {}

  std::vector<std::string> gather(const std::string& text) override {
    if (!write_message(socket_.get(), {Kind::gather, text})) throw EnvironmentError("the parent is gone");
    const auto answer = read_message(socket_.get());
    if (!answer) throw EnvironmentError("the parent is gone");
    return unpack(answer->text);
  }

 private:
  Descriptor socket_;
};

[[noreturn]] void live_as_rank(int rank, pid_t parent, Descriptor socket, const RankBody& body) {
  // The kernel ends this process with its parent; the check closes the gap between fork and prctl.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const int fd = socket.get();
  ParentLine line(std::move(socket));
  Message last{Kind::result, {}};
  try {
    last.text = body(rank, line);
  } catch (const EnvironmentError& e) { last = {Kind::environment, e.what()}; } catch (const std::exception& e) {
    last = {Kind::bug, e.what()};
  }
  write_message(fd, last);
  ::_exit(last.kind == Kind::result ? 0 : 1);  // no destructors: they belong to the parent
}

/// The parent's side: the children, what they wait for and what they came to.
class Parent {
 public:
  Parent(int n, const RankBody& body, const RanksOptions& options) : options_(options), children_(static_cast<std::size_t>(n)) {
    std::fflush(nullptr);  // or each child would print again what stands in the buffers
    for (int rank = 0; rank < n; ++rank) start(rank, body);
  }
  Parent(const Parent&) = delete;
  Parent& operator=(const Parent&) = delete;
  ~Parent() { end_all(); }

  std::vector<std::string> run() {
    while (!finished()) {
      wait_for_news();
      answer_gather();
    }
    end_all();
    throw_first_cause();
    std::vector<std::string> results;
    for (Child& child : children_) results.push_back(std::move(child.result->text));
    return results;
  }

 private:
  struct Child {
    pid_t pid = -1;
    Descriptor socket;
    std::optional<std::string> gathering;  // what it gave to the gather under way
    std::optional<Message> result;         // its last words
    int status = 0;
    bool stopped = false;  // by the parent, after the grace
    [[nodiscard]] bool open() const { return socket.valid(); }
  };

  void start(int rank, const RankBody& body) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
      throw EnvironmentError(std::string("cannot start a rank: ") + std::strerror(errno));
    Descriptor ours(pair[0]), theirs(pair[1]);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw EnvironmentError(std::string("cannot start a rank: ") + std::strerror(errno));
    if (pid == 0) {
      ours.reset();
      for (Child& other : children_) other.socket.reset();  // a line that a sibling holds open would hide a death
      live_as_rank(rank, parent, std::move(theirs), body);
    }
    Child& child = children_[static_cast<std::size_t>(rank)];
    child.pid = pid;
    child.socket = std::move(ours);
  }

  [[nodiscard]] bool finished() {
    if (std::none_of(children_.begin(), children_.end(), [](const Child& c) { return c.open(); })) return true;
    return failed_at_ && Clock::now() - *failed_at_ > options_.grace;
  }

  void wait_for_news() {
    std::vector<pollfd> entries;
    for (const Child& child : children_) entries.push_back({child.socket.get(), POLLIN, 0});
    const int ready = ::poll(entries.data(), entries.size(), failed_at_ ? 100 : static_cast<int>(options_.patience.count()));
    if (ready < 0 && errno != EINTR) throw EnvironmentError(std::string("cannot wait for the ranks: ") + std::strerror(errno));
    if (ready == 0 && !failed_at_) failed_at_ = Clock::now() - options_.grace;  // all have waited long enough
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].revents != 0) hear(children_[i]);
  }

  void hear(Child& child) {
    auto message = read_message(child.socket.get());
    if (message && message->kind == Kind::gather) {
      child.gathering = std::move(message->text);
      return;
    }
    if (message) child.result = std::move(*message);
    child.socket.reset();
    const bool good = child.result && child.result->kind == Kind::result;
    if (good || failed_at_) return;
    failed_at_ = Clock::now();
    first_failure_ = static_cast<std::size_t>(&child - children_.data());
  }

  void answer_gather() {
    if (!std::all_of(children_.begin(), children_.end(), [](const Child& c) { return c.gathering.has_value(); })) return;
    std::vector<std::string> texts;
    for (Child& child : children_) texts.push_back(*std::exchange(child.gathering, std::nullopt));
    for (Child& child : children_) write_message(child.socket.get(), {Kind::gather, pack(texts)});
  }

  /// Whoever is still there after the grace is killed; every child is reaped.
  void end_all() {
    for (Child& child : children_) {
      if (child.pid < 0) continue;
      child.stopped = child.open();
      if (child.stopped) ::kill(child.pid, SIGKILL);
      while (::waitpid(child.pid, &child.status, 0) < 0 && errno == EINTR) {}
      child.pid = -1;
      child.socket.reset();
    }
  }

  /// A death explains the broken connections that the others report, and a bug explains more than either.
  void throw_first_cause() const {
    const auto of_kind = [&](Kind kind) { return [kind](const Child& c) { return c.result && c.result->kind == kind; }; };
    if (const auto bug = std::find_if(children_.begin(), children_.end(), of_kind(Kind::bug)); bug != children_.end())
      throw std::logic_error(name(*bug) + ": " + bug->result->text);
    const auto died = [](const Child& c) { return !c.result && !c.stopped; };
    if (const auto dead = std::find_if(children_.begin(), children_.end(), died); dead != children_.end())
      throw EnvironmentError(
          name(*dead) +
          (WIFSIGNALED(dead->status) ? " was killed by signal " + std::to_string(WTERMSIG(dead->status)) : " ended without a word") +
          "; the others were ended");
    if (first_failure_ && children_[*first_failure_].result)
      throw EnvironmentError(name(children_[*first_failure_]) + ": " + children_[*first_failure_].result->text);
    const auto was_stopped = [](const Child& c) { return c.stopped && !c.gathering; };  // others only waited for it
    if (const auto stuck = std::find_if(children_.begin(), children_.end(), was_stopped); stuck != children_.end())
      throw EnvironmentError(name(*stuck) + " did not end and was stopped");
  }
  [[nodiscard]] std::string name(const Child& child) const { return "rank " + std::to_string(&child - children_.data()); }

  RanksOptions options_;
  std::vector<Child> children_;
  std::optional<Clock::time_point> failed_at_;
  std::optional<std::size_t> first_failure_;
};

}  // namespace

std::vector<std::string> run_ranks(int n, const RankBody& body, const RanksOptions& options) { return Parent(n, body, options).run(); }

}  // namespace shardsim::execute
