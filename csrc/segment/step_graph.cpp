#include "segment/step_graph.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

StepGraph::StepGraph(const Fusion& fusion, const LocalContext& context) : fusion_(fusion), context_(context) {
  for (const Expr* e : fusion.exprs()) {
    const int64_t place = std::ssize(position_);
    position_[e->id()] = place;
  }
}

std::set<int64_t> StepGraph::producersOf(std::span<Expr* const> exprs) const {
  std::set<int64_t> result;
  for (const Expr* e : exprs) {
    for (const TensorView* tv : e->tensorInputs()) {
      if (tv->definition() != nullptr && !contains(exprs, tv->definition())) {
        result.insert(nodeOf_.at(tv->definition()->id()));
      }
    }
  }
  return result;
}

int64_t StepGraph::add(std::vector<Expr*> exprs, const std::set<int64_t>& producers, SegmentKind kind) {
  const int64_t id = size();
  for (Expr* e : exprs) {
    nodeOf_[e->id()] = id;
  }
  for (int64_t p : producers) {
    at(p).consumers.insert(id);
  }
  now_++;
  nodes_.push_back({.exprs = std::move(exprs), .producers = producers, .kind = kind, .begin = now_, .end = now_});
  return id;
}

void StepGraph::hasGrown(int64_t node) {
  now_++;
  std::vector<int64_t> work{node};
  while (!work.empty()) {
    StepNode& n = at(work.back());
    work.pop_back();
    if (n.end < now_) {
      n.end = now_;
      work.insert(work.end(), n.consumers.begin(), n.consumers.end());
    }
  }
}

void StepGraph::append(int64_t node, Expr* e) {
  at(node).exprs.push_back(e);
  at(node).judgement.reset();
  nodeOf_[e->id()] = node;
  hasGrown(node);
}

void StepGraph::noteBoundary(int64_t node, const Val* result, const std::string& refusal) {
  if (at(node).boundary.empty()) {
    at(node).boundary = fmt::format("{} does not join: {}", result->toString(), refusal);
  }
}

void StepGraph::merge(const std::vector<int64_t>& with, const std::set<int64_t>& producers, std::vector<Expr*> exprs) {
  const int64_t first = with[0];
  const std::set<int64_t> merged(with.begin(), with.end());
  std::set<int64_t> before = producers;
  std::set<int64_t> after;
  for (int64_t m : merged) {
    before.insert(at(m).producers.begin(), at(m).producers.end());
    after.insert(at(m).consumers.begin(), at(m).consumers.end());
    at(m).dead = m != first;
    at(first).begin = std::min(at(first).begin, at(m).begin);
  }
  for (int64_t m : merged) {
    before.erase(m);
    after.erase(m);
    for (int64_t p : before) {
      at(p).consumers.erase(m);
    }
    for (int64_t c : after) {
      at(c).producers.erase(m);
    }
  }
  for (int64_t p : before) {
    at(p).consumers.insert(first);
  }
  for (int64_t c : after) {
    at(c).producers.insert(first);
  }
  at(first).producers = std::move(before);
  at(first).consumers = std::move(after);
  at(first).exprs = std::move(exprs);
  for (Expr* x : at(first).exprs) {
    nodeOf_[x->id()] = first;
  }
  hasGrown(first);
}

bool StepGraph::makesCycle(const std::vector<int64_t>& merged, const std::set<int64_t>& producers) const {
  std::vector<bool> inside(size(), false);
  std::vector<bool> seen(size(), false);
  std::vector<int64_t> work;
  int64_t begin = now_;
  for (int64_t m : merged) {
    inside[m] = true;
    begin = std::min(begin, at(m).begin);
  }
  auto push = [&](const std::set<int64_t>& next) {
    for (int64_t p : next) {
      if (at(p).end > begin && !inside[p] && !seen[p]) {
        seen[p] = true;
        work.push_back(p);
      }
    }
  };
  push(producers);
  for (int64_t m : merged) {
    push(at(m).producers);
  }
  while (!work.empty()) {
    const StepNode& n = at(work.back());
    work.pop_back();
    if (std::ranges::any_of(n.producers, [&](int64_t p) { return inside[p]; })) {
      return true;
    }
    push(n.producers);
  }
  return false;
}

void StepGraph::inTopologicalOrder(std::vector<Expr*>& exprs) const {
  std::ranges::sort(exprs, {}, [&](const Expr* e) { return position_.at(e->id()); });
}

std::vector<Expr*> StepGraph::exprsOf(const std::vector<int64_t>& nodes) const {
  std::vector<Expr*> exprs;
  for (int64_t n : nodes) {
    exprs.insert(exprs.end(), at(n).exprs.begin(), at(n).exprs.end());
  }
  inTopologicalOrder(exprs);
  return exprs;
}

std::vector<int64_t> StepGraph::inOrder() const {
  std::vector<size_t> waiting(nodes_.size(), 0);
  std::set<int64_t> ready;
  for (int64_t i = 0; i < size(); i++) {
    waiting[i] = at(i).producers.size();
    if (!at(i).dead && at(i).producers.empty()) {
      ready.insert(i);
    }
  }
  std::vector<int64_t> result;
  while (!ready.empty()) {
    int64_t id = *ready.begin();
    ready.erase(ready.begin());
    result.push_back(id);
    for (int64_t c : at(id).consumers) {
      if (--waiting[c] == 0) {
        ready.insert(c);
      }
    }
  }
  const auto alive = std::ranges::count_if(nodes_, [](const StepNode& n) { return !n.dead; });
  invariant(std::ssize(result) == alive, "[segment] the steps depend on each other in a cycle: {} of {} can be ordered",
            result.size(), alive);
  return result;
}

}  // namespace meshfuse
