// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks/launch.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "calibrate/ranks/ranks.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch_with(const Variables& variables) {
  return launch_of([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refusal(const Variables& variables) {
  try {
    (void)launch_with(variables);
  } catch (const EnvironmentError& error) { return error.what(); }
  return {};
}

void expect(const std::optional<Launch>& launch, const std::string& launcher, int rank, int ranks, int local_rank,
            const std::string& address, int port) {
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->launcher, launcher);
  EXPECT_EQ(launch->rank, rank);
  EXPECT_EQ(launch->ranks, ranks);
  EXPECT_EQ(launch->local_rank, local_rank);
  EXPECT_EQ(launch->address, address);
  EXPECT_EQ(launch->port, port);
}

TEST(Launch, Torchrun) {
  Variables variables{{"RANK", "5"}, {"WORLD_SIZE", "16"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};
  expect(launch_with(variables), "torchrun", 5, 16, 1, "node7", 29'500);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // its agent listens on that port
  EXPECT_EQ(launch_with(variables)->port, 29'501);
}

TEST(Launch, OpenMpi) {
  Variables variables{{"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  expect(launch_with(variables), "mpirun", 3, 4, 3, "127.0.0.1", 29'431);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(refusal(variables), HasSubstr("mpirun -x MASTER_ADDR="));
  variables["MASTER_ADDR"] = "10.0.0.1";
  EXPECT_EQ(launch_with(variables)->address, "10.0.0.1");
}

TEST(Launch, Slurm) {
  Variables variables{{"SLURM_PROCID", "9"},  {"SLURM_STEP_NUM_TASKS", "16"},           {"SLURM_LOCALID", "1"},
                      {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "gpu[03-07,12]"}, {"SLURM_JOB_ID", "12"}};
  expect(launch_with(variables), "srun", 9, 16, 1, "gpu03", 20'000 + '1' * 31 + '2');
  variables.erase("SLURM_STEP_ID");  // a batch script: nobody has started ranks
  EXPECT_EQ(launch_with(variables), std::nullopt);
}

TEST(Launch, NobodyOrNonsense) {
  EXPECT_EQ(launch_with({}), std::nullopt);
  EXPECT_EQ(launch_with({{"WORLD_SIZE", "4"}}), std::nullopt);
  EXPECT_EQ(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}), "RANK=4 but WORLD_SIZE=4");
  EXPECT_EQ(refusal({{"RANK", "two"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}), "RANK=two is no number of ranks");
  EXPECT_EQ(refusal({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}), "MASTER_PORT=70000 is no port");
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

void knock_as_a_stranger(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  while (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::usleep(1'000);
  const char words[] = "GET / HTTP/1.1\r\nHost: shardsim\r\n\r\n";
  EXPECT_GT(::send(fd, words, sizeof words, MSG_NOSIGNAL), 0);
  ::close(fd);
}

TEST(Launch, RanksMeetAndGather) {
  const int port = free_port();
  const auto results = execute::run_ranks(4, [&](int rank, execute::Line&) {
    if (rank == 3) knock_as_a_stranger(port);  // turned away
    const auto line = meet({"test", rank, 4, rank, "127.0.0.1", port}, std::chrono::seconds(20));
    line->barrier();
    std::string all;
    for (const std::string& text : line->gather(std::string(static_cast<std::size_t>(rank), 'x') + std::to_string(rank))) all += text + ";";
    return all;
  });
  EXPECT_THAT(results, testing::Each("0;x1;xx2;xxx3;"));
}

TEST(Launch, AloneThereIsNobodyToMeet) {
  const auto line = meet({"test", 0, 1, 0, "127.0.0.1", 1});
  EXPECT_THAT(line->gather("me"), testing::ElementsAre("me"));
}

TEST(Launch, MissingRanksAreNamed) {
  try {
    (void)meet({"test", 0, 3, 0, "127.0.0.1", free_port()}, std::chrono::milliseconds(200));
    FAIL() << "nobody came";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("of 3 ranks these did not come to port"));
    EXPECT_THAT(error.what(), HasSubstr(" s: 1, 2"));
  }
  EXPECT_THROW((void)meet({"test", 1, 2, 1, "127.0.0.1", free_port()}, std::chrono::milliseconds(200)), EnvironmentError);
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
        (void)meet({"test", 0, 2, 0, "127.0.0.1", port}, std::chrono::milliseconds(200));
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
