#include "segment/segment.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ranges>
#include <set>

#include "base/disk_cache.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/moved_inputs.h"
#include "ir/op_rule.h"
#include "ir/text.h"
#include "segment/in_place.h"
#include "segment/join_siblings.h"
#include "segment/local_context.h"
#include "segment/repeated_groups.h"
#include "segment/step_graph.h"
#include "segment/stored_cut.h"
#include "segment/view_steps.h"

namespace meshfuse {

namespace {

class Segmenter {
 public:
  Segmenter(const Fusion& fusion, const LocalContext& context)
      : fusion_(fusion), context_(context), graph_(fusion, context), groups_(context) {}

  std::vector<Segment> run() {
    for (Expr* e : inAgreedOrder()) {
      if (e->output()->isTensor()) {
        place(e);
      }
    }
    for (int64_t i = 0; i < graph_.size(); i++) {
      StepNode& n = graph_.at(i);
      if (!n.dead && n.kind == SegmentKind::Kernel && isView(graph_.groupOf(n.exprs))) {
        n.kind = SegmentKind::View;
        n.judgement.reset();
      }
    }
    joinSiblings(graph_, context_);
    std::vector<Segment> result;
    for (int64_t i : graph_.inOrder()) {
      StepNode& n = graph_.at(i);
      result.push_back({.kind = n.kind,
                        .group = graph_.groupOf(n.exprs),
                        .judgement = std::move(n.judgement),
                        .boundary = std::move(n.boundary),
                        .joins = std::move(n.joins)});
      if (n.kind == SegmentKind::Kernel && result.back().judgement == nullptr) {
        result.back().judgement = groups_.judgementOf(result.back().group);
      }
    }
    return result;
  }

 private:
  // Topological, with the collectives in the order of their ids: ops that one rank adds for its own layouts may delay an op, but
  // must not change the order of collectives, which is equal on all ranks. What only moves inputs stands right before its first reader or
  // the next collective: the result of a gather occupies memory from that point.
  std::vector<Expr*> inAgreedOrder() const {
    const std::vector<Expr*> all = fusion_.exprs();
    std::vector<Expr*> collectives = filtered(all, [](const Expr* e) { return e->kind() == ExprKind::Communicate; });
    std::ranges::sort(collectives, {}, &Expr::id);
    std::map<int64_t, Expr*> before;  // by id of a collective
    for (int64_t k = 1; k < std::ssize(collectives); k++) {
      before[collectives[k]->id()] = collectives[k - 1];
    }
    std::vector<Expr*> order;
    std::map<int64_t, bool> placed;  // by id; false while an op waits for others
    const std::function<void(Expr*)> place = [&](Expr* e) {
      const auto [it, isNew] = placed.try_emplace(e->id(), false);
      invariant(isNew || it->second, "[segment] the order of collectives contradicts their numbers");
      if (!isNew) {
        return;
      }
      for (const Val* in : std::views::reverse(e->inputs())) {
        if (in->definition() != nullptr) {
          place(in->definition());
        }
      }
      if (const auto previous = before.find(e->id()); previous != before.end()) {
        place(previous->second);
      }
      order.push_back(e);
      placed[e->id()] = true;
    };
    const std::set<int64_t> moved = movedInputs(all);
    std::ranges::for_each(filtered(all, [&](const Expr* e) { return !moved.contains(e->id()); }), place);
    return order;
  }

  // Kernel: a template judges whether it is a library call.
  SegmentKind kindOf(const Expr& e) const {
    if (e.kind() == ExprKind::Communicate) {
      return SegmentKind::Communicate;
    }
    if (touchesEmpty(e)) {
      return SegmentKind::Reference;
    }
    return isAlwaysView(e, context_) ? SegmentKind::View : SegmentKind::Kernel;
  }

