#include "preseg_passes/sharded_program.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "analysis/pass_context.h"
#include "interpret/bounds.h"
#include "ir/text.h"
#include "localize/localize.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/plan_memo.h"
#include "multidevice/sharding/relation.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/rank_simulator.h"
#include "preseg_passes/table.h"

namespace meshfuse {

namespace {

// All communications but direct transfers, which only the ranks that send or receive run.
std::vector<std::string> collectives(const Fusion& local) {
  std::vector<std::string> steps = communications(local);
  std::erase_if(steps, [](const std::string& step) { return step.starts_with("transfer"); });
  return steps;
}

std::vector<int64_t> constants(const std::vector<IntExpr>& shape) {
  std::vector<int64_t> sizes;
  for (const IntExpr& e : shape) {
    sizes.push_back(e.constValue());
  }
  return sizes;
}

// The invariants that hold between decompose-reshardings and localize.
void expectOnlyRedistributesCommunicate(const Fusion& fusion) {
  for (const Expr* e : fusion.exprs()) {
    EXPECT_TRUE(e->kind() == ExprKind::Redistribute || exchangesHalo(e) || !isResharding(e)) << e->output()->toString();
  }
}

}  // namespace

void shard(TensorView* tv, const DeviceMesh& mesh, const std::vector<DimAxis>& dims) {
  tv->setDeviceMesh(mesh);
  // From the last dim on, so that positions of the ones before stay.
  std::vector<DimAxis> order = dims;
  std::stable_sort(order.begin(), order.end(), [](const DimAxis& a, const DimAxis& b) { return a.dim > b.dim; });
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    int at = order[i].dim;
    while (end < order.size() && order[end].dim == order[i].dim) {
      tv->outer_split(at, mesh.size(order[end].axis));
      tv->axis(at)->parallelize(mesh.axis(order[end].axis));
      at++;
      end++;
    }
    i = end;
  }
}

void shardCyclic(TensorView* tv, const DeviceMesh& mesh, int dim, const std::string& axis) {
  tv->setDeviceMesh(mesh);
  tv->inner_split(dim, mesh.size(axis));
  tv->axis(dim + 1)->parallelize(mesh.axis(axis));
}

std::vector<std::string> ShardedRun::computations() const {
  std::vector<std::string> names;
  for (const Expr* e : local->exprs()) {
    if (e->kind() != ExprKind::Communicate && e->kind() != ExprKind::Reshape && e->kind() != ExprKind::Slice) {
      names.emplace_back(e->opName());
    }
  }
  return names;
}

namespace {

// What the user placed.
struct Placements {
  std::vector<std::string> ends;      // of inputs and outputs, in their order; empty where the passes are free
  std::set<std::string> inTheMiddle;  // of all others
};

std::string placement(const TensorView* tv) {
  std::vector<std::string> shape;
  for (const IntExpr& extent : tv->shape()) {
    shape.push_back(extent.toString());
  }
  return fmt::format("[{}] {}", fmt::join(shape, ", "), shardState(tv).toString());
}

Placements placements(const Fusion& fusion) {
  Placements written;
  // after a first propagation all tensors have a mesh, and those that the user placed are marked
  const bool marked = std::ranges::any_of(fusion.tensors(), &TensorView::isUserSharded);
  for (const std::vector<Val*>& vals : {fusion.inputs(), fusion.outputs()}) {
    for (const Val* val : vals) {
      const bool placed =
          val->isTensor() && val->asTensor()->hasDeviceMesh() && (!marked || val->asTensor()->isUserSharded());
      written.ends.push_back(placed ? placement(val->asTensor()) : "");
    }
  }
  for (const TensorView* tv : fusion.tensors()) {
    // sums in parts are combined where they are, and a binding of a reduced dim is of no rank
    if (tv->hasDeviceMesh() && (!marked || tv->isUserSharded()) && !tv->isFusionInput() && !tv->isFusionOutput() &&
        !tv->isPartial() &&
        std::ranges::none_of(tv->getLoopDomain(), [](auto* id) { return id->isReduction() && id->isDeviceDim(); })) {
      written.inTheMiddle.insert(placement(tv));
    }
  }
  return written;
}

// Nothing moves what the user placed.
void expectPinsStay(const Placements& written, const Fusion& planned) {
  const Placements now = placements(planned);
  for (size_t k = 0; k < written.ends.size(); k++) {
    if (!written.ends[k].empty()) {
      EXPECT_EQ(now.ends[k], written.ends[k]) << "input or output " << k;
    }
  }
  std::set<std::string> userSharded;
  for (const TensorView* tv : planned.tensors()) {
    if (tv->isUserSharded()) {
      userSharded.insert(placement(tv));
    }
  }
  for (const std::string& one : written.inTheMiddle) {
    EXPECT_TRUE(userSharded.contains(one)) << one << "\n" << planned.toString();
  }
}

}  // namespace

