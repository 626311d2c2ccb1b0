// SPDX-License-Identifier: Apache-2.0
// Reading and writing a software stack. The format is documented in docs/stacks.md.
#include "sim/machine/stack.hpp"

#include <fmt/format.h>

#include <utility>

namespace shardsim {
namespace {

constexpr double fastest_rate = 4;  // beyond it a factor is a slip of the pen

void read_host(const ConfigNode& node, Stack& stack, Problems& problems) {
  MapReader reader(node, problems, "host");
  stack.kernel = reader.seconds("kernel", stack.kernel);
  stack.compiled_kernel = reader.seconds("compiled_kernel", stack.compiled_kernel);
  stack.library_kernel = reader.seconds("library_kernel", stack.library_kernel);
  stack.collective = reader.seconds("collective", stack.collective);
  for (std::size_t i = 0; i < host_call_count; ++i) stack.calls[i] = reader.seconds(host_call_names[i], stack.calls[i]);
  reader.finish();
}

void read_fused(const ConfigNode& node, FusedKernels& fused, Problems& problems) {
  MapReader reader(node, problems, "fused");
  fused.norms = reader.boolean("norms", fused.norms);
  fused.rotary = reader.boolean("rotary", fused.rotary);
  fused.activation = reader.boolean("activation", fused.activation);
  reader.finish();
}

void read_rates(const ConfigNode& node, Stack::Rates& rates, Problems& problems) {
  MapReader reader(node, problems, "rates");
  const auto read = [&](std::string_view key, double& rate) {
    rate = reader.number(key, rate, 0, fastest_rate);
    if (rate <= 0) problems.add(reader.find(key)->where, fmt::format("'{}' must be above zero", key));
  };
  read("products", rates.products);
  read("attention", rates.attention);
  read("memory_bound", rates.memory_bound);
  read("optimizer", rates.optimizer);
  reader.finish();
}

void read_stack_origins(const ConfigNode& node, std::map<std::string, std::string>& origins, Problems& problems) {
  if (node.kind != ConfigNode::Kind::map) return problems.add(node.where, "expected a map from keys to origins");
  for (const Entry& entry : node.entries)
    if (const auto text = as_text(entry.value, problems)) origins[entry.key] = *text;
}

std::string stack_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

Result<Stack> read_stack(const ConfigNode& root) {
  Problems problems;
  Stack stack;
  if (root.where.source) stack.file = root.where.source->name;
  MapReader reader(root, problems, "the stack");
  stack.name = reader.text("name", "");
  if (stack.name.empty()) reader.require("name");
  stack.description = reader.text("description", "");
  if (const ConfigNode* node = reader.find("host")) read_host(*node, stack, problems);
  if (const ConfigNode* node = reader.find("fused")) read_fused(*node, stack.fused, problems);
  if (const ConfigNode* node = reader.find("rates")) read_rates(*node, stack.rates, problems);
  if (const ConfigNode* node = reader.find("origins")) read_stack_origins(*node, stack.origins, problems);
  reader.finish();
  if (!problems.empty()) return tl::unexpected(std::move(problems));
  return stack;
}

std::string to_yaml(const Stack& stack) {
  std::string out = fmt::format("name: {}\n", stack_text(stack.name));
  if (!stack.description.empty()) out += fmt::format("description: {}\n", stack_text(stack.description));
  const auto amount = [&](std::string_view key, Seconds time) {
    if (time > Seconds{}) out += fmt::format("  {}: {} us\n", key, time.base() * 1e6);
  };
  out += "host:\n";
  amount("kernel", stack.kernel);
  amount("compiled_kernel", stack.compiled_kernel);
  amount("library_kernel", stack.library_kernel);
  amount("collective", stack.collective);
  for (std::size_t i = 0; i < host_call_count; ++i) amount(host_call_names[i], stack.calls[i]);
  if (out.ends_with("host:\n")) out += "  {}\n";
  const FusedKernels& f = stack.fused;
  out += fmt::format("fused: {{norms: {}, rotary: {}, activation: {}}}\n", f.norms, f.rotary, f.activation);
  const Stack::Rates& r = stack.rates;
  out += fmt::format("rates: {{products: {}, attention: {}, memory_bound: {}, optimizer: {}}}\n", r.products, r.attention, r.memory_bound,
                     r.optimizer);
  if (stack.origins.empty()) return out;
  out += "origins:\n";
  for (const auto& [key, origin] : stack.origins) out += fmt::format("  {}: {}\n", key, stack_text(origin));
  return out;
}

std::string origin_of(const Stack& stack, std::string_view key) {
  while (true) {
    if (const auto found = stack.origins.find(std::string(key)); found != stack.origins.end()) return found->second;
    const auto dot = key.rfind('.');
    if (dot == std::string_view::npos) return {};
    key = key.substr(0, dot);
  }
}

}  // namespace shardsim
