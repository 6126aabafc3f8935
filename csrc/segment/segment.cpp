#include "segment/segment.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/fusion.h"
#include "schedule/registry.h"
#include "segment/join_siblings.h"
#include "segment/local_context.h"
#include "segment/step_graph.h"

namespace meshfuse {

namespace {

bool isKernelOp(const Expr& e, const LocalContext& context) {
  switch (e.kind()) {
    case ExprKind::Communicate:
    case ExprKind::BitCast:
    case ExprKind::Scan:
    case ExprKind::ArgSort:
      return false;
    case ExprKind::Matmul:
    case ExprKind::Linear:
      return !context.isLibraryCall(e);
    default:
      return true;
  }
}

bool hasNoElements(const TensorView* tv) {
  std::vector<IntExpr> shape = tv->shape();
  return std::any_of(shape.begin(), shape.end(), [](const IntExpr& e) { return e.isConst(0); });
}

bool touchesEmpty(const Expr& e) {
  for (const TensorView* tv : e.tensorInputs()) {
    if (hasNoElements(tv)) {
      return true;
    }
  }
  return e.output()->isTensor() && hasNoElements(e.tensorOutput());
}

// A view keeps the order of elements in memory.
bool isViewOp(const Expr& e) {
  switch (e.kind()) {
    case ExprKind::Set:
    case ExprKind::Reshape:
    case ExprKind::Squeeze:
    case ExprKind::Broadcast:
    case ExprKind::BitCast:
      return true;
    case ExprKind::Permute: {  // moving dims of extent 1 only
      std::vector<IntExpr> shape = e.tensorInputs()[0]->shape();
      int last = -1;
      for (int from : e.attributes().order) {
        if (shape[static_cast<size_t>(from)].isConst(1)) {
          continue;
        }
        if (from < last) {
          return false;
        }
        last = from;
      }
      return true;
    }
    default:
      return false;
  }
}

// Ops in one kernel. Compilers take more than linear time for straight code, and next to so much arithmetic another round trip
// through memory is nothing.
constexpr size_t kMaxKernelOps = 512;

// Elementwise, same shape throughout: joining it changes nothing a scheduler looks at.
bool isPlain(const Expr& e) {
  if (e.kind() != ExprKind::Point && e.kind() != ExprKind::Cast) {
    return false;
  }
  std::vector<IntExpr> shape = e.tensorOutput()->shape();
  std::vector<TensorView*> ins = e.tensorInputs();
  return !ins.empty() &&
         std::all_of(ins.begin(), ins.end(), [&](const TensorView* tv) { return tv->shape() == shape; });
}

class Segmenter {
 public:
  Segmenter(const Fusion& fusion, const LocalContext& context, const DeviceInfo& device,
            std::span<const Scheduler> schedulers)
      : fusion_(fusion), context_(context), device_(device), schedulers_(schedulers), graph_(fusion, context) {}

  std::vector<Segment> run() {
    for (Expr* e : inAgreedOrder()) {
      if (e->output()->isTensor()) {
        place(e);
      }
    }
    for (int i = 0; i < graph_.size(); i++) {
      StepNode& n = graph_.at(i);
      if (!n.dead && n.kind == SegmentKind::Kernel && isView(n)) {
        n.kind = SegmentKind::View;
      }
    }
    joinSiblings(graph_, device_, schedulers_);
    std::vector<Segment> result;
    for (int i : graph_.inOrder()) {
      const StepNode& n = graph_.at(i);
      result.push_back({n.kind, graph_.groupOf(n.exprs), n.scheduler, n.boundary, n.joins});
    }
    return result;
  }

 private:
  // Topological, with the collectives in the order of their ids: what one rank adds for its own layouts may delay an op, but not
  // change the order of collectives, which is that of the program all ranks agreed on. Nothing stands before what it does not have to:
  // what a gather makes lies in memory from there on.
  std::vector<Expr*> inAgreedOrder() const {
    const std::vector<Expr*> all = fusion_.exprs();
    std::vector<Expr*> collectives;
    std::copy_if(all.begin(), all.end(), std::back_inserter(collectives),
                 [](const Expr* e) { return e->kind() == ExprKind::Communicate; });
    if (collectives.size() < 2) {
      return all;
    }
    std::sort(collectives.begin(), collectives.end(), [](const Expr* a, const Expr* b) { return a->id() < b->id(); });
    std::map<int, Expr*> before;  // by id of a collective
    for (size_t k = 1; k < collectives.size(); k++) {
      before[collectives[k]->id()] = collectives[k - 1];
    }
    std::vector<Expr*> order;
    std::set<int> done;
    for (Expr* last : all) {
      std::vector<Expr*> open = {last};
      while (!open.empty()) {
        Expr* e = open.back();
        bool waits = false;
        invariant(open.size() <= 2 * all.size() * all.size(),
                  "[segment] collectives stand against the order of their numbers");
        const auto waitFor = [&](Expr* other) {
          if (other != nullptr && !done.contains(other->id())) {
            open.push_back(other);
            waits = true;
          }
        };
        const auto previous = before.find(e->id());
        if (previous != before.end()) {
          waitFor(previous->second);
        }
        for (const Val* in : e->inputs()) {
          waitFor(in->definition());
        }
        if (!waits) {
          open.pop_back();
          if (done.insert(e->id()).second) {
            order.push_back(e);
          }
        }
      }
    }
    return order;
  }

