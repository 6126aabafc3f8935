#include "device/cuda/routines/kernel_text.h"

#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <ranges>

#include "base/ranges.h"
#include "codegen/cuda/runtime_sections.h"

namespace meshfuse {

CudaSource sourceOf(const RoutineText& t) {
  CudaSource source;
  source.entry = t.entry;
  source.threads = t.threads;
  source.sharedBytes = t.sharedBytes;
  for (const int64_t i : indices(t.arguments)) {
    source.slots.push_back({CudaSlot::Kind::Tensor, i});
  }
  const std::string members =
      joined(t.arguments, "", [](const auto& a) { return fmt::format("  {} {};\n", a.first, a.second); });
  source.text =
      runtimeSections(t.uses) + std::string(kKernelHeading) +
      fmt::format(
          "struct {0}_args {{\n{1}}};\n\n{2}\n"
          "extern \"C\" __global__ void __launch_bounds__({3}) {0}(const __grid_constant__ {0}_args args) {{\n"
          "  {4};\n}}\n",
          t.entry, members, t.definitions, t.threads, t.call);
  return source;
}

namespace {

// Fewer dims with the same offsets.
std::vector<PositionDim> merged(const std::vector<PositionDim>& dims) {
  std::vector<PositionDim> result;
  for (const PositionDim& d : dims) {
    if (d.extent == 1) {
      continue;
    }
    if (!result.empty() && result.back().stride == d.stride * d.extent) {
      result.back() = {result.back().extent * d.extent, d.stride};
    } else {
      result.push_back(d);
    }
  }
  return result;
}

}  // namespace

std::string offsetText(std::string_view variable, std::vector<PositionDim> dims) {
  dims = merged(dims);
  const int64_t count = productOf(dims, &PositionDim::extent);
  if (count == 0) {
    return "0";
  }
  // division of 32 bits is cheaper
  const std::string position = count <= INT32_MAX ? fmt::format("(u32){}", variable) : fmt::format("(u64){}", variable);
  std::vector<std::string> terms;
  int64_t below = 1;
  for (const PositionDim& d : dims | std::views::reverse) {
    const std::string quotient = below == 1 ? position : fmt::format("{} / {}", position, below);
    const std::string digit = below * d.extent == count ? quotient : fmt::format("{} % {}", quotient, d.extent);
    terms.push_back(fmt::format("(i64)({}) * {}", digit, d.stride));
    below *= d.extent;
  }
  return terms.empty() ? "0" : joined(terms, " + ", std::identity());
}

std::vector<PositionDim> linesOf(std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t dim) {
  std::vector<PositionDim> dims;
  for (const int64_t d : indices(sizes)) {
    if (d != dim) {
      dims.push_back({sizes[d], strides[d]});
    }
  }
  return dims;
}

}  // namespace meshfuse
