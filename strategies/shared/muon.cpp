// SPDX-License-Identifier: Apache-2.0
#include "strategies/shared/muon.hpp"

#include <algorithm>

namespace shardsim {
namespace {

bool replicated(const std::string& strategy) { return facts_of(strategy).muon == MuonSupport::whole_matrices; }
bool row_shards(const std::string& strategy) { return facts_of(strategy).muon == MuonSupport::row_shards; }

bool muon_offloads(const Training& training) {
  return training.offload.optimizer != OffloadTarget::none || training.offload.parameters != OffloadTarget::none;
}

/// Muon on several GPUs: the only case in which there is something to share.
bool shares(const Job& job) {
  return job.training.optimizer.kind == OptimizerKind::muon && job.world_size > 1 && job.strategy.semantics == Semantics::framework &&
         !muon_offloads(job.training);
}

struct Sides {
  std::int64_t smaller, larger, count;
};
Sides sides_of(const Parameter& matrix) {
  const std::int64_t columns = matrix.shape.back(), rows = matrix.shape[matrix.shape.size() - 2];
  return {std::min(rows, columns), std::max(rows, columns), matrix.elements.value() / (rows * columns)};
}

std::vector<std::vector<ParameterId>> by_shape(const Model& model, const std::vector<ParameterId>& matrices) {
  std::vector<std::vector<ParameterId>> groups;
  for (ParameterId p : matrices) {
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return model.at(g.front()).shape == model.at(p).shape; });
    if (same == groups.end())
      groups.push_back({p});
    else
      same->push_back(p);
  }
  return groups;
}

/// `matrices` in runs of `ranks`.
void append_batches(std::vector<MuonBatch>& out, const Model& model, const std::vector<ParameterId>& matrices, std::int64_t ranks) {
  for (std::size_t begin = 0; begin < matrices.size(); begin += static_cast<std::size_t>(ranks)) {
    MuonBatch batch;
    for (std::size_t i = begin; i < std::min(matrices.size(), begin + static_cast<std::size_t>(ranks)); ++i)
      batch.matrices.push_back(matrices[i]);
    const auto& shape = model.at(batch.matrices.front()).shape;
    batch.same_shape = std::all_of(batch.matrices.begin(), batch.matrices.end(), [&](ParameterId p) { return model.at(p).shape == shape; });
    out.push_back(std::move(batch));
  }
}

BufferId allocate(ScheduleBuilder& build, Label label, DType dtype, Elements elements,
                  Category category = Category::communication_buffers) {
  return build.allocate({.label = label, .category = category, .dtype = dtype, .pool = current_stream, .elements = elements});
}

// Keller Jordan's ------------------------------------------------------------------------------------------------------------------------

/// dist.all_gather of a list of parameters, of which this rank gives its own; the step waits for it.
void gather_parameters(Program& program, const MuonBatch& batch, BufferId parameters) {
  ScheduleBuilder& build = program.build;
  const Model& model = program.model();
  const std::int64_t ranks = program.job.world_size;
  const UnitId unit = program.unit(batch.matrices.front());
  const DType dtype = program.training().precision.parameters;
  const StreamId stream = build.stream("process group");
  const auto send = [&](Collective kind, BufferId buffer, Elements payload, std::int64_t root) {
    build.communicate({"Muon::all_gather", unit}, stream,
                      {.kind = kind,
                       .communicator = build.communicator("dp", "dp", ranks),
                       .dtype = dtype,
                       .root = static_cast<std::int32_t>(root),
                       .payload = payload,
                       .target = buffer});
  };
  const Elements last = model.at(batch.matrices.back()).elements;
  build.wait_stream(stream, current_stream);
  if (batch.same_shape) {  // into one flat tensor, and from there to the parameters
    const BufferId flat = allocate(build, {"gathered parameters", unit}, dtype, ranks * last);
    send(Collective::all_gather, flat, ranks * last, 0);
    build.wait_stream(current_stream, stream);
    Work copies;
    copies.memory = bytes(2 * ranks * last, dtype);
    copies.kernels = static_cast<std::int32_t>(ranks);
    build.compute({"Muon::all_gather copies", unit}, build.work(copies), Pass::backward, {});
    build.free(flat);
    return;
  }
  const auto held = static_cast<std::int64_t>(batch.matrices.size());
  const BufferId dummy = held < ranks ? allocate(build, {"dummy parameter", unit}, dtype, last) : BufferId{};
  for (std::int64_t r = 0; r < ranks; ++r)
    send(Collective::broadcast, r < held ? parameters : dummy,
         r < held ? model.at(batch.matrices[static_cast<std::size_t>(r)]).elements : last, r);
  build.wait_stream(current_stream, stream);
  if (dummy.valid()) build.free(dummy);
}

// dion -----------------------------------------------------------------------------------------------------------------------------------

