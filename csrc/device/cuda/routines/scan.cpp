// Running totals on a GPU: runtime/cuda/scan.cuh.
//
// Sums and products of Float are kept in Double on the way, as on a CPU.
#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "device/cuda/routines/kernel_text.h"
#include "device/cuda/routines/routine_program.h"
#include "ir/fusion.h"
#include "ir/tensor_view.h"

namespace meshfuse {

namespace {

constexpr int64_t kSegment = 16;  // as in scan.cuh
constexpr int64_t kWarp = 32;
constexpr int64_t kMostThreads = 256;

// The type of totals.
struct Wide {
  std::string_view type;
  int64_t bytes;
};

Wide wideOf(ReduceOp op, DataType t) {
  if (op == ReduceOp::Max || op == ReduceOp::Min) {
    return {cuda::storageType(t), dataTypeSize(t)};
  }
  return isFloatingPoint(t) ? Wide{"double", 8} : dataTypeSize(t) == 8 ? Wide{"u64", 8} : Wide{"u32", 4};
}

std::string firstOf(ReduceOp op, DataType t, cuda::Sections& uses) {
  return isFloatingPoint(t) ? cuda::floatLiteral(floatingIdentity(op), t, uses)
                            : cuda::integerLiteral(integerIdentity(op, t), t, uses);
}

std::string withText(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return "a + b";
    case ReduceOp::Prod:
      return "a * b";
    case ReduceOp::Max:  // NaN propagates
      return "a != a || (b == b && a >= b) ? a : b";
    case ReduceOp::Min:
      return "a != a || (b == b && a <= b) ? a : b";
    case ReduceOp::And:
      return "a & b";
    case ReduceOp::Or:
      return "a | b";
    case ReduceOp::Xor:
      return "a ^ b";
  }
  return "";
}

// When a segment's totals may be combined with the carry: if no result can be out of range, infinite or for products subnormal, where one of
// the elements one after the other would stay so. `e` is the exponent of a Double plus 1023.
struct Ranges {
  std::string_view stands = "true";   // of each total in a segment
  std::string_view carries = "true";  // of the carry; with 0, infinity and NaN results stay what they are
  // of all carries, so that all totals stand: a total that does not makes carries infinite or NaN
  std::string_view certain = "true";
};
Ranges rangesOf(ReduceOp op, DataType t) {
  if (isFloatingPoint(t) && op == ReduceOp::Sum) {
    return {.stands = "e < 2045", .carries = "e < 2045 || e == 2047", .certain = "e < 2045"};  // below 2^1022
  }
  if (isFloatingPoint(t) && op == ReduceOp::Prod) {
    // from 2^-256 to 2^256, and from 2^-766 to 2^767
    return {.stands = "e >= 767 && e < 1279",
            .carries = "(e >= 257 && e < 1790) || e == 2047 || total == 0",
            .certain = "e >= 257 && e < 1790"};
  }
  return {};
}

std::string combineText(ReduceOp op, DataType t, cuda::Sections& uses) {
  const Ranges ranges = rangesOf(op, t);
  const auto rangeText = [](std::string_view name, std::string_view condition) {
    return fmt::format("  static __device__ __forceinline__ bool {}(Wide total) {{ {}return {}; }}\n", name,
                       condition == "true" ? "" : "const int e = __double2hiint(total) >> 20 & 2047; ", condition);
  };
  const std::string first = firstOf(op, t, uses);
  return fmt::format(
      "struct Combine {{\n"
      "  typedef {0} Wide;\n"
      "  static __device__ __forceinline__ Wide first() {{ return (Wide){1}; }}\n"
      "  static __device__ __forceinline__ Wide with(Wide a, Wide b) {{ return {2}; }}\n"
      "{3}{4}{5}"
      "  static __device__ __forceinline__ Wide refused() {{ return (Wide){6}; }}\n"
      "  template <class T> static __device__ __forceinline__ T rounded(Wide total) {{ return (T)total; }}\n"
      "}};\n",
      wideOf(op, t).type, first, withText(op), rangeText("standsIn", ranges.stands),
      rangeText("carries", ranges.carries), rangeText("isCertain", ranges.certain),
      ranges.stands == "true" ? first
                              : cuda::floatLiteral(std::numeric_limits<double>::infinity(), DataType::Double, uses));
}

int64_t powerFrom(int64_t n, int64_t most) {
  return std::min<int64_t>(most, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1)))));
}

}  // namespace

RoutineProgram scanProgram(const Expr& e, const RoutineOptions& options) {
  const TensorView* const x = e.tensorInputs()[0];
  const std::vector<int64_t> sizes = x->constantShape();
  const int64_t dim = e.attributes().dim;
  const DataType type = x->dtype();
  invariant(!isHalfPrecision(type), "[cuda] scans of {} have no kernel; cast their operands", name(type));
  if (productOf(sizes) == 0) {
    return {};
  }
  const std::vector<int64_t> from = constantStrides(x, options.layouts);
  const std::vector<int64_t> to = contiguousStrides(sizes);
  const int64_t count = productOf(sizes) / sizes[dim];
  // lines that are neighbours in the result, so that threads access neighbours; and enough for the threads of a warp
  const int64_t segments = divideUp(sizes[dim], kSegment);
  const int64_t lines = std::max(powerFrom(to[dim], kWarp), kWarp / powerFrom(segments, kWarp));
  const int64_t threads = std::max(kWarp, lines * powerFrom(segments, kMostThreads / lines));

  const std::string_view element = cuda::storageType(type);
  RoutineText text;
  text.entry = fmt::format("scan_{}", info(type).token);
  text.uses = {"scan_lines"};
  text.arguments = {{fmt::format("const {}*", element), "x"}, {fmt::format("{}*", element), "z"}};
  text.definitions = fmt::format(
      "struct Lines {{\n"
      "  static constexpr i64 kCount = {}, kExtent = {}, kFromStep = {}, kToStep = {};\n"
      "  static __device__ __forceinline__ i64 from(i64 line) {{ return {}; }}\n"
      "  static __device__ __forceinline__ i64 to(i64 line) {{ return {}; }}\n"
      "}};\n",
      count, sizes[dim], from[dim], to[dim], offsetText("line", linesOf(sizes, from, dim)),
      offsetText("line", linesOf(sizes, to, dim)));
  text.definitions += combineText(e.attributes().reduce, type, text.uses);
  text.call = fmt::format("scanLines<{}, Lines, Combine, {}, {}>(args.x, args.z)", element, lines, threads);
  text.threads = threads;
  text.sharedBytes = roundUp((kSegment + 1) * threads * dataTypeSize(type), 16) +
                     2 * threads * wideOf(e.attributes().reduce, type).bytes;
  using enum RoutineSlot::Kind;
  RoutineProgram program;
  program.kernels = {sourceOf(text)};
  program.launches = {{.kernel = 0, .blocks = divideUp(count, lines), .slots = {{Operand, 0}, {Result}}}};
  return program;
}

}  // namespace meshfuse
