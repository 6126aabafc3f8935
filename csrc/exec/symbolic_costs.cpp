#include "exec/symbolic_costs.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "base/error.h"
#include "base/ranges.h"
#include "exec/compile.h"
#include "host/memory_plan.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "ir/plan_text.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/step_amounts.h"

namespace meshfuse {

namespace {

// Sizes of axes by name; symbols for axes that had a symbolic size.
class AxisSizes {
 public:
  AxisSizes(const Fusion& planned, std::span<const std::string> open) : open_(open.begin(), open.end()) {
    for (const TensorView* tv : planned.tensors()) {
      const DeviceMesh& mesh = tv->getDeviceMesh();
      for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
        sizes_[mesh.axisName(axis)] = mesh.axisSize(axis).constValue();
      }
    }
  }

  IntExpr of(const DeviceMesh& mesh, int64_t axis) const {
    const std::string& name = mesh.axisName(axis);
    return open_.contains(name) ? IntExpr::symbol(name, {.lower = 1}) : mesh.axisSize(axis);
  }
  IntExpr product(const DeviceMesh& mesh, const std::set<int64_t>& axes) const {
    return productOf(axes, [&](int64_t axis) { return of(mesh, axis); });
  }
  // Of the axes that own no digit: ranks along them hold copies.
  IntExpr copies(const DeviceMesh& mesh, const std::set<int64_t>& owning) const {
    IntExpr n = 1;
    for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
      n *= owning.contains(axis) ? 1 : of(mesh, axis);
    }
    return n;
  }
  // An axis of the program, and not a part of one.
  bool has(const DeviceMesh& mesh, int64_t axis) const {
    const auto size = sizes_.find(mesh.axisName(axis));
    return size != sizes_.end() && mesh.axisSize(axis).isConst(size->second);
  }
  // Values of the symbols in the plan.
  int64_t value(const IntExpr& e) const { return e.evaluate(valuesIn(sizes_)); }

 private:
  std::set<std::string> open_;
  std::map<std::string, int64_t> sizes_;
};

// -- received bytes -----------------------------------------------------------------------------------------------------

// Converts a step whose atoms are whole axes: the axes replace the atoms.
struct WholeAxes {
  const DeviceMesh& mesh;
  std::set<int64_t> team;
  std::set<int64_t> before;  // axes that own a digit
  std::set<int64_t> after;
};

std::optional<WholeAxes> wholeAxes(const CommStep& step) {
  for (int64_t atom = 0; atom < std::ssize(step.on.origins); atom++) {
    const AtomOrigin& origin = step.on.origins[atom];
    if (origin.below != 1 || step.on.atoms.axisSize(atom) != step.on.mesh.axisSize(origin.axis)) {
      return std::nullopt;
    }
  }
  const auto axesOf = [&](const std::vector<int64_t>& atoms) {
    std::set<int64_t> axes;
    for (int64_t atom : atoms) {
      axes.insert(step.on.origins[atom].axis);
    }
    return axes;
  };
  return WholeAxes{step.on.mesh, axesOf(step.axes), axesOf(usedAtoms(step.before)), axesOf(usedAtoms(step.after))};
}

// The dim that only the team's one atom cuts, in blocks; -1 if there is none.
int64_t cutAlone(const PlanState& state, int64_t atom) {
  const auto isCut = [&](const PlanDim& dim) { return std::ranges::count(dim, atom, &PlanDigit::atom) > 0; };
  const auto dim = std::ranges::find_if(state.dims, isCut);
  const bool isAlone = dim != state.dims.end() && dim->front().atom == atom &&
                       std::ranges::count(*dim, kLocal, &PlanDigit::atom) == std::ssize(*dim) - 1;
  return isAlone ? static_cast<int64_t>(dim - state.dims.begin()) : -1;
}

// Elements of an `a` x `b` array that lie in block k of both dims, summed over k, where each dim is cut in n blocks.
IntExpr onTheDiagonal(int64_t a, int64_t b, const IntExpr& n) {
  const IntExpr blockA = ceilDiv(a, n);
  const IntExpr blockB = ceilDiv(b, n);
  const IntExpr fullA = floorDiv(a, blockA);  // whole blocks; one more may be smaller, the others are empty
  const IntExpr fullB = floorDiv(b, blockB);
  const IntExpr both = min(fullA, fullB);
  const IntExpr lastA = min(blockA, IntExpr(a) - both * blockA);
  const IntExpr lastB = min(blockB, IntExpr(b) - both * blockB);
  return both * blockA * blockB + lastA * lastB;
}

