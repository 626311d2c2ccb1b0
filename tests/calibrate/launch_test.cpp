// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks/launch.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "calibrate/ranks/ranks.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment environment_of(const Variables& variables) {
  return [&variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::optional<Launch> launch_with(const Variables& variables) { return launch_of(environment_of(variables)); }
std::optional<ArrayTask> task_with(const Variables& variables) { return array_task_of(environment_of(variables)); }
MeetingPoint point_with(const Variables& variables) { return meeting_point(launch_with(variables).value(), environment_of(variables)); }

template <class Read>
std::string refusal(const Variables& variables, Read read) {
  try {
    (void)read(variables);
  } catch (const EnvironmentError& error) { return error.what(); }
  return {};
}

void expect(const Variables& variables, const std::string& launcher, int rank, int ranks, int local_rank, const std::string& address,
            int port) {
  const auto launch = launch_with(variables);
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->launcher, launcher);
  EXPECT_EQ(launch->rank, rank);
  EXPECT_EQ(launch->ranks, ranks);
  EXPECT_EQ(launch->local_rank, local_rank);
  EXPECT_EQ(point_with(variables).address, address);
  EXPECT_EQ(point_with(variables).port, port);
}

TEST(Launch, Torchrun) {
  Variables variables{{"RANK", "5"}, {"WORLD_SIZE", "16"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
  expect(variables, "torchrun", 5, 16, 1, "node7", 29'500);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // its agent listens on that port
  EXPECT_EQ(point_with(variables).port, 29'501);
}

TEST(Launch, Mpirun) {
  Variables variables{{"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  expect(variables, "mpirun", 3, 4, 3, "127.0.0.1", 29'431);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(refusal(variables, point_with), HasSubstr("mpirun -x MASTER_ADDR="));
  variables["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(point_with(variables).address, "10.0.0.1");
  for (const std::string stem : {"PMI", "MV2_COMM_WORLD"})
    EXPECT_EQ(launch_with({{stem + "_RANK", "1"}, {stem + "_SIZE", "2"}})->rank, 1) << stem;
}

TEST(Launch, Slurm) {
  Variables variables{{"SLURM_PROCID", "9"},  {"SLURM_STEP_NUM_TASKS", "16"},           {"SLURM_LOCALID", "1"},
                      {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "gpu[03-07,12]"}, {"SLURM_JOB_ID", "12"}};
  expect(variables, "srun", 9, 16, 1, "gpu03", 20'000 + '1' * 31 + '2');
  Variables batch = variables;
  batch.erase("SLURM_STEP_ID");  // a batch script: nobody has started ranks
  EXPECT_FALSE(launch_with(batch));
  variables.insert({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});  // mpirun inside an allocation says more
  EXPECT_EQ(launch_with(variables)->ranks, 2);
}

TEST(Launch, TheKeyIsOfTheJobAndOfItsSecret) {
  Variables variables{
      {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_NODELIST", "a"}};
  const std::uint64_t key = point_with(variables).key;
  variables["SLURM_PROCID"] = "1";
  EXPECT_EQ(point_with(variables).key, key);
  variables["SHARDSIM_SECRET"] = "7b1d";
  EXPECT_NE(point_with(variables).key, key);
}

TEST(Launch, ArrayTasks) {
  const auto slurm = [](const char* id, const char* count, const char* least, const char* most, const char* step) {
    return Variables{{"SLURM_ARRAY_TASK_ID", id},
                     {"SLURM_ARRAY_TASK_COUNT", count},
                     {"SLURM_ARRAY_TASK_MIN", least},
                     {"SLURM_ARRAY_TASK_MAX", most},
                     {"SLURM_ARRAY_TASK_STEP", step}};
  };
  EXPECT_FALSE(task_with({}));
  EXPECT_EQ(task_with(slurm("0", "3", "0", "2", "1"))->index, 0);
  EXPECT_EQ(task_with(slurm("16", "16", "1", "16", "1"))->index, 15);
  EXPECT_EQ(task_with(slurm("8", "3", "4", "12", "4"))->index, 1);
  EXPECT_EQ(task_with(slurm("8", "3", "4", "12", "4"))->count, 3);
  EXPECT_THAT(refusal(slurm("5", "3", "1", "9", "1"), task_with), HasSubstr("not evenly spaced"));  // --array=1,5,9
  EXPECT_EQ(task_with({{"JOB_COMPLETION_INDEX", "2"}, {"JOB_COMPLETIONS", "4"}})->index, 2);
  EXPECT_THAT(refusal({{"JOB_COMPLETION_INDEX", "2"}}, task_with), HasSubstr("set JOB_COMPLETIONS"));
  EXPECT_THAT(refusal({{"JOB_COMPLETION_INDEX", "4"}, {"JOB_COMPLETIONS", "4"}}, task_with), HasSubstr("JOB_COMPLETIONS=4"));
}

TEST(Launch, NobodyOrNonsense) {
  EXPECT_FALSE(launch_with({}));
  EXPECT_FALSE(launch_with({{"WORLD_SIZE", "4"}}));
  EXPECT_FALSE(launch_with({{"RANK", "first"}}));  // somebody else's variable
  EXPECT_EQ(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}, launch_with), "RANK=4 but WORLD_SIZE=4");
  EXPECT_EQ(refusal({{"RANK", "two"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}, launch_with), "RANK=two is not a number of ranks");
  EXPECT_EQ(refusal({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}, point_with),
            "MASTER_PORT=70000 is not a port");
}

TEST(Launch, FirstHostOfSlurmsList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("gpu[03-07,12],login"), "gpu03");
  EXPECT_EQ(first_host("gpu[8,9]"), "gpu8");
  EXPECT_EQ(first_host("a,b[1-2]"), "a");
}

/// A port that was free a moment ago.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(fd, reinterpret_cast<const sockaddr*>(&address), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ntohs(address.sin_port);
}

/// A stranger's connection to the port, once somebody listens there.
int connected_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  while (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::usleep(1'000);
  return fd;
}

void knock_as_a_stranger(int port) {
  const int fd = connected_to(port);
  const char words[] = "GET / HTTP/1.1\r\nHost: shardsim\r\n\r\n";
  EXPECT_GT(::send(fd, words, sizeof words, MSG_NOSIGNAL), 0);
  ::close(fd);
}

TEST(Launch, RanksMeetAndGather) {
  const int port = free_port();
  const auto results = execute::run_ranks(4, [&](int rank, execute::Line&) {
    if (rank == 3) knock_as_a_stranger(port);  // turned away
    const auto line = meet({"test", rank, 4, rank}, {"127.0.0.1", port, 7}, std::chrono::seconds(20));
    line->barrier();
    std::string all;
    for (const std::string& text : line->gather(std::string(static_cast<std::size_t>(rank), 'x') + std::to_string(rank))) all += text + ";";
    return all;
  });
  EXPECT_THAT(results, testing::Each("0;x1;xx2;xxx3;"));
}

/// Strangers that say nothing, or half of something, or know the greeting of another job, cost nobody anything.
TEST(Launch, StrangersHoldUpNobody) {
  const int port = free_port();
  const auto begin = std::chrono::steady_clock::now();
  const auto results = execute::run_ranks(3, [&](int rank, execute::Line&) -> std::string {
    std::vector<int> silent;
    for (int i = 0; i < 20 && rank == 2; ++i) {
      silent.push_back(connected_to(port));
      if (i % 2 == 0) { EXPECT_EQ(::send(silent.back(), "shard", 5, MSG_NOSIGNAL), 5); }
    }
    if (rank == 2) {
      const auto impostor = meet({"test", 1, 3, 1}, {"127.0.0.1", port, 6}, std::chrono::seconds(20));
      EXPECT_THROW((void)impostor->gather("I am rank 1"), EnvironmentError);
    }
    const auto line = meet({"test", rank, 3, rank}, {"127.0.0.1", port, 7}, std::chrono::seconds(20));
    const auto texts = line->gather(std::to_string(rank));
    for (const int fd : silent) ::close(fd);
    return texts[0] + texts[1] + texts[2];
  });
  EXPECT_THAT(results, testing::Each("012"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

/// A rank that is stopped neither dies nor answers.
TEST(Launch, AStoppedRankIsNamedAndEnded) {
  execute::RanksOptions options;
  options.patience = std::chrono::milliseconds(300);
  try {
    (void)execute::run_ranks(
        3,
        [](int rank, execute::Line& line) {
          if (rank == 1) ::raise(SIGSTOP);
          line.barrier();
          return std::string();
        },
        options);
    FAIL() << "nobody noticed";
  } catch (const EnvironmentError& error) { EXPECT_STREQ(error.what(), "rank 1 did not end and was stopped"); }
}

TEST(Launch, AloneThereIsNobodyToMeet) {
  const auto line = meet({"test", 0, 1, 0}, {"127.0.0.1", 1});
  EXPECT_THAT(line->gather("me"), testing::ElementsAre("me"));
}

TEST(Launch, MissingRanksAreNamed) {
  try {
    (void)meet({"test", 0, 3, 0}, {"127.0.0.1", free_port()}, std::chrono::milliseconds(200));
    FAIL() << "nobody came";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("of 3 ranks these did not come to port"));
    EXPECT_THAT(error.what(), HasSubstr(" s: 1, 2"));
  }
  EXPECT_THROW((void)meet({"test", 1, 2, 1}, {"127.0.0.1", free_port()}, std::chrono::milliseconds(200)), EnvironmentError);
}

TEST(Launch, APortInUseIsSaid) {
  const int port = free_port();
  const auto results = execute::run_ranks(2, [&](int rank, execute::Line& line) -> std::string {
    // Rank 0 of one job sits there; that of another finds it taken.
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (rank == 0) {
      ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
      ::listen(fd, 1);
    }
    line.barrier();
    std::string said;
    if (rank == 1) {
      try {
        (void)meet({"test", 0, 2, 0}, {"127.0.0.1", port}, std::chrono::milliseconds(200));
      } catch (const EnvironmentError& error) { said = error.what(); }
    }
    line.barrier();
    ::close(fd);
    return said;
  });
  EXPECT_THAT(results[1], HasSubstr("rank 0 cannot listen on port"));
  EXPECT_THAT(results[1], HasSubstr("set MASTER_PORT to another"));
}

}  // namespace
}  // namespace shardsim
