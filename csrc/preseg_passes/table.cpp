#include "preseg_passes/table.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/ranges.h"
#include "base/reproducer.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "multidevice/sharding/axis_facts.h"
#include "multidevice/sharding/contributions.h"
#include "multidevice/sharding/plan_memo.h"
#include "preseg_passes/check_annotations.h"
#include "preseg_passes/combine_variance.h"
#include "preseg_passes/decompose_reshardings.h"
#include "preseg_passes/fold_windows.h"
#include "preseg_passes/insert_bounds_checks.h"
#include "preseg_passes/merge_top_k.h"
#include "preseg_passes/optimize_reshards.h"
#include "preseg_passes/pack_redistributions.h"
#include "preseg_passes/partialize_reductions.h"
#include "preseg_passes/plan_redistributions.h"
#include "preseg_passes/privatize_casts.h"
#include "preseg_passes/propagate_shardings.h"
#include "preseg_passes/remove_unneeded_sets.h"
#include "preseg_passes/split_scans.h"

namespace meshfuse {

namespace {

const PassRow<Fusion, PassContext> kPasses[] = {
    {"check-annotations", checkAnnotations, "first: all other passes rely on parts that are rectangles"},
    {"fold-windows", foldWindows, "before shardings propagate: they would also reach the tensor between pad and slice"},
    {"privatize-casts", privatizeCasts, "before shardings propagate: each use of a cast may then get its own sharding"},
    {"propagate-shardings", propagateShardings, "needs the final graph; all later passes read shardings"},
    {"split-scans", splitScans,
     "needs final shardings of both ends of a scan; before reshards: they would gather the dim"},
    {"merge-top-k", mergeTopK,
     "needs final shardings; before partialize-reductions, which sums the positions that it takes from the blocks"},
    {"insert-bounds-checks", insertBoundsChecks,
     "a check gets the sharding of its index; before tables are cut, because it needs their whole extents"},
    {"partialize-reductions", partializeReductions,
     "before reshards: a sum over a sharded dim must not gather its operand"},
    {"decompose-reshardings", decomposeReshardings,
     "when all shardings are final; afterwards only Redistribute communicates"},
    {"optimize-reshards", optimizeReshards,
     "needs each reshard as an op of its own, without a plan: it moves, joins and splits them"},
    {"combine-variance", combineVariance,
     "after optimize-reshards: it replaces only all-reduces that optimize-reshards left whole"},
    {"remove-unneeded-sets", removeUnneededSets,
     "after reshards are ops of their own: a copy that only holds an annotation would cost a kernel"},
    {"plan-redistributions", planRedistributions,
     "when no sharding changes any more: the steps follow from the shardings"},
    {"pack-redistributions", packRedistributions,
     "last: it compares the steps of plans, and no later pass may separate the ops that it packs"},
};

using Sizes = std::map<std::string, int64_t>;

// `values`: of size symbols.
bool run(std::span<const PassRow<Fusion, PassContext>> rows, Fusion& fusion, PassContext& context,
         const Sizes& values = {}) {
  context.memo<PlanMemo>().takeSizes(values);
  if (context.settings().planner) {
    fusion.setPlanner(*context.settings().planner);
  }
  PassOptions options = PassOptions::fromEnvironment();
  options.verify = context.settings().verify;
  const PassRunner<Fusion, PassContext> runner{
      .stage = "preseg",
      .print = [](const Fusion& f) { return f.toString(); },
      .verify =
          [&context](const Fusion& f) {
            std::vector<std::string> violations = verify(f);
            for (const TensorView* tv : f.tensors()) {
              if (std::string wrong = wrongContributions(tv, context.get<AxisFacts>().prover()); !wrong.empty()) {
                violations.push_back(std::move(wrong));
              }
            }
            return violations;
          },
      .options = std::move(options),
      .reproduce = [rows, &values](
                       std::string_view pass,
                       const std::string& text) { return writeReproducer(passNames(rows), pass, text, values); },
  };
  return runner.run(rows, fusion, context);
}

size_t passesBeforeSizes() {
  const auto last = std::ranges::find(kPasses, "propagate-shardings", &PassRow<Fusion, PassContext>::name);
  return static_cast<size_t>(last - std::begin(kPasses)) + 1;
}

}  // namespace

std::span<const PassRow<Fusion, PassContext>> presegPasses() { return kPasses; }

void runPresegPasses(Fusion& fusion, PassContext& context, const std::map<std::string, int64_t>& values) {
  run(presegPasses(), fusion, context, values);
}

bool runPass(Fusion& fusion, std::string_view pass, const std::map<std::string, int64_t>& values) {
  const std::vector<std::string_view> names = passNames(presegPasses());
  check(contains(names, pass), "[runPass] there is no pass \"{}\"; there are: {}", pass, joined(names, ", "));
  const int64_t at = positionIn(names, pass);
  const auto changes = [&](Fusion& of, int64_t first) {
    PassContext context(of);
    return run(presegPasses().subspan(first, at + 1 - first), of, context, values);
  };
  bool fails = false;
  try {
    (void)changes(*fusion.clone(), at);
  } catch (const InternalError&) {
    (void)changes(*fusion.clone(), 0);  // throws if the pass is wrong, not the order
    fails = true;
  }
  if (!fails) {
    return changes(fusion, at);
  }
  throwUserError(fmt::format(
      "[runPass] {} failed on a program to which not all earlier passes were applied; apply first, in this order: {}",
      pass, joined(std::span(names).first(at), ", ")));
}

void runPassesBeforeSizes(Fusion& fusion, PassContext& context) {
  run(presegPasses().first(passesBeforeSizes()), fusion, context);
}

void runPassesAfterPropagation(Fusion& fusion, PassContext& context) {
  run(presegPasses().subspan(passesBeforeSizes()), fusion, context);
}

}  // namespace meshfuse
