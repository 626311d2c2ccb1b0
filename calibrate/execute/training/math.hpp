// SPDX-License-Identifier: Apache-2.0
// What a rank computes with: the host's cores, or a GPU. nvcc reads this header: keep it light.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/dtype.hpp"

namespace shardsim {
enum class OptimizerKind : std::uint8_t;
}

namespace shardsim::execute {

/// fp32 numbers in the memory of a Math, which outlives them. Host code looks inside only where that memory is the host's.
class Numbers {
 public:
  using Release = void (*)(void* owner, float* data);

  Numbers() = default;
  Numbers(float* data, std::size_t size, void* owner, Release release) : data_(data), size_(size), owner_(owner), release_(release) {}
  Numbers(Numbers&& other) noexcept { swap(other); }
  Numbers& operator=(Numbers&& other) noexcept {
    Numbers taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Numbers() {
    if (data_ != nullptr) release_(owner_, data_);
  }
  /// Zeros in the host's memory.
  [[nodiscard]] static Numbers on_host(std::size_t size) {
    return {new float[size](), size, nullptr, [](void*, float* data) { delete[] data; }};
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] float* data() { return data_; }
  [[nodiscard]] const float* data() const { return data_; }
  [[nodiscard]] float* begin() { return data_; }
  [[nodiscard]] float* end() { return data_ + size_; }
  [[nodiscard]] const float* begin() const { return data_; }
  [[nodiscard]] const float* end() const { return data_ + size_; }
  [[nodiscard]] float& operator[](std::size_t i) { return data_[i]; }
  [[nodiscard]] const float& operator[](std::size_t i) const { return data_[i]; }

 private:
  void swap(Numbers& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(owner_, other.owner_);
    std::swap(release_, other.release_);
  }

  float* data_ = nullptr;
  std::size_t size_ = 0;
  void* owner_ = nullptr;
  Release release_ = nullptr;
};

/// Row-major; a row is a token.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  Numbers values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c) : Matrix(r, c, Numbers::on_host(static_cast<std::size_t>(r * c))) {}
  Matrix(std::int64_t r, std::int64_t c, Numbers v) : rows(r), columns(c), values(std::move(v)) {}
  [[nodiscard]] std::span<float> row(std::int64_t r) { return {values.data() + r * columns, static_cast<std::size_t>(columns)}; }
  [[nodiscard]] std::span<const float> row(std::int64_t r) const {
    return {values.data() + r * columns, static_cast<std::size_t>(columns)};
  }
};

/// Shape of attention: `heads` of queries over `kv_heads` of keys and values.
struct Heads {
  std::int64_t heads = 1, kv_heads = 1, head_dim = 1, value_dim = 1;
};
struct Attended {
  Matrix context, log_sum_exp;
};
struct AttentionGradients {
  Matrix q, k, v;
};
struct ContextGradients {
  Matrix probabilities, v;
};

inline constexpr float norm_epsilon = 1e-5F;
inline constexpr float rotary_base = 10000.0F;

/// One optimizer step as the formulas of optimizer.hpp need it.
struct UpdateRule {
  bool adaptive = false, momentum = false, decoupled_decay = false;
  float learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0, momentum_factor = 0;
  float correction1 = 1, correction2 = 1;  ///< 1 - beta^step
};

/// The arithmetic of the trainer, in fp32. kernels.hpp says what each operation of a transformer computes; Weights may be empty where it
/// says so.
class Math {
 public:
  virtual ~Math() = default;

  // Numbers.
  [[nodiscard]] virtual Numbers zeros(std::size_t count) = 0;
  [[nodiscard]] virtual Numbers numbers(std::span<const float> host) = 0;
  [[nodiscard]] virtual std::vector<float> on_host(const Numbers& values) = 0;
  [[nodiscard]] virtual Numbers slice(const Numbers& values, std::size_t begin, std::size_t count) = 0;
  virtual void put(Numbers& into, std::size_t begin, const Numbers& part) = 0;

