// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/kineto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "calibrate/import/nccl_tests_line.hpp"

namespace shardsim {
namespace {

using Json = nlohmann::json;

double number_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::int64_t element_size(const std::string& type) {
  static const std::map<std::string, std::int64_t> sizes{
      {"c10::BFloat16", 2}, {"BFloat16", 2},      {"c10::Half", 2}, {"Half", 2}, {"float", 4}, {"Float", 4},
      {"double", 8},        {"Double", 8},        {"int", 4},       {"Int", 4},  {"long", 8},  {"long int", 8},
      {"Long", 8},          {"unsigned char", 1}, {"Byte", 1},      {"Char", 1}, {"Bool", 1}};
  const auto found = sizes.find(type);
  return found == sizes.end() ? 0 : found->second;
}

/// "ncclDevKernel_AllGather_RING_LL(...)" -> all_gather, ring, ll.
struct NcclKernel {
  std::optional<Collective> collective;
  std::string algorithm = "unknown", protocol;
  bool exchange = false;  // sends and receives: an all-to-all where its annotation says so
};

NcclKernel kernel_of(const std::string& name) {
  NcclKernel kernel;
  kernel.collective = nccl_tests::test_named_in(name.substr(0, name.find('('))).collective;
  for (const auto& [word, algorithm] : {std::pair{"_RING_", "ring"}, {"_TREE_", "tree"}, {"_NVLS_", "nvls"}, {"_PAT_", "pat"}})
    if (name.find(word) != std::string::npos) kernel.algorithm = algorithm;
  for (const auto& [word, protocol] : {std::pair{"_LL128", "ll128"}, {"_LL", "ll"}, {"_SIMPLE", "simple"}})
    if (kernel.protocol.empty() && name.find(word) != std::string::npos) kernel.protocol = protocol;
  return kernel;
}

bool is_nccl_kernel(const std::string& name) { return name.starts_with("ncclDevKernel") || name.starts_with("ncclKernel"); }

/// The ranks of "[0, 8]" or of [0, 8]; nothing of "[0, 1, ..., 63]" beyond the first that are spelt out.
std::vector<std::int64_t> ranks_in(const Json& args) {
  std::vector<std::int64_t> ranks;
  const auto found = args.find("Process Group Ranks");
  if (found == args.end()) return ranks;
  if (found->is_array()) {
    for (const Json& rank : *found)
      if (rank.is_number_integer()) ranks.push_back(rank.get<std::int64_t>());
    return ranks;
  }
  if (!found->is_string()) return ranks;
  std::string text = found->get<std::string>();
  std::ranges::replace_if(
      text, [](char c) { return c < '0' || c > '9'; }, ' ');
  if (const auto gap = found->get_ref<const std::string&>().find("..."); gap != std::string::npos) text.resize(gap);
  for (const std::string_view word : nccl_tests::words(text)) ranks.push_back(nccl_tests::integer(word).value_or(0));
  return ranks;
}

/// Nodes that a group of `size` ranks touches, of which the first are known.
std::int64_t nodes_of(const std::vector<std::int64_t>& ranks, std::int64_t size, std::int64_t per_node) {
  if (ranks.size() < 2) return ceil_div(size, per_node);
  std::set<std::int64_t> nodes;
  for (std::int64_t i = 0; i < size; ++i) {
    const auto known = static_cast<std::int64_t>(ranks.size());
    const std::int64_t rank = i < known ? ranks[static_cast<std::size_t>(i)] : ranks.back() + (i - known + 1) * (ranks[1] - ranks[0]);
    nodes.insert(rank / per_node);
  }
  return static_cast<std::int64_t>(nodes.size());
}

/// The full buffer of a call whose input has `input` bytes.
Bytes payload_of(Collective collective, Bytes input, std::int64_t ranks) {
  return collective == Collective::all_gather ? input * ranks : input;
}

/// Elements of the first tensor of "Input Dims" times the size of "Input type"; nothing if shapes were not recorded.
Bytes input_bytes(const Json& args) {
  const auto dims = args.find("Input Dims"), types = args.find("Input type");
  if (dims == args.end() || types == args.end() || !dims->is_array() || !types->is_array() || dims->empty() || types->empty()) return {};
  const Json& shape = dims->front();
  if (!shape.is_array() || shape.empty() || !types->front().is_string()) return {};
  double elements = 1;
  for (const Json& d : shape) elements *= d.is_number() ? d.get<double>() : 0;
  const double size = elements * static_cast<double>(element_size(types->front().get<std::string>()));
  return size > 0 && size < 1e15 ? Bytes{static_cast<std::int64_t>(size)} : Bytes{};
}

struct Annotation {
  std::optional<Collective> collective;
  Bytes input;
  bool exchange = false;
};

class KinetoReader {
 public:
  KinetoReader(std::shared_ptr<const Source> source, std::int64_t ranks_per_node)
      : source_(std::move(source)), ranks_per_node_(ranks_per_node) {}