/// One asynchronous task: what happens between two points at which it lets others go on. Source: dion/muon.py, muon_update_batch_async.
class DionTask {
 public:
  DionTask(Program& program, const DionGroup& group, const MuonBatch& batch, bool alone)
      : build_(program.build),
        group_(group),
        matrix_(program.model().at(batch.matrices.front())),
        unit_(program.unit(batch.matrices.front())),
        alone_(alone) {}

  /// Runs to the next point; false once nothing is left to do.
  bool advance() { return group_.sharded ? advance_sharded() : advance_replicated(); }

 private:
  bool advance_replicated() {
    if (stage_++ > 0) return copy_and_finish();
    updates_ = make("updates", (alone_ ? 1 : group_.ranks) * matrix_.elements);
    orthogonalize();
    if (alone_) return finish();
    received_ = make("gathered updates", group_.ranks * matrix_.elements);
    send("Muon::all_gather", Collective::all_gather, received_, group_.ranks * matrix_.elements);
    return true;
  }

  bool advance_sharded() {
    const Elements shards = rows_padded(matrix_, group_.ranks);  // one of each matrix of the batch
    switch (stage_++) {
      case 0:
        updates_ = make("updates", shards);
        received_ = make("shards of one matrix", shards);
        send("Muon::all_to_all shards", Collective::all_to_all, received_, shards);
        return true;
      case 1:
        wait();
        whole_ = make("whole matrix", shards);
        orthogonalize();
        send("Muon::all_to_all updates", Collective::all_to_all, updates_, shards);
        return true;
      default:
        return finish();
    }
  }

  BufferId make(const char* verb, Elements elements) { return allocate(build_, {verb, unit_}, DType::bf16, elements); }

  void orthogonalize() {
    const BufferId temporary =
        allocate(build_, {"Newton-Schulz", unit_}, DType::bf16,
                 Elements{newton_schulz_bytes(matrix_, DType::bf16, true).value() / size_of(DType::bf16)}, Category::temporaries);
    Work work;
    add_newton_schulz(work, matrix_);
    work.kernels = static_cast<std::int32_t>(work.products.size());
    build_.compute({"Muon::newton_schulz", unit_}, build_.work(std::move(work)), Pass::backward, {});
    build_.free(temporary);
  }

  void send(const char* verb, Collective kind, BufferId target, Elements payload) {
    const StreamId stream = build_.stream("process group");
    build_.wait_stream(stream, current_stream);
    sent_ =
        build_.communicate({verb, unit_}, stream,
                           {.kind = kind, .communicator = group_.communicator, .dtype = DType::bf16, .payload = payload, .target = target});
  }
  void wait() {
    if (sent_.valid()) build_.wait(current_stream, sent_);
  }

  /// c10d gathers into one flat tensor and copies from there to the list.
  bool copy_and_finish() {
    wait();
    Work copies;
    copies.memory = bytes(2 * group_.ranks * matrix_.elements, DType::bf16);
    copies.kernels = static_cast<std::int32_t>(group_.ranks);
    build_.compute({"Muon::all_gather copies", unit_}, build_.work(std::move(copies)), Pass::backward, {});
    return finish();
  }

  bool finish() {
    wait();
    for (BufferId buffer : {received_, whole_, updates_})
      if (buffer.valid()) build_.free(buffer);
    return false;
  }

  ScheduleBuilder& build_;
  const DionGroup& group_;
  const Parameter& matrix_;  // all of a batch have one shape
  UnitId unit_;
  bool alone_;
  int stage_ = 0;
  BufferId updates_, received_, whole_;
  OpId sent_;
};

}  // namespace

std::vector<bool> orthogonalized_parameters(const Model& model) {
  std::vector<bool> chosen(model.parameters->size());
  for (const Layer& layer : *model.layers)
    if (model.type_of(layer).block)
      for (ParameterId p : layer.parameters) chosen[static_cast<std::size_t>(p.index)] = model.at(p).matrix() && model.at(p).trainable;
  return chosen;
}

std::vector<ParameterId> muon_matrices(const Model& model) {
  const std::vector<bool> chosen = orthogonalized_parameters(model);
  std::vector<ParameterId> matrices;
  for (ParameterId p : all_parameters(model))
    if (chosen[static_cast<std::size_t>(p.index)]) matrices.push_back(p);
  return matrices;
}

std::vector<MuonBatch> muon_batches(const Model& model, std::vector<ParameterId> matrices, const std::string& variant, std::int64_t ranks) {
  std::vector<MuonBatch> batches;
  if (variant == "dion") {
    for (const std::vector<ParameterId>& group : by_shape(model, matrices)) append_batches(batches, model, group, ranks);
    return batches;
  }
  std::stable_sort(matrices.begin(), matrices.end(), [&](ParameterId a, ParameterId b) { return model.at(a).shape > model.at(b).shape; });
  append_batches(batches, model, matrices, ranks);
  return batches;
}