  void place(Expr* e) {
    SegmentKind kind = SegmentKind::Kernel;
    if (e->kind() == ExprKind::Communicate) {
      kind = SegmentKind::Communicate;
    } else if (touchesEmpty(*e)) {
      kind = SegmentKind::Reference;
    } else if (e->kind() == ExprKind::BitCast || context_.views.contains(e->output()->id())) {
      kind = SegmentKind::View;
    } else if (!isKernelOp(*e, context_)) {
      kind = SegmentKind::Library;
    }
    std::set<int> producers = graph_.producersOf(e);
    if (kind == SegmentKind::Communicate) {
      if (lastCollective_ >= 0) {
        producers.insert(lastCollective_);
      }
      lastCollective_ = graph_.size();
    }
    if (kind != SegmentKind::Kernel) {
      graph_.add({e}, producers, kind);
      return;
    }
    std::vector<int> joinable;
    for (int p : producers) {
      if (graph_.at(p).kind == SegmentKind::Kernel) {
        joinable.push_back(p);
      }
    }
    std::string refusal;
    if (!joinable.empty() && join(e, producers, joinable, refusal)) {
      return;
    }
    if (joinable.size() > 1) {
      std::stable_sort(joinable.begin(), joinable.end(), [&](int a, int b) { return size(a) > size(b); });
      for (int p : joinable) {
        if (join(e, producers, {p}, refusal)) {
          return;
        }
      }
    }
    int id = graph_.add({e}, producers, kind);
    StepNode& n = graph_.at(id);
    std::string reason;
    n.scheduler = accepting(graph_.groupOf(n.exprs), reason);
    invariant(n.scheduler != nullptr, "[segment] no scheduler takes {} alone: {}", e->output()->toString(), reason);
    for (int p : joinable) {
      std::string& boundary = graph_.at(p).boundary;
      if (boundary.empty()) {
        boundary = fmt::format("{} does not join: {}", e->output()->toString(), refusal);
      }
    }
  }

  size_t size(int node) const { return graph_.at(node).exprs.size(); }

  bool join(Expr* e, const std::set<int>& producers, const std::vector<int>& with, std::string& refusal) {
    if (producers.size() > with.size() || with.size() > 1) {
      if (graph_.makesCycle(with, producers)) {
        refusal = "it would wait for itself";
        return false;
      }
    }
    size_t ops = 1;
    for (int m : with) {
      ops += size(m);
    }
    if (ops > kMaxKernelOps) {
      refusal = fmt::format("{} ops are more than a kernel takes, {}", ops, kMaxKernelOps);
      return false;
    }
    const StepNode& first = graph_.at(with[0]);
    if (with.size() == 1 && producers.size() == 1 && isPlain(*e) && isPlain(*first.exprs.back()) &&
        readsOnly(*e, *first.exprs.back())) {
      graph_.append(with[0], e);
      return true;
    }
    std::vector<Expr*> exprs = graph_.exprsOf(with);
    exprs.push_back(e);
    graph_.inTopologicalOrder(exprs);
    std::string reason;
    const Scheduler* scheduler = accepting(graph_.groupOf(exprs), reason);
    if (scheduler == nullptr) {
      refusal = refusal.empty() ? reason : refusal;
      return false;
    }
    graph_.merge(with, producers, std::move(exprs));
    graph_.at(with[0]).scheduler = scheduler;
    return true;
  }

  // The tensors `e` reads are inputs of the fusion or results of `last`.
  bool readsOnly(const Expr& e, const Expr& last) const {
    for (const TensorView* tv : e.tensorInputs()) {
      if (tv->definition() != nullptr && tv->definition() != &last) {
        return false;
      }
    }
    return true;
  }

  const Scheduler* accepting(const Group& group, std::string& reason) const {
    SchedulerChoice choice = chooseScheduler(group, device_, schedulers_);
    reason = std::move(choice.reason);
    return choice.scheduler;
  }

  bool isView(const StepNode& n) const {
    Group g = graph_.groupOf(n.exprs);
    return g.inputs.size() == 1 && g.outputs.size() == n.exprs.size() && !g.inputs[0]->isFusionInput() &&
           g.layouts.empty() &&  // all row-major
           std::all_of(n.exprs.begin(), n.exprs.end(), [](const Expr* e) { return isViewOp(*e); });
  }

  const Fusion& fusion_;
  const LocalContext& context_;
  const DeviceInfo& device_;
  std::span<const Scheduler> schedulers_;
  StepGraph graph_;
  int lastCollective_ = -1;  // node: the next one waits for it
};

}  // namespace

std::vector<Segment> segment(const Fusion& fusion, const LocalContext& context, const DeviceInfo& device,
                             std::span<const Scheduler> schedulers) {
  return Segmenter(fusion, context, device, schedulers).run();
}

}  // namespace meshfuse
