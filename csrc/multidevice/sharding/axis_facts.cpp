#include "multidevice/sharding/axis_facts.h"

#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/size_facts.h"

namespace meshfuse {

namespace {

// The outermost logical dim that a loop dim is made of, or -1.
int64_t originOf(const IterDomain* id, const std::vector<IterDomain*>& logical) {
  while (!contains(logical, id)) {
    if (id->definition() == nullptr) {
      return -1;
    }
    id = id->definition()->in[0];
  }
  return positionIn(logical, id);
}

MeshSizes hintsOf(const DeviceMesh& mesh) {
  MeshSizes hints;
  for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
    hints[mesh.axisName(axis)] = mesh.hintSize(axis);
  }
  return hints;
}

// Sizes of the axes that cut one dim, by name.
using Cut = std::map<std::string, IntExpr>;

IntExpr product(const Cut& cut) {
  IntExpr size = 1;
  for (const auto& [name, axis] : cut) {
    size *= axis;
  }
  return size;
}

// Constant extents of the dims that reshapes read and write.
std::set<int64_t> reshapedExtents(const Fusion& fusion) {
  std::set<int64_t> extents;
  for (const Expr* e : fusion.exprs()) {
    if (e->kind() != ExprKind::Reshape) {
      continue;
    }
    for (const auto* domain : {&e->tensorOutput()->getRootDomain(), &e->tensorOutput()->getLogicalDomain()}) {
      for (const IterDomain* id : *domain) {
        if (id->extent().isConst() && id->extent().constValue() > 1) {
          extents.insert(id->extent().constValue());
        }
      }
    }
  }
  return extents;
}

// A common divisor of the extent and of the dims that a reshape relates to it, limited by the hint: its divisors divide all of them.
int64_t sharedDivisor(int64_t extent, int64_t hint, const std::set<int64_t>& reshaped) {
  int64_t shared = extent;
  for (int64_t other : reshaped) {
    const int64_t both = std::gcd(shared, other);
    shared = both % hint == 0 ? both : shared;
  }
  return shared;
}

}  // namespace

AxisFacts::AxisFacts(const Fusion& fusion) : prover_(factsOfSizes(fusion)) {
  std::map<std::string, std::pair<IntExpr, Cut>> cuts;  // by extent: the axes that cut dims of it
  MeshSizes hints;
  for (const TensorView* tv : fusion.tensors()) {
    const DeviceMesh& mesh = tv->getDeviceMesh();
    if (!mesh.isSymbolic()) {
      continue;
    }
    hints.merge(hintsOf(mesh));
    for (const IterDomain* id : tv->getLoopDomain()) {
      const int64_t dim = id->isDeviceDim() ? originOf(id, tv->getLogicalDomain()) : -1;
      const int64_t axis = mesh.numAxes() - 1 - id->parallelType().axisFromLast();
      if (dim < 0 || axis < 0) {
        continue;
      }
      const IntExpr extent = prover_.canonical(tv->getLogicalDomain()[dim]->extent());
      auto& [whole, cut] = cuts[extent.toString()];
      whole = extent;
      cut.emplace(mesh.axisName(axis), mesh.axisSize(axis));
    }
  }
  if (cuts.empty()) {
    return;
  }
  const std::set<int64_t> reshaped = reshapedExtents(fusion);
  std::map<int64_t, Cut> constants;  // finest first, so that all quotients are written by the same one
  std::vector<std::pair<IntExpr, IntExpr>> others;
  for (const auto& [text, entry] : cuts) {
    const auto& [extent, cut] = entry;
    const IntExpr parts = product(cut);
    if (!parts.isConst() && !extent.isConst()) {
      others.emplace_back(parts, extent);
    } else if (!parts.isConst() && extent.constValue() > 0) {
      const int64_t hint = parts.evaluate([&](std::string_view name) { return hints.at(std::string(name)); });
      constants[sharedDivisor(extent.constValue(), hint, reshaped)].insert(cut.begin(), cut.end());
    }
  }
  for (const auto& [extent, cut] : constants) {
    prover_.assumeDivides(product(cut), extent);
  }
  for (const auto& [parts, extent] : others) {
    prover_.assumeDivides(parts, extent);
  }
}

std::optional<ShardState> atHints(const ShardState& state, const std::vector<IntExpr>& shape) {
  if (!state.mesh.isSymbolic()) {
    return state;
  }
  const MeshSizes hints = hintsOf(state.mesh);
  const auto bound = [&](const IntExpr& e) { return e.substitute(valuesIn(hints)); };
  ShardState result{state.mesh.bind(hints), {}, state.partial};
  for (int64_t k = 0; k < std::ssize(state.dims); k++) {
    const DigitList& dim = state.dims[k];
    if (dim.isOpaque() || !shape[k].isConst()) {
      return std::nullopt;
    }
    std::vector<Digit> digits;
    // A digit's range ends at the stride of the digit above it, the range of the topmost one at the extent.
    IntExpr above = shape[k];
    for (Digit d : dim.digits()) {
      d.stride = bound(d.stride);
      d.size = bound(d.size);
      d.owner.below = bound(d.owner.below);
      d.bound = bound(d.bound);
      if (!d.stride.isConst() || !d.size.isConst() || !(d.isRagged() || d.stride * d.size == above)) {
        return std::nullopt;
      }
      above = d.stride;
      digits.push_back(std::move(d));
    }
    result.dims.emplace_back(std::move(digits));
  }
  return result;
}

}  // namespace meshfuse
