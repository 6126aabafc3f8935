#include "schedule/streamed_reads.h"

#include <optional>
#include <string>
#include <vector>

#include "base/ranges.h"

namespace meshfuse {

using namespace tile;

namespace {

bool isLarger(const TensorParam& tensor, int64_t bytes) {
  const IntExpr count = productOf(tensor.extents, [](const IntExpr& e) { return e; });
  return count.isConst() && count.constValue() > bytes / dataTypeSize(tensor.dtype);
}

// What tells the positions of a launch apart: the axes of a space, and the dims of the grid that are no part of an axis.
std::vector<std::string> coordinatesOf(const Program& program, const Space& space) {
  std::vector<std::string> names;
  std::vector<std::string> parts;
  for (const Axis& axis : space.axes) {
    if (!axis.bound.isConst(1)) {
      names.push_back(axis.name);
    }
    append(parts, mapped(axis.digits, &Digit::symbol));
  }
  for (const GridDim& dim : program.grid) {
    if (!contains(parts, dim.symbol) && !dim.count.isConst(1)) {
      names.push_back(dim.symbol);
    }
  }
  return names;
}

// Whether positions that differ read different elements, as far as the offset of the element in the tensor shows it: a sum of all coordinates,
// each with a factor of its own.
bool isOneToOne(const Program& program, const Value& load) {
  IntExpr offset;
  for (size_t dim = 0; dim < load.index.size(); dim++) {
    if (load.index[dim].tile != kNone) {
      return false;
    }
    offset += load.index[dim].expr * program.tensors[load.param].strides[dim];
  }
  std::vector<IntExpr> factors;
  for (const std::string& name : coordinatesOf(program, program.spaces[load.space])) {
    const std::optional<LinearForm> form = offset.linearIn(name);
    if (!form || form->slope.isConst(0) || contains(factors, form->slope)) {
      return false;
    }
    factors.push_back(form->slope);
  }
  return true;
}

}  // namespace

void streamReads(Program& program, int64_t bytes) {
  std::vector<int64_t> loads(program.tensors.size());
  for (const Value& v : program.values) {
    if (v.kind == ValueKind::Load) {
      loads[v.param]++;
    }
  }
  for (Value& v : program.values) {
    if (v.kind == ValueKind::Load && loads[v.param] == 1 && program.tensors[v.param].memory == Memory::Input &&
        isLarger(program.tensors[v.param], bytes) && isOneToOne(program, v)) {
      v.cache = Cache::Once;
    }
  }
}

}  // namespace meshfuse
