#include "codegen/cuda/padding.h"

#include <cstdint>
#include <limits>

namespace meshfuse::cuda {

using namespace tile;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Padding::Padding(const Program& program) : p_(program) {
  for (const Value& v : p_.values) {
    if (v.kind != ValueKind::Reduce || !isFloatingPoint(v.dtype)) {
      continue;
    }
    ValueId from = v.operands[0];
    while (p_.values[from].kind == ValueKind::Cast) {
      from = p_.values[from].operands[0];
    }
    const Value& load = p_.values[from];
    if (load.kind == ValueKind::Load && isFloatingPoint(load.dtype) && load.where.empty() && load.mask == kNone) {
      loads_.try_emplace(from, floatingIdentity(v.combiner));
    }
  }
}

double Padding::ofLoad(ValueId id) const { return of(id).value_or(0); }

ValueId Padding::source(ValueId id) const {
  const Value& v = p_.values[id];
  bool follows =
      v.kind == ValueKind::Cast || (v.kind == ValueKind::Point && (v.op == PointOp::Sub || v.op == PointOp::Exp));
  return follows ? source(v.operands[0]) : id;
}

std::optional<double> Padding::of(ValueId id) const {
  const Value& v = p_.values[id];
  if (!isFloatingPoint(v.dtype)) {
    return std::nullopt;
  }
  if (v.kind == ValueKind::Load) {
    auto it = loads_.find(id);
    return it == loads_.end() ? std::nullopt : std::optional<double>(it->second);
  }
  if (v.kind == ValueKind::Cast) {
    return of(v.operands[0]);
  }
  if (v.kind != ValueKind::Point || (v.op != PointOp::Exp && v.op != PointOp::Sub) || of(v.operands[0]) != -kInfinity) {
    return std::nullopt;
  }
  if (v.op == PointOp::Exp) {
    return 0;
  }
  const Value& b = p_.values[v.operands[1]];
  bool ownMaximum =
      b.kind == ValueKind::Reduce && b.combiner == Combiner::Max && b.operands[0] == v.operands[0] && b.where.empty();
  return ownMaximum ? std::optional(-kInfinity) : std::nullopt;
}

bool Padding::isIdentity(ValueId reduce, int64_t axis) const {
  const Value& v = p_.values[reduce];
  ValueId operand = v.operands[0];
  const Value& from = p_.values[operand];
  if (of(operand) != floatingIdentity(v.combiner)) {
    return false;
  }
  // The load must have been guarded by the very same coordinate.
  const Value& load = p_.values[source(operand)];
  const Space& space = p_.spaces[from.space];
  uint64_t digits = axisDigits(space, axis);
  bool sameDigits = load.space == from.space && (load.digits & digits) == (from.digits & digits);
  // exp(x - max x) has the digits of its sum only if the maximum ran over the same ones.
  const Value* point = &from;
  while (point->kind == ValueKind::Point || point->kind == ValueKind::Cast) {
    if (point->kind == ValueKind::Point && point->op == PointOp::Sub) {
      sameDigits = sameDigits && (p_.values[point->operands[1]].digits & digits) == (v.digits & digits);
    }
    point = &p_.values[point->operands[0]];
  }
  return sameDigits;
}

}  // namespace meshfuse::cuda
