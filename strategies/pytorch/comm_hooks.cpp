// SPDX-License-Identifier: Apache-2.0
#include "strategies/pytorch/comm_hooks.hpp"

#include <map>

#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

/// bf16_compress_hook, fp16_compress_hook: cast and divide, all-reduce, cast back.
class Compress final : public CommHook {
 public:
  Compress(Program& program, CommunicatorId communicator, StreamId process_group, DType dtype)
      : program_(program), build_(program.build), communicator_(communicator), process_group_(process_group), dtype_(dtype) {}

  OpId reduce(const HookedBucket& bucket) override {
    const BufferId compressed = build_.allocate({.label = {"compressed bucket", bucket.name},
                                                 .category = Category::communication_buffers,
                                                 .dtype = dtype_,
                                                 .pool = current_stream,
                                                 .layout = build_.layout({.parameters = build_.parameters(*bucket.parameters)}),
                                                 .elements = bucket.elements});
    build_.copy({"compress_hook", bucket.name}, current_stream,
                {.source = bucket.buffer,
                 .target = compressed,
                 .count = bucket.elements,
                 .scale = 1.0 / static_cast<double>(program_.job.world_size)});
    build_.wait_stream(process_group_, current_stream);
    compressed_[bucket.buffer] = compressed;
    return build_.communicate(
        {"nccl:all_reduce", bucket.name}, process_group_,
        {.kind = Collective::all_reduce, .communicator = communicator_, .dtype = dtype_, .payload = bucket.elements, .target = compressed});
  }

  void decompress(const HookedBucket& bucket) override {
    const BufferId compressed = compressed_.at(bucket.buffer);
    build_.copy({"decompress", bucket.name}, current_stream, {.source = compressed, .target = bucket.buffer, .count = bucket.elements});
    build_.free(compressed);
    compressed_.erase(bucket.buffer);
  }

 private:
  Program& program_;
  ScheduleBuilder& build_;
  CommunicatorId communicator_;
  StreamId process_group_;
  DType dtype_;
  std::map<BufferId, BufferId> compressed_;
};

/// powerSGD_hook after start_powerSGD_iter: of each matrix M (n x m) that is worth it, P = M Q and Q = M^T P of rank r are all-reduced, P
/// orthogonalised between; what is not worth it is all-reduced as it is. Error feedback keeps a bucket of what was lost.
class PowerSgd final : public CommHook {
 public:
  PowerSgd(Program& program, CommunicatorId communicator, StreamId process_group, std::int64_t rank)
      : program_(program), build_(program.build), communicator_(communicator), process_group_(process_group), rank_(rank) {}

  OpId reduce(const HookedBucket& bucket) override {
    const Factors f = factors_of(bucket);
    keep_errors(bucket);
    BufferId input = make("PowerSGD input", bucket, bucket.elements);
    if (f.uncompressed > Elements{}) all_reduce("PowerSGD uncompressed", bucket, f.uncompressed);
    compute("PowerSGD P = M Q", bucket, f.left);
    all_reduce("PowerSGD P", bucket, f.p);
    compute("PowerSGD Q = M^T P", bucket, f.right);
    const OpId last = all_reduce("PowerSGD Q", bucket, f.q);
    build_.free(input);
    return last;
  }

  void decompress(const HookedBucket& bucket) override { compute("PowerSGD M = P Q^T", bucket, factors_of(bucket).product); }

 private:
  struct Factors {
    Elements uncompressed, p, q;
    Work left, right, product;
  };

  /// _should_compress: rank factors take less than half of the matrix (min_compression_rate).
  [[nodiscard]] Factors factors_of(const HookedBucket& bucket) const {
    constexpr std::int64_t min_compression_rate = 2;
    Factors f;
    for (ParameterId id : *bucket.parameters) {
      const Parameter& p = program_.model().at(id);
      const std::int64_t rows = p.shape.empty() ? 1 : p.shape.front(), columns = p.elements.value() / std::max<std::int64_t>(1, rows);
      if (!p.matrix() || (rows + columns) * rank_ * min_compression_rate >= p.elements.value()) {
        f.uncompressed += p.elements;
        continue;
      }
      const std::int64_t r = std::min({rank_, rows, columns});
      f.p += Elements{rows * r};
      f.q += Elements{columns * r};
      f.left.products.push_back({rows, r, columns, 1});
      f.right.products.push_back({columns, r, rows, 1});
      f.product.products.push_back({rows, columns, r, 1});
    }
    for (Work* work : {&f.left, &f.right, &f.product}) {
      work->dtype = bucket.dtype;
      work->kernels = static_cast<std::int32_t>(work->products.size());
    }
    return f;
  }

