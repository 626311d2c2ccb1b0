// SPDX-License-Identifier: Apache-2.0
// The modules of a model as DeepSpeed ZeRO-3 hooks them: which there are, and in which order their pre and post hooks run in forward, in
// backward and around a recomputation. Source: deepspeed/runtime/zero/parameter_offload.py (_register_deepspeed_module).
#pragma once

#include <string>
#include <vector>

#include "strategies/deepspeed/parameter_coordinator.hpp"

namespace shardsim {

/// The submodules of a model as nn.Module sees them: containers (the model, each layer, `self_attn`, `mlp`) and leaves. What is a function
/// in the source (rotary embedding applied, residual add) is no submodule.
class SubmoduleTree {
 public:
  SubmoduleTree(ScheduleBuilder& build, const Job& job);

  static constexpr std::int32_t root = 0, body = 1;
  [[nodiscard]] std::int32_t layer(std::int32_t l) const { return layers_[static_cast<std::size_t>(l)].container; }
  [[nodiscard]] std::int32_t leaf(std::int32_t l, std::int32_t m) const { return place(l, m).leaf; }
  [[nodiscard]] std::int32_t container(std::int32_t l, std::int32_t m) const { return place(l, m).container; }
  /// The module whose backward is the first to unpack a saved tensor: what comes after it is entered before the layer is recomputed.
  [[nodiscard]] std::int32_t first_unpacked(std::int32_t l) const { return layers_[static_cast<std::size_t>(l)].first_unpacked; }
  [[nodiscard]] const std::vector<Submodule>& submodules() const { return submodules_; }

 private:
  struct Place {
    std::int32_t leaf = -1, container = -1;
  };
  struct LayerModules {
    std::int32_t container = -1, first_unpacked = 0;
    std::vector<Place> places;  // by module
  };
  [[nodiscard]] const Place& place(std::int32_t l, std::int32_t m) const {
    return layers_[static_cast<std::size_t>(l)].places[static_cast<std::size_t>(m)];
  }
  std::int32_t add(UnitId name, std::vector<ParameterId> parameters);

  std::vector<Submodule> submodules_;
  std::vector<LayerModules> layers_;
};

/// Turns the training loop's hooks into pre and post hooks of submodules.
class SubmoduleHooks : public Hooks {
 public:
  SubmoduleHooks(const Job& job, const SubmoduleTree& tree) : job_(job), tree_(tree) {}

  void begin_forward(std::int32_t micro_batch) override;
  void pre_forward(std::int32_t l) override { fetch(tree_.layer(l)); }
  void pre_module_forward(std::int32_t l, std::int32_t m, Pass pass) override;
  void post_module_forward(std::int32_t l, std::int32_t m, Pass pass) override;
  void begin_backward() override;
  void pre_recompute(std::int32_t l) override { fetch(tree_.layer(l)); }
  void post_recompute(std::int32_t l) override { entered_ = tree_.layer(l); }
  void pre_backward(std::int32_t l) override;
  void pre_module_backward(std::int32_t l, std::int32_t m) override;
  void post_module_backward(std::int32_t l, std::int32_t m) override;
  void end_backward() override;

 protected:
  virtual void fetch_sub_module(std::int32_t submodule) = 0;
  /// `saved`: autograd keeps the gathered weights until drop_saved().
  virtual void release_sub_module(std::int32_t submodule, bool saved) = 0;
  virtual void drop_saved(std::int32_t submodule) = 0;
  void release_left_behind();

 private:
  [[nodiscard]] const Module& module(std::int32_t l, std::int32_t m) const;
  [[nodiscard]] bool input_has_gradient(std::int32_t l, std::int32_t m) const;
  [[nodiscard]] bool has_backward(std::int32_t l, std::int32_t m) const;
  [[nodiscard]] bool recomputes_before(std::int32_t l) const;
  [[nodiscard]] bool recomputes_within(std::int32_t l) const;
  [[nodiscard]] bool keeps_weights(std::int32_t l, std::int32_t m, Pass pass) const;
  void fetch(std::int32_t submodule);
  void enter(std::int32_t l, std::int32_t m);

  const Job& job_;
  const SubmoduleTree& tree_;
  std::int32_t entered_ = -1;              // container whose children run
  std::vector<std::int32_t> left_behind_;  // fetched in this backward, but no gradient of an input calls their post hook
};

}  // namespace shardsim
