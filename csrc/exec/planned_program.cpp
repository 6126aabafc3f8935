#include "exec/planned_program.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/plan_text.h"
#include "localize/localize.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/sized_steps.h"
#include "multidevice/sharding/step_amounts.h"
#include "preseg_passes/table.h"

namespace meshfuse {

namespace {

void plan(SegmentedProgram& result, std::shared_ptr<Fusion> global, const PassSettings& passes) {
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

}  // namespace

std::shared_ptr<Fusion> planProgram(SegmentedProgram& result, const Fusion& fusion, std::shared_ptr<Fusion> constant,
                                    int64_t rank, const PassSettings& passes) {
  if (!result.sizes.isConstant()) {
    const ShapeClass wanted = result.sizes;
    std::string why;
    try {  // only what is the same on all ranks
      std::shared_ptr<Fusion> ofClass = concretize(fusion, wanted.sizes);
      result.acceptsBetween = acceptsBetween(*ofClass);
      plan(result, std::move(ofClass), passes);
      checkEvenParts(*result.planned);
      if (std::ranges::any_of(result.planned->exprs(),
                              [](const Expr* e) { return e->kind() == ExprKind::Redistribute; })) {
        SegmentedProgram ofConstants;
        plan(ofConstants, constant->clone(), passes);
        check(redistributionsOf(*result.planned) == redistributionsOf(*ofConstants.planned),
              "the redistributions for constant sizes are others");
      }
    } catch (const UserError& e) {
      why = e.what();
    } catch (const InternalError& e) {
      why = e.what();  // some pass takes a size for a constant; if it fails for constants too, the call fails
    }
    if (why.empty()) {
      return localize(*result.planned, rank);
    }
    result = {.sizes = {.whyConstant = why.substr(0, why.find('\n'))}};
  }
  plan(result, std::move(constant), passes);
  return localize(*result.planned, rank);
}

std::shared_ptr<Fusion> programFor(SegmentedProgram& result, const SegmentedProgram& ofClass, int64_t rank) {
  result.planned = plannedFor(*ofClass.planned, result.sizes.values);
  result.remarks = ofClass.remarks;
  result.reasons = ofClass.reasons;
  result.sizes = {.whyConstant = "arguments of this rank are not row-major"};
  return localize(*result.planned, rank);
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
