// SPDX-License-Identifier: Apache-2.0
// Closed forms of what each library sends, worked out by hand on padded sizes, equal the account of the schedules over a grid of ranks,
// micro-batches, dtypes and models. phi(n) = (n - 1) / n; P pads as the library pads. Bytes sent by the average rank.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>

#include "jobs.hpp"
#include "schedule_facts.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim::testing {
namespace {

using Given = std::vector<std::pair<std::string, Options::Value>>;

double phi(std::int64_t n) { return static_cast<double>(n - 1) / static_cast<double>(n); }
std::int64_t up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// A job of the grid and the sizes that formulas need.
struct Point {
  std::int64_t n = 1;
  std::int32_t g = 1;
  DType parameters = DType::bf16;
  std::optional<DType> reduce{};
  std::shared_ptr<const Architecture> architecture{};
  std::shared_ptr<const Model> model{};

  [[nodiscard]] double e_p() const { return static_cast<double>(size_of(parameters)); }
  [[nodiscard]] double e_r() const { return static_cast<double>(size_of(reduce.value_or(parameters))); }
  [[nodiscard]] double micro_batches() const { return g; }
  template <class Padded>
  [[nodiscard]] double sum(Padded padded) const {
    std::int64_t total = 0;
    for (const Parameter& p : *model->parameters) total += padded(p);
    return static_cast<double>(total);
  }
  [[nodiscard]] double psi() const {
    return sum([](const Parameter& p) { return p.elements.value(); });
  }
  /// Flat, to a multiple of 2 N (DeepSpeed 1 and 2).
  [[nodiscard]] double flat() const { return static_cast<double>(up(static_cast<std::int64_t>(psi()), 2 * n)); }
  /// Each parameter to a multiple of s (DeepSpeed 3).
  [[nodiscard]] double each(std::int64_t s) const {
    return sum([s](const Parameter& p) { return up(p.elements.value(), s); });
  }
  /// Rows of dimension 0 to a multiple of s (FSDP2); of those in a block, or of the rest.
  [[nodiscard]] double rows(std::int64_t s, bool blocks, bool rest) const {
    return sum([&](const Parameter& p) {
      const bool in_block = p.name.starts_with("block");
      return (in_block ? blocks : rest) ? up(p.shape[0], s) * (p.elements.value() / p.shape[0]) : 0;
    });
  }
  /// FSDP1: units concatenated, each padded to a multiple of s.
  [[nodiscard]] double units(std::int64_t s, bool blocks, bool rest) const {
    std::map<std::string, std::int64_t> unit;
    for (const Parameter& p : *model->parameters) {
      const bool in_block = p.name.starts_with("block");
      unit[in_block ? p.name.substr(0, p.name.find('.', p.name.find('.') + 1)) : "root"] += p.elements.value();
    }
    std::int64_t total = 0;
    for (const auto& [name, elements] : unit) total += (name == "root" ? rest : blocks) ? up(elements, s) : 0;
    return static_cast<double>(total);
  }
};

struct Case {
  std::string strategy;
  Given options;
  std::function<double(const Point&)> sent;
  std::int64_t ranks_multiple = 1;  ///< n must be a multiple
  bool uneven = false;              ///< ranks send unlike amounts (broadcasts, reductions): the formula is their mean
};

std::vector<Point> grid() {
  std::vector<Point> points;
  const std::vector<std::shared_ptr<const Architecture>> models{toy(), toy({.vocabulary = 7, .width = 3, .hidden = 5, .blocks = 3}),
                                                                equal_blocks(2, 12)};
  for (const auto& architecture : models)
    for (const std::int64_t n : {1, 2, 3, 4, 8, 12})
      for (const std::int32_t g : {1, 3})
        for (const DType parameters : {DType::bf16, DType::fp32})
          for (const bool wide : {false, true}) {
            if (wide && parameters == DType::fp32) continue;
            points.push_back({n, g, parameters, wide ? std::optional(DType::fp32) : std::nullopt, architecture, {}});
          }
  return points;
}

void expect_equal(const Case& c) {
  for (Point point : grid()) {
    if (point.n % c.ranks_multiple != 0) continue;
    const OwnedJob owned = make_job(point.architecture, c.strategy,
                                    {.ranks = point.n,
                                     .micro_batches = point.g,
                                     .parameters = point.parameters,
                                     .gradients = point.parameters,
                                     .reduce = point.reduce,
                                     .options = c.options});
    point.model = owned.model;
    const Traffic traffic = traffic_of(owned);
    std::int64_t rows = 1;  // each group and collective may round once
    for (const auto& row : traffic.by_group) rows += row.control ? 0 : 1;
    EXPECT_NEAR(static_cast<double>(c.uneven ? bytes_sent(emit(owned.job)) : traffic.total.value()), c.sent(point),
                static_cast<double>(rows))
        << c.strategy << " n " << point.n << " g " << point.g << " " << name_of(point.parameters) << " psi " << point.psi();
  }
}

TEST(Formulas, ReplicatedParameters) {
  const auto once = [](const Point& p) { return 2 * phi(p.n) * p.e_p() * p.psi(); };
  for (const char* mode : {"flat", "per_parameter", "async_per_parameter"})
    expect_equal({"naive_dp", {{"all_reduce", std::string(mode)}}, once});
  for (const bool view : {false, true}) {
    expect_equal({"ddp", {{"gradient_as_bucket_view", view}}, once});
    expect_equal(
        {"ddp", {{"gradient_as_bucket_view", view}, {"no_sync", false}}, [&](const Point& p) { return p.micro_batches() * once(p); }});
    expect_equal({"zero_redundancy",
                  {{"overlap_with_ddp", true}, {"gradient_as_bucket_view", view}},
                  [](const Point& p) { return 3 * phi(p.n) * p.e_p() * p.psi(); },
                  1,
                  true});
    expect_equal({"zero_redundancy",
                  {{"parameters_as_bucket_view", view}},
                  [](const Point& p) { return 3 * phi(p.n) * p.e_p() * p.psi(); },
                  1,
                  true});
  }
}

TEST(Formulas, DeepSpeed1And2) {
  const auto gathered = [](const Point& p) { return phi(p.n) * p.e_p() * p.flat(); };
  for (const bool overlap : {false, true}) {
    expect_equal({"zero1", {{"overlap_comm", overlap}}, [&](const Point& p) { return 2 * phi(p.n) * p.e_r() * p.psi() + gathered(p); }});
    expect_equal({"zero2", {{"overlap_comm", overlap}}, [&](const Point& p) {
                    return p.micro_batches() * 2 * phi(p.n) * p.e_r() * p.psi() + gathered(p);
                  }});
    const Given owners{{"overlap_comm", overlap}, {"use_multi_rank_bucket_allreduce", false}};
    expect_equal({"zero1", owners, [&](const Point& p) { return phi(p.n) * p.e_r() * p.psi() + gathered(p); }, 1, true});
    expect_equal(
        {"zero2", owners, [&](const Point& p) { return p.micro_batches() * phi(p.n) * p.e_r() * p.psi() + gathered(p); }, 1, true});
  }
  for (const char* option : {"contiguous_gradients", "reduce_scatter"})
    expect_equal(
        {"zero2", {{option, false}}, [&](const Point& p) { return p.micro_batches() * 2 * phi(p.n) * p.e_r() * p.psi() + gathered(p); }});
}

TEST(Formulas, DeepSpeed3) {
  const Given nothing_kept{{"stage3_param_persistence_threshold", std::int64_t{0}},
                           {"stage3_prefetch_bucket_size", std::int64_t{0}},
                           {"stage3_max_reuse_distance", std::int64_t{0}}};
  const auto reduced = [](const Point& p, std::int64_t s) { return p.micro_batches() * phi(s) * p.e_r() * p.each(s); };
  expect_equal(
      {"zero3", nothing_kept, [&](const Point& p) { return p.micro_batches() * 2 * phi(p.n) * p.e_p() * p.each(p.n) + reduced(p, p.n); }});
  // By default all of a small model is live at the end of forward; here nothing persists, then everything.
  expect_equal({"zero3", {{"stage3_param_persistence_threshold", std::int64_t{0}}}, [&](const Point& p) {
                  return p.micro_batches() * phi(p.n) * p.e_p() * p.each(p.n) + reduced(p, p.n);
                }});
  expect_equal({"zero3", {}, [&](const Point& p) { return phi(p.n) * p.e_p() * p.each(p.n) + reduced(p, p.n); }});
  Given all_reduce = nothing_kept;
  all_reduce.emplace_back("reduce_scatter", false);
  expect_equal({"zero3", all_reduce, [&](const Point& p) {
                  const double whole = p.micro_batches() * phi(p.n) * p.e_r() * p.psi();  // the bucket as it stands, without padding
                  return p.micro_batches() * 2 * phi(p.n) * p.e_p() * p.each(p.n) + 2 * whole;
                }});
  // hpZ over two ranks: only the first forward goes over all; the parts of what is padded for all.
  Given hpz = nothing_kept;
  hpz.emplace_back("zero_hpz_partition_size", std::int64_t{2});
  expect_equal({"zero3", hpz,
                [&](const Point& p) {
                  return phi(p.n) * p.e_p() * p.each(p.n) + phi(2) * p.e_p() * (2 * p.micro_batches() - 1) * p.each(p.n) + reduced(p, p.n);
                },
                2});
  Given mics = nothing_kept;
  mics.emplace_back("mics_shard_size", std::int64_t{2});
  expect_equal({"mics", mics,
                [&](const Point& p) {
                  return p.micro_batches() * 2 * phi(2) * p.e_p() * p.each(2) + reduced(p, 2) + 2 * phi(p.n / 2) * p.e_p() * p.each(2) / 2;
                },
                2});
}

TEST(Formulas, Fsdp1) {
  const auto gathers = [](const Point& p, std::int64_t s) {
    return p.micro_batches() * p.e_p() * phi(s) * (p.units(s, false, true) + 2 * p.units(s, true, false));
  };
  const auto reduced = [](const Point& p, std::int64_t s) { return phi(s) * p.e_r() * p.units(s, true, true); };
  expect_equal({"fsdp1", {}, [&](const Point& p) { return gathers(p, p.n) + p.micro_batches() * reduced(p, p.n); }});
  expect_equal({"fsdp1", {{"no_sync", true}}, [&](const Point& p) { return gathers(p, p.n) + reduced(p, p.n); }});
  const std::string grad_op = "SHARD_GRAD_OP", none = "NO_SHARD", hybrid = "HYBRID_SHARD", hybrid2 = "_HYBRID_SHARD_ZERO2";
  expect_equal({"fsdp1", {{"sharding_strategy", grad_op}}, [&](const Point& p) {
                  return p.micro_batches() * (p.e_p() * phi(p.n) * p.units(p.n, true, true) + reduced(p, p.n));
                }});
  expect_equal({"fsdp1", {{"sharding_strategy", grad_op}, {"no_sync", true}}, [&](const Point& p) {
                  return p.e_p() * phi(p.n) * p.units(p.n, true, true) + reduced(p, p.n);
                }});
  expect_equal(
      {"fsdp1", {{"sharding_strategy", none}}, [&](const Point& p) { return p.micro_batches() * 2 * phi(p.n) * p.e_r() * p.psi(); }});
  const auto across = [](const Point& p) {
    return p.micro_batches() * 2 * phi(2) * p.e_r() * p.units(p.n / 2, true, true) / (static_cast<double>(p.n) / 2);
  };
  expect_equal({"fsdp1",
                {{"sharding_strategy", hybrid}, {"replicate", std::int64_t{2}}},
                [&](const Point& p) { return gathers(p, p.n / 2) + p.micro_batches() * reduced(p, p.n / 2) + across(p); },
                2});
  expect_equal({"fsdp1",
                {{"sharding_strategy", hybrid2}, {"replicate", std::int64_t{2}}},
                [&](const Point& p) {
                  return p.micro_batches() * (p.e_p() * phi(p.n / 2) * p.units(p.n / 2, true, true) + reduced(p, p.n / 2)) + across(p);
                },
                2});
}

TEST(Formulas, Fsdp2) {
  const auto forward = [](const Point& p, std::int64_t s) { return phi(s) * p.e_p() * p.rows(s, true, true); };
  const auto backward = [](const Point& p, std::int64_t s) { return phi(s) * p.e_p() * p.rows(s, true, false); };
  const auto reduced = [](const Point& p, std::int64_t s) { return phi(s) * p.e_r() * p.rows(s, true, true); };
  const std::string keep = "false", two_ranks = "2";
  expect_equal({"fsdp2", {}, [&](const Point& p) { return p.micro_batches() * (forward(p, p.n) + backward(p, p.n) + reduced(p, p.n)); }});
  expect_equal({"fsdp2", {{"requires_gradient_sync", false}}, [&](const Point& p) {
                  return p.micro_batches() * (forward(p, p.n) + backward(p, p.n)) + reduced(p, p.n);
                }});
  expect_equal({"fsdp2", {{"reshard_root_after_forward", true}}, [&](const Point& p) {
                  return p.micro_batches() * (2 * forward(p, p.n) + reduced(p, p.n));
                }});
  expect_equal({"fsdp2", {{"reshard_after_forward", keep}}, [&](const Point& p) {
                  return p.micro_batches() * (forward(p, p.n) + reduced(p, p.n));
                }});
  expect_equal({"fsdp2", {{"reshard_after_forward", keep}, {"reshard_after_backward", false}}, [&](const Point& p) {
                  return forward(p, p.n) + p.micro_batches() * reduced(p, p.n);
                }});
  expect_equal({"fsdp2",
                {{"reshard_after_forward", two_ranks}},
                [&](const Point& p) { return p.micro_batches() * (forward(p, p.n) + backward(p, 2) + reduced(p, p.n)); },
                2});
  const auto across = [](const Point& p) { return 2 * phi(2) * p.e_r() * p.rows(p.n / 2, true, true) / (static_cast<double>(p.n) / 2); };
  const Given hybrid{{"replicate", std::int64_t{2}}};
  expect_equal(
      {"fsdp2", hybrid,
       [&](const Point& p) { return p.micro_batches() * (forward(p, p.n / 2) + backward(p, p.n / 2) + reduced(p, p.n / 2) + across(p)); },
       2});
  Given last_only = hybrid;
  last_only.emplace_back("requires_all_reduce", false);
  expect_equal(
      {"fsdp2", last_only,
       [&](const Point& p) { return p.micro_batches() * (forward(p, p.n / 2) + backward(p, p.n / 2) + reduced(p, p.n / 2)) + across(p); },
       2});
}

/// Megatron's and OLMo's main gradients are fp32 for a bf16 model of `precision: mixed`, which these jobs are; fp32 for an fp32 one anyway.
TEST(Formulas, MegatronAndOlmo) {
  const auto buffer = [](const Point& p, std::int64_t s) {  // reverse order, starts at multiples of 64, end at one of lcm(s, 128)
    std::int64_t end = 0;
    for (auto i = p.model->parameters->rbegin(); i != p.model->parameters->rend(); ++i) end = up(end, 64) + i->elements.value();
    return static_cast<double>(up(end, std::lcm(s, std::int64_t{128})));
  };
  expect_equal({"megatron", {}, [&](const Point& p) { return phi(p.n) * (4 + p.e_p()) * buffer(p, p.n); }});
  expect_equal({"megatron", {{"use_distributed_optimizer", false}}, [&](const Point& p) { return 2 * phi(p.n) * 4 * p.psi(); }});
  expect_equal({"megatron",
                {{"num_distributed_optimizer_instances", std::int64_t{2}}},
                [&](const Point& p) {
                  const std::int64_t s = p.n / 2;
                  return phi(s) * (4 + p.e_p()) * buffer(p, s) + 2 * phi(2) * 4 * buffer(p, s) / static_cast<double>(s);
                },
                2});
  const auto shardable = [](const Point& p) {
    return p.sum([&](const Parameter& q) { return q.elements.value() >= 4096 && q.elements.value() % p.n == 0 ? q.elements.value() : 0; });
  };
  const auto wire = [](const Point& p) { return p.reduce ? p.e_r() : 4.0; };
  expect_equal({"olmo_ddp", {}, [&](const Point& p) { return phi(p.n) * (2 * wire(p) * p.psi() + p.e_p() * shardable(p)); }});
  expect_equal({"olmo_ddp", {{"no_sync", false}}, [&](const Point& p) {
                  return phi(p.n) * (p.micro_batches() * 2 * wire(p) * p.psi() + p.e_p() * shardable(p));
                }});
}

// Persistent bytes: what is alive together at the end of backward of a warm step, Adam with fp32 moments ---------------------------------

std::int64_t persistent(const OwnedJob& owned) { return sum(fold_memory(valid_schedule(owned), 1).persistent).value(); }

TEST(Formulas, PersistentBytes) {
  const Given nothing_persists{{"stage3_param_persistence_threshold", std::int64_t{0}}};
  for (const auto& architecture : {toy(), equal_blocks(2, 12)})
    for (const std::int64_t n : {1, 2, 4, 8}) {
      const auto job = [&](const char* strategy, Given options, std::optional<DType> master = DType::fp32, DType dtype = DType::bf16) {
        return make_job(architecture, strategy,
                        {.ranks = n, .parameters = dtype, .gradients = dtype, .master = master, .options = std::move(options)});
      };
      const OwnedJob plain = job("ddp", {{"gradient_as_bucket_view", true}});
      const Point point{.n = n, .g = 1, .architecture = architecture, .model = plain.model};
      const auto psi = static_cast<std::int64_t>(point.psi());
      EXPECT_EQ(persistent(plain), 16 * psi);                                                                       // 2 + 2 + 12
      EXPECT_EQ(persistent(job("ddp", {{"gradient_as_bucket_view", true}}, std::nullopt, DType::fp32)), 16 * psi);  // 4 + 4 + 8
      const auto each = static_cast<std::int64_t>(point.each(n)), units = static_cast<std::int64_t>(point.units(n, true, true)),
                 rows = static_cast<std::int64_t>(point.rows(n, true, true));
      EXPECT_EQ(persistent(job("zero3", nothing_persists)), 16 * each / n);  // 2 + 12 + 2: bf16 partitions, gradients in bf16
      EXPECT_EQ(persistent(job("fsdp1", {})), 16 * units / n);
      // FSDP2 pads storage and gradients on every rank; the optimizer's states are those of real rows: rank 0 has full chunks.
      EXPECT_EQ(persistent(job("fsdp2", {})), 16 * rows / n);
      if (n < 2) continue;
      EXPECT_EQ(persistent(job("fsdp2", {{"replicate", std::int64_t{2}}})),
                16 * static_cast<std::int64_t>(point.rows(n / 2, true, true)) / (n / 2));
    }
}

TEST(Formulas, PersistentBytesOfShardedOptimizers) {
  for (const std::int64_t n : {1, 2, 4, 8}) {
    const OwnedJob zero1 = make_job(equal_blocks(3), "zero1", {.ranks = n}), zero2 = make_job(equal_blocks(3), "zero2", {.ranks = n});
    const std::int64_t psi = zero1.model->total().value();
    const auto states = [&](const OwnedJob& owned) {
      const ByCategory persistent = fold_memory(valid_schedule(owned), 1).persistent;
      return persistent[static_cast<std::size_t>(Category::parameters)].value() +
             persistent[static_cast<std::size_t>(Category::optimizer_states)].value();
    };
    EXPECT_EQ(states(zero1), 2 * psi + 12 * psi / n);
    EXPECT_EQ(states(zero2), 2 * psi + 12 * psi / n);
    EXPECT_EQ(persistent(make_job(equal_blocks(3), "megatron", {.ranks = n})), 6 * psi + 12 * psi / n);
    EXPECT_EQ(persistent(make_job(equal_blocks(3), "olmo_ddp", {.ranks = n})), 6 * psi + 12 * psi / n);
  }
}

}  // namespace
}  // namespace shardsim::testing