  // A cast to a wider type of a kernel's result is placed with the only op that reads it: memory between two kernels then holds the narrow
  // type.
  bool waitsForReader(Expr* e) {
    const Val* out = e->output();
    if (e->kind() != ExprKind::Cast || dataTypeSize(out->dtype()) <= dataTypeSize(e->input(0)->dtype()) ||
        out->isFusionOutput() || kindOf(*e) != SegmentKind::Kernel) {
      return false;
    }
    const Expr* made = e->input(0)->definition();
    const std::vector<Expr*> uses = fusion_.uses(out);
    if (made == nullptr || waiting_.contains(made->id()) || uses.size() != 1) {
      return false;
    }
    const bool isOfKernel = std::ranges::all_of(graph_.producersOf({&e, 1}),
                                                [&](int64_t p) { return graph_.at(p).kind == SegmentKind::Kernel; });
    return isOfKernel && kindOf(*uses[0]) == SegmentKind::Kernel &&
           (ruleOf(*uses[0]).executor == Executor::Kernel || sharesKernelWithScan(e, uses[0]));
  }

  // On a GPU most scans are kernels, which cast what they read.
  bool sharesKernelWithScan(Expr* e, Expr* reader) {
    if (reader->kind() != ExprKind::Scan) {
      return false;
    }
    const std::unique_ptr<const Judgement> judgement = groups_.judge(graph_.groupOf({e, reader})).judgement;
    return judgement != nullptr && !judgement->callsLibrary;
  }

  void place(Expr* e) {
    if (waitsForReader(e)) {
      waiting_.insert(e->id());
      return;
    }
    std::vector<Expr*> exprs;
    for (const TensorView* in : e->tensorInputs()) {
      if (in->definition() != nullptr && waiting_.erase(in->definition()->id()) > 0) {
        exprs.push_back(in->definition());
      }
    }
    exprs.push_back(e);
    if (exprs.size() > 1 && groups_.judge(graph_.groupOf(exprs)).judgement == nullptr) {
      for (Expr* one : exprs) {
        placeTogether({one});
      }
      return;
    }
    placeTogether(std::move(exprs));
  }

  // The last op reads the others.
  void placeTogether(std::vector<Expr*> exprs) {
    Expr* e = exprs.back();
    SegmentKind kind = kindOf(*e);
    std::unique_ptr<const Judgement> alone;
    if (kind == SegmentKind::Kernel && ruleOf(*e).executor != Executor::Kernel) {
      alone = groups_.judgementOf(graph_.groupOf(exprs));
      kind = alone->callsLibrary ? SegmentKind::Library : SegmentKind::Kernel;
    }
    std::set<int64_t> producers = graph_.producersOf(exprs);
    if (kind == SegmentKind::Communicate) {
      if (lastCollective_ >= 0) {
        producers.insert(lastCollective_);
      }
      lastCollective_ = graph_.size();
    }
    if (kind != SegmentKind::Kernel) {
      const int64_t id = graph_.add(std::move(exprs), producers, kind);
      graph_.at(id).judgement = std::move(alone);
      return;
    }
    const auto isKernel = [&](int64_t node) { return graph_.at(node).kind == SegmentKind::Kernel; };
    std::vector<int64_t> joinable;
    std::ranges::copy_if(producers, std::back_inserter(joinable), isKernel);
    std::string refusal;
    if (!joinable.empty() && join(exprs, producers, joinable, refusal)) {
      return;
    }
    if (joinable.size() > 1) {
      std::ranges::stable_sort(joinable, std::greater<>(), [&](int64_t node) { return size(node); });
      for (int64_t p : joinable) {
        if (join(exprs, producers, {p}, refusal)) {
          return;
        }
      }
    }
    StepNode& n = graph_.at(graph_.add(std::move(exprs), producers, kind));
    n.judgement = alone != nullptr ? std::move(alone) : groups_.judgementOf(graph_.groupOf(n.exprs));
    for (int64_t p : joinable) {
      graph_.noteBoundary(p, e->output(), refusal);
    }
  }

  size_t size(int64_t node) const { return graph_.at(node).exprs.size(); }