// Elements that all ranks together receive in a step on a tensor of these extents.
std::optional<IntExpr> received(const CommStep& step, const std::vector<int64_t>& extents, const AxisSizes& sizes) {
  const std::optional<WholeAxes> axes = wholeAxes(step);
  if (!axes) {
    return std::nullopt;
  }
  const int64_t all = productOf(extents);
  const DeviceMesh& mesh = axes->mesh;
  const IntExpr team = sizes.product(mesh, axes->team);
  const IntExpr copiesAfter = sizes.copies(mesh, axes->after);
  switch (step.kind) {
    case Collective::AllGather:
    case Collective::ReduceScatter:
    case Collective::AllReduce:
      return amountReceived(step.kind, sizes.copies(mesh, axes->before) * all, copiesAfter * all, team);
    case Collective::AllToAll: {
      if (step.axes.size() != 1) {
        return std::nullopt;
      }
      const int64_t from = cutAlone(step.before, step.axes[0]);
      const int64_t to = cutAlone(step.after, step.axes[0]);
      if (from < 0 || to < 0 || from == to) {
        return std::nullopt;
      }
      const int64_t a = extents[from];
      const int64_t b = extents[to];
      return (IntExpr(all) - onTheDiagonal(a, b, team) * (all / (a * b))) * copiesAfter;
    }
    default:
      return std::nullopt;
  }
}

// Bytes that all ranks receive for a window, at these sizes.
int64_t windowBytes(const Expr* e, const HaloExchanges& halos, std::vector<std::string>& constants) {
  int64_t elements = 0;
  for (int64_t k = 0; k < std::ssize(e->inputs()); k++) {
    const HaloExchanges::Place* place = halos.find(e, k);
    if (place == nullptr || !place->isFirst) {
      continue;
    }
    const HaloExchange& exchange = halos.exchange(*place);
    elements += exchange.total;
    if (exchange.total > 0) {
      constants.push_back(fmt::format("{} of {}, counted with its bytes at the current sizes", toString(exchange.step),
                                      e->output()->toString()));
    }
  }
  return elements * dataTypeSize(e->output()->dtype());
}

IntExpr communication(const SegmentedProgram& program, const AxisSizes& sizes, std::vector<std::string>& constants) {
  IntExpr bytes = 0;
  const HaloExchanges halos(*program.planned);
  for (const Expr* e : program.planned->exprs()) {
    if (exchangesHalo(e)) {
      bytes += IntExpr(windowBytes(e, halos, constants));
    }
    if (e->kind() != ExprKind::Redistribute) {
      continue;
    }
    const ShardState from = shardState(e->input(0)->asTensor());
    const ShardState to = shardState(e->tensorOutput());
    const std::vector<int64_t> extents = to.constantShape();
    if (from.mesh.empty() || std::ranges::count(extents, 0) > 0) {
      continue;
    }
    for (const CommStep& step : e->attributes().plan.value_or(std::vector<CommStep>())) {
      if (!step.communicates()) {
        continue;
      }
      std::optional<IntExpr> elements = received(step, extents, sizes);
      if (!elements) {
        elements = elementsReceived(step, extents) * step.on.mesh.numDevices();
        constants.push_back(fmt::format("{} of {}, counted as if every rank received as much as the busiest one",
                                        step.toString(), e->output()->toString()));
      }
      bytes += *elements * dataTypeSize(e->output()->dtype());
    }
  }
  return bytes;
}

// -- memory ----------------------------------------------------------------------------------------------

// Elements that rank 0 holds.
class LocalElements {
 public:
  LocalElements(const Fusion& planned, const AxisSizes& sizes) : sizes_(sizes) {
    for (const TensorView* tv : planned.tensors()) {
      known_.emplace(tv->id(), ofState(shardState(tv)));
    }
  }

  // The number of elements of a local tensor; nullopt if it is neither a part of a global tensor nor computed from such parts by ops that
  // keep all elements.
  std::optional<IntExpr> of(const Val* local, int64_t count) {
    const auto known = known_.find(local->id());
    if (known != known_.end() && known->second && sizes_.value(*known->second) == count) {
      return known->second;
    }
    const Expr* e = local->definition();
    const std::optional<IntExpr> elements = e == nullptr ? std::nullopt : ofResult(*e, count);
    return elements && sizes_.value(*elements) == count ? elements : std::nullopt;
  }

 private:
  // The elements of the result of an op that keeps all elements of its operands, or of a collective with a dim of the team.
  std::optional<IntExpr> ofResult(const Expr& e, int64_t count) {
    if (e.tensorInputs().size() != 1 && e.kind() != ExprKind::Cat) {
      return std::nullopt;
    }
    IntExpr all = 0;
    int64_t given = 0;
    for (const TensorView* operand : e.tensorInputs()) {
      given += operand->numel();
      const std::optional<IntExpr> part = of(operand, operand->numel());
      if (!part) {
        return std::nullopt;
      }
      all += *part;
    }
    if (given == count) {
      return all;
    }
    const CommAttributes& comm = e.attributes().comm;
    if (e.kind() != ExprKind::Communicate ||
        (comm.kind != Collective::AllGather && comm.kind != Collective::ReduceScatter)) {
      return std::nullopt;
    }
    const DeviceMesh& mesh = e.fusion().meshes().at(comm.mesh);
    if (!std::ranges::all_of(comm.axes, [&](int64_t axis) { return sizes_.has(mesh, axis); })) {
      return std::nullopt;
    }
    const IntExpr team = sizes_.product(mesh, {comm.axes.begin(), comm.axes.end()});
    return comm.kind == Collective::AllGather ? all * team : ceilDiv(all, team);
  }

