// SPDX-License-Identifier: Apache-2.0
#include "reports/table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/assumed.hpp"
#include "reports/names.hpp"
#include "reports/text.hpp"
#include "sim/base/units_text.hpp"
#include "sim/base/utf8.hpp"
#include "sim/engine/measured_run.hpp"
#include "sim/engine/unlike_ranks.hpp"
#include "sim/memory/memory_explanation.hpp"
#include "sim/schedule/checkpoint_report.hpp"

namespace shardsim {
namespace {

constexpr std::size_t value_end = 42;  // column at which values end

/// A label, a value aligned to the right, and a remark that is wrapped behind it.
std::string row(const std::string& label, const std::string& value, const std::string& remark = {}) {
  const std::string left = "  " + label;
  const std::size_t end = std::min(value_end, text_width());
  std::string out = left + pad_left(" " + value, end - std::min(columns(left), end - 1));
  return remark.empty() ? out + "\n" : beside(std::move(out), remark, value_end + 2) + "\n";
}

std::string paragraph(const std::string& text) { return "  " + wrapped(text, 2, 2) + "\n"; }

std::string share(double part) { return fmt::format("{:.1f} %", 100 * part); }

std::string head(const SimulationResult& result) {
  const Schedule& schedule = *result.schedule;
  std::string out = wrapped(shown_path(result.scenario), 0, 0) + "\n";
  out += paragraph(fmt::format("{}, {} semantics, on {} {}{}", schedule.strategy, schedule.semantics, grouped(result.world_size),
                               result.world_size == 1 ? "GPU" : "GPUs",
                               result.nodes > 1 ? fmt::format(" ({} nodes)", grouped(result.nodes)) : ""));
  out += paragraph(schedule.library + (result.stack.empty() ? "" : ", run by the stack " + result.stack));
  const bool all = result.trainable_parameters == result.parameters;
  out += paragraph(fmt::format("{}: {} parameters, {} trainable", result.model_name, grouped(result.parameters.value()),
                               all ? "all" : grouped(result.trainable_parameters.value())));
  return out;
}

std::string traffic(const Traffic& traffic) {
  std::string out = "\nSent by each rank in one step\n";
  for (Collective c : all_collectives) {
    const Bytes sent = traffic.sent_per_rank[static_cast<std::size_t>(c)];
    if (sent != Bytes{}) out += row(display_name(c), to_text_decimal(sent));
  }
  out += row("total", to_text_decimal(traffic.total), fmt::format("{:.2f} Ψ", traffic.psi_units));
  out += row("textbook", to_text_decimal(traffic.textbook), traffic.textbook_differs_because);
  if (traffic.sent_between_nodes != Bytes{}) {
    out += row("of a node's ranks to each other", to_text_decimal(traffic.sent_inside_node));
    out += row("of a node to others", to_text_decimal(traffic.sent_between_nodes));
    out += row("by each NIC", to_text_decimal(traffic.sent_by_nic),
               fmt::format("{:.0f} Gbit/s over the step, {:.0f} in its busiest second", traffic.nic_mean.base() * 8e-9,
                           traffic.nic_busiest.base() * 8e-9));
  }
  if (traffic.by_rank_min != traffic.by_rank_max) out += row("rank that sends least", to_text_decimal(traffic.by_rank_min));
  return out;
}

/// A device nearly full is told as what it is: fragments and longer sequences differ from run to run.
constexpr double nearly_full = 0.95;

std::string device_verdict(const Memory& memory) {
  if (memory.device_peak > memory.capacity) return "DOES NOT FIT " + to_text(memory.capacity);
  if (memory.capacity == Bytes{}) return "fits";
  const double used = static_cast<double>(memory.device_peak.value()) / static_cast<double>(memory.capacity.value());
  const bool fragile = used > nearly_full || memory.allocator_retries > 0;
  return fmt::format("{} {}, {:.0f} % of it", fragile ? "FRAGILE: just fits" : "fits", to_text(memory.capacity), 100 * used);
}

std::string host_verdict(const Memory& memory) {
  if (memory.host_capacity == Bytes{}) return "how much a node has is not known";
  return fmt::format("{} {}", memory.host_pinned_node <= memory.host_capacity ? "fits" : "DOES NOT FIT", to_text(memory.host_capacity));
}

std::string memory(const Memory& memory) {
  std::string out = "\nMemory of each GPU at the peak\n";
  for (std::size_t i = 0; i < category_count; ++i)
    if (memory.at_peak[i] != Bytes{}) out += row(display_name(static_cast<Category>(i)), to_text(memory.at_peak[i]));
  out += row("allocated", to_text(memory.peak), fmt::format("in {}, at", name_of(memory.peak_phase)));
  out += "    " + wrapped(memory.peak_at, 4, 4) + "\n";
  out += row("reserved by the allocator", to_text(memory.reserved_peak));
  out += row("outside the allocator", to_text(memory.overhead), "CUDA context, NCCL");
  out += row("on the device", to_text(memory.device_peak), device_verdict(memory));
  if (memory.host_pinned == Bytes{}) return out;
  out += row("pinned in host memory", to_text(memory.host_pinned), "of a rank");
  return out + row("of a node's ranks", to_text(memory.host_pinned_node), host_verdict(memory));
  return out;
}

std::string step(const StepTime& step) {
  const auto part = [&](const std::string& label, Seconds time, std::string remark = {}) {
    if (remark.empty() && step.time.base() > 0) remark = share(time / step.time);
    return row(label, to_text(time), remark);
  };
  std::string out = "\nTime of one step\n";
  out += part("compute", step.compute);
  out += part("exposed communication", step.exposed_communication);
  out += part("hidden communication", step.communication - step.exposed_communication, "while computing");
  out += part("optimizer", step.optimizer);
  out += part("waiting for the host", step.host_bound);
  out += row("step", to_text(step.time), "bound by " + step.bound_by);
  if (!step.bottleneck_link.empty()) out += row("busiest link", step.bottleneck_link);
  out += row("tokens/s per GPU", grouped(static_cast<std::int64_t>(step.tokens_per_second_per_gpu)),
             fmt::format("{} on all", grouped(static_cast<std::int64_t>(step.tokens_per_second))));
  out += row("MFU", share(step.mfu));
  out += row("HFU", share(step.hfu), "with recomputation");
  out += paragraph(step.flop_convention);
  return out;
}

std::string measured(const MeasuredRun& run) {
  std::string out = "\nMeasured, and how far the prediction is from it\n";
  const auto off = [](const std::optional<double>& error) {
    return error ? fmt::format("predicted {:+.1f} %", 100 * *error) : std::string();
  };
  if (run.step_time) out += row("step", to_text(*run.step_time), off(run.time_error));
  if (run.tokens_per_second_per_gpu) out += row("tokens/s per GPU", grouped(static_cast<std::int64_t>(*run.tokens_per_second_per_gpu)));
  if (run.mfu) out += row("MFU", share(*run.mfu)) + row("HFU", share(*run.hfu), "with recomputation");
  if (run.peak) out += row("peak allocated", to_text(*run.peak), off(run.peak_error));
  for (const std::string& doubt : run.doubts) out += paragraph("Cannot be: " + doubt + ".");
  return out;
}

std::string list_of(const std::vector<MemoryTerm>& terms, bool falling) {
  std::string out;
  for (const MemoryTerm& term : terms)
    if (term.falls() == falling) out += (out.empty() ? "" : ", ") + display_name(term.category);
  return out.empty() ? "nothing" : out;
}

/// "+12.5 %"; a change beyond tenfold is told as a multiple.
std::string relative(double part) { return part < 10 ? fmt::format("{:+.1f} %", 100 * part) : fmt::format("x {:.0f}", part + 1); }

/// What stands between the formula of the papers, parameters + gradients + optimizer states, and what the device shows.
std::string beyond_formula(const Memory& memory) {
  const auto counted = [](Category c) { return c == Category::parameters || c == Category::gradients || c == Category::optimizer_states; };
  Bytes formula, at_peak;
  std::vector<std::pair<Bytes, std::string>> more;
  for (std::size_t i = 0; i < category_count; ++i) {
    const auto category = static_cast<Category>(i);
    if (counted(category)) {
      formula += memory.persistent[i];
      at_peak += memory.at_peak[i];
    } else if (memory.at_peak[i] > Bytes{}) {
      more.emplace_back(memory.at_peak[i], display_name(category));
    }
  }
  if (memory.reserved_peak > memory.peak) more.emplace_back(memory.reserved_peak - memory.peak, "held free by the allocator");
  if (memory.overhead > Bytes{}) more.emplace_back(memory.overhead, "outside the allocator");
  if (at_peak > formula) more.emplace_back(at_peak - formula, "more of the formula's own at the peak");
  std::stable_sort(more.begin(), more.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text = fmt::format("The formula, parameters + gradients + optimizer states, comes to {}; the device needs {}.",
                                 to_text(formula), to_text(memory.device_peak));
  for (std::size_t i = 0; i < more.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? " On top: " : ", ", more[i].second, to_text(more[i].first));
  if (!more.empty()) text += ".";
  if (at_peak < formula) text += fmt::format(" Of the formula {} are not there at the peak.", to_text(formula - at_peak));
  return text;
}

std::string explanation(const MemoryExplanation& e, const Memory& memory) {
  const bool scales = !e.terms.empty() && e.terms.front().on_twice_the_ranks;
  std::string out = "\nWhat the memory consists of, and what would lower it\n";
  out += paragraph(beyond_formula(memory));
  out += paragraph(fmt::format("The peak stands in {}. Most of it: {}, {} of {} allocated.", name_of(memory.peak_phase),
                               e.terms.empty() ? "nothing" : display_name(e.terms.front().category),
                               e.terms.empty() ? "0" : to_text(e.terms.front().bytes), to_text(memory.peak)));
  if (scales)
    out += paragraph(fmt::format("On twice the GPUs these fall: {}. These do not: {}.", list_of(e.terms, true), list_of(e.terms, false)));
  out += memory.fits ? paragraph(fmt::format("Free on the device: {}.", to_text(memory.capacity - memory.device_peak)))
                     : paragraph(fmt::format("Too much by {}.", to_text(memory.device_peak - memory.capacity)));
  if (e.cheapest)
    out += paragraph(fmt::format("The cheapest single change that {}: {}.", memory.fits ? "lowers it by 5 %" : "makes it fit",
                                 e.changes[*e.cheapest].text));
  else
    out += paragraph(memory.fits ? "No single change lowers it by 5 %." : "No single change makes it fit.");
  for (const MemoryChange& c : e.changes) {
    out += row(c.text, to_text(c.device_peak),
               fmt::format("{}; time a token {}, traffic {}", c.fits ? "fits" : "does not fit", relative(c.time), relative(c.traffic)));
    for (const std::string& line : c.config) out += "      " + wrapped(line, 6, 6) + "\n";
  }
  return out;
}

std::string checkpoint(const CheckpointReport& c) {
  std::string out = fmt::format("\nA checkpoint ({})\n", name_of(c.format));
  out += row("written", to_text_decimal(c.total), fmt::format("in {} {}", grouped(c.files), c.files == 1 ? "file" : "files"));
  out += row("by one rank, at most", to_text_decimal(c.written_max));
  if (c.held > c.total) out += row("held by all ranks", to_text_decimal(c.held), "replicas are written once");
  if (c.gathered_per_rank != Bytes{}) out += row("sent by each rank to gather", to_text_decimal(c.gathered_per_rank));
  if (c.gpu_extra != Bytes{}) out += row("gathered on the GPU at once", to_text(c.gpu_extra));
  if (c.host_per_node != Bytes{}) out += row("in host memory of a node", to_text(c.host_per_node));
  out += row("time to save", to_text(c.save), c.async ? fmt::format("training waits {} of it", to_text(c.stall)) : "training waits");
  const std::string ranks = fmt::format("on {} ranks", grouped(c.load_world_size));
  if (!c.cannot_load.empty()) return out + row("read to load", "-", ranks + ": " + c.cannot_load);
  out += row("read to load", to_text_decimal(c.load_read),
             ranks + (c.load_read == c.load_wanted ? "" : fmt::format("; {} of it wanted", to_text_decimal(c.load_wanted))));
  return out + row("time to load", to_text(c.load));
}

std::string differences(const RankDifferences& found, const StepTime& step) {
  const auto named = [](const RankDifferences::Class& c) {
    return (c.ranks == 1 ? fmt::format("rank {}", c.first) : fmt::format("{} ranks from {} on", grouped(c.ranks), c.first)) +
           (c.why.empty() ? "" : " (" + c.why + ")");
  };
  std::string out = "\nRanks that differ\n";
  out += row("if all were alike", to_text(found.alike.seconds()),
             fmt::format("{} of the step is lost to differences", share(1 - found.alike.seconds() / step.time)));
  out += row("sets the pace", "", named(found.classes.front()));
  const RankDifferences::Class& last = found.classes.back();
  if (found.class_count > 1) out += row("waits longest", to_text(last.waited.seconds()), named(last));
  return out;
}

}  // namespace

std::string simulate_table(const SimulationResult& result) {
  return head(result) + traffic(result.traffic) + memory(result.memory) + step(result.step) +
         (result.differences ? differences(*result.differences, result.step) : "") + (result.measured ? measured(*result.measured) : "") +
         (result.explanation ? explanation(*result.explanation, result.memory) : "") +
         (result.checkpoint ? checkpoint(*result.checkpoint) : "") + (result.assumed ? assumed_text(*result.assumed) : "") +
         warnings_text(result.warnings);
}

}  // namespace shardsim
