#include "device/cuda/nccl/combine_program.h"

#include <algorithm>

#include "ir/point_op.h"
#include "tile/builder.h"

namespace meshfuse {

namespace {

constexpr int64_t kWarps = 4;

// Operations on bits take the bits of floating numbers.
DataType bitsOf(DataType type) {
  switch (dataTypeSize(type)) {
    case 2:
      return DataType::Short;
    case 4:
      return DataType::Int32;
    default:
      return DataType::Int;
  }
}

// Bool is logical: a sum is "any", a product "all".
PointOp combineBools(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Max:
    case ReduceOp::Or:
      return PointOp::BitwiseOr;
    case ReduceOp::Xor:
      return PointOp::BitwiseXor;
    case ReduceOp::Prod:
    case ReduceOp::Min:
    case ReduceOp::And:
      break;
  }
  return PointOp::BitwiseAnd;
}

}  // namespace

tile::Program combineProgram(const Combination& of) {
  using namespace tile;
  const DataType type = isBitwise(of.op) && isFloatingPoint(of.type) ? bitsOf(of.type) : of.type;
  const DataType wide = accumulateType(type);
  const PointOp op = type == DataType::Bool ? combineBools(of.op) : combineOp(of.op, wide);
  const int64_t size = dataTypeSize(type);
  const int64_t inVector = of.alignment >= kOperandAlignment ? kOperandAlignment / size : 1;
  Builder b("combine", Target::Gpu);
  const IntExpr count = b.size("count");
  const IntExpr distance = b.size("distance", {.divisor = kOperandAlignment / size});
  b.gridDim("part", ceilDiv(count, kWarps * 32 * inVector));
  const int64_t elements = b.space(
      "elements",
      {{"i", count, {{Level::Part, 0, "part"}, {Level::Warp, kWarps}, {Level::Lane, 32}, {Level::Vector, inVector}}}});
  const int64_t operands =
      b.tensor({"operands", type, Memory::Input, {of.ranks, distance}, {distance, 1}, kOperandAlignment});
  const int64_t result = b.tensor({"result", type, Memory::Output, {count}, {1}, std::max(size, of.alignment)});
  const Index at{b.coord(elements, 0)};
  const auto operandOf = [&](int64_t rank) {
    return b.cast(b.load(operands, {{IntExpr(rank)}, at}, elements, {.cache = Cache::Once}), wide);
  };
  ValueId combined = operandOf(0);
  for (int64_t rank = 1; rank < of.ranks; rank++) {
    combined = b.point(op, {combined, operandOf(rank)});
  }
  b.store(result, {at}, b.cast(combined, type));
  return b.take();
}

}  // namespace meshfuse
