// SPDX-License-Identifier: Apache-2.0
// Muon on several ranks: who orthogonalises which matrix, and what is sent so that everybody has the result.
//
//   ""             replicated parameters: every rank orthogonalises every matrix that it updates; nothing is sent
//   keller_jordan  replicated parameters (KellerJordan/Muon, muon.py, MuonWithAuxAdam): matrices sorted by shape, descending; of each N
//                  neighbours rank r updates the r-th and alone keeps its momentum, then all N parameters are all-gathered as a list: one
//                  all-gather where shapes agree, else N broadcasts (c10d, ProcessGroupNCCL::allgather). The last N are filled up with
//                  dummies like the last one, on which nobody computes.
//   dion           (microsoft/dion, muon.py) batches of N matrices of one shape, filled up with dummies that are orthogonalised as well.
//                  Replicated: updates all-gathered in bf16; a shape with a single matrix is done by everybody. FSDP2: an all-to-all makes
//                  whole matrices of the shards of N of them, one a rank, and another takes the updates back, both in bf16.
#pragma once

#include <string>
#include <vector>

#include "strategies/shared/replicated.hpp"

namespace shardsim {

/// The trainable parameters that Muon updates, by parameter: matrices of blocks. Embeddings, head, norms and biases go to AdamW.
[[nodiscard]] std::vector<bool> orthogonalized_parameters(const Model& model);
/// The same as a list, in registration order.
[[nodiscard]] std::vector<ParameterId> muon_matrices(const Model& model);

/// Matrices that ranks take one each. The last batch (dion: of a shape) may be short: dummies fill it up.
struct MuonBatch {
  std::vector<ParameterId> matrices{};
  bool same_shape = true;
};
/// `matrices` in the batches of `variant` (keller_jordan or dion) over `ranks`.
[[nodiscard]] std::vector<MuonBatch> muon_batches(const Model& model, std::vector<ParameterId> matrices, const std::string& variant,
                                                  std::int64_t ranks);

/// Five rounds of X X^T, its square and a product, on the smaller side; a parameter of three dimensions is a batch of matrices.
/// Source: zeropower_via_newtonschulz5.
void add_newton_schulz(Work& work, const Parameter& matrix);
/// What that needs meanwhile, in bf16. Eager: X, a X, B X and their sum, X X^T and the polynomial of it; compiled, as dion's is, a X and
/// the sum are fused away.
[[nodiscard]] Bytes newton_schulz_bytes(const Parameter& matrix, DType momentum, bool compiled);

/// keller_jordan: this rank updates its own matrices and all that AdamW updates, and the ranks then exchange parameters.
[[nodiscard]] LocalUpdate keller_jordan_update(Program& program);

/// The ranks among which a batch is shared, and this rank's parameters that are sharded over them (or replicated).
struct DionGroup {
  CommunicatorId communicator{};
  std::int64_t ranks = 1;
  bool sharded = false;
};
/// Emits dion's tasks, at most three at a time, up to the point where every rank holds the updates of its part of `matrices`.
void dion_updates(Program& program, const std::vector<ParameterId>& matrices, const DionGroup& group);

/// Does the job run dion's tasks? Named under DDP; FSDP2's shards can be updated no other way.
[[nodiscard]] bool runs_dion(const Job& job);
/// Does it run Keller Jordan's?
[[nodiscard]] bool runs_keller_jordan(const Job& job);

/// Problems of the job's variant: a name that is not known, or one that the strategy cannot run.
void check_muon(const Job& job, Problems& problems);
/// Why the traffic is more than the textbook's, empty where it is not.
[[nodiscard]] std::string muon_differs(const Job& job);

}  // namespace shardsim