  bool join(const std::vector<Expr*>& more, const std::set<int64_t>& producers, const std::vector<int64_t>& with,
            std::string& refusal) {
    if ((producers.size() > with.size() || with.size() > 1) && graph_.makesCycle(with, producers)) {
      refusal = "the group would depend on itself";
      return false;
    }
    const size_t ops = more.size() + sumOf(with, [&](int64_t node) { return size(node); });
    if (ops > kMaxKernelOps) {
      refusal = fmt::format("{} ops are more than the limit of a kernel, {}", ops, kMaxKernelOps);
      return false;
    }
    if (more.size() == 1 && with.size() == 1 && producers.size() == 1 &&
        takesUnjudged(graph_.at(with[0]).exprs, *more[0])) {
      graph_.append(with[0], more[0]);
      return true;
    }
    std::vector<Expr*> exprs = graph_.exprsOf(with);
    append(exprs, more);
    graph_.inTopologicalOrder(exprs);
    Verdict verdict = groups_.judge(graph_.groupOf(exprs));
    if (verdict.judgement == nullptr) {
      refusal = refusal.empty() ? verdict.refusal : refusal;
      return false;
    }
    graph_.merge(with, producers, std::move(exprs));
    graph_.at(with[0]).judgement = std::move(verdict.judgement);
    return true;
  }

  const Fusion& fusion_;
  const LocalContext& context_;
  StepGraph graph_;
  RepeatedGroups groups_;
  std::set<int64_t> waiting_;    // casts that are placed with their reader, by id
  int64_t lastCollective_ = -1;  // node: the next one waits for it
};

}  // namespace

std::vector<Segment> segment(const Fusion& fusion, const LocalContext& context) {
  const std::optional<StoredCut>& stored = context.stored;
  std::optional<std::vector<Segment>> result =
      stored && stored->entry ? segmentsOf(*stored->entry, fusion, context) : std::nullopt;
  if (!result) {
    if (stored && stored->entry) {  // the program was not verified, because the entry promised that it had been
      const std::vector<std::string> errors = verify(fusion);
      invariant(errors.empty(), "[segment] the program of a rank is not valid: {}", fmt::join(errors, "; "));
    }
    result = Segmenter(fusion, context).run();
    if (stored) {
      stored->disk->store(stored->key, entryOf(*result));
    }
  }
  arrangeInPlace(fusion, context, *result);
  for (Segment& s : *result) {
    if (!s.inPlace.empty()) {  // the judgement assumed other buffers for its results
      s.judgement = context.judgementOf(s.group);
      invariant(s.judgement->callsLibrary == (s.kind == SegmentKind::Library),
                "[segment] the step of {} is of another kind in the memory of an input",
                s.group.exprs.back()->opName());
    }
  }
  return *std::move(result);
}

void writeSteps(std::span<Segment> segments) {
  std::map<std::string_view, int64_t> numbers;  // by text
  for (Segment& s : segments) {
    if (s.judgement == nullptr) {
      continue;
    }
    std::variant<KernelPlan, LibraryCall> step = s.judgement->write();
    s.judgement.reset();
    if (LibraryCall* call = std::get_if<LibraryCall>(&step)) {
      s.call = std::move(*call);
      continue;
    }
    s.plan = std::get<KernelPlan>(std::move(step));
    if (s.plan.text.empty()) {  // it is not the kernel of equal groups
      s.plan.text = tile::toString(s.plan.program);
    }
    const auto [known, isNew] = numbers.try_emplace(s.plan.text, std::ssize(numbers));
    s.kernel = known->second;
    const std::vector<std::string> errors = isNew ? tile::verify(s.plan.program) : std::vector<std::string>();
    if (!errors.empty()) {
      throwInternalError(fmt::format("[schedule] the tile program of a {} kernel is wrong: {}\n{}", s.plan.kind,
                                     errors[0], s.plan.text));
    }
  }
}

}  // namespace meshfuse
