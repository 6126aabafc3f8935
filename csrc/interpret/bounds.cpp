#include "interpret/bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "interpret/program.h"

namespace meshfuse {

namespace {

BoundedTensor bounded(const reference::Array& array) {
  const Tensor error = Tensor::empty(array.sizes, DataType::Double, DeviceId::cpu());
  auto* const bounds = error.data_as<double>();
  std::copy(array.error.begin(), array.error.end(), bounds);
  std::fill(bounds + array.error.size(), bounds + error.numel(), 0.0);
  return {reference::toTensor(array), error, array.uncertain};
}

// How an element is printed: all its digits.
std::string element(const reference::Array& array, int64_t i) {
  if (array.dtype == DataType::Bool) {
    return array.whole[i] != 0 ? "true" : "false";
  }
  return array.floating() ? fmt::format("{}", array.real[i]) : fmt::format("{}", array.whole[i]);
}

bool agrees(const reference::Array& got, const reference::Array& expected, int64_t i, double error) {
  if (!got.floating()) {
    return got.whole[i] == expected.whole[i] ||
           (error > 0 &&
            std::fabs(static_cast<double>(got.whole[i]) - static_cast<double>(expected.whole[i])) <= error);
  }
  double a = got.real[i];
  double b = expected.real[i];
  return a == b || (std::isnan(a) && std::isnan(b)) || std::isinf(error) || std::fabs(a - b) <= error;
}

}  // namespace

std::vector<BoundedTensor> interpretWithBounds(const Fusion& fusion, std::span<const Argument> inputs,
                                               const BoundOptions& options) {
  reference::Program program(fusion, inputs, {.bounds = true, .partials = options.partials}, reference::Keep::Results);
  program.run();
  return mapped(fusion.outputs(), [&](const Val* out) { return bounded(program.array(out)); });
}

std::optional<std::string> compare(const Tensor& got, const BoundedTensor& expected) {
  if (got.dtype() != expected.value.dtype()) {
    return fmt::format("element types differ: got {}, expected {}", name(got.dtype()), name(expected.value.dtype()));
  }
  if (!std::ranges::equal(got.sizes(), expected.value.sizes())) {
    return fmt::format("sizes differ: got {}, expected {}", reference::describe(got.sizes()),
                       reference::describe(expected.value.sizes()));
  }
  reference::Array a = reference::toArray(got);
  reference::Array b = reference::toArray(expected.value);
  const auto* errors = expected.error.defined() ? expected.error.data_as<const double>() : nullptr;
  int64_t different = 0;
  int64_t first = 0;
  for (int64_t i = a.numel(); i-- > 0;) {
    if (!agrees(a, b, i, errors == nullptr ? 0 : errors[i])) {
      different++;
      first = i;
    }
  }
  if (different > 0) {
    std::vector<int64_t> position = contiguousStrides(a.sizes);
    std::ranges::transform(position, a.sizes, position.begin(),
                           [&](int64_t stride, int64_t size) { return first / stride % size; });
    return fmt::format("{} of {} elements differ, first at {}: got {}, expected {} within {:.3g}", different, a.numel(),
                       reference::describe(position), element(a, first), element(b, first),
                       errors == nullptr ? 0 : errors[first]);
  }
  int64_t allowed = std::max<int64_t>(1, a.numel() / 100);
  if (expected.uncertain > allowed) {
    return fmt::format(
        "{} of {} elements lie within their bound of a discontinuity, expected at most {}; the comparison would prove "
        "too little: choose inputs away from it",
        expected.uncertain, a.numel(), allowed);
  }
  return std::nullopt;
}

}  // namespace meshfuse