void add_newton_schulz(Work& work, const Parameter& matrix) {
  const auto [smaller, larger, count] = sides_of(matrix);
  work.products.push_back({smaller, smaller, larger, 5 * count});
  work.products.push_back({smaller, smaller, smaller, 5 * count});
  work.products.push_back({smaller, larger, smaller, 5 * count});
}

Bytes newton_schulz_bytes(const Parameter& matrix, DType momentum, bool compiled) {
  const auto [smaller, larger, count] = sides_of(matrix);
  const std::int64_t matrices = compiled ? 2 : momentum == DType::bf16 ? 3 : 4;  // its cast to bf16 is one more
  return bytes(Elements{count * (matrices * smaller * larger + 2 * smaller * smaller)}, DType::bf16);
}

LocalUpdate keller_jordan_update(Program& program) {
  const Model& model = program.model();
  const auto rank = static_cast<std::size_t>(program.job.rank);
  std::vector<MuonBatch> batches = muon_batches(model, muon_matrices(model), "keller_jordan", program.job.world_size);
  std::vector<bool> others = orthogonalized_parameters(model);
  for (const MuonBatch& batch : batches)
    if (rank < batch.matrices.size()) others[static_cast<std::size_t>(batch.matrices[rank].index)] = false;
  LocalUpdate local;
  for (ParameterId p : parameters_where(model, true))
    if (!others[static_cast<std::size_t>(p.index)]) local.updated.push_back(p);
  local.storage = local.updated;  // what is updated stands together
  for (ParameterId p : parameters_where(model, true))
    if (others[static_cast<std::size_t>(p.index)]) local.storage.push_back(p);
  local.synchronize = [&program, shared = std::move(batches)](BufferId parameters) {
    for (const MuonBatch& batch : shared) gather_parameters(program, batch, parameters);
  };
  return local;
}

/// Each round starts one task if fewer than three run, and lets the others go on. Source: dion/opt_utils.py, AsyncRuntime.
void dion_updates(Program& program, const std::vector<ParameterId>& matrices, const DionGroup& group) {
  constexpr std::size_t most_running = 3;
  const Model& model = program.model();
  std::vector<DionTask> pending;
  for (const std::vector<ParameterId>& same : by_shape(model, matrices))
    for (const MuonBatch& batch : muon_batches(model, same, "dion", group.ranks))
      pending.emplace_back(program, group, batch, !group.sharded && (same.size() == 1 || group.ranks == 1));
  std::vector<std::size_t> running;
  for (std::size_t next = 0; next < pending.size() || !running.empty();) {
    std::vector<std::size_t> still;
    if (next < pending.size() && running.size() < most_running) {
      if (pending[next].advance()) still.push_back(next);
      ++next;
    }
    for (std::size_t i : running)
      if (pending[i].advance()) still.push_back(i);
    running = std::move(still);
  }
}

bool runs_dion(const Job& job) {
  return shares(job) && (row_shards(job.strategy.name) || (replicated(job.strategy.name) && job.training.optimizer.variant == "dion"));
}

bool runs_keller_jordan(const Job& job) {
  return shares(job) && replicated(job.strategy.name) && job.training.optimizer.variant == "keller_jordan";
}

void check_muon(const Job& job, Problems& problems) {
  const Optimizer& optimizer = job.training.optimizer;
  const std::string& strategy = job.strategy.name;
  if (optimizer.variant.empty()) return;
  if (optimizer.kind != OptimizerKind::muon) return problems.add({}, "optimizer: only muon has variants", {"leave out variant"});
  if (optimizer.variant != "keller_jordan" && optimizer.variant != "dion")
    return problems.add({}, "optimizer: variant cannot be " + in_quotes(optimizer.variant),
                        notes_for_unknown(optimizer.variant, {"keller_jordan", "dion"}));
  if (!replicated(strategy) && !(optimizer.variant == "dion" && row_shards(strategy)))
    return problems.add({}, "optimizer: " + strategy + " cannot run muon's variant " + optimizer.variant,
                        {"keller_jordan: naive_dp, ddp; dion: naive_dp, ddp, fsdp2"});
  if (muon_offloads(job.training))
    problems.add({}, "optimizer: muon's variants run on GPUs, not on offloaded states", {"leave out offload or variant"});
  if (replicated(strategy) && job.strategy.options.integer("expert_parallel_size", 1) > 1)
    problems.add(job.strategy.options.where("expert_parallel_size"),
                 "optimizer: muon's variant " + optimizer.variant + " needs every matrix on every rank; expert_parallel_size splits them",
                 {"leave out variant: every rank then orthogonalises what it holds"});
}

std::string muon_differs(const Job& job) {
  if (runs_keller_jordan(job)) return "muon (keller_jordan) all-gathers the matrices that each rank has updated";
  if (!runs_dion(job)) return {};
  return row_shards(job.strategy.name) ? "muon (dion) makes whole matrices of shards, and shards of their updates, by all-to-all"
                                       : "muon (dion) all-gathers the updates that each rank has orthogonalised";
}

}  // namespace shardsim
