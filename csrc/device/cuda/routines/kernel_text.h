// Pieces of the CUDA text of routines.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/cuda/c_text.h"
#include "codegen/cuda/emit.h"

namespace meshfuse {

// A kernel that calls one function of runtime/cuda.
struct RoutineText {
  std::string entry;
  cuda::Sections uses;
  std::vector<std::pair<std::string, std::string>> arguments;  // type and name, such as {"const float*", "x"}
  std::string definitions;                                     // the types that the function takes as parameters
  std::string call;                                            // "scanLines<float, Lines>(args.x, args.z)"
  int64_t threads = 32;
  int64_t sharedBytes = 0;
};
[[nodiscard]] CudaSource sourceOf(const RoutineText& text);

// A dim of positions that are counted in row-major order, and the elements from one position to the next.
struct PositionDim {
  int64_t extent = 1;
  int64_t stride = 0;
};
// The offset of position `variable`, a non-negative i64, as an expression.
[[nodiscard]] std::string offsetText(std::string_view variable, std::vector<PositionDim> dims);

// The lines of a tensor along one dim: its other dims.
[[nodiscard]] std::vector<PositionDim> linesOf(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                                               int64_t dim);

}  // namespace meshfuse
