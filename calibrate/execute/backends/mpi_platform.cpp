// SPDX-License-Identifier: Apache-2.0
// The only file that knows MPI.
#include "calibrate/execute/backends/mpi_platform.hpp"

#include "sim/base/problem.hpp"

#ifndef SHARDSIM_MPI

namespace shardsim::execute {

std::unique_ptr<Platform> open_mpi_platform(const std::string& command) {
  throw EnvironmentError(command +
                         ": this build has no MPI: install OpenMPI (Debian: libopenmpi-dev openmpi-bin), configure and build again");
}

}  // namespace shardsim::execute

#else

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "calibrate/execute/backends/mpi_monitoring.hpp"
#include "calibrate/execute/training/element.hpp"

namespace {
bool runs_under_mpi = false;
}  // namespace

#ifdef __SANITIZE_ADDRESS__
/// Asked by the leak sanitizer at exit. OpenMPI leaves some of what its plugins allocated, and unloads them before that: no suppression can
/// name them. Runs without MPI are searched for leaks as ever.
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return runs_under_mpi ? 1 : 0; }
#endif

namespace shardsim::execute {
namespace {

/// Under mpirun or srun; OpenMPI would also start alone, as one rank.
bool launched_by_anyone() {
  const auto set = [](const char* name) { return std::getenv(name) != nullptr; };
  return set("OMPI_COMM_WORLD_SIZE") || set("PMIX_RANK") || set("PMI_RANK");
}

/// Parameters of OpenMPI's components, which it reads from the environment when it is initialised.
void force_rings(const std::string& record) {
  const auto set = [](const char* name, const std::string& value) {
    ::setenv(("OMPI_MCA_" + std::string(name)).c_str(), value.c_str(), 1);
  };
  set("pml_monitoring_enable", "1");
  set("pml_monitoring_enable_output", "3");
  set("pml_monitoring_filename", record);
  set("coll_tuned_use_dynamic_rules", "1");
  set("coll_tuned_allreduce_algorithm", "4");
  set("coll_tuned_allgatherv_algorithm", "3");
  set("coll_tuned_reduce_scatter_algorithm", "3");
  set("coll_hcoll_enable", "0");    // would take the collectives away from coll_tuned
  set("mpi_yield_when_idle", "1");  // ranks may outnumber cores
}

/// Of MPI's own calls: its errors end the job by themselves unless told otherwise.
void must(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw EnvironmentError(std::string(what) + " failed: " + std::string(text, static_cast<std::size_t>(length)));
}

class MpiLine final : public Line {
 public:
  std::vector<std::string> gather(const std::string& text) override {
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    wait_for_all();
    const int size = static_cast<int>(text.size());
    std::vector<int> sizes(static_cast<std::size_t>(ranks)), places(sizes.size());
    must(MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD), "MPI_Allgather");
    int total = 0;
    for (std::size_t r = 0; r < sizes.size(); ++r) places[r] = std::exchange(total, total + sizes[r]);
    std::string all(static_cast<std::size_t>(total), '\0');
    must(MPI_Allgatherv(text.data(), size, MPI_CHAR, all.data(), sizes.data(), places.data(), MPI_CHAR, MPI_COMM_WORLD), "MPI_Allgatherv");
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < sizes.size(); ++r)
      texts.push_back(all.substr(static_cast<std::size_t>(places[r]), static_cast<std::size_t>(sizes[r])));
    return texts;
  }

