#include "multidevice/sharding/size_facts.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ranges>
#include <set>
#include <string>

#include "analysis/id_graph.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

bool areExtentsConstant(const TensorView* tv) {
  const auto areConstant = [](const std::vector<IterDomain*>& ids) {
    return std::ranges::all_of(ids, [](const IterDomain* id) { return id->extent().isConst(); });
  };
  return areConstant(tv->getRootDomain()) && areConstant(tv->getLogicalDomain()) && areConstant(tv->getLoopDomain());
}

std::vector<const TensorView*> tensorsOf(const Expr& expr) {
  std::vector<const TensorView*> tensors;
  for (const Val* out : expr.outputs()) {
    if (out->isTensor()) {
      tensors.push_back(out->asTensor());
    }
  }
  append(tensors, expr.tensorInputs());
  return tensors;
}

// Whether no sizes make both equal, as far as their constants tell.
bool differ(const IntExpr& a, const IntExpr& b) {
  if (!a.isConst() || b.isConst()) {
    return b.isConst() && (a.isConst() ? a != b : differ(b, a));
  }
  return b.divisor() > 1 && a.constValue() % b.divisor() != 0;
}

// What is known of the sizes, and the first two declared sizes that no call has.
struct SizeFacts {
  Prover prover;
  std::string contradiction;

  // `mistake` makes the text from both sizes.
  void assumeEqual(const IntExpr& a, const IntExpr& b, const auto& mistake) {
    const IntExpr left = prover.canonical(a);
    const IntExpr right = prover.canonical(b);
    if (contradiction.empty() && differ(left, right)) {
      contradiction = mistake(left.toString(), right.toString());
    }
    prover.assumeEqual(left, right);
  }
};

// The tensor of an expr that has a dim.
std::string ownerOf(const IterDomain* id, const Expr& e) {
  for (const TensorView* tv : tensorsOf(e)) {
    if (contains(tv->getRootDomain(), id) || contains(tv->getLogicalDomain(), id)) {
      return tv->toString();
    }
  }
  return id->toString();
}

void addDims(const Expr& e, SizeFacts& facts) {
  if (!e.output()->isTensor() || e.kind() == ExprKind::Expand || e.kind() == ExprKind::Communicate) {
    return;
  }
  for (const IdLink& link : idLinks(e)) {
    const bool alike = link.how == DimRead::Same || link.how == DimRead::Reduced;
    if (alike && link.producer->iterType() == IterType::Iteration && !link.consumer->isBroadcast()) {
      facts.assumeEqual(link.producer->extent(), link.consumer->extent(), [&](std::string_view p, std::string_view c) {
        return fmt::format(
            "[sizes] {} reads {} and {} at one index, but the sizes of that dim are {} and {}; expected equal sizes",
            e.opName(), ownerOf(link.producer, e), ownerOf(link.consumer, e), p, c);
      });
    }
  }
}

// Assumes that both shapes of a reshape have one number of elements.
void addElements(const Expr& e, SizeFacts& facts) {
  const TensorView* from = e.input(0)->asTensor();
  const TensorView* to = e.tensorOutput();
  facts.assumeEqual(productOf(from->shape()), productOf(to->shape()), [&](std::string_view p, std::string_view c) {
    return fmt::format("[sizes] reshape reads {}, {} elements, and gives {}, {} elements; expected equal numbers",
                       from->toString(), p, to->toString(), c);
  });
}

// An axis without a size by which a dim is bound whole; nothing for all other loops.
std::optional<IntExpr> axisOfWholeDim(const TensorView* tv, const IterDomain* id) {
  if (!tv->hasDeviceMesh() || !id->isDeviceDim() || id->extent().isConst()) {
    return std::nullopt;
  }
  const IntExpr size = tv->getDeviceMesh().size(id->parallelType());
  const std::vector<IterDomain*>& dims = tv->getLogicalDomain();
  return size.isSymbol() && contains(dims, id) ? std::optional(size) : std::nullopt;
}

// Which axes without a size have more than one device. Of the others only what arguments are asked is known: an input's dim is as long
// as the axis that it is bound to.
using Axes = std::set<std::string, std::less<>>;

// An axis of one device owns nothing, and its loop may have any size.
void addLoops(const TensorView* tv, const Axes& several, SizeFacts& facts) {
  for (const IterDomain* id : tv->getLoopDomain()) {
    if (!id->isDeviceDim() || !tv->hasDeviceMesh() || id->extent().isConst()) {
      continue;
    }
    const IntExpr size = tv->getDeviceMesh().size(id->parallelType());
    const std::optional<IntExpr> axis = axisOfWholeDim(tv, id);
    if (size.isConst() ? !size.isConst(1) : axis && (tv->isFusionInput() || several.contains(axis->symbolName()))) {
      facts.assumeEqual(id->extent(), size, [&](std::string_view loop, std::string_view devices) {
        return fmt::format("[sizes] a loop of {} has size {}, but its axis of {} has {}; expected equal sizes",
                           tv->toString(), loop, tv->getDeviceMesh().toString(), devices);
      });
    }
  }
}

