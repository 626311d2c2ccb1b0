// SPDX-License-Identifier: Apache-2.0
// Vertices are ends: of issuing an op (host) and of running it (device). An edge carries what must pass between two ends. The engine
// is not used here on purpose: the two must agree.
#include "sim/engine/critical_path.hpp"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/topological_sort.hpp>
#include <map>
#include <stdexcept>
#include <string>

namespace shardsim {
namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property,
                                    boost::property<boost::edge_weight_t, std::int64_t>>;
using Vertex = boost::graph_traits<Graph>::vertex_descriptor;

struct Ends {
  Vertex issued = 0;
  Vertex done = 0;  ///< the same vertex for an op that happens on the host
};

class StepGraph {
 public:
  explicit StepGraph(std::span<const RankProgram> programs) : start_(boost::add_vertex(graph_)) {
    for (const RankProgram& program : programs) add(program);
  }

  CriticalPath longest() const;

 private:
  /// Where one program stands while its ops are added.
  struct Cursor {
    Vertex host;
    std::vector<Vertex> stream;            // the last end on each
    std::vector<std::size_t> collectives;  // issued on each communicator
    std::vector<Vertex> device;            // all ends so far, for Synchronize
  };

  [[nodiscard]] CriticalPath read_off(const std::vector<std::int64_t>& latest, const std::vector<Vertex>& cause) const;
  void edge(Vertex from, Vertex to, SimTime weight) { boost::add_edge(from, to, weight.picoseconds(), graph_); }

  void add(const RankProgram& program);
  Ends add_op(const Op& op, const OpCost& cost, const Schedule& schedule, Cursor& at);
  Vertex add_device_op(const Op& op, const OpCost& cost, Vertex begin, const Schedule& schedule, Cursor& at);
  Vertex join(const Communicate& action, const OpCost& cost, Vertex begin, const Schedule& schedule, Cursor& at);

  Graph graph_;
  Vertex start_;
  std::vector<std::vector<Ends>> ends_;
  struct Meeting {
    Vertex begun, done;
  };
  std::map<std::string, std::vector<Meeting>> meetings_;  // by communicator name: its collectives, shared by all programs
};

void StepGraph::add(const RankProgram& program) {
  const Schedule& schedule = program.schedule();
  Cursor at{.host = start_,
            .stream = std::vector<Vertex>(schedule.streams.size(), start_),
            .collectives = std::vector<std::size_t>(schedule.communicators.size()),
            .device = {}};
  ends_.emplace_back();
  for (std::size_t i = 0; i < schedule.ops.size(); ++i)
    ends_.back().push_back(add_op(schedule.ops[i], program.cost(OpId{static_cast<std::int32_t>(i)}), schedule, at));
}

bool is_on_host(const Op& op) {
  const auto* update = std::get_if<Update>(&op.action);
  return !op.stream.valid() || (update != nullptr && update->on_host);
}

Ends StepGraph::add_op(const Op& op, const OpCost& cost, const Schedule& schedule, Cursor& at) {
  const std::vector<Ends>& mine = ends_.back();
  const bool on_host = is_on_host(op);
  const SimTime busy = on_host ? cost.host + cost.device : cost.host;
  const Vertex issued = boost::add_vertex(graph_);
  edge(at.host, issued, busy);
  if (const auto* wait = std::get_if<HostWait>(&op.action)) edge(mine[static_cast<std::size_t>(wait->op.index)].done, issued, busy);
  if (std::holds_alternative<Synchronize>(op.action))
    for (Vertex done : at.device) edge(done, issued, busy);
  at.host = issued;
  if (on_host) return {issued, issued};
  Vertex& last = at.stream[static_cast<std::size_t>(op.stream.index)];
  const Vertex begin = boost::add_vertex(graph_);
  edge(issued, begin, SimTime{});
  edge(last, begin, SimTime{});
  last = add_device_op(op, cost, begin, schedule, at);
  at.device.push_back(last);
  return {issued, last};
}

/// Returns the end of an op that may begin at `begin`.
Vertex StepGraph::add_device_op(const Op& op, const OpCost& cost, Vertex begin, const Schedule& schedule, Cursor& at) {
  if (const auto* collective = std::get_if<Communicate>(&op.action)) return join(*collective, cost, begin, schedule, at);
  if (const auto* wait = std::get_if<Wait>(&op.action)) edge(ends_.back()[static_cast<std::size_t>(wait->op.index)].done, begin, SimTime{});
  const Vertex done = boost::add_vertex(graph_);
  edge(begin, done, cost.device);
  return done;
}

/// The collectives of one turn have their begin and their end in common; each begins after the one of the turn before has ended.
Vertex StepGraph::join(const Communicate& action, const OpCost& cost, Vertex begin, const Schedule& schedule, Cursor& at) {
  auto& queue = meetings_[schedule.at(action.communicator).name];
  const std::size_t turn = at.collectives[static_cast<std::size_t>(action.communicator.index)]++;
  if (turn == queue.size()) {
    queue.push_back({boost::add_vertex(graph_), boost::add_vertex(graph_)});
    if (turn > 0) edge(queue[turn - 1].done, queue[turn].begun, SimTime{});
  }
  edge(begin, queue[turn].begun, SimTime{});
  edge(queue[turn].begun, queue[turn].done, cost.device);
  return queue[turn].done;
}

CriticalPath StepGraph::read_off(const std::vector<std::int64_t>& latest, const std::vector<Vertex>& cause) const {
  CriticalPath result;
  for (const std::vector<Ends>& program : ends_) {
    std::vector<SimTime>& done = result.done.emplace_back();
    for (const Ends& e : program) done.emplace_back(latest[e.done]);
  }
  const auto last = static_cast<Vertex>(std::max_element(latest.begin(), latest.end()) - latest.begin());
  result.end = SimTime{latest[last]};
  std::vector<bool> on_path(latest.size());
  for (Vertex v = last; v != start_; v = cause[v]) on_path[v] = true;
  for (std::size_t i = 0; i < ends_.front().size(); ++i)
    if (on_path[ends_.front()[i].done]) result.ops.push_back(OpId{static_cast<std::int32_t>(i)});
  return result;
}

CriticalPath StepGraph::longest() const {
  std::vector<Vertex> order;  // sinks first
  try {
    boost::topological_sort(graph_, std::back_inserter(order));
  } catch (const boost::not_a_dag&) { throw std::logic_error("the programs deadlock: their graph has a cycle"); }
  std::vector<std::int64_t> latest(boost::num_vertices(graph_), 0);
  std::vector<Vertex> cause(boost::num_vertices(graph_), start_);
  const auto weight = boost::get(boost::edge_weight, graph_);
  for (auto vertex = order.rbegin(); vertex != order.rend(); ++vertex)
    for (const auto& e : boost::make_iterator_range(boost::out_edges(*vertex, graph_))) {
      const Vertex to = boost::target(e, graph_);
      if (latest[*vertex] + weight[e] <= latest[to]) continue;
      latest[to] = latest[*vertex] + weight[e];
      cause[to] = *vertex;
    }
  return read_off(latest, cause);
}

}  // namespace

CriticalPath critical_path(std::span<const RankProgram> programs) { return StepGraph(programs).longest(); }

}  // namespace shardsim