 private:
  /// A barrier that sleeps: MPI's own waiting keeps a core busy that a slower rank may need.
  static void wait_for_all() {
    MPI_Request request = MPI_REQUEST_NULL;
    must(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
    int done = 0;
    for (int tries = 0; must(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test"), done == 0; ++tries)
      if (tries > 100) ::usleep(200);
  }
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(int rank, int ranks, const MeshOptions& network) : saboteur_(rank, network.fault), digests_(ranks) {}
  [[nodiscard]] const WireDigests& digests() const { return digests_; }

  void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) override {
    digests_.add_sent(to, out);
    const std::span<const std::byte> arriving = in;
    out = saboteur_.next(out);
    while (!out.empty() || !in.empty()) {
      const auto sent = out.first(std::min(out.size(), largest)),
                 received = std::span<const std::byte>(in).first(std::min(in.size(), largest));
      std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
      if (!received.empty())
        must(MPI_Irecv(in.data(), static_cast<int>(received.size()), MPI_BYTE, from, 0, MPI_COMM_WORLD, &requests[0]), "MPI_Irecv");
      if (!sent.empty())
        must(MPI_Isend(out.data(), static_cast<int>(sent.size()), MPI_BYTE, to, 0, MPI_COMM_WORLD, &requests[1]), "MPI_Isend");
      must(MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
      out = out.subspan(sent.size());
      in = in.subspan(received.size());
    }
    digests_.add_received(from, arriving);
  }

 private:
  static constexpr std::size_t largest = std::size_t{1} << 30;
  Saboteur saboteur_;
  WireDigests digests_;
};

/// combine() as an operation of MPI.
template <DType type, Reduction reduction>
void combine_elements(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto size = static_cast<std::size_t>(*count) * static_cast<std::size_t>(size_of(type));
  combine({static_cast<std::byte*>(inout), size}, {static_cast<const std::byte*>(in), size}, type, reduction);
}

/// A dtype and what is done with it, as MPI knows them.
struct Arithmetic {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op sum = MPI_OP_NULL, max = MPI_OP_NULL;
};

template <DType type>
Arithmetic arithmetic_of() {
  Arithmetic made;
  must(MPI_Type_contiguous(static_cast<int>(size_of(type)), MPI_BYTE, &made.type), "MPI_Type_contiguous");
  must(MPI_Type_commit(&made.type), "MPI_Type_commit");
  must(MPI_Op_create(combine_elements<type, Reduction::sum>, 1, &made.sum), "MPI_Op_create");
  must(MPI_Op_create(combine_elements<type, Reduction::max>, 1, &made.max), "MPI_Op_create");
  return made;
}

/// What a process has of MPI beside MPI_COMM_WORLD: made when first needed, kept until MPI_Finalize.
class Communicators {
 public:
  /// Collective over the members.
  MPI_Comm of(const std::vector<int>& ranks) {
    auto [at, made] = groups_.try_emplace(ranks, MPI_COMM_NULL);
    if (!made) return at->second;
    MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    must(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    must(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
    must(MPI_Comm_create_group(MPI_COMM_WORLD, group, 1, &at->second), "MPI_Comm_create_group");
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return at->second;
  }
  const Arithmetic& arithmetic(DType type) {
    static const Arithmetic bf16 = arithmetic_of<DType::bf16>(), fp32 = arithmetic_of<DType::fp32>();
    return type == DType::bf16 ? bf16 : fp32;
  }

 private:
  std::map<std::vector<int>, MPI_Comm> groups_;
};

/// The library's ring algorithms where they send the same bytes from the same rank as the prediction, and our ring over point-to-point
/// messages where they do not: OpenMPI's all-reduce starts a segment further on (an element more or less on some ranks where the segments
/// are uneven), so that an uneven one is a reduce-scatter and an all-gather; chains (broadcast, reduce) and all-to-all have no such form.
class MpiCollectives final : public Collectives {
 public:
  MpiCollectives(int rank, int ranks, const MeshOptions& network, Communicators& communicators)
      : transport_(rank, ranks, network), communicators_(communicators), own_ring_(network.fault.has_value()) {}

  void run(const Members& members, const CollectiveCall& call) override {
    if (members.size() > 1 && by_library(call)) return run_in_library(members, call);
    const std::int64_t before = recorded_bytes();
    run_ring(transport_, members, call);
    sent_ += Bytes{recorded_bytes() - before};
  }
  [[nodiscard]] Bytes sent() const override { return sent_; }
  [[nodiscard]] std::string counted_by() const override { return "OpenMPI: monitoring component (pml_monitoring)"; }
  [[nodiscard]] const WireDigests* digests() const override { return &transport_.digests(); }

 private:
  /// A fault needs the bytes of the wire in our hands.
  [[nodiscard]] bool by_library(const CollectiveCall& call) const {
    const bool ring = call.kind == Collective::all_reduce || call.kind == Collective::all_gather || call.kind == Collective::reduce_scatter;
    return ring && !own_ring_ && is_real(call.dtype) && call.full.size() < std::size_t{INT_MAX};
  }

  void run_in_library(const Members& members, const CollectiveCall& call) {
    const MPI_Comm communicator = communicators_.of(members.ranks);
    Segments segments(members, call);
    const std::int64_t before = recorded_bytes();
    if (call.kind == Collective::all_gather) {
      all_gather(communicator, segments, call, call.shard);
    } else if (call.kind == Collective::reduce_scatter) {
      reduce_scatter(communicator, segments, call, call.shard.empty() ? segments.own(call.full) : call.shard);
    } else if (segments.even()) {
      all_reduce(communicator, call, members.size());
    } else {
      reduce_scatter(communicator, segments, call, segments.own(call.full));
      all_gather(communicator, segments, call, {});
    }
    sent_ += Bytes{recorded_bytes() - before};
  }

  /// The payload's cut, as counts and places in elements.
  struct Segments {
    Segments(const Members& members, const CollectiveCall& call)
        : size(static_cast<std::size_t>(size_of(call.dtype))), index(static_cast<std::size_t>(members.index)) {
      int begin = 0;
      for (const std::int64_t count : ring_segments(static_cast<std::int64_t>(call.full.size() / size), members.size())) {
        counts.push_back(static_cast<int>(count));
        places.push_back(std::exchange(begin, begin + counts.back()));
      }
    }
    /// OpenMPI leaves its ring where there are fewer elements than ranks.
    [[nodiscard]] bool even() const { return counts.front() == counts.back() && counts.back() > 0; }
    [[nodiscard]] std::span<std::byte> own(std::span<std::byte> full) const {
      return full.subspan(static_cast<std::size_t>(places[index]) * size, static_cast<std::size_t>(counts[index]) * size);
    }
    std::size_t size, index;
    std::vector<int> counts, places;
  };

  [[nodiscard]] MPI_Op operation(const CollectiveCall& call) {
    const Arithmetic& arithmetic = communicators_.arithmetic(call.dtype);
    return call.reduction == Reduction::max ? arithmetic.max : arithmetic.sum;
  }

  void all_gather(MPI_Comm communicator, const Segments& segments, const CollectiveCall& call, std::span<std::byte> shard) {
    const MPI_Datatype type = communicators_.arithmetic(call.dtype).type;
    const void* from = shard.empty() ? MPI_IN_PLACE : shard.data();
    must(MPI_Allgatherv(from, segments.counts[segments.index], type, call.full.data(), segments.counts.data(), segments.places.data(), type,
                        communicator),
         "MPI_Allgatherv");
  }

  void reduce_scatter(MPI_Comm communicator, const Segments& segments, const CollectiveCall& call, std::span<std::byte> target) {
    std::vector<std::byte> sum(segments.own(call.full).size());
    must(MPI_Reduce_scatter(call.full.data(), sum.data(), segments.counts.data(), communicators_.arithmetic(call.dtype).type,
                            operation(call), communicator),
         "MPI_Reduce_scatter");
    if (target.size() != sum.size()) throw std::logic_error("a shard and its part of the full buffer differ in size");
    std::ranges::copy(sum, target.begin());
    finish(target, call, segments.counts.size());
  }

  void all_reduce(MPI_Comm communicator, const CollectiveCall& call, int ranks) {
    const int count = static_cast<int>(call.full.size() / static_cast<std::size_t>(size_of(call.dtype)));
    must(MPI_Allreduce(MPI_IN_PLACE, call.full.data(), count, communicators_.arithmetic(call.dtype).type, operation(call), communicator),
         "MPI_Allreduce");
    finish(call.full, call, static_cast<std::size_t>(ranks));
  }

  static void finish(std::span<std::byte> sum, const CollectiveCall& call, std::size_t ranks) {
    if (call.reduction == Reduction::average) scale(sum, call.dtype, 1.0F / static_cast<float>(ranks));
  }

  MpiTransport transport_;
  Communicators& communicators_;
  bool own_ring_;
  Bytes sent_{};
};

class MpiBackend final : public HostBackend {
 public:
  MpiBackend(int rank, int ranks, const MeshOptions& network, Communicators& communicators)
      : traffic_(rank, ranks, network, communicators), control_(rank, ranks, MeshOptions{}, communicators) {}
  Collectives& traffic() override { return traffic_; }
  Collectives& control() override { return control_; }

 private:
  MpiCollectives traffic_, control_;
};

class MpiPlatform final : public Platform {
 public:
  explicit MpiPlatform(const std::string& command) {
    if (!launched_by_anyone())
      throw EnvironmentError(command + ": no launcher started this process; start it as  mpirun -n 4 shardsim " +
                             command.substr(0, command.find(' ')) + " ...  or  srun --mpi=pmix -n 4 ...");
    // Under mpirun in the launcher's own folder, which it removes even if it has to kill this process.
    const char* of_job = std::getenv("PMIX_SERVER_TMPDIR");
    std::string name = (of_job != nullptr ? std::filesystem::path(of_job) : std::filesystem::temp_directory_path()) / "shardsim-mpi-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw EnvironmentError("cannot make a folder for OpenMPI's record of messages");
    folder_ = name;
    force_rings(folder_ + "/messages");
    must(MPI_Init(nullptr, nullptr), "MPI_Init");
    runs_under_mpi = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    if (const char* tasks = std::getenv("SLURM_NTASKS");
        tasks != nullptr && ranks_ == 1 && std::string(tasks) != "1" && std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr)
      throw EnvironmentError(command + ": srun started " + tasks + " tasks, but MPI sees one: start it with srun --mpi=pmix");
    need_counter(command);
  }

  /// While an exception is on its way out, MPI is not finalised: the launcher then ends the other ranks, who would wait for this one.
  ~MpiPlatform() override {
    int finalised = 0;
    if (MPI_Finalized(&finalised) == MPI_SUCCESS && finalised == 0 && std::uncaught_exceptions() == 0) MPI_Finalize();
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  [[nodiscard]] std::optional<int> launched() const override { return ranks_; }
  [[nodiscard]] bool reports() const override { return rank_ == 0; }

  [[nodiscard]] std::vector<std::string> run(int ranks, const RankBody& body) override {
    if (ranks != ranks_)
      throw EnvironmentError(std::to_string(ranks) + " ranks are asked for, but the launcher started " + std::to_string(ranks_));
    MpiLine line;
    try {
      return line.gather(body(rank_, line));
    } catch (const EnvironmentError& error) { end_all(3, "error: rank ", error.what()); } catch (const std::exception& error) {
      end_all(70, "internal error: rank ", error.what());
    }
  }

  [[nodiscard]] std::unique_ptr<Backend> open(int rank, int, Line&, const MeshOptions& network) override {
    return std::make_unique<MpiBackend>(rank, ranks_, network, communicators_);
  }

  void close() override {
    must(MPI_Finalize(), "MPI_Finalize");
    std::ifstream file(folder_ + "/messages." + std::to_string(rank_) + ".prof");
    if (!file) throw EnvironmentError("OpenMPI's monitoring component left no record");
    const std::int64_t on_file = bytes_on_record(file);
    if (on_file != recorded_bytes())
      throw EnvironmentError("OpenMPI's monitoring component contradicts itself: " + std::to_string(recorded_bytes()) +
                             " bytes message by message, " + std::to_string(on_file) + " on its file");
  }

 private:
  /// One message to oneself shows whether messages are counted.
  void need_counter(const std::string& command) const {
    std::array<char, 8> out{}, in{};
    const std::int64_t before = recorded_bytes();
    must(MPI_Sendrecv(out.data(), 8, MPI_CHAR, rank_, 2, in.data(), 8, MPI_CHAR, rank_, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
         "MPI_Sendrecv");
    if (recorded_bytes() - before != 8)
      throw EnvironmentError(command +
                             ": this MPI does not count its messages; OpenMPI with its monitoring component (pml_monitoring) is needed");
  }

  /// The others may wait for this rank inside MPI, where only the launcher reaches them.
  [[noreturn]] void end_all(int code, const char* what, const char* why) const {
    std::fprintf(stderr, "%s%d: %s\n", what, rank_, why);
    std::fflush(nullptr);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }

  int rank_ = 0, ranks_ = 1;
  std::string folder_;
  Communicators communicators_;
};

}  // namespace

std::unique_ptr<Platform> open_mpi_platform(const std::string& command) { return std::make_unique<MpiPlatform>(command); }

}  // namespace shardsim::execute

#endif
