// SPDX-License-Identifier: Apache-2.0
#include "strategies/checkpoint.hpp"

#include <algorithm>
#include <numeric>

namespace shardsim {
namespace {

using Cut = SavedTensor::Cut;

/// Beyond it, plans of single ranks are no longer simulated.
constexpr std::int64_t most_ranks = std::int64_t{1} << 16;

bool is_deepspeed(const std::string& strategy) { return facts_of(strategy).checkpoints == CheckpointWriter::deepspeed; }
bool partitions_weights(const std::string& strategy) { return is_deepspeed(strategy) && facts_of(strategy).stage == 3; }

Bytes bytes_of(const SavedTensor& tensor, std::int64_t part) { return bytes(Elements{range_of(tensor, part).count}, tensor.dtype); }
std::int64_t part_of(const SavedTensor& tensor, std::int64_t rank) { return rank / tensor.stride % tensor.parts; }

Bytes total(const ByRank& by_rank) { return std::accumulate(by_rank.begin(), by_rank.end(), Bytes{}); }
Bytes largest(const ByRank& by_rank) { return *std::max_element(by_rank.begin(), by_rank.end()); }

/// Of the nodes, the one whose ranks have most.
Bytes largest_node(const ByRank& by_rank, std::int64_t gpus_per_node) {
  Bytes most;
  for (std::size_t first = 0; first < by_rank.size(); first += static_cast<std::size_t>(gpus_per_node)) {
    const auto end = std::min(by_rank.size(), first + static_cast<std::size_t>(gpus_per_node));
    most = std::max(most, std::accumulate(by_rank.begin() + static_cast<std::ptrdiff_t>(first),
                                          by_rank.begin() + static_cast<std::ptrdiff_t>(end), Bytes{}));
  }
  return most;
}

/// The parts [first, last) of a tensor that hold elements of `range`.
std::pair<std::int64_t, std::int64_t> parts_with(const SavedTensor& tensor, const SavedRange& range) {
  if (range.count == 0) return {0, 0};
  const std::int64_t rows = tensor.elements / tensor.columns, begin = range.first, end = range.first + range.count;
  const auto between = [&](std::int64_t from, std::int64_t to, std::int64_t chunk) { return std::pair{from / chunk, ceil_div(to, chunk)}; };
  switch (tensor.cut) {
    case Cut::whole:
      return {0, 1};
    case Cut::rows:
      return between(begin, end, ceil_div(rows, tensor.parts) * tensor.columns);
    case Cut::each:
      return between(begin, end, ceil_div(tensor.elements, tensor.parts));
    case Cut::flat:
      return between(tensor.start + begin, tensor.start + end, tensor.shard);
  }
  return {0, 0};
}

/// DeepSpeed's own files: bytes of the optimizer's by rank, and of the model's.
struct DeepSpeedFiles {
  ByRank optimizer, model;
};

DeepSpeedFiles deepspeed_files(const Job& job, const Schedule& schedule) {
  const auto ranks = static_cast<std::size_t>(job.world_size);
  std::int64_t writers = job.world_size;
  Bytes partition, whole_model, frozen_shard, frozen;
  for (const Buffer& b : schedule.buffers) {
    if (!b.persistent || b.view_of.valid()) continue;
    if (b.category == Category::optimizer_states) partition += b.size();
    if (b.category != Category::parameters) continue;
    const Layout& layout = schedule.at(b.layout);
    const bool trains = job.model->at(schedule.parameter_pool[static_cast<std::size_t>(layout.parameters.begin)]).trainable;
    if (layout.shard)
      writers = layout.n;
    else
      whole_model += b.size();
    if (!trains) (layout.shard ? frozen_shard : frozen) += b.size();
  }
  DeepSpeedFiles files{ByRank(ranks), ByRank(ranks)};
  std::fill_n(files.optimizer.begin(), writers, partition);
  if (partitions_weights(job.strategy.name))
    std::fill_n(files.model.begin(), writers, frozen_shard);
  else
    files.model.front() = whole_model + (facts_of(job.strategy.name).stage == 2 ? frozen : Bytes{});
  return files;
}

struct Writing {
  ByRank written, held;
  std::int64_t files = 0;
};

/// Sharded tensors are gathered one after another; rank 0 writes.
void gather_all(const std::vector<SavedTensor>& state, CheckpointReport& report, ByRank& written) {
  for (const SavedTensor& t : state) {
    const Bytes whole = bytes(Elements{t.elements}, t.dtype);
    written.front() += whole;
    if (t.parts == 1) continue;
    const Bytes padded = std::max(whole, t.parts * bytes_of(t, 0));
    report.gathered_per_rank += sent_per_rank(Collective::all_gather, padded, t.parts);
    if (!t.host) report.gpu_extra = std::max(report.gpu_extra, padded);
  }
}

void write_deepspeed(const Job& job, const Schedule& schedule, Writing& writing) {
  const DeepSpeedFiles files = deepspeed_files(job, schedule);
  const bool model_by_all = partitions_weights(job.strategy.name);
  for (std::size_t r = 0; r < writing.written.size(); ++r) {
    const bool writes = files.optimizer[r] > Bytes{};
    writing.written[r] = files.optimizer[r] + files.model[r];
    writing.files += (writes ? 1 : 0) + ((model_by_all ? writes : r == 0) ? 1 : 0);
  }
}

Writing writing_of(const Job& job, const Schedule& schedule, CheckpointReport& report) {
  const std::vector<SavedTensor> state = state_dict(job, schedule);
  Writing writing{.written = ByRank(static_cast<std::size_t>(job.world_size)), .held = held_bytes(state, job.world_size), .files = 0};
  switch (report.format) {
    case CheckpointFormat::dcp:
      writing.written = dcp_written(state, job.world_size);
      writing.files = job.world_size + 1;  // and .metadata
      break;
    case CheckpointFormat::deepspeed:
      write_deepspeed(job, schedule, writing);
      break;
    case CheckpointFormat::full:
      gather_all(state_dict(job, schedule, !is_deepspeed(job.strategy.name)), report, writing.written);
      writing.files = 1;
      break;
  }
  return writing;
}

/// What rank 0 copies from its GPU: everything it holds if all of it is staged, what it writes, or what it gathers.
Bytes copied_to_host(const Job& job, const Schedule& schedule, const Writing& writing, const CheckpointReport& report) {
  if (report.format == CheckpointFormat::full) return writing.written.front();
  Bytes held;
  for (const SavedTensor& t : state_dict(job, schedule))
    if (!t.host) held += bytes_of(t, 0);
  return report.async ? held : std::min(held, largest(writing.written));
}

void add_times(const Job& job, const Schedule& schedule, const Writing& writing, const CheckpointMachine& machine,
               CheckpointReport& report) {
  const Seconds write = largest_node(writing.written, machine.gpus_per_node) / machine.write_per_node;
  const Seconds copy = copied_to_host(job, schedule, writing, report) / machine.host_link;
  // DCP copies ahead of the write; torch.save of a dictionary of GPU tensors copies, then writes.
  const bool overlaps = report.format == CheckpointFormat::dcp && !report.async;
  report.save = overlaps ? std::max(copy, write) : copy + write;
  report.stall = report.async ? copy : report.save;
  if (report.async) report.host_per_node = largest_node(writing.held, machine.gpus_per_node);
  if (report.format == CheckpointFormat::full) report.host_per_node = writing.written.front();
}

void add_loading(const Job& saving, const Schedule& saved, const Job& loading, const Schedule& wanted, const CheckpointMachine& machine,
                 CheckpointReport& report) {
  const auto state = state_dict(loading, wanted);
  const std::int64_t ranks = loading.world_size;
  report.load_wanted = total(held_bytes(state, ranks));
  ByRank read(static_cast<std::size_t>(ranks), Bytes{});
  if (report.format == CheckpointFormat::dcp) {
    read = dcp_read(state_dict(saving, saved), state, ranks);
  } else if (report.format == CheckpointFormat::full) {
    read.front() = report.total;  // rank 0 reads, the others get their parts from it
  } else if (ranks != saving.world_size) {
    report.cannot_load = "DeepSpeed loads optimizer partitions on the same number of ranks only; convert with ds_to_universal.py";
    return;
  } else {
    const DeepSpeedFiles files = deepspeed_files(saving, saved);
    const bool own = partitions_weights(saving.strategy.name);
    for (std::size_t r = 0; r < read.size(); ++r) read[r] = files.optimizer[r] + (own ? files.model[r] : files.model.front());
  }
  report.load_read = total(read);
  report.load_read_max = largest(read);
  report.load = largest_node(read, machine.gpus_per_node) / machine.read_per_node;
}

}  // namespace

CheckpointFormat default_format(const std::string& strategy) {
  switch (facts_of(strategy).checkpoints) {
    case CheckpointWriter::distributed_checkpoint:
      return CheckpointFormat::dcp;
    case CheckpointWriter::consolidated:
      return CheckpointFormat::full;
    case CheckpointWriter::deepspeed:
      return CheckpointFormat::deepspeed;
  }
  return CheckpointFormat::dcp;
}

Problems check_checkpoint(const Job& job, const CheckpointRequest& request) {
  Problems problems;
  const std::string& strategy = job.strategy.name;
  const CheckpointFormat format = request.format.value_or(default_format(strategy));
  if (format == CheckpointFormat::deepspeed && !is_deepspeed(strategy))
    problems.add({}, strategy + " writes no DeepSpeed checkpoints", {"format: dcp or full"});
  if (format == CheckpointFormat::dcp && facts_of(strategy).checkpoints != CheckpointWriter::distributed_checkpoint)
    problems.add({}, strategy + " does not write through torch.distributed.checkpoint",
                 {"format: " + std::string(name_of(default_format(strategy)))});
  if (request.async && format != CheckpointFormat::dcp)
    problems.add({}, "async checkpoints are torch.distributed.checkpoint's", {"format: dcp"});
  if (std::max(job.world_size, request.load_world_size.value_or(1)) > most_ranks)
    problems.add({}, "checkpoints of more than " + std::to_string(most_ranks) + " ranks are not simulated");
  return problems;
}

Job loading_job(Job job, const CheckpointRequest& request) {
  job.world_size = request.load_world_size.value_or(job.world_size);
  job.gpus_per_node = std::min(job.gpus_per_node, job.world_size);
  return job;
}

ByRank held_bytes(const std::vector<SavedTensor>& state, std::int64_t ranks) {
  ByRank held(static_cast<std::size_t>(ranks));
  for (const SavedTensor& t : state)
    for (std::int64_t r = 0; r < ranks; ++r) held[static_cast<std::size_t>(r)] += bytes_of(t, part_of(t, r));
  return held;
}

/// dedup_save_plans looks at items in the order in which ranks planned them, first all of rank 0's: part by part here.
ByRank dcp_written(const std::vector<SavedTensor>& state, std::int64_t ranks) {
  ByRank planned(static_cast<std::size_t>(ranks));
  std::int64_t most_parts = 1;
  for (const SavedTensor& t : state) most_parts = std::max(most_parts, t.parts);
  for (std::int64_t part = 0; part < most_parts; ++part)
    for (const SavedTensor& t : state) {
      const Bytes size = part < t.parts ? bytes_of(t, part) : Bytes{};
      if (size == Bytes{}) continue;
      std::int64_t least = -1;
      const std::int64_t period = t.stride * t.parts;  // owners of a part: runs of `stride` ranks, `period` apart
      for (std::int64_t run = part * t.stride; run < ranks; run += period)
        for (std::int64_t r = run; r < std::min(run + t.stride, ranks); ++r)
          if (least < 0 || planned[static_cast<std::size_t>(r)] < planned[static_cast<std::size_t>(least)]) least = r;
      if (least >= 0) planned[static_cast<std::size_t>(least)] += size;
    }
  return planned;
}

ByRank dcp_read(const std::vector<SavedTensor>& saved, const std::vector<SavedTensor>& wanted, std::int64_t ranks) {
  ByRank read(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < std::min(saved.size(), wanted.size()); ++i) {
    std::vector<Bytes> by_part;
    for (std::int64_t part = 0; part < wanted[i].parts; ++part) {
      const auto [first, last] = parts_with(saved[i], range_of(wanted[i], part));
      Bytes sum;
      for (std::int64_t chunk = first; chunk < last; ++chunk) sum += bytes_of(saved[i], chunk);
      by_part.push_back(sum);
    }
    for (std::int64_t r = 0; r < ranks; ++r) read[static_cast<std::size_t>(r)] += by_part[static_cast<std::size_t>(part_of(wanted[i], r))];
  }
  return read;
}

CheckpointReport checkpoint_report(const Job& saving, const Schedule& saved, const Job& loading, const Schedule& wanted,
                                   const CheckpointRequest& request, const CheckpointMachine& machine) {
  CheckpointReport report;
  report.format = request.format.value_or(default_format(saving.strategy.name));
  report.async = request.async;
  const Writing writing = writing_of(saving, saved, report);
  report.files = writing.files;
  report.total = total(writing.written);
  report.held = total(writing.held);
  report.written_min = *std::min_element(writing.written.begin(), writing.written.end());
  report.written_max = largest(writing.written);
  report.written_mean = static_cast<double>(report.total.value()) / static_cast<double>(saving.world_size);
  add_times(saving, saved, writing, machine, report);
  report.load_world_size = loading.world_size;
  add_loading(saving, saved, loading, wanted, machine, report);
  return report;
}

}  // namespace shardsim