  std::optional<IntExpr> ofState(const ShardState& state) const {
    if (state.hasOpaqueDim()) {
      return std::nullopt;
    }
    return productOf(state.dims, [&](const DigitList& dim) {
      std::set<int64_t> axes;
      for (const Digit& d : dim.digits()) {
        if (d.owner.isDevice()) {
          axes.insert(d.owner.axis);
        }
      }
      return ceilDiv(dim.extent(), sizes_.product(state.mesh, axes));
    });
  }

  const AxisSizes& sizes_;
  std::map<int64_t, std::optional<IntExpr>> known_;  // by number in the global program
};

class Memory {
 public:
  Memory(const CompiledProgram& compiled, const AxisSizes& sizes, std::vector<std::string>& constants)
      : host_(*compiled.host), elements_(*compiled.program.planned, sizes), constants_(constants) {}

  IntExpr peak() {
    IntExpr bytes = arena();
    for (const int64_t t : indices(host_.tensors)) {
      const Place place = host_.tensors[t].place;
      if (place == Place::Input ? contains(host_.inputs, t) : place == Place::Output && isResult(t)) {
        bytes += bytesOf(t);
      }
    }
    return bytes;
  }

 private:
  bool isResult(int64_t tensor) {
    const int64_t output = host_.tensors[tensor].index;
    return !host_.aliasOf[output] && host_.outputs[output] == tensor;
  }

  IntExpr bytesOf(int64_t tensor) {
    const TensorPlan& t = host_.tensors[tensor];
    const int64_t bytes = host_.sizes().tensors[tensor].bytes;
    const int64_t size = dataTypeSize(t.dtype);
    const std::optional<IntExpr> count = elements_.of(host_.fusion->val(t.val), bytes / size);
    if (!count) {
      constants_.push_back(fmt::format("T{} of {} bytes", t.val, bytes));
    }
    return count ? *count * size : IntExpr(bytes);
  }

  // Each block begins at 0 or at the end of a block that is alive at the same time.
  IntExpr arena() {
    const std::vector<MemoryBlock>& blocks = host_.sizes().arena;
    auto order = mapped<int64_t>(indices(blocks), std::identity());
    std::ranges::stable_sort(order, {}, [&](int64_t k) { return blocks[k].offset; });
    std::vector<IntExpr> ends;  // of the blocks so far
    IntExpr size = 0;
    for (const int64_t number : order) {
      const MemoryBlock& block = blocks[number];
      IntExpr begin = 0;
      for (const int64_t k : indices(ends)) {
        if (blocks[order[k]].end() == block.offset && blocks[order[k]].meets(block)) {
          begin = ends[k];
        }
      }
      const int64_t tensor = host_.arena[number].tensor;
      if (tensor < 0 && block.bytes > 0) {
        constants_.push_back(fmt::format("a workspace of {} bytes", block.bytes));
      }
      const IntExpr bytes = tensor < 0 ? IntExpr(block.bytes) : bytesOf(tensor);
      ends.push_back(begin + ceilDiv(bytes, kArenaAlignment) * kArenaAlignment);
      size = max(size, ends.back());
    }
    return size;
  }

  const HostProgram& host_;
  LocalElements elements_;
  std::vector<std::string>& constants_;
};

int64_t valueAt(const IntExpr& e, const MeshSizes& sizes) {
  return e.evaluate([&](std::string_view name) -> std::optional<int64_t> {
    const auto size = sizes.find(std::string(name));
    check(size != sizes.end(), "[costs] axis {} has no size; give it one", name);
    return size->second;
  });
}

}  // namespace

int64_t SymbolicCosts::commBytesAt(const MeshSizes& sizes) const { return valueAt(commBytes, sizes); }

int64_t SymbolicCosts::peakMemoryAt(const MeshSizes& sizes) const { return valueAt(peakMemory, sizes); }

SymbolicCosts symbolicCosts(const CompiledProgram& compiled, std::span<const std::string> openAxes) {
  const AxisSizes sizes(*compiled.program.planned, openAxes);
  SymbolicCosts costs;
  costs.commBytes = communication(compiled.program, sizes, costs.constants);
  costs.peakMemory = Memory(compiled, sizes, costs.constants).peak();
  return costs;
}

}  // namespace meshfuse
