#include "schedule/streamed_reads.h"

#include <algorithm>
#include <vector>

#include "base/ranges.h"

namespace meshfuse {

using namespace tile;

namespace {

bool isLarger(const TensorParam& tensor, int64_t bytes) {
  const IntExpr count = productOf(tensor.extents, [](const IntExpr& e) { return e; });
  return count.isConst() && count.constValue() > bytes / dataTypeSize(tensor.dtype);
}

bool runsOverAll(const Value& load, const Space& space) {
  return std::ranges::all_of(space.axes, [&](const Axis& axis) {
    return axis.bound.isConst(1) ||
           std::ranges::any_of(load.index, [&](const Index& i) { return i.expr.contains(axis.name); });
  });
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
        isLarger(program.tensors[v.param], bytes) && runsOverAll(v, program.spaces[v.space])) {
      v.cache = Cache::Once;
    }
  }
}

}  // namespace meshfuse