  Result<KinetoTrace> read() {
    const Json root = Json::parse(source_->text, nullptr, false);
    if (root.is_discarded()) return fail("this is no JSON");
    const auto events = root.is_object() ? root.find("traceEvents") : root.end();
    if (!root.is_object() || events == root.end() || !events->is_array())
      return fail("no 'traceEvents': this is no trace of the PyTorch profiler");
    read_header(root);
    std::vector<const Json*> sorted;
    for (const Json& event : *events)
      if (event.is_object() && text_in(event, "ph") == "X" && number_in(event, "dur") > 0) sorted.push_back(&event);
    std::ranges::stable_sort(sorted, {}, [](const Json* event) { return number_in(*event, "ts"); });
    for (const Json* event : sorted) read_event(*event);
    match_annotations();
    if (trace_.collectives.empty() && trace_.products.empty())
      return fail("no collective and no matrix product whose size is known; record with record_shapes=True");
    return std::move(trace_);
  }

 private:
  tl::unexpected<Problems> fail(const std::string& message) const {
    Problems problems;
    problems.add({source_, 0, 0}, message);
    return tl::unexpected(problems);
  }

  void read_header(const Json& root) {
    if (const auto info = root.find("distributedInfo"); info != root.end() && info->is_object())
      trace_.world_size = static_cast<std::int64_t>(number_in(*info, "world_size"));
    if (const auto devices = root.find("deviceProperties");
        devices != root.end() && devices->is_array() && !devices->empty() && devices->front().is_object()) {
      trace_.gpu = text_in(devices->front(), "name");
      if (devices->size() > 1) ranks_per_node_ = static_cast<std::int64_t>(devices->size());  // the GPUs that the process saw
    }
  }

  void read_event(const Json& event) {
    const std::string category = text_in(event, "cat"), name = text_in(event, "name");
    static const Json none = Json::object();
    const auto found = event.find("args");
    const Json& args = found != event.end() && found->is_object() ? *found : none;
    if (category == "user_annotation" && name.starts_with("nccl:")) {
      const bool exchange = name.starts_with("nccl:send") || name.starts_with("nccl:recv") || name.starts_with("nccl:coalesced");
      annotations_.push_back({nccl_tests::test_named_in(name).collective, input_bytes(args), exchange});
    } else if (category == "cpu_op" && (name == "aten::mm" || name == "aten::addmm")) {
      read_product(name, args);
    } else if (category == "kernel" && is_nccl_kernel(name)) {
      read_nccl_kernel(event, args, name);
    } else if (category == "kernel") {
      read_compute_kernel(event, args);
    }
  }

  void read_nccl_kernel(const Json& event, const Json& args, const std::string& name) {
    NcclKernel kernel = kernel_of(name);
    kernel.exchange = name.find("SendRecv") != std::string::npos;
    if (kernel.exchange) {
      kernel.collective = nccl_tests::test_named_in(text_in(args, "Collective name")).collective;
      kernel.algorithm = "unknown";  // the kernel's name has RING in it whatever it does
      kernel.protocol.clear();
    }
    const Seconds time = microseconds(number_in(event, "dur"));
    const std::int64_t ranks = args.contains("Group size") ? static_cast<std::int64_t>(number_in(args, "Group size")) : trace_.world_size;
    const auto elements = static_cast<std::int64_t>(std::max(number_in(args, "In msg nelems"), number_in(args, "Out msg nelems")));
    const Bytes stated{elements * element_size(text_in(args, "dtype"))};
    calls_.push_back({kernel, stated, time, ranks, nodes_of(ranks_in(args), ranks, ranks_per_node_)});
  }

