// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/local_kernels.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace shardsim {
namespace {

using Clock = std::chrono::steady_clock;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Seconds time_since(Clock::time_point begin) { return Seconds{std::chrono::duration<double>(Clock::now() - begin).count()}; }

/// The best time of `work`, repeated for `budget` but at least twice (the first run warms up).
template <class Work>
Seconds best_time(Seconds budget, const Work& work) {
  work();
  Seconds best{1e9};
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    work();
    best = std::min(best, time_since(start));
  } while (time_since(begin) < budget);
  return best;
}

}  // namespace

ByteRate local_memory_bandwidth(Seconds budget) {
  const std::size_t size = std::size_t{128} << 20;
  std::vector<std::byte> from(size, std::byte{1}), to(size);
  const Seconds time = best_time(budget, [&] {
    std::memcpy(to.data(), from.data(), size);
    asm volatile("" : : "r"(to.data()) : "memory");  // the copy must not be optimised away
  });
  return Bytes{static_cast<std::int64_t>(2 * size)} / time;
}

GemmPoints local_products(Seconds budget, const GemmPoints& known, const std::function<void(const GemmModel::Point&)>& measured) {
  static constexpr std::array<std::array<int, 3>, 12> shapes{{{1, 64, 64},
                                                              {16, 64, 64},
                                                              {64, 64, 64},
                                                              {1, 512, 512},
                                                              {128, 128, 128},
                                                              {32, 256, 1024},
                                                              {256, 256, 256},
                                                              {1, 2048, 2048},
                                                              {64, 1024, 256},
                                                              {384, 384, 384},
                                                              {512, 512, 512},
                                                              {128, 768, 1024}}};
  GemmPoints points;
  for (const auto& [m, n, k] : shapes) {
    const auto old = std::ranges::find_if(known, [&, m = m, n = n, k = k](const auto& p) { return p.m == m && p.n == n && p.k == k; });
    if (old != known.end()) {
      points.push_back(*old);
      continue;
    }
    const Matrix a = Matrix::Random(m, k), b = Matrix::Random(k, n);
    Matrix c = Matrix::Zero(m, n);
    const Seconds time = best_time(budget / static_cast<double>(shapes.size()), [&] {
      c.noalias() = a * b;
      asm volatile("" : : "r"(c.data()) : "memory");
    });
    points.push_back({m, n, k, time});
    measured(points.back());
  }
  return points;
}

}  // namespace shardsim