ShardedRun runSharded(const Fusion& original, InputRange range, PassSettings settings) {
  ShardedRun run;
  run.planned = concretize(original, SymbolValues{});
  const Placements written = placements(*run.planned);
  PassContext context(*run.planned, settings);
  // Each pass again where it stands: later it might find that others have left nothing to it.
  for (const PassRow<Fusion, PassContext>& row : presegPasses()) {
    if (row.run(*run.planned, context)) {
      context.changed(row.keeps);
    }
    const std::string after = run.planned->toString();
    PassContext second(*run.planned, settings);
    EXPECT_FALSE(row.run(*run.planned, second)) << row.name << " is idempotent";
    EXPECT_EQ(run.planned->toString(), after) << row.name << " is idempotent";
    EXPECT_EQ(verify(*run.planned), std::vector<std::string>{}) << row.name;
  }
  expectOnlyRedistributesCommunicate(*run.planned);
  expectPinsStay(written, *run.planned);
  const std::string once = run.planned->toString();
  PassContext again(*run.planned, settings);
  runPresegPasses(*run.planned, again);
  EXPECT_EQ(run.planned->toString(), once) << "the passes are idempotent";
  // The text says all that was planned: what reads it plans nothing again.
  const std::unique_ptr<Fusion> read = parseFusion(once);
  PassContext fresh(*read, settings);
  runPresegPasses(*read, fresh);
  EXPECT_EQ(read->toString(), once);
  EXPECT_EQ(fresh.memo<PlanMemo>().size(), 0) << once;
  DeviceMesh mesh;
  for (const TensorView* tv : run.planned->tensors()) {
    mesh = mesh.empty() ? tv->getDeviceMesh() : mesh;
  }
  std::vector<std::unique_ptr<Fusion>> programs;
  std::vector<const Fusion*> ofRank;
  for (int64_t rank : mesh.devices()) {
    programs.push_back(localize(*run.planned, rank));
    const Fusion& local = *programs.back();
    ofRank.push_back(&local);
    EXPECT_EQ(verify(local), std::vector<std::string>{}) << local.toString();
    EXPECT_EQ(parseFusion(local.toString())->toString(), local.toString());
    const std::unique_ptr<Fusion> ofText = localize(*read, rank);
    EXPECT_EQ(communications(*ofText), communications(local));
    EXPECT_EQ(ofText->numExprs(), local.numExprs());
    EXPECT_EQ(collectives(local), collectives(*programs[0]));
  }
  std::vector<Argument> whole;
  std::vector<std::vector<Tensor>> parts(mesh.numDevices());
  uint64_t seed = 1;
  for (const Val* in : run.planned->inputs()) {
    const TensorView* tv = in->asTensor();
    const bool integral = isIntegral(tv->dtype());
    const Tensor t = randomTensor(constants(tv->shape()), tv->dtype(), seed++, integral ? 0 : range.low, range.high);
    whole.emplace_back(t);
    for (size_t device = 0; device < parts.size(); device++) {
      parts[device].push_back(localPart(t, tv, static_cast<int64_t>(device)));
    }
  }
  // A sum may be cut into a part for each rank.
  const std::vector<BoundedTensor> expected = interpretWithBounds(original, whole, {.partials = mesh.numDevices()});
  const std::vector<std::vector<Tensor>> got = simulateRanks(ofRank, mesh, parts);
  run.local = std::move(programs[0]);
  run.communications = communications(*run.local);
  for (size_t device = 0; device < got.size(); device++) {
    for (size_t k = 0; k < expected.size(); k++) {
      const TensorView* out = run.planned->outputs()[k]->asTensor();
      const auto rank = static_cast<int64_t>(device);
      const BoundedTensor part{localPart(expected[k].value, out, rank), localPart(expected[k].error, out, rank),
                               expected[k].uncertain};
      EXPECT_EQ(compare(got[device][k], part).value_or(""), "") << "output " << k << " on device " << device << "\n"
                                                                << run.planned->toString() << run.local->toString();
    }
  }
  return run;
}

ReshardCost costOf(const Fusion& fusion) {
  PlanMemo plans;
  ReshardCost cost;
  for (const Expr* e : fusion.exprs()) {
    if (isOneMeshReshard(e)) {
      cost += costOf(plans, e);
    }
    for (const Val* out : e->outputs()) {
      if (out->isTensor() && out->asTensor()->hasDeviceMesh()) {
        cost.held += localBytes(plans, shardState(out->asTensor()), out->dtype());
      }
    }
  }
  return cost;
}

}  // namespace meshfuse
