// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "scenarios/reader/reading.hpp"

namespace shardsim {
namespace {

struct NamedPrecision {
  const char* name;
  Precision precision;
};

const std::array<NamedPrecision, 4>& named_precisions() {
  using enum DType;
  static const std::array<NamedPrecision, 4> all{{
      {"mixed", {.parameters = bf16, .compute = bf16, .gradients = bf16, .reduce = {}, .master = fp32, .moments = fp32, .name = "mixed"}},
      {"autocast",
       {.parameters = fp32, .compute = bf16, .gradients = fp32, .reduce = fp32, .master = {}, .moments = fp32, .name = "autocast"}},
      {"pure-bf16",
       {.parameters = bf16, .compute = bf16, .gradients = bf16, .reduce = bf16, .master = {}, .moments = bf16, .name = "pure-bf16"}},
      {"fp32", {.parameters = fp32, .compute = fp32, .gradients = fp32, .reduce = fp32, .master = {}, .moments = fp32, .name = "fp32"}},
  }};
  return all;
}

std::vector<std::string> names_of(const std::vector<DType>& types) {
  std::vector<std::string> names;
  for (DType type : types) names.emplace_back(name_of(type));
  return names;
}

std::optional<DType> read_dtype(MapReader& reader, std::string_view key, const std::vector<DType>& allowed) {
  if (!reader.has(key)) return std::nullopt;
  return dtype_from(reader.choice(key, names_of(allowed), ""));
}

/// Nothing: no master copy. Default: fp32 beside 16-bit parameters, none beside wider ones.
std::optional<DType> read_master(MapReader& reader, DType parameters) {
  if (!reader.has("master")) return size_of(parameters) == 2 ? std::optional(DType::fp32) : std::nullopt;
  return dtype_from(reader.choice("master", {"none", "fp32", "bf16", "fp16"}, "none"));
}

}  // namespace

Precision read_precision(const ConfigNode& node, Problems& problems) {
  using enum DType;
  if (node.kind != ConfigNode::Kind::map) {
    std::vector<std::string> names;
    for (const NamedPrecision& named : named_precisions()) {
      if (node.text == named.name) return named.precision;
      names.emplace_back(named.name);
    }
    names.emplace_back("{parameters: ..., compute: ..., gradients: ..., reduce: ..., master: ...}");
    problems.add(node.where, "precision cannot be " + (node.kind == ConfigNode::Kind::scalar ? in_quotes(node.text) : "a list"),
                 notes_for_unknown(node.text, names));
    return {};
  }
  MapReader reader(node, problems, "precision");
  Precision precision;
  precision.name = "custom";
  precision.parameters = read_dtype(reader, "parameters", {bf16, fp16, fp32, fp64}).value_or(bf16);
  precision.compute = read_dtype(reader, "compute", {bf16, fp16, fp32, fp64, fp8}).value_or(precision.parameters);
  if (precision.compute == fp8) {  // products of linear modules only: everything between them stays in 16 bits
    precision.fp8_products = true;
    precision.compute = size_of(precision.parameters) == 2 ? precision.parameters : bf16;
  }
  precision.gradients = read_dtype(reader, "gradients", {bf16, fp16, fp32, fp64}).value_or(precision.parameters);
  precision.reduce = read_dtype(reader, "reduce", {bf16, fp16, fp32, fp64});
  precision.master = read_master(reader, precision.parameters);
  // PyTorch's optimizers make their states like the tensor that they update: the master copy where there is one.
  precision.moments = precision.master.value_or(precision.parameters);
  reader.finish();
  return precision;
}

}  // namespace shardsim
