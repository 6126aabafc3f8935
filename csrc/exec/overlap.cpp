#include "exec/overlap.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/device_info.h"
#include "exec/planned_program.h"
#include "host/happens_before.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

// On a CPU less is done before a thread has taken it over. On a GPU a collective takes as long as a few kernels, whatever its size.
int64_t leastOverlapBytes(tile::Target target) {
  switch (target) {
    case tile::Target::Cpu:
      return int64_t{256} << 10;
    case tile::Target::Gpu:
      return int64_t{4} << 10;
  }
  throwInternalError("[overlap] no such target");
}

bool communicates(const Expr& e) {
  return e.kind() == ExprKind::Redistribute && e.attributes().plan &&
         std::ranges::any_of(*e.attributes().plan, &CommStep::communicates);
}

int64_t bytesWritten(const Expr& e, const SymbolValues& values) {
  return sumOf(e.outputs(), [&](const Val* out) {
    return out->isTensor() ? product(out->asTensor()->shape()).evaluate(valuesIn(values)) * dataTypeSize(out->dtype())
                           : 0;
  });
}

bool isWorthwhile(const std::vector<Expr*>& exprs, const SymbolValues& values, int64_t leastBytes) {
  if (std::ranges::none_of(exprs, [](const Expr* e) { return communicates(*e); })) {
    return false;
  }
  // each op on a queue of its own: it follows the ops that it reads only
  HappensBefore before;
  std::map<int64_t, int64_t> writer;  // by Val id
  for (const int64_t i : indices(exprs)) {
    std::vector<int64_t> earlier;
    for (const Val* in : exprs[i]->inputs()) {
      if (const auto it = writer.find(in->id()); it != writer.end()) {
        earlier.push_back(it->second);
      }
    }
    before.append({.queue = i, .waits = std::move(earlier)});
    for (const Val* out : exprs[i]->outputs()) {
      writer[out->id()] = i;
    }
  }
  return std::ranges::any_of(indices(exprs), [&](int64_t comm) {
    if (!communicates(*exprs[comm]) || bytesWritten(*exprs[comm], values) < leastBytes) {
      return false;
    }
    int64_t bytes = 0;
    for (const int64_t i : indices(exprs)) {
      const bool independent = i < comm ? !before(i, comm) : i > comm && !before(comm, i);
      bytes += independent && !communicates(*exprs[i]) ? bytesWritten(*exprs[i], values) : 0;
    }
    return bytes >= leastBytes;
  });
}

bool mayRefuse(const Expr& e) { return e.kind() == ExprKind::Point && meshfuse::mayRefuse(e.attributes().point); }

}  // namespace

Overlap overlapOf(const PlannedProgram& program, bool wanted, const DeviceInfo& device) {
  const std::vector<Expr*> exprs = program.planned->exprs();
  return {.allowed = wanted && isWorthwhile(exprs, program.sizes.values, leastOverlapBytes(device.target)),
          .memory = program.planned->planner().memory,
          .endsTogether = std::ranges::any_of(exprs, [](const Expr* e) { return mayRefuse(*e); })};
}

}  // namespace meshfuse
