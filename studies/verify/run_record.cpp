// SPDX-License-Identifier: Apache-2.0
#include "studies/verify/run_record.hpp"

#include <algorithm>

#include "sim/config/node.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 50;

std::vector<std::string> collective_words() {
  std::vector<std::string> words;
  for (const Collective c : all_collectives) words.emplace_back(name_of(c));
  return words;
}

RecordedCollective read_collective(const ConfigNode& node, Problems& problems) {
  MapReader reader(node, problems, "a collective");
  RecordedCollective out;
  const std::string kind = reader.choice("kind", collective_words(), "all_reduce");
  for (const Collective c : all_collectives)
    if (name_of(c) == kind) out.shape.kind = c;
  const ConfigNode* dtype = reader.require("dtype");
  if (dtype != nullptr) {
    if (const auto known = dtype_from(dtype->text))
      out.shape.dtype = *known;
    else
      problems.add(dtype->where, in_quotes(dtype->text) + " is not a dtype");
  }
  out.shape.elements = reader.integer("elements", 0, 0, most);
  out.shape.ranks = reader.integer("ranks", 1, 1, 1 << 24);
  out.shape.stride = reader.integer("stride", 1, 1, 1 << 24);
  if (reader.has("time_s")) out.time = Seconds{reader.number("time_s", 0, 0, 1e6)};
  for (const char* key : {"phase", "step", "begin_s", "group"}) reader.ignore(key);
  reader.finish();
  return out;
}

RecordedStep read_step(const ConfigNode& node, Problems& problems) {
  MapReader reader(node, problems, "a step");
  RecordedStep step;
  if (const ConfigNode* list = reader.find("collectives"))
    for (const ConfigNode& item : list->items) {
      RecordedCollective c = read_collective(item, problems);
      const bool control =
          c.shape.kind == Collective::all_reduce || c.shape.kind == Collective::broadcast || c.shape.kind == Collective::reduce;
      if (c.shape.ranks > 1 && !(control && c.shape.elements <= most_control_elements)) step.collectives.push_back(std::move(c));
    }
  if (reader.has("time_s")) step.time = Seconds{reader.number("time_s", 0, 0, 1e9)};
  if (reader.has("peak_bytes")) step.peak = Bytes{reader.integer("peak_bytes", 0, 0, most)};
  if (reader.has("reserved_peak_bytes")) step.reserved = Bytes{reader.integer("reserved_peak_bytes", 0, 0, most)};
  reader.finish();
  return step;
}

}  // namespace

RecordedStep RunRecord::steady() const {
  RecordedStep last = steps.back();
  std::vector<double> times;
  for (std::size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i)
    if (steps[i].time) times.push_back(steps[i].time->base());
  std::sort(times.begin(), times.end());
  if (!times.empty()) last.time = Seconds{times[times.size() / 2]};
  return last;
}

Result<RunRecord> read_run(const Source& source) {
  const auto root = read_json(source, {.bytes = std::size_t{256} << 20, .nodes = std::size_t{1} << 24});
  if (!root) return tl::make_unexpected(root.error());
  Problems problems;
  MapReader reader(*root, problems, "a recorded run");
  RunRecord run;
  const ConfigNode* schema = reader.require("schema");
  if (schema != nullptr && schema->text != "shardsim.run/1")
    problems.add(schema->where, "this is not a recorded run: its schema is " + in_quotes(schema->text),
                 {"allowed: shardsim.run/1, as shardsim.torch.record() writes it"});
  run.library = reader.text("library", "");
  run.ranks = reader.integer("ranks", 1, 1, 1 << 24);
  reader.ignore("rank");
  if (const ConfigNode* steps = reader.require("steps")) {
    for (const ConfigNode& step : steps->items) run.steps.push_back(read_step(step, problems));
    if (run.steps.empty()) problems.add(steps->where, "no step was recorded", {"a step ends where the optimizer's does"});
  }
  reader.finish();
  if (!problems.empty()) return tl::make_unexpected(std::move(problems));
  return run;
}

}  // namespace shardsim