void addAll(const Fusion& fusion, const Axes& several, SizeFacts& facts) {
  const std::vector<TensorView*> tensors = fusion.tensors();
  if (std::ranges::all_of(tensors, areExtentsConstant)) {
    return;
  }
  for (const TensorView* tv : tensors) {
    addLoops(tv, several, facts);
  }
  for (const Expr* e : fusion.exprs()) {
    addDims(*e, facts);
  }
}

SizeFacts factsOf(const Expr& expr, const Axes& several, const Axes& one) {
  SizeFacts facts;
  for (const std::string& axis : one) {
    facts.prover.assumeEqual(IntExpr::symbol(axis, {.lower = 1}), 1);
  }
  addAll(expr.output()->fusion(), several, facts);
  for (const TensorView* tv : tensorsOf(expr)) {
    addLoops(tv, several, facts);
  }
  addDims(expr, facts);
  facts.prover = withReshape(expr, facts.prover);
  return facts;
}

Prover checked(SizeFacts facts) {
  if (!facts.contradiction.empty()) {
    throwUserError(std::move(facts.contradiction));
  }
  return std::move(facts.prover);
}

}  // namespace

bool hasConstantExtents(const Expr& expr) { return std::ranges::all_of(tensorsOf(expr), areExtentsConstant); }

Prover factsOfSizes(const Fusion& fusion) {
  SizeFacts facts;
  addAll(fusion, {}, facts);
  SizeFacts withElements = facts;  // for this check alone: see withReshape
  for (const Expr* e : fusion.exprs()) {
    if (e->kind() == ExprKind::Reshape && !hasConstantExtents(*e)) {
      addElements(*e, withElements);
    }
  }
  (void)checked(std::move(withElements));
  return std::move(facts.prover);
}

Prover factsOfSizes(const Expr& expr) { return hasConstantExtents(expr) ? Prover() : checked(factsOf(expr, {}, {})); }

std::vector<Prover> casesOfSizes(const Expr& expr) {
  const std::vector<const TensorView*> tensors = tensorsOf(expr);
  Axes axes;
  for (const TensorView* tv : tensors) {
    for (const IterDomain* id : tv->getLoopDomain()) {
      const std::optional<IntExpr> axis = axisOfWholeDim(tv, id);
      if (axis && !tv->isFusionInput()) {
        axes.emplace(axis->symbolName());
      }
    }
  }
  if (axes.empty()) {
    return {factsOfSizes(expr)};
  }
  std::vector<Prover> cases;
  SizeFacts impossible;
  const std::vector<std::string> names(axes.begin(), axes.end());
  for (int64_t ones = 0; ones < int64_t{1} << names.size(); ones++) {
    Axes one;
    Axes several;
    for (int64_t k = 0; k < std::ssize(names); k++) {
      ((ones >> k & 1) != 0 ? one : several).insert(names[k]);
    }
    SizeFacts facts = factsOf(expr, several, one);
    if (facts.contradiction.empty()) {
      cases.push_back(std::move(facts.prover));
    } else {
      impossible = std::move(facts);
    }
  }
  return cases.empty() ? std::vector{checked(std::move(impossible))} : cases;
}

ReshapedDims reshapedDims(const std::vector<IterDomain*>& from, const std::vector<IterDomain*>& to,
                          const Prover& prover) {
  const auto equal = [&](int64_t i, int64_t j) {
    return prover.canonical(from[i]->extent()) == prover.canonical(to[j]->extent());
  };
  ReshapedDims dims;
  int64_t first = 0;
  while (first < std::ssize(from) && first < std::ssize(to) && equal(first, first)) {
    dims.same.emplace_back(first, first);
    first++;
  }
  int64_t fromEnd = std::ssize(from);
  int64_t toEnd = std::ssize(to);
  while (fromEnd > first && toEnd > first && equal(fromEnd - 1, toEnd - 1)) {
    dims.same.emplace_back(--fromEnd, --toEnd);
  }
  const auto between = [&](const std::vector<IterDomain*>& ids, int64_t end) {
    return filtered(std::views::iota(first, end), [&](int64_t k) { return !ids[k]->extent().isConst(1); });
  };
  dims.from = between(from, fromEnd);
  dims.to = between(to, toEnd);
  return dims;
}

Prover withReshape(const Expr& expr, const Prover& facts) {
  if (expr.kind() != ExprKind::Reshape) {
    return facts;
  }
  Prover prover = facts;
  const std::vector<IterDomain*>& root = expr.tensorOutput()->getRootDomain();
  const std::vector<IterDomain*>& logical = expr.tensorOutput()->getLogicalDomain();
  const ReshapedDims dims = reshapedDims(root, logical, prover);
  const IntExpr elements = productOf(dims.from, [&](int64_t k) { return prover.canonical(root[k]->extent()); });
  int64_t known = 1;  // product of the constant extents of the result
  bool all = true;
  for (const int64_t k : dims.to) {
    const IntExpr extent = prover.canonical(logical[k]->extent());
    known *= extent.isConst() ? extent.constValue() : 1;
    all = all && extent.isConst();
  }
  if (all) {
    prover.assumeEqual(elements, known);
  } else if (known > 0 && elements.terms().size() == 1 && elements.constantTerm() == 0) {
    const int64_t times = elements.terms()[0].coefficient;
    prover.assumeDivides(known / std::gcd(times, known), *divideExactly(elements, times));
  }
  return prover;
}

}  // namespace meshfuse
