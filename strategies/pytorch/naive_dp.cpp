// SPDX-License-Identifier: Apache-2.0
// Naive data parallelism: the loop people write by hand before they know DDP.
//
//   loss.backward()
//   for p in model.parameters(): dist.all_reduce(p.grad, op=AVG)        per_parameter (default)
//   flat = flatten(grads); dist.all_reduce(flat); unflatten             flat
//   p.register_post_accumulate_grad_hook(all_reduce, async_op=True)     async_per_parameter
#include "strategies/shared/replicated.hpp"
#include "strategies/strategy_table.hpp"

namespace shardsim {
namespace {

class NaiveDp final : public Hooks {
 public:
  explicit NaiveDp(Program& program)
      : program_(program),
        build_(program.build),
        replicated_(program),
        mode_(program.options().word("all_reduce", "per_parameter")),
        dp_(build_.communicator("dp", "dp", program.job.world_size)),
        process_group_(build_.stream("process group")) {
    replicated_.add_optimizer();
  }

  void begin_forward(std::int32_t micro_batch) override { last_micro_batch_ = micro_batch + 1 == program_.micro_batches(); }
  void produce_gradient(ParameterId p) override { (void)replicated_.gradient(p); }

  void gradient_ready(ParameterId p) override {
    if (!last_micro_batch_ || mode_ != "async_per_parameter") return;
    build_.wait_stream(process_group_, ScheduleBuilder::compute_stream());
    works_.push_back(all_reduce(process_group_, replicated_.gradient(p)));
  }

  void end_backward() override {
    if (!last_micro_batch_) return;
    if (mode_ == "flat") all_reduce_flat();
    if (mode_ == "per_parameter")
      for (ParameterId p : replicated_.trainable())
        if (replicated_.has_gradient(p)) all_reduce(ScheduleBuilder::compute_stream(), replicated_.gradient(p));
    for (OpId work : works_) build_.wait(ScheduleBuilder::compute_stream(), work);
  }

  void step() override { replicated_.step(); }

 private:
  OpId all_reduce(StreamId stream, BufferId buffer) {
    const Buffer& b = build_.schedule().at(buffer);
    return build_.communicate({"nccl:all_reduce", b.label.unit}, stream,
                              {.kind = Collective::all_reduce,
                               .communicator = dp_,
                               .dtype = b.dtype,
                               .reduction = Reduction::average,
                               .payload = b.elements,
                               .target = buffer});
  }

  void all_reduce_flat() {
    const std::vector<ParameterId>& ids = replicated_.trainable();
    const BufferId flat = build_.allocate({.label = {"flat gradients", {}},
                                           .category = Category::communication_buffers,
                                           .dtype = replicated_.gradient_dtype(),
                                           .pool = ScheduleBuilder::compute_stream(),
                                           .layout = build_.layout({.parameters = build_.parameters(ids)}),
                                           .elements = total_elements(program_.model(), ids)});
    for (ParameterId p : ids)
      if (replicated_.has_gradient(p)) move("flatten", replicated_.gradient(p), flat, p);
    all_reduce(ScheduleBuilder::compute_stream(), flat);
    for (ParameterId p : ids)
      if (replicated_.has_gradient(p)) move("unflatten", flat, replicated_.gradient(p), p);
    build_.free(flat);
  }

  void move(const char* verb, BufferId from, BufferId to, ParameterId p) {
    build_.copy({verb, program_.unit(p)}, ScheduleBuilder::compute_stream(),
                {.source = from, .target = to, .count = program_.model().at(p).elements});
  }

  Program& program_;
  ScheduleBuilder& build_;
  Replicated replicated_;
  std::string mode_;
  CommunicatorId dp_;
  StreamId process_group_;
  bool last_micro_batch_ = false;
  std::vector<OpId> works_;
};

}  // namespace

StrategyEntry naive_dp_strategy() {
  return {
      .info = {.name = "naive_dp",
               .summary = "Full replica on every rank; gradients all-reduced by a hand-written loop",
               .stack = "transformers",
               .library = "PyTorch {} (torch.distributed.all_reduce in a plain loop)",
               .releases = {{"2.13", "the oldest that is modelled"}, {"2.15", "nothing: recorded"}},
               .options = {{.name = "all_reduce",
                            .kind = OptionKind::word,
                            .fallback = "per_parameter",
                            .help = "one all-reduce a parameter after backward, one flat one, or one a parameter from its gradient hook",
                            .words = {"flat", "per_parameter", "async_per_parameter"}}},
               .facts = {.overlaps = false, .muon = MuonSupport::whole_matrices}},
      .make = [](Program& program) -> std::unique_ptr<Hooks> { return std::make_unique<NaiveDp>(program); }};
}

}  // namespace shardsim
