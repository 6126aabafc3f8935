// One function for each kind of op: it takes the operands and the sizes of the result, and returns the result. With Context::bounds it also
// computes error bounds, unless operands and op are exact.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "interpret/array.h"
#include "ir/expr.h"
#include "ir/point_op.h"
#include "tensor/reduce_op.h"

namespace meshfuse::reference {

struct Context {
  bool bounds = false;
  int64_t partials = 1;
};

// Elementwise in `type`, to which operands without dims are rounded, with a result of type `dtype`; operands have as many dims as the
// result, or none, and stretch.
[[nodiscard]] Array pointArray(PointOp op, std::span<const Array* const> operands, DataType type, DataType dtype,
                               const Sizes& sizes, const Context& context);
[[nodiscard]] Array castArray(const Array& x, DataType dtype, const Context& context);
[[nodiscard]] Array bitCastArray(const Array& x, DataType dtype);

// A loop of a reduction or contraction: the amounts that one step adds to the offsets into the operands and the result.
struct Loop {
  int64_t extent = 1;
  int64_t a = 0;
  int64_t b = 0;
  int64_t target = 0;
};

// Calls visit(a, b, target) for every position of the loops, the last one innermost.
template <class Visit>
void runLoops(std::span<const Loop> loops, const Visit& visit, int64_t a = 0, int64_t b = 0, int64_t target = 0) {
  if (loops.empty()) {
    visit(a, b, target);
    return;
  }
  const Loop& loop = loops.front();
  for (int64_t i = 0; i < loop.extent; i++) {
    runLoops(loops.subspan(1), visit, a + i * loop.a, b + i * loop.b, target + i * loop.target);
  }
}

// Reduces the element of x at offset `a` into the element of the result at `target`, over all loops.
[[nodiscard]] Array reduceArray(ReduceOp op, const Array& x, const Sizes& sizes, std::span<const Loop> loops,
                                const Context& context);
// Scan along one dim: each element of the result reduces the elements up to its position. `outer` and `inner` are the numbers of
// elements before and after the dim.
[[nodiscard]] Array scanArray(ReduceOp op, const Array& x, int64_t outer, int64_t inner, const Context& context);
// x with row i of `rows` added to row places[i], in the order of i. A negative place adds nothing.
[[nodiscard]] Array accumulateRows(const Array& x, std::span<const int64_t> places, const Array& rows,
                                   const Context& context);
// Argsort along dim: the positions of the sizes[dim] smallest (largest) elements, in order.
enum class Order : uint8_t { Ascending, Descending };
[[nodiscard]] Array argSortArray(const Array& x, size_t dim, const Sizes& sizes, Order wantedOrder);

struct ContractOptions {
  std::span<const Loop> loops;
  DataType dtype = DataType::Float;  // of the result
  const Array* bias = nullptr;       // of the sizes of the result
};
// Adds the product of an element of a and an element of b to an element of the result, over all loops; then adds the bias.
[[nodiscard]] Array contractArrays(const Array& a, const Array& b, const Sizes& sizes, const ContractOptions& options,
                                   const Context& context);

struct RandomOptions {
  RandomKind kind = RandomKind::Uniform;
  DataType dtype = DataType::Float;
  uint64_t seed = 0;
  uint64_t counter = 0;
};
// Random elements; positions: one for each element of the result, row-major in the whole tensor. See ops/factory.h.
[[nodiscard]] Array randomArray(const Sizes& sizes, std::span<const int64_t> positions, const RandomOptions& options,
                                const Context& context);

// How far a product of floating numbers may be off if its factors are off by these errors.
[[nodiscard]] double productError(double a, double aError, double b, double bError);
// Half a unit in the last place of 1 of a floating type, 0 of others.
[[nodiscard]] double unitOf(DataType dtype);

}  // namespace meshfuse::reference