  // Elements.
  // Memory of buffers: whatever the backend of this Math allocates.
  virtual void decode(const std::byte* memory, DType type, Numbers& values) = 0;
  virtual void encode(const Numbers& values, DType type, std::byte* memory) = 0;
  virtual void round(Numbers& values, DType type) = 0;
  virtual void add(Numbers& into, const Numbers& values) = 0;
  virtual void scale(Numbers& values, float factor) = 0;
  virtual void update(const UpdateRule& rule, Numbers& weights, const Numbers& gradients, Numbers& first, Numbers& second) = 0;

  // Modules with parameters.
  [[nodiscard]] virtual Matrix lookup(const Numbers& table, std::int64_t width, std::span<const std::int32_t> tokens) = 0;
  virtual void lookup_backward(const Matrix& dy, std::span<const std::int32_t> tokens, Numbers& table) = 0;
  [[nodiscard]] virtual Matrix linear(const Matrix& x, const Numbers& weight, const Numbers& bias, std::int64_t out) = 0;
  [[nodiscard]] virtual Matrix linear_backward_input(const Matrix& dy, const Numbers& weight, std::int64_t in) = 0;
  virtual void linear_backward_weight(const Matrix& x, const Matrix& dy, Numbers& weight, Numbers& bias) = 0;
  [[nodiscard]] virtual Matrix inverse_rms(const Matrix& x, std::int64_t size) = 0;
  [[nodiscard]] virtual Matrix normalise(const Matrix& x, const Matrix& inverse, std::int64_t size) = 0;
  [[nodiscard]] virtual Matrix scale_columns(const Matrix& x, const Numbers& weight) = 0;
  [[nodiscard]] virtual Matrix rms_norm_backward(const Matrix& x, const Matrix& inverse, const Matrix& dy, const Numbers& weight,
                                                 Numbers& weight_gradient) = 0;

  // Attention.
  [[nodiscard]] virtual Matrix rotate(const Matrix& x, std::int64_t head_dim, float sign) = 0;
  [[nodiscard]] virtual Matrix repeat_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times) = 0;
  [[nodiscard]] virtual Matrix sum_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times) = 0;
  [[nodiscard]] virtual Attended attend(const Matrix& q, const Matrix& k, const Matrix& v, const Heads& heads) = 0;
  [[nodiscard]] virtual AttentionGradients attend_backward(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& log_sum_exp,
                                                           const Matrix& dcontext, const Heads& heads) = 0;
  [[nodiscard]] virtual Matrix attention_scores(const Matrix& q, const Matrix& k, const Heads& heads) = 0;
  [[nodiscard]] virtual Matrix causal_softmax(const Matrix& scores, std::int64_t head_dim) = 0;
  [[nodiscard]] virtual Matrix causal_softmax_backward(const Matrix& probabilities, const Matrix& dprobabilities,
                                                       std::int64_t head_dim) = 0;
  [[nodiscard]] virtual Matrix attention_context(const Matrix& probabilities, const Matrix& v, const Heads& heads) = 0;
  [[nodiscard]] virtual AttentionGradients attention_scores_backward(const Matrix& q, const Matrix& k, const Matrix& dscores,
                                                                     const Heads& heads) = 0;
  [[nodiscard]] virtual ContextGradients attention_context_backward(const Matrix& probabilities, const Matrix& v, const Matrix& dcontext,
                                                                    const Heads& heads) = 0;

  // Element-wise modules and the loss.
  [[nodiscard]] virtual Matrix silu(const Matrix& x) = 0;
  [[nodiscard]] virtual Matrix silu_backward(const Matrix& x, const Matrix& dy) = 0;
  [[nodiscard]] virtual Matrix multiply(const Matrix& a, const Matrix& b) = 0;
  [[nodiscard]] virtual Matrix sum(const Matrix& a, const Matrix& b) = 0;
  [[nodiscard]] virtual Matrix log_softmax(const Matrix& logits) = 0;
  [[nodiscard]] virtual Matrix log_softmax_backward(const Matrix& logarithms, const Matrix& dlogarithms) = 0;
  /// Sum over the rows of the element in column `targets[row]`.
  [[nodiscard]] virtual double sum_of_targets(const Matrix& x, std::span<const std::int32_t> targets) = 0;
  /// `value` in column `targets[row]` of each row, zeros elsewhere.
  [[nodiscard]] virtual Matrix at_targets(std::int64_t columns, std::span<const std::int32_t> targets, float value) = 0;
};

}  // namespace shardsim::execute