  BufferId make(const char* verb, const HookedBucket& bucket, Elements elements) {
    return build_.allocate({.label = {verb, bucket.name},
                            .category = Category::communication_buffers,
                            .dtype = bucket.dtype,
                            .pool = current_stream,
                            .elements = elements});
  }

  void keep_errors(const HookedBucket& bucket) {
    if (errors_.contains(bucket.buffer)) return;
    errors_[bucket.buffer] = build_.buffer({.label = {"PowerSGD errors", bucket.name},
                                            .category = Category::communication_buffers,
                                            .persistent = true,
                                            .dtype = bucket.dtype,
                                            .pool = current_stream,
                                            .elements = bucket.elements});
  }

  void compute(const char* verb, const HookedBucket& bucket, Work work) {
    if (!work.products.empty()) build_.compute({verb, bucket.name}, build_.work(std::move(work)), Pass::backward, {});
  }

  OpId all_reduce(const char* verb, const HookedBucket& bucket, Elements payload) {
    const BufferId buffer = make(verb, bucket, payload);
    build_.wait_stream(process_group_, current_stream);
    const OpId op = build_.communicate(
        {verb, bucket.name}, process_group_,
        {.kind = Collective::all_reduce, .communicator = communicator_, .dtype = bucket.dtype, .payload = payload, .target = buffer});
    build_.wait(current_stream, op);
    build_.free(buffer);
    return op;
  }

  Program& program_;
  ScheduleBuilder& build_;
  CommunicatorId communicator_;
  StreamId process_group_;
  std::int64_t rank_;
  std::map<BufferId, BufferId> errors_;
};

/// The option, or what precision.reduce asks for.
std::string comm_hook_of(const Job& job) {
  const Precision& precision = job.training.precision;
  if (job.strategy.options.given("comm_hook") || !precision.reduce || *precision.reduce == precision.gradients)
    return job.strategy.options.word("comm_hook", "none");
  return *precision.reduce == DType::bf16 ? "bf16_compress" : *precision.reduce == DType::fp16 ? "fp16_compress" : "";
}

}  // namespace

std::unique_ptr<CommHook> make_comm_hook(Program& program, CommunicatorId communicator, StreamId process_group) {
  const std::string hook = comm_hook_of(program.job);
  if (hook == "bf16_compress") return std::make_unique<Compress>(program, communicator, process_group, DType::bf16);
  if (hook == "fp16_compress") return std::make_unique<Compress>(program, communicator, process_group, DType::fp16);
  if (hook == "powersgd")
    return std::make_unique<PowerSgd>(program, communicator, process_group, program.options().integer("powersgd_rank", 1));
  return nullptr;
}

void check_comm_hook(const Job& job, Problems& problems) {
  const Precision& precision = job.training.precision;
  if (comm_hook_of(job).empty())
    problems.add({},
                 job.strategy.name + " reduces gradients in their own dtype, " + std::string(name_of(precision.gradients)) +
                     ", and not in " + std::string(name_of(*precision.reduce)),
                 {"leave out precision.reduce, or set it to bf16 or fp16: then a communication hook compresses"});
}

std::vector<OptionSpec> comm_hook_options() {
  return {{.name = "comm_hook",
           .kind = OptionKind::word,
           .fallback = "none",
           .help = "register_comm_hook: what is sent instead of a bucket",
           .words = {"none", "bf16_compress", "fp16_compress", "powersgd"}},
          {.name = "powersgd_rank",
           .kind = OptionKind::integer,
           .fallback = "1",
           .help = "matrix_approximation_rank of powersgd",
           .words = {},
           .minimum = 1}};
}

}  // namespace shardsim
