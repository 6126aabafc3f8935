#include "segment/segment.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/fusion.h"
#include "schedule/registry.h"
#include "segment/local_context.h"

namespace meshfuse {

namespace {

bool isKernelOp(const Expr& e, const LocalContext& context) {
  switch (e.kind()) {
    case ExprKind::Communicate:
    case ExprKind::BitCast:
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

struct Node {
  std::vector<Expr*> exprs;
  std::set<int> producers;  // nodes
  std::set<int> consumers;
  SegmentKind kind = SegmentKind::Kernel;
  const Scheduler* scheduler = nullptr;
  std::string boundary;
  bool dead = false;
};

class Segmenter {
 public:
  Segmenter(const Fusion& fusion, const LocalContext& context, const DeviceInfo& device,
            std::span<const Scheduler> schedulers)
      : fusion_(fusion), context_(context), device_(device), schedulers_(schedulers) {}

  std::vector<Segment> run() {
    for (Expr* e : inAgreedOrder()) {
      if (e->output()->isTensor()) {
        place(e);
      }
    }
    for (Node& n : nodes_) {
      if (!n.dead && n.kind == SegmentKind::Kernel && isView(n)) {
        n.kind = SegmentKind::View;
      }
    }
    return inOrder();
  }

 private:
  std::set<int> producersOf(const Expr* e) const {
    std::set<int> result;
    for (const TensorView* tv : e->tensorInputs()) {
      if (tv->definition() != nullptr) {
        result.insert(nodeOf_.at(tv->definition()->id()));
      }
    }
    return result;
  }

  // Topological, with the collectives in the order of their ids. What one rank adds for its own layouts may delay an op, but not
  // change the order of collectives, which is that of the program all ranks agreed on.
  std::vector<Expr*> inAgreedOrder() const {
    std::vector<Expr*> all = fusion_.exprs();
    std::vector<Expr*> order;
    std::set<int> done;
    auto visit = [&](Expr* last) {
      std::vector<Expr*> open = {last};
      while (!open.empty()) {
        Expr* e = open.back();
        bool waits = false;
        for (const Val* in : e->inputs()) {
          if (in->definition() != nullptr && !done.contains(in->definition()->id())) {
            open.push_back(in->definition());
            waits = true;
          }
        }
        if (!waits) {
          open.pop_back();
          if (done.insert(e->id()).second) {
            order.push_back(e);
          }
        }
      }
    };
    std::vector<Expr*> collectives;
    std::copy_if(all.begin(), all.end(), std::back_inserter(collectives),
                 [](const Expr* e) { return e->kind() == ExprKind::Communicate; });
    std::sort(collectives.begin(), collectives.end(), [](const Expr* a, const Expr* b) { return a->id() < b->id(); });
    if (collectives.size() < 2) {
      return all;
    }
    std::for_each(collectives.begin(), collectives.end(), visit);
    std::for_each(all.begin(), all.end(), visit);
    return order;
  }

  void place(Expr* e) {
    SegmentKind kind = SegmentKind::Kernel;
    if (e->kind() == ExprKind::Communicate) {
      kind = SegmentKind::Communicate;
    } else if (touchesEmpty(*e)) {
      kind = SegmentKind::Reference;
    } else if (e->kind() == ExprKind::BitCast || context_.layouts.contains(e->output()->id())) {
      kind = SegmentKind::View;
    } else if (!isKernelOp(*e, context_)) {
      kind = SegmentKind::Library;
    }
    std::set<int> producers = producersOf(e);
    if (kind == SegmentKind::Communicate) {
      if (lastCollective_ >= 0) {
        producers.insert(lastCollective_);
      }
      lastCollective_ = static_cast<int>(nodes_.size());
    }
    if (kind != SegmentKind::Kernel) {
      add({e}, producers, kind);
      return;
    }
    std::vector<int> joinable;
    for (int p : producers) {
      if (nodes_[static_cast<size_t>(p)].kind == SegmentKind::Kernel) {
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
    int id = add({e}, producers, kind);
    Node& n = nodes_[static_cast<size_t>(id)];
    std::string reason;
    n.scheduler = accepting(groupOf(n.exprs), reason);
    invariant(n.scheduler != nullptr, "[segment] no scheduler takes {} alone: {}", e->output()->toString(), reason);
    for (int p : joinable) {
      std::string& boundary = nodes_[static_cast<size_t>(p)].boundary;
      if (boundary.empty()) {
        boundary = fmt::format("{} does not join: {}", e->output()->toString(), refusal);
      }
    }
  }

  size_t size(int node) const { return nodes_[static_cast<size_t>(node)].exprs.size(); }

  int add(std::vector<Expr*> exprs, const std::set<int>& producers, SegmentKind kind) {
    int id = static_cast<int>(nodes_.size());
    for (Expr* e : exprs) {
      nodeOf_[e->id()] = id;
    }
    for (int p : producers) {
      nodes_[static_cast<size_t>(p)].consumers.insert(id);
    }
    nodes_.push_back({std::move(exprs), producers, {}, kind, nullptr, {}, false});
    return id;
  }

  // Would a node made of `merged` and an op reading `producers` wait for itself?
  bool makesCycle(const std::vector<int>& merged, const std::set<int>& producers) const {
    std::set<int> inside(merged.begin(), merged.end());
    std::set<int> seen;
    std::vector<int> work;
    auto push = [&](const std::set<int>& next) {
      for (int p : next) {
        if (!inside.contains(p) && seen.insert(p).second) {
          work.push_back(p);
        }
      }
    };
    push(producers);
    for (int m : merged) {
      push(nodes_[static_cast<size_t>(m)].producers);
    }
    while (!work.empty()) {
      int at = work.back();
      work.pop_back();
      for (int p : nodes_[static_cast<size_t>(at)].producers) {
        if (inside.contains(p)) {
          return true;
        }
      }
      push(nodes_[static_cast<size_t>(at)].producers);
    }
    return false;
  }

  bool join(Expr* e, const std::set<int>& producers, const std::vector<int>& with, std::string& refusal) {
    if (producers.size() > with.size() || with.size() > 1) {
      if (makesCycle(with, producers)) {
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
    Node& first = nodes_[static_cast<size_t>(with[0])];
    if (with.size() == 1 && producers.size() == 1 && isPlain(*e) && isPlain(*first.exprs.back()) &&
        readsOnly(*e, *first.exprs.back())) {
      first.exprs.push_back(e);
      nodeOf_[e->id()] = with[0];
      return true;
    }
    std::vector<Expr*> exprs;
    for (int m : with) {
      const std::vector<Expr*>& more = nodes_[static_cast<size_t>(m)].exprs;
      exprs.insert(exprs.end(), more.begin(), more.end());
    }
    exprs.push_back(e);
    inTopologicalOrder(exprs);
    std::string reason;
    const Scheduler* scheduler = accepting(groupOf(exprs), reason);
    if (scheduler == nullptr) {
      refusal = refusal.empty() ? reason : refusal;
      return false;
    }
    first.exprs = std::move(exprs);
    first.scheduler = scheduler;
    std::set<int> others(with.begin() + 1, with.end());
    for (int m : others) {
      Node& n = nodes_[static_cast<size_t>(m)];
      n.dead = true;
      for (int p : n.producers) {
        nodes_[static_cast<size_t>(p)].consumers.erase(m);
        if (p != with[0] && !others.contains(p)) {
          first.producers.insert(p);
          nodes_[static_cast<size_t>(p)].consumers.insert(with[0]);
        }
      }
      for (int c : n.consumers) {
        nodes_[static_cast<size_t>(c)].producers.erase(m);
        if (c != with[0] && !others.contains(c)) {
          nodes_[static_cast<size_t>(c)].producers.insert(with[0]);
          first.consumers.insert(c);
        }
      }
      first.producers.erase(m);
      first.consumers.erase(m);
    }
    for (int p : producers) {
      if (p != with[0] && !others.contains(p)) {
        first.producers.insert(p);
        nodes_[static_cast<size_t>(p)].consumers.insert(with[0]);
      }
    }
    for (Expr* x : first.exprs) {
      nodeOf_[x->id()] = with[0];
    }
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

  void inTopologicalOrder(std::vector<Expr*>& exprs) {
    if (position_.empty()) {
      int at = 0;
      for (Expr* e : fusion_.exprs()) {
        position_[e->id()] = at++;
      }
    }
    std::sort(exprs.begin(), exprs.end(), [&](Expr* a, Expr* b) { return position_[a->id()] < position_[b->id()]; });
  }

  Group groupOf(const std::vector<Expr*>& exprs) const {
    Group g;
    g.fusion = &fusion_;
    g.exprs = exprs;
    std::set<int> inside;
    for (const Expr* e : exprs) {
      inside.insert(e->id());
    }
    std::set<int> known;
    for (const Expr* e : exprs) {
      for (TensorView* tv : e->tensorInputs()) {
        bool made = tv->definition() != nullptr && inside.contains(tv->definition()->id());
        if (!made && known.insert(tv->id()).second) {
          g.inputs.push_back(tv);
          if (auto it = context_.layouts.find(tv->id()); it != context_.layouts.end()) {
            g.layouts[tv->id()] = it->second;
          }
        }
      }
      TensorView* out = e->tensorOutput();
      std::vector<Expr*> uses = fusion_.uses(out);
      bool outside = out->isFusionOutput() ||
                     std::any_of(uses.begin(), uses.end(), [&](const Expr* u) { return !inside.contains(u->id()); });
      if (outside) {
        g.outputs.push_back(out);
      }
    }
    for (const auto& [output, input] : fusion_.aliases()) {
      bool hasInput = std::any_of(g.inputs.begin(), g.inputs.end(), [&](const Val* v) { return v == input; });
      bool hasOutput = std::any_of(g.outputs.begin(), g.outputs.end(), [&](const Val* v) { return v == output; });
      if (hasInput && hasOutput) {
        g.aliases[output->id()] = input->id();
      }
    }
    return g;
  }

  const Scheduler* accepting(const Group& group, std::string& reason) const {
    SchedulerChoice choice = chooseScheduler(group, device_, schedulers_);
    reason = std::move(choice.reason);
    return choice.scheduler;
  }

  bool isView(const Node& n) const {
    Group g = groupOf(n.exprs);
    return g.inputs.size() == 1 && g.outputs.size() == n.exprs.size() && !g.inputs[0]->isFusionInput() &&
           std::all_of(n.exprs.begin(), n.exprs.end(), [](const Expr* e) { return isViewOp(*e); });
  }

  std::vector<Segment> inOrder() const {
    std::vector<int> waiting(nodes_.size(), 0);
    std::set<int> ready;
    for (size_t i = 0; i < nodes_.size(); i++) {
      waiting[i] = static_cast<int>(nodes_[i].producers.size());
      if (!nodes_[i].dead && waiting[i] == 0) {
        ready.insert(static_cast<int>(i));
      }
    }
    std::vector<Segment> result;
    while (!ready.empty()) {
      int id = *ready.begin();
      ready.erase(ready.begin());
      const Node& n = nodes_[static_cast<size_t>(id)];
      result.push_back({n.kind, groupOf(n.exprs), n.scheduler, n.boundary});
      for (int c : n.consumers) {
        if (--waiting[static_cast<size_t>(c)] == 0) {
          ready.insert(c);
        }
      }
    }
    size_t alive =
        static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.end(), [](const Node& n) { return !n.dead; }));
    invariant(result.size() == alive, "[segment] {} of {} segments wait for each other", alive - result.size(), alive);
    return result;
  }

  const Fusion& fusion_;
  const LocalContext& context_;
  const DeviceInfo& device_;
  std::span<const Scheduler> schedulers_;
  std::vector<Node> nodes_;
  std::map<int, int> nodeOf_;  // expr id -> node
  int lastCollective_ = -1;    // node: the next one waits for it
  std::map<int, int> position_;
};

}  // namespace

std::vector<Segment> segment(const Fusion& fusion, const LocalContext& context, const DeviceInfo& device,
                             std::span<const Scheduler> schedulers) {
  return Segmenter(fusion, context, device, schedulers).run();
}

}  // namespace meshfuse
