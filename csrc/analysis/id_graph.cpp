#include "analysis/id_graph.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

class UnionFind {
 public:
  explicit UnionFind(size_t size) : parent_(size) { std::iota(parent_.begin(), parent_.end(), 0); }
  int64_t find(int64_t x) {
    while (parent_[x] != x) {
      int64_t& p = parent_[x];
      p = parent_[p];
      x = p;
    }
    return x;
  }
  // The smaller number stays the root.
  bool unite(int64_t a, int64_t b) {
    a = find(a);
    b = find(b);
    if (a == b) {
      return false;
    }
    parent_[std::max(a, b)] = std::min(a, b);
    return true;
  }

 private:
  std::vector<int64_t> parent_;
};

// The attributes that equal transforms must share in addition to their dims.
std::string parameters(const IdExpr& e) {
  switch (e.kind) {
    case IdExprKind::Split:
      return fmt::format("s{} {}", e.innerSplit ? 'i' : 'o', e.factor.toString());
    case IdExprKind::Merge:
      return "m";
    case IdExprKind::Resize:
      return fmt::format("r{},{}", e.left.toString(), e.right.toString());
    case IdExprKind::Partition:
      return "p" + toString(e.sizes);
  }
  return "";
}

// Going back from results to inputs also needs the inner extent (and that both inner extents divide alike).
std::string backwardParameters(const IdExpr& e) {
  switch (e.kind) {
    case IdExprKind::Split:
      return "s " + e.out[0]->extent().toString() + " " + e.out[1]->extent().toString() + " " +
             e.in[0]->extent().toString();
    case IdExprKind::Merge:
      return "m " + e.in[0]->extent().toString() + " " + e.in[1]->extent().toString();
    case IdExprKind::Resize:
    case IdExprKind::Partition:
      return parameters(e) + " " + e.in[0]->extent().toString();
  }
  return "";
}

struct Transform {
  const IdExpr* expr;
  std::string forward;
  std::string backward;
};

// Equal transforms of equal dims give equal dims, both ways, until nothing changes.
void closeUnder(const std::vector<Transform>& transforms, UnionFind& sets) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (bool forward : {true, false}) {
      std::map<std::pair<std::string, std::vector<int64_t>>, const IdExpr*> known;
      for (const Transform& t : transforms) {
        std::vector<int64_t> groups =
            mapped(forward ? t.expr->in : t.expr->out, [&](const IterDomain* id) { return sets.find(id->id()); });
        const IdExpr* same =
            known.emplace(std::pair(forward ? t.forward : t.backward, std::move(groups)), t.expr).first->second;
        const std::vector<IterDomain*>& a = forward ? same->out : same->in;
        const std::vector<IterDomain*>& b = forward ? t.expr->out : t.expr->in;
        for (int64_t k = 0; k < std::ssize(a); k++) {
          changed = sets.unite(a[k]->id(), b[k]->id()) || changed;
        }
      }
    }
  }
}

}  // namespace

std::vector<IdLink> idLinks(const Expr& expr, int64_t operand) {
  std::vector<IdLink> links;
  OperandDims dims = dimsRead(expr, operand);
  if (dims.ofProducer.empty()) {
    return links;
  }
  std::vector<IterDomain*> p = expr.input(operand)->asTensor()->noReductions();
  const std::vector<IterDomain*>& c = expr.tensorOutput()->getRootDomain();
  for (int64_t k = 0; k < std::ssize(c); k++) {
    const DimLink& link = dims.ofConsumer[k];
    if (link.producer >= 0) {
      links.push_back({p[link.producer], c[k], link.how, link.offset});
    }
  }
  return links;
}

std::vector<IdLink> idLinks(const Expr& expr) {
  std::vector<IdLink> links;
  for (int64_t k = 0; k < std::ssize(expr.inputs()); k++) {
    append(links, idLinks(expr, k));
  }
  return links;
}

IdGraph::IdGraph(const Fusion& fusion, Mode mode) {
  std::vector<Transform> transforms;
  for (const TensorView* t : fusion.tensors(ExprSet::All)) {
    for (IterDomain* id : allIds(*t)) {
      const int64_t number = id->id();
      ids_.resize(std::max(std::ssize(ids_), number + 1), nullptr);
      ids_[number] = id;
      const IdExpr* e = id->definition();
      if (e != nullptr && e->out[0] == id) {
        transforms.push_back({e, parameters(*e), backwardParameters(*e)});
      }
    }
  }
  UnionFind sets(ids_.size());
  for (const Expr* e : fusion.exprs(ExprSet::All)) {
    for (const IdLink& link : idLinks(*e)) {
      bool exact = link.how == DimRead::Same || link.how == DimRead::Reduced;
      if (exact || (mode == Mode::Broadcast && link.how == DimRead::Stretched)) {
        sets.unite(link.producer->id(), link.consumer->id());
      }
    }
  }
  closeUnder(transforms, sets);
  groupOf_ = mapped(indices(ids_), [&](int64_t id) { return sets.find(id); });
}

int64_t IdGraph::group(const IterDomain* id) const {
  return id->id() < std::ssize(groupOf_) ? groupOf_[id->id()] : id->id();
}

bool IdGraph::same(const IterDomain* a, const IterDomain* b) const { return group(a) == group(b); }

std::vector<IterDomain*> IdGraph::members(int64_t group) const {
  return filtered(ids_, [&](const IterDomain* id) { return id != nullptr && this->group(id) == group; });
}

}  // namespace meshfuse
