// SPDX-License-Identifier: Apache-2.0
#include "strategies/shared/sharding.hpp"

#include <algorithm>

namespace shardsim {
namespace {

std::int64_t first_dimension(const Parameter& p) { return p.shape.empty() ? 1 : std::max<std::int64_t>(p.shape.front(), 1); }
std::int64_t row_length(const Parameter& p) { return p.elements.value() / first_dimension(p); }

}  // namespace

Elements total_elements(const Model& model, std::span<const ParameterId> parameters) {
  Elements sum;
  for (ParameterId p : parameters) sum += model.at(p).elements;
  return sum;
}

std::int64_t rows_per_rank(const Parameter& parameter, std::int64_t n) { return ceil_div(first_dimension(parameter), n); }

Elements rows_padded(const Parameter& parameter, std::int64_t n) {
  return Elements{rows_per_rank(parameter, n) * n * row_length(parameter)};
}

Elements rows_owned(const Parameter& parameter, std::int64_t n, std::int64_t part) {
  const std::int64_t chunk = rows_per_rank(parameter, n);
  const std::int64_t rows = std::clamp<std::int64_t>(first_dimension(parameter) - part * chunk, 0, chunk);
  return Elements{rows * row_length(parameter)};
}

Elements each_padded(const Parameter& parameter, std::int64_t n) { return round_up(parameter.elements, n); }

FlatLayout flat_layout(const Model& model, std::span<const ParameterId> parameters, std::int64_t align, std::int64_t multiple) {
  FlatLayout layout;
  layout.starts.reserve(parameters.size());
  std::int64_t at = 0;
  for (ParameterId p : parameters) {
    at = ceil_div(at, align) * align;
    layout.starts.push_back(at);
    at += model.at(p).elements.value();
  }
  layout.elements = round_up(Elements{at}, multiple);
  return layout;
}

std::vector<ParameterId> parameters_where(const Model& model, bool trainable) {
  std::vector<ParameterId> ids;
  for (std::size_t i = 0; i < model.parameters->size(); ++i)
    if ((*model.parameters)[i].trainable == trainable) ids.push_back({static_cast<std::int32_t>(i)});
  return ids;
}

std::optional<DType> own_dtype_of_trained(const Model& model) {
  const auto trained = std::ranges::find_if(*model.parameters, [](const Parameter& p) { return p.trainable; });
  return trained == model.parameters->end() ? std::nullopt : trained->dtype;
}

std::vector<ParameterId> all_parameters(const Model& model) {
  std::vector<ParameterId> ids(model.parameters->size());
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = {static_cast<std::int32_t>(i)};
  return ids;
}

}  // namespace shardsim
