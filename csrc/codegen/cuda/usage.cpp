#include "codegen/cuda/usage.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "base/ranges.h"
#include "tile/coarse_values.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

bool isRoot(ValueKind kind) {
  return kind == ValueKind::Load || kind == ValueKind::Reduce || kind == ValueKind::Convert ||
         kind == ValueKind::Carry || kind == ValueKind::LoopResult || kind == ValueKind::Scan ||
         kind == ValueKind::ScanTotal;
}

struct Consumer {
  int64_t site = 0;   // of the statement whose loops evaluate it
  int64_t depth = 0;  // loops around that statement
  auto operator<=>(const Consumer&) const = default;
};

struct Analysis {
  void use(ValueId id, Consumer c) {
    if (id != kNone) {
      consumers[id].insert(c);
    }
  }
  void useIndex(const std::vector<Index>& index, Consumer c) {
    for (const Index& i : index) {
      use(i.tile, c);
    }
  }
  void useAll(const Value& v, Consumer c) {
    for (ValueId o : v.operands) {
      use(o, c);
    }
    useIndex(v.index, c);
    use(v.mask, c);
    use(v.fill, c);
  }

  void visit(const std::vector<Stmt>& block, int64_t depth) {
    for (const Stmt& s : block) {
      Consumer here{++site, depth};
      if (s.kind == StmtKind::Define || s.kind == StmtKind::Keep) {
        depthOf[s.value] = depth;
        siteOf[s.value] = here;
        kept[s.value] = kept[s.value] || s.kind == StmtKind::Keep;
      }
      if (s.kind == StmtKind::Store) {
        use(s.value, here);
        use(s.mask, here);
        useIndex(s.index, here);
      }
      for (const Carried& c : s.carried) {
        use(c.init, here);
        depthOf[c.result] = depth;
      }
      visit(s.body, depth + (s.kind == StmtKind::For ? 1 : 0));
      Consumer end{++site, depth + 1};
      for (const Carried& c : s.carried) {
        use(c.next, end);
      }
    }
  }

  const Program& p;
  std::vector<std::set<Consumer>> consumers = std::vector<std::set<Consumer>>(p.values.size());
  std::vector<int64_t> depthOf = std::vector<int64_t>(p.values.size());
  std::vector<bool> kept = std::vector<bool>(p.values.size());
  std::map<ValueId, Consumer> siteOf;
  int64_t site = 0;
};

// Ops that are cheap enough to be evaluated a second time.
constexpr PointOp kCheap[] = {PointOp::Neg, PointOp::Abs, PointOp::LogicalNot, PointOp::BitwiseNot};

// Constants, arguments and casts from 16 bits: evaluated again wherever they are needed.
bool isFree(const Program& program, ValueId id) {
  const Value& v = program.values[id];
  switch (v.kind) {
    case ValueKind::Const:
    case ValueKind::Scalar:
      return true;
    case ValueKind::Cast:
      return isHalfPrecision(program.values[v.operands[0]].dtype) || isFree(program, v.operands[0]);
    case ValueKind::Point:
      return contains(kCheap, v.op) && isFree(program, v.operands[0]);
    default:
      return false;
  }
}

}  // namespace

Usage analyseUsage(const Program& program) {
  Analysis a{program};
  a.visit(program.body, 0);
  Usage u;
  u.stored.resize(program.values.size());
  // Operands come before their users, so that one walk from the end knows all consumers of a value.
  for (int64_t i = std::ssize(program.values) - 1; i >= 0; i--) {
    const Value& v = program.values[i];
    std::set<Consumer>& c = a.consumers[i];
    if (c.empty() && !a.kept[i]) {  // no statement uses it
      continue;
    }
    bool deeper = std::ranges::any_of(c, [&](const Consumer& x) { return x.depth > a.depthOf[i]; });
    auto id = static_cast<ValueId>(i);
    u.stored[i] = isRoot(v.kind) || a.kept[i] || ((c.size() > 1 || deeper) && !isFree(program, id));
    const std::set<Consumer> sites = u.stored[i] ? std::set{a.siteOf[id]} : c;
    for (const Consumer& x : sites) {
      a.useAll(v, x);
    }
  }
  u.coarse = coarseValues(program);
  return u;
}

}  // namespace meshfuse::cuda
