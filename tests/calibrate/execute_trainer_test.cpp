// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

#include "calibrate/execute/training/host_math.hpp"
#include "calibrate/execute/training/optimizer.hpp"
#include "calibrate/execute/training/reference.hpp"
#include "calibrate/execute/training/trainer.hpp"
#include "execute_job.hpp"

namespace shardsim::execute {
namespace {

/// Everything in fp32, nothing rounded; parameters can be nudged.
class FreeWorkspace final : public Workspace {
 public:
  explicit FreeWorkspace(const Model& model) : model_(model) {
    for (std::size_t p = 0; p < model.parameters->size(); ++p) {
      const Parameter& parameter = (*model.parameters)[p];
      weights.push_back(start_values(static_cast<std::int64_t>(p), parameter.name, parameter.shape));
      gradients.emplace_back(weights.back().size());
    }
  }
  Numbers parameter(ParameterId p) override { return host_math().numbers(weights[static_cast<std::size_t>(p.index)]); }
  void add_gradient(ParameterId p, const Numbers& values) override {
    auto& sums = gradients[static_cast<std::size_t>(p.index)];
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  bool holds(TensorRef) override { return true; }
  Numbers load(TensorRef ref) override {
    const TensorRef at = producer_of(model_, ref);
    auto& tensor = tensors_[{at.layer, at.tensor, at.gradient ? 1 : 0}];
    const auto& type = model_.type_of((*model_.layers)[static_cast<std::size_t>(ref.layer)]);
    if (tensor.empty()) tensor.resize(static_cast<std::size_t>(type.tensors[static_cast<std::size_t>(ref.tensor)].elements.value()));
    return host_math().numbers(tensor);
  }
  void store(TensorRef ref, const Numbers& values) override {
    const TensorRef at = producer_of(model_, ref);
    tensors_[{at.layer, at.tensor, at.gradient ? 1 : 0}].assign(values.begin(), values.end());
  }
  void forget() { tensors_.clear(); }

  std::vector<std::vector<float>> weights, gradients;

 private:
  const Model& model_;
  std::map<std::array<std::int32_t, 3>, std::vector<float>> tensors_;
};

class TrainerTest : public testing::TestWithParam<AttentionKind> {
 protected:
  TrainerTest() : job_(test::small_job(GetParam())), trainer_(*job_.model, job_.training, host_math()), workspace_(*job_.model) {}

  double loss() {
    workspace_.forget();
    trainer_.begin(micro_batch_tokens(*job_.model, job_.training, {1, 1, job_.training.micro_batch_size}, 0, 0, 0));
    for (std::size_t l = 0; l < job_.model->layers->size(); ++l)
      for (std::size_t m = 0; m < modules(l); ++m)
        trainer_.forward(workspace_, static_cast<std::int32_t>(l), static_cast<std::int32_t>(m), Pass::forward);
    return trainer_.loss();
  }
  void backward() {
    for (std::size_t l = job_.model->layers->size(); l-- > 0;)
      for (std::size_t m = modules(l); m-- > 0;) trainer_.backward(workspace_, static_cast<std::int32_t>(l), static_cast<std::int32_t>(m));
  }
  [[nodiscard]] std::size_t modules(std::size_t layer) const { return job_.model->type_of((*job_.model->layers)[layer]).modules.size(); }

  test::OwnedJob job_;
  Trainer trainer_;
  FreeWorkspace workspace_;
};

// The slope of the loss along each parameter, from both sides, is the gradient.
TEST_P(TrainerTest, GradientsAreSlopesOfTheLoss) {
  (void)loss();
  backward();
  const auto gradients = workspace_.gradients;
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    const std::string& name = (*job_.model->parameters)[p].name;
    // Along the gradient itself the slope is its norm: large against the rounding of the loss.
    double norm = 0;
    for (float g : gradients[p]) norm += static_cast<double>(g) * static_cast<double>(g);
    norm = std::sqrt(norm);
    ASSERT_GT(norm, 0) << name;
    const double step = 1e-2;
    const auto start = workspace_.weights[p];
    const auto moved = [&](double by) {
      for (std::size_t i = 0; i < start.size(); ++i)
        workspace_.weights[p][i] = start[i] + static_cast<float>(by * static_cast<double>(gradients[p][i]) / norm);
      return loss();
    };
    const double slope = (moved(step) - moved(-step)) / (2 * step);
    workspace_.weights[p] = start;
    EXPECT_NEAR(slope / norm, 1, 0.02) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, TrainerTest, testing::Values(AttentionKind::flash, AttentionKind::plain),
                         [](const auto& p) { return p.param == AttentionKind::flash ? "Flash" : "Plain"; });

TEST(Trainer, StartsAtTheEntropyOfTheVocabularyAndLearns) {
  test::OwnedJob job = test::small_job(AttentionKind::flash);
  const Reference reference = train_alone(*job.model, job.training, {2, 2, job.training.micro_batch_size}, 12);
  EXPECT_NEAR(reference.losses.front(), std::log(48.0), 0.6);
  EXPECT_LT(reference.losses.back(), reference.losses.front() - 0.3);
}

TEST(Trainer, SaysWhatItCannotDo) {
  test::OwnedJob job = test::small_job(AttentionKind::flash);
  EXPECT_TRUE(cannot_train(*job.model, job.training).empty());
  job.training.dropout = 0.1;
  ASSERT_EQ(cannot_train(*job.model, job.training).size(), 1u);
  EXPECT_EQ(cannot_train(*job.model, job.training).front(), "dropout is not executed: set training.dropout to 0");
}

TEST(Optimizer, AdamWFirstStepMovesByTheLearningRate) {
  std::vector<float> weights{1.0F, 1.0F}, gradients{0.5F, -0.001F}, first(2), second(2);
  const OptimizerConstants c;
  update(rule_of(OptimizerKind::adamw, c, 1), weights, gradients, first, second);
  // Bias correction makes the first direction g / |g|; decay takes lr * wd of the weight.
  EXPECT_NEAR(weights[0], 1 - c.learning_rate * c.weight_decay - c.learning_rate, 1e-6);
  EXPECT_NEAR(weights[1], 1 - c.learning_rate * c.weight_decay + c.learning_rate, 1e-6);
  EXPECT_FLOAT_EQ(first[0], 0.05F);
  EXPECT_NEAR(second[0], 0.0125F, 1e-7);
}

TEST(Batch, EveryRankTakesItsOwnSequencesOfTheSameBatch) {
  const BatchShares shares{3, 2, 2};
  std::vector<int> seen(static_cast<std::size_t>(shares.global()));
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t m = 0; m < 2; ++m)
      for (std::int64_t s = 0; s < 2; ++s) ++seen[static_cast<std::size_t>(shares.index(r, m, s))];
  EXPECT_EQ(seen, std::vector<int>(12, 1));
  const auto tokens = sequence_tokens(1, 5, 100, 48);
  EXPECT_EQ(tokens.size(), 101u);
  for (std::int32_t t : tokens) EXPECT_TRUE(t >= 0 && t < 48);
  EXPECT_NE(tokens, sequence_tokens(2, 5, 100, 48));
}

}  // namespace
}  // namespace shardsim::execute
