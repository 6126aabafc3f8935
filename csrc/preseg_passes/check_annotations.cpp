#include "preseg_passes/check_annotations.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/ranges.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"
#include "multidevice/sharding/axis_facts.h"
#include "multidevice/sharding/contributions.h"
#include "multidevice/sharding/plan_options.h"
#include "preseg_passes/plain_tensor.h"

namespace meshfuse {

namespace {

// The first logical dim that a loop dim is made of.
std::optional<int64_t> originOf(const IterDomain* id, const std::vector<IterDomain*>& logical) {
  if (const int64_t at = positionIn(logical, id); at < std::ssize(logical)) {
    return at;
  }
  if (id->definition() == nullptr) {
    return std::nullopt;
  }
  for (const IterDomain* in : id->definition()->in) {
    if (const std::optional<int64_t> origin = originOf(in, logical)) {
      return origin;
    }
  }
  return std::nullopt;
}

void checkLoop(const TensorView* tv, const BoundLoop& loop, std::vector<std::string>& violations) {
  const DeviceMesh& mesh = tv->getDeviceMesh();
  const std::vector<IterDomain*>& logical = tv->getLogicalDomain();
  const std::string axis = mesh.axisName(loop.axis);
  const std::string tensor = tv->toString();
  const int64_t dim = originOf(loop.id, logical).value_or(0);
  const IntExpr size = mesh.size(loop.id->parallelType());
  if (loop.extent.isConst() && size.isConst() && !(loop.extent == size)) {
    violations.push_back(fmt::format(
        "dim {} of {} (size {}): a loop dim of extent {} is bound to axis {} of {}; expected equal sizes: split "
        "by the size of the axis",
        dim, tensor, logical[dim]->extent().toString(), loop.extent.toString(), axis, size.toString()));
    return;
  }
  const bool constant = std::ranges::all_of(logical, [](const IterDomain* id) { return id->extent().isConst(); });
  if (loop.digits.isOpaque() && constant && !mesh.isSymbolic()) {
    violations.push_back(fmt::format(
        "the loop dim bound to axis {} of {} cuts merged dims, or an uneven part, and the cuts do not nest: "
        "a rank's part is no rectangle; expected splits at multiples of the inner dims, or one split by the product of "
        "all axes: shard one logical dim",
        axis, tensor));
  }
}

// No digit of an axis is bound to two loop dims.
void checkOverlaps(const TensorView* tv, const std::vector<const IterDomain*>& bound,
                   std::vector<std::string>& violations) {
  const DeviceMesh& mesh = tv->getDeviceMesh();
  for (auto second = bound.begin(); second != bound.end(); second++) {
    const ParallelType type = (*second)->parallelType();
    const auto first = std::find_if(bound.begin(), second,
                                    [&](const IterDomain* id) { return mesh.overlap(id->parallelType(), type); });
    if (first == second) {
      continue;
    }
    const std::vector<IterDomain*>& loops = tv->getLoopDomain();
    const auto place = [&](const IterDomain* id) { return positionIn(loops, id); };
    const ParallelType other = (*first)->parallelType();
    const std::vector<ParallelType> all = mapped(bound, &IterDomain::parallelType);
    const std::string free = joined(mesh.freeInstead(other, type, all), ", ", [&](ParallelType one) {
      const std::string axis = mesh.axisName(mesh.axisOf(one));
      return one.isPart() ? fmt::format("{} of {}", one.toString(), axis) : axis;
    });
    violations.push_back(fmt::format(
        "{} binds {}, axis {} of {}, to its loop dims {} and {}; an axis{} owns one digit of a tensor: leave one of "
        "them serial, {}",
        tv->toString(), other == type ? type.toString() : fmt::format("{} and {}", other.toString(), type.toString()),
        mesh.axisName(mesh.axisOf(type)), mesh.toString(), place(*first), place(*second),
        other.isPart() || type.isPart() ? ", or a part of one," : "",
        free.empty() ? "or give the mesh one more axis" : "or bind it to one that is free: " + free));
  }
}

// Part sizes that are known only at run time may not add up to the extent of the dim.
void checkParts(const TensorView* tv, std::vector<std::string>& violations) {
  for (const IdExpr* e : transformsBetween(tv->getLogicalDomain(), tv->getLoopDomain())) {
    const IntExpr together = sumOf(e->sizes);
    const IntExpr& extent = e->in[0]->extent();
    if (e->kind == IdExprKind::Partition && together.isConst() && extent.isConst() && together != extent) {
      violations.push_back(fmt::format("a dim of {} has {} elements, its parts {} have {}; give the sizes of all parts",
                                       tv->toString(), extent.toString(), toString(e->sizes), together.toString()));
    }
  }
}

void checkTensor(const TensorView* tv, const Prover& facts, std::vector<std::string>& violations) {
  std::vector<const IterDomain*> bound;
  for (const IterDomain* id : tv->getLoopDomain()) {
    if (!id->isDeviceDim()) {
      continue;
    }
    if (!tv->hasDeviceMesh()) {
      violations.push_back(fmt::format("{} has a dim bound to {} but no mesh; call setDeviceMesh", tv->toString(),
                                       id->parallelType().toString()));
      return;
    }
    if (!id->isReduction()) {
      bound.push_back(id);
    }
  }
  checkOverlaps(tv, bound, violations);
  if (!tv->hasDeviceMesh()) {
    return;
  }
  const size_t before = violations.size();
  checkParts(tv, violations);
  for (const BoundLoop& loop : boundLoops(tv, tv->getLogicalDomain(), facts)) {
    checkLoop(tv, loop, violations);
  }
  if (violations.size() > before || tv->getDeviceMesh().isSymbolic()) {
    return;
  }
  const ShardState state = shardState(tv);
  for (int64_t k = 0; k < std::ssize(state.dims); k++) {
    if (state.dims[k].isOpaque() && tv->shape()[k].isConst()) {
      violations.push_back(fmt::format(
          "the digits of dim {} of {} (size {}) that axes own do not nest; expected each split to divide what it "
          "splits",
          k, tv->toString(), tv->shape()[k].toString()));
    }
  }
}

// The axes that count a tensor's contributions, as its loops name them: slowest first.
std::vector<ParallelType> axesOfContributions(const TensorView* tv) {
  std::vector<ParallelType> axes;
  const std::vector<int64_t> partial = shardState(tv).partial;
  for (const IterDomain* id : tv->getLoopDomain()) {
    if (id->isDeviceDim() && contains(partial, tv->getDeviceMesh().axisOf(id->parallelType()))) {
      axes.push_back(id->parallelType());
    }
  }
  return axes;
}

// An op on partial sums gives a partial sum only if all operands count the same contributions.
bool staysPartial(const Expr* e) {
  if (!e->output()->isTensor() || !e->tensorOutput()->isPartial()) {
    return false;
  }
  const TensorView* out = e->tensorOutput();
  return std::ranges::all_of(e->tensorInputs(), [&](const TensorView* in) {
    return in->partialDim() == out->partialDim() && in->hasDeviceMesh() && out->hasDeviceMesh() &&
           in->getDeviceMesh() == out->getDeviceMesh() && axesOfContributions(in) == axesOfContributions(out);
  });
}

// An op on a partial sum must add its contributions or keep them apart.
void checkPartial(const TensorView* tv, const Prover& facts, std::vector<std::string>& violations) {
  const int64_t dim = tv->partialDim();
  if (dim < 0) {
    return;
  }
  if (std::string wrong = wrongContributions(tv, facts); !wrong.empty()) {
    violations.push_back(std::move(wrong));
  }
  const std::vector<int64_t> axes = tv->hasDeviceMesh() ? shardState(tv, facts).partial : std::vector<int64_t>();
  if (axes.empty()) {
    return;
  }
  const std::string names = joined(axes, ", ", [&](int64_t axis) { return tv->getDeviceMesh().axisName(axis); });
  auto refuse = [&](const std::string& how) {
    violations.push_back(fmt::format(
        "{} is a partial sum over {}, whose contributions dim {} counts, and {}; expected a reduction of dim "
        "{} alone: put one after {}",
        tv->toString(), names, dim, how, dim, tv->toString()));
  };
  for (const Expr* use : tv->fusion().uses(tv)) {
    const bool ends = use->kind() == ExprKind::Redistribute ? use->attributes().dim == dim : combinesPartials(use);
    if (!ends && !staysPartial(use)) {
      refuse(fmt::format("{} reads it for {}", use->opName(), use->output()->toString()));
    }
  }
  if (tv->isFusionOutput()) {
    refuse("it is an output");
  }
}

// An output aliased to an input has the sharding of the input.
void checkAliases(const Fusion& fusion, const Prover& facts, std::vector<std::string>& violations) {
  for (const auto& [output, input] : fusion.aliases()) {
    const TensorView* out = output->asTensor();
    const TensorView* in = input->asTensor();
    if (!out->hasDeviceMesh()) {
      continue;  // takes the input's sharding
    }
    const ShardState wanted = shardState(out, facts);
    const bool same = in->hasDeviceMesh() ? provenEqual(wanted, shardState(in, facts), facts) : !wanted.isSharded();
    if (!same) {
      violations.push_back(fmt::format(
          "{} is aliased to {}, but its sharding is {} and that of {} is {}; expected one sharding for one memory: "
          "leave out that of {}, or alias a copy of it",
          out->toString(), in->toString(), wanted.toString(), in->toString(),
          in->hasDeviceMesh() ? shardState(in).toString() : "whole on every rank", out->toString()));
    }
  }
}

}  // namespace

bool checkAnnotations(Fusion& fusion, PassContext& context) {
  const Prover& facts = context.get<AxisFacts>().prover();
  std::vector<std::string> violations = wrongPlannerSettings(fusion);
  for (const TensorView* tv : fusion.tensors()) {
    checkTensor(tv, facts, violations);
  }
  if (violations.empty()) {  // tensors with violations have no valid state
    for (const TensorView* tv : fusion.tensors()) {
      checkPartial(tv, facts, violations);
    }
    checkAliases(fusion, facts, violations);
  }
  if (violations.empty()) {
    return false;
  }
  throwUserError(fmt::format("[sharding] {}", fmt::join(violations, "\n  ")));
}

}  // namespace meshfuse