  void read_compute_kernel(const Json& event, const Json& args) {
    ++trace_.kernels;
    const Seconds time = microseconds(number_in(event, "dur"));
    trace_.kernel_time += time;
    const auto product = products_.find(static_cast<std::int64_t>(number_in(args, "External id")));
    if (product == products_.end()) return;
    trace_.products.push_back({product->second.m, product->second.n, product->second.k, time});
    products_.erase(product);  // further kernels of the same op are split-k reductions and bias
  }

  void read_product(const std::string& name, const Json& args) {
    const auto dims = args.find("Input Dims");
    const std::size_t first = name == "aten::addmm" ? 1 : 0;
    if (dims == args.end() || !dims->is_array() || dims->size() < first + 2) return;
    const Json &a = (*dims)[first], &b = (*dims)[first + 1];
    if (!a.is_array() || !b.is_array() || a.size() != 2 || b.size() != 2) return;
    const auto at = [](const Json& shape, std::size_t i) { return shape[i].is_number_integer() ? shape[i].get<std::int64_t>() : 0; };
    if (at(a, 0) <= 0 || at(a, 1) <= 0 || at(b, 1) <= 0) return;
    products_[static_cast<std::int64_t>(number_in(args, "External id"))] = {at(a, 0), at(b, 1), at(a, 1), Seconds{}};
  }

  /// Kernels run in the order in which the host annotated them. A trimmed trace breaks the pairing, which then shows as a collective
  /// that differs; nothing after that is believed.
  void match_annotations() {
    std::size_t next = 0;
    std::int64_t unknown = 0;
    bool in_step = true;
    for (Call& call : calls_) {
      const bool annotated = call.kernel.exchange && call.stated == Bytes{} && next < annotations_.size();
      if (annotated && annotations_[next].collective == Collective::all_to_all) call.kernel.collective = Collective::all_to_all;
      if (annotated && annotations_[next].exchange) ++next;  // a send or receive of pipelines
      if (!call.kernel.collective) continue;
      Bytes payload = call.stated;
      if (payload == Bytes{}) {
        in_step = in_step && next < annotations_.size() && annotations_[next].collective == call.kernel.collective;
        if (in_step) payload = payload_of(*call.kernel.collective, annotations_[next].input, call.ranks);
        ++next;
      }
      if (payload <= Bytes{} || call.ranks < 2) {
        ++unknown;
        continue;
      }
      const CollectiveSamples::Group group{*call.kernel.collective, call.ranks, call.nodes, call.kernel.algorithm, call.kernel.protocol};
      trace_.collectives.push_back({group, payload, call.time});
    }
    if (unknown == 0) return;
    Warning warning;
    warning.where.source = source_;
    warning.message = fmt::format("{} NCCL kernels left out: their sizes are not recorded", unknown);
    trace_.warnings.push_back(std::move(warning));
  }

  struct Call {
    NcclKernel kernel;
    Bytes stated;
    Seconds time;
    std::int64_t ranks = 0, nodes = 1;
  };

  std::shared_ptr<const Source> source_;
  std::int64_t ranks_per_node_;
  KinetoTrace trace_;
  std::vector<Annotation> annotations_;
  std::vector<Call> calls_;
  std::map<std::int64_t, GemmModel::Point> products_;
};

}  // namespace

Result<KinetoTrace> read_kineto(const Source& source, std::int64_t ranks_per_node) {
  return KinetoReader(std::make_shared<const Source>(source), ranks_per_node).read();
}

CollectiveSamples samples_of(const KinetoTrace& trace, const std::string& source) {
  std::map<std::pair<CollectiveSamples::Group, Bytes>, Seconds> least;
  for (const auto& call : trace.collectives) {
    const auto [at, fresh] = least.try_emplace({call.group, call.payload}, call.time);
    if (!fresh) at->second = std::min(at->second, call.time);
  }
  CollectiveSamples samples;
  for (const auto& [key, time] : least) {
    samples.add(key.first, key.second, time);
    samples.note_origin(key.first, fmt::format("measured: PyTorch profiler, {}{}; the shortest call of each size", source,
                                               trace.gpu.empty() ? "" : ", " + trace.gpu));
  }
  return samples;
}

}  // namespace shardsim
