#include "exec/planned_program.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/not_constant.h"
#include "base/ranges.h"
#include "exec/agreement.h"
#include "exec/arguments.h"
#include "exec/rank_classes.h"
#include "exec/stored_plan.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "ir/plan_text.h"
#include "ir/text.h"
#include "localize/localize.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/sized_steps.h"
#include "multidevice/sharding/step_amounts.h"
#include "preseg_passes/table.h"

namespace meshfuse {

namespace {

void plan(PlannedProgram& result, std::shared_ptr<Fusion> global, const PassSettings& passes) {
  PassContext context(*global, passes);
  runPresegPasses(*global, context, result.sizes.values);
  result.planned = std::move(global);
  result.remarks = context.remarks();
  result.reasons = context.reasons();
}

// UserError if a tensor with a symbolic dim has parts that differ in size, or that are not known: parts that are lists of runs have constant
// sizes in all dims.
void checkEvenParts(const Fusion& planned) {
  for (const TensorView* tv : filtered(planned.tensors(), &TensorView::hasDeviceMesh)) {
    const ShardState state = shardState(tv);
    const std::vector<IterDomain*> dims = stateDims(tv);
    const bool isConstant = std::ranges::all_of(dims, [](const IterDomain* id) { return id->extent().isConst(); });
    for (const int64_t k : indices(dims)) {
      check(isConstant || !(state.dims[k].isOpaque() || state.dims[k].isRagged()),
            "dim {} of T{}, {} elements, is in uneven parts", k, tv->id(), dims[k]->extent().toString());
    }
  }
}

// Localizes the program for some ranks, and throws their first error. No other rank would have another one. Symbolic dims are in even parts, so a
// rank differs from others only by its neighbours on each axis: the first, the second and the last coordinate of each axis are tried. Parts of
// constant dims may differ in size: the first rank of each class of equal ranks is tried too.
void checkParts(const Fusion& planned, const SymbolValues& values) {
  const std::vector<TensorView*> onMesh = filtered(planned.tensors(), &TensorView::hasDeviceMesh);
  if (onMesh.empty()) {
    return;
  }
  const DeviceMesh& mesh = onMesh[0]->getDeviceMesh();
  const std::vector<int64_t> unlike = rankClasses(*plannedFor(planned, values), mesh.numDevices()).firstRanks;
  for (const int64_t rank : mesh.devices()) {
    const std::vector<int64_t> at = mesh.coordinates(rank);
    const bool isAtEnds = std::ranges::all_of(
        indices(at), [&](int64_t axis) { return at[axis] < 2 || at[axis] == mesh.axisSize(axis).constValue() - 1; });
    if (isAtEnds || contains(unlike, rank)) {
      (void)localize(planned, rank);
    }
  }
}

// The same text for the same communication.
std::string redistributionsOf(const Fusion& planned) {
  std::string text;
  for (const Expr* e : planned.exprs()) {
    const ExprAttributes& a = e->attributes();
    for (const CommStep& step : a.plan.value_or(std::vector<CommStep>())) {
      const int64_t elements = elementsReceived(step, plannedExtents(step, e->tensorOutput()->shape()));
      text += fmt::format("{} of {} {} on {}, pack {}\n", step.toString(), elements, name(e->output()->dtype()),
                          step.on.atoms.toString(), a.pack);
    }
    for (const HaloStep& step : a.haloSteps.value_or(std::vector<HaloStep>())) {
      text += toString(step) + "\n";
    }
  }
  return text;
}

// Before the first pass, so that an error of the user is not taken for one of a pass.
void checkProgram(const Fusion& fusion) {
  const std::string list = joined(verify(fusion), "", [](const std::string& violation) { return "\n  " + violation; });
  check(list.empty(), "[run] the fusion is not valid:{}", list);
}

// The symbols in the extent of a loop, and of the loops and dims that were split or merged into it.
std::vector<std::string> symbolsOf(const IterDomain* loop) {
  std::vector<std::string> symbols;
  std::set<const IterDomain*> seen{loop};
  std::vector<const IterDomain*> left{loop};
  while (!left.empty()) {
    const IterDomain* id = left.back();
    left.pop_back();
    append(symbols, id->extent().symbols());
    for (const IterDomain* in : id->definition() == nullptr ? std::vector<IterDomain*>() : id->definition()->in) {
      if (seen.insert(in).second) {
        left.push_back(in);
      }
    }
  }
  return symbols;
}

// UserError if a loop that an axis owns has no size in the program for constant sizes.
void checkSplits(const Fusion& constant) {
  for (const TensorView* tv : filtered(constant.tensors(), &TensorView::hasDeviceMesh)) {
    for (const IterDomain* id : filtered(tv->getLoopDomain(), &IterDomain::isDeviceDim)) {
      const bool ownsNothing = tv->getDeviceMesh().size(id->parallelType()).isConst(1);
      if (const std::vector<std::string> open = symbolsOf(id); !open.empty() && !ownsNothing) {
        throwUserError(fmt::format(
            "[run] loop {} of {} depends on {}, which occurs in no input; split by sizes of mesh axes or inputs",
            id->toString(), tv->toString(), open[0]));
      }
    }
  }
}

PlannedProgram constantProgramFor(const PlannedProgram& ofClass, const SymbolValues& values, const std::string& why) {
  PlannedProgram result = ofClass;
  result.planned = plannedFor(*ofClass.planned, values);
  result.sizes = {.whyConstant = why};
  return result;
}

// Of `stages`; nothing if they hold for the class.
std::optional<std::string> whyNotForClass(const std::function<void()>& stages) {
  std::string why;
  try {
    stages();
    return std::nullopt;
  } catch (const UserError& e) {
    why = e.what();
  } catch (const NotConstantError& e) {
    why = e.what();
  } catch (const InternalError& e) {  // a bug; the sizes of the call may still have a plan
    why = fmt::format("{} {}", kInternalError, e.what());
  }
  const size_t reproducer = why.find("\nreproducer: ");
  return why.substr(0, why.find('\n')) + (reproducer == std::string::npos ? "" : "; " + why.substr(reproducer + 1));
}

PlannedProgram planAnew(const Fusion& fusion, const ShapeClass& sizes, std::shared_ptr<Fusion> constant,
                        const PassSettings& passes) {
  std::optional<std::string> why;
  if (!sizes.isConstant()) {  // only what is the same on all ranks
    PlannedProgram result{.sizes = sizes};
    why = whyNotForClass([&] {
      std::shared_ptr<Fusion> ofClass = concretize(fusion, sizes.sizes);
      result.acceptsBetween = acceptsBetween(*ofClass);
      plan(result, std::move(ofClass), passes);
      checkEvenParts(*result.planned);
      checkParts(*result.planned, sizes.values);
      if (std::ranges::any_of(result.planned->exprs(),
                              [](const Expr* e) { return e->kind() == ExprKind::Redistribute; })) {
        check(!result.planned->planner().bound,
              "the planner setting `bound` limits intermediate tensors, which a plan for several sizes does not check");
        PlannedProgram ofConstants;
        plan(ofConstants, constant->clone(), passes);
        check(redistributionsOf(*result.planned) == redistributionsOf(*ofConstants.planned),
              "with the sizes of this call as constants, tensors would be redistributed in another way");
      }
    });
    if (!why) {
      return result;
    }
  }
  PlannedProgram result{.sizes = why ? ShapeClass{.whyConstant = *std::move(why)} : sizes};
  plan(result, std::move(constant), passes);
  return result;
}

}  // namespace

PlanFacts factsOf(const PlannedProgram& program) {
  if (program.facts) {
    return *program.facts;
  }
  const Fusion& planned = *program.planned;
  const auto isPlanned = [](const Expr* e) {
    return e->kind() == ExprKind::Redistribute || e->attributes().haloSteps.has_value();
  };
  return {.communicates = communicates(planned),
          .redistributes = std::ranges::any_of(planned.exprs(), isPlanned),
          .exprs = planned.numExprs()};
}

std::shared_ptr<Fusion> SizedFusion::constant() const {
  return sayingSizes(assumed, [&] { return concretize(fusion, sizes); });
}

std::shared_ptr<PlannedProgram> planProgram(const SizedFusion& sized, const ShapeClass& sizes,
                                            const PassSettings& passes, DiskCache* disk) {
  const Fusion& fusion = sized.fusion;
  const std::optional<Hash128> key =
      disk == nullptr ? std::nullopt : keyOfPlan(fusion, sized.sizes, sizes, passes, sized.text);
  std::shared_ptr<PlannedProgram> result = key ? loadPlan(*disk, *key, fusion, sizes) : nullptr;
  if (result == nullptr) {
    checkProgram(fusion);
    std::shared_ptr<Fusion> constant = sized.constant();
    checkSplits(*constant);
    result = std::make_shared<PlannedProgram>(planAnew(fusion, sizes, std::move(constant), passes));
    readPlanned(*result, fusion);
    if (key && !result->sizes.whyConstant.starts_with(kInternalError)) {
      storePlan(*disk, *key, *result);
    }
  }
  return result;
}

PlannedProgram programFor(const PlannedProgram& program, const Fusion& fusion, std::span<const Argument> inputs,
                          const SymbolValues& values, const std::string& whyNotHere) {
  if (program.sizes.isConstant()) {
    return program;
  }
  const std::string why = program.sizes.whyNotFor(layoutReasons(fusion, inputs));
  if (!why.empty() || !whyNotHere.empty()) {
    return constantProgramFor(program, values, why.empty() ? whyNotHere : why);
  }
  PlannedProgram result = program;
  result.sizes.values = values;
  return result;
}

bool holdsForClass(PlannedProgram& program, const SymbolValues& values, const std::function<void()>& stages) {
  if (program.sizes.isConstant()) {
    stages();
    return true;
  }
  const std::optional<std::string> why = whyNotForClass(stages);
  if (why) {
    program = constantProgramFor(program, values, *why);
  }
  return !why;
}

AgreedPlan agreedFor(const PlannedProgram& program, bool isConstant, const SymbolValues& values) {
  AgreedPlan plan = program.agreed;
  plan.identity = isConstant && !program.sizes.isConstant() ? identityFor(plan.identity, values) : plan.identity;
  return plan;
}

std::shared_ptr<const Fusion> plannedFor(const Fusion& planned, const SymbolValues& values) {
  std::shared_ptr<Fusion> result = concretize(planned, values);
  for (const Expr* e : planned.exprs()) {
    if (e->attributes().plan) {
      Expr* sized = result->val(e->output()->id())->definition();
      result->setPlan(
          sized, stepsFor(*e->attributes().plan, e->tensorOutput()->shape(), sized->tensorOutput()->constantShape()));
    }
  }
  return result;
}

}  // namespace meshfuse
