// For: a main loop whose positions are all inside the bounds, without masks, then the rest of the axis with them: one more
// iteration, unless spaces with different strides share the loop. A remainder that is proven empty is not emitted. A loop over blocks of an
// axis needs no tail of its own.
#include <llvm/IR/IRBuilder.h>

#include <optional>

#include "base/ranges.h"
#include "codegen/llvm/emitter.h"

namespace meshfuse {

using namespace llvm;

struct Emitter::Loop {
  struct Run {  // an axis whose coordinate this loop moves
    int64_t space;
    int64_t axis;
    IntExpr stride;
  };
  std::string symbol;
  std::vector<Run> runs;  // first the one of the statement
  int64_t step = 1;       // of the counter, which is the digit times this
  IntExpr full;           // the counter's end of the main loop
  IntExpr end;
  bool tail = false;
  bool tailOnce = false;
  std::optional<int64_t> last;  // positions inside the bound in the one iteration of the tail, if that is known
};

Emitter::Loop Emitter::planLoop(const tile::Stmt& s) {
  const tile::Axis& own = p_.spaces[s.space].axes[s.axis];
  Loop l;
  l.symbol = own.digits[s.digit].symbol;
  std::vector<IntExpr> positions;  // that the digit's values reach inside the bound
  std::vector<bool> exact;         // a multiple of the stride
  auto add = [&](int64_t space, int64_t axis, const tile::Digit& d) {
    const tile::Axis& a = p_.spaces[space].axes[axis];
    IntExpr whole = d.size * d.stride;
    l.runs.push_back({space, axis, d.stride});
    if (provenLessEqual(whole, inside_[space][axis].positions)) {
      positions.push_back(whole);
      exact.push_back(true);
      return;
    }
    IntExpr base = baseOf(space, axis);
    IntExpr rest = a.bound - base;
    bool reachesBound = base.isConst(0) && d.size == ceilDiv(a.bound, d.stride);
    IntExpr reach = reachesBound ? rest : meshfuse::min(whole, rest);
    positions.push_back(reach.lower() && *reach.lower() >= 0 ? reach : meshfuse::max(reach, 0));
    exact.push_back(d.stride.isConst(1) || (d.stride.isConst() && rest.divisibleBy(d.stride.constValue())));
  };
  add(s.space, s.axis, own.digits[s.digit]);
  for (int64_t space = 0; space < std::ssize(p_.spaces); space++) {
    const tile::Space& other = p_.spaces[space];
    for (int64_t axis = 0; axis < std::ssize(other.axes); axis++) {
      for (const tile::Digit& d : other.axes[axis].digits) {
        if (d.symbol == l.symbol && (space != s.space || axis != s.axis)) {
          add(space, axis, d);
        }
      }
    }
  }
  const IntExpr& stride = l.runs[0].stride;
  l.tail = !exact[0];
  if (l.runs.size() == 1 && stride.isConst()) {
    l.step = stride.constValue();
    l.end = positions[0];
    l.full = exact[0] ? l.end : floorDiv(l.end, stride) * stride;
    l.tailOnce = true;
    const IntExpr last = mod(own.bound - baseOf(s.space, s.axis), stride);
    if (last.isConst() && last.constValue() > 0) {
      l.last = last.constValue();
    }
    return l;
  }
  l.end = ceilDiv(positions[0], stride);
  l.full = floorDiv(positions[0], stride);
  for (int64_t i = 1; i < std::ssize(l.runs); i++) {
    IntExpr whole = floorDiv(positions[i], l.runs[i].stride);
    l.tail = l.tail || whole != l.full || !exact[i];
    l.full = meshfuse::min(l.full, whole);
  }
  return l;
}

// If the body holds only loops over smaller steps of the same axis, then these separate full pieces from the rest, and one copy of the body
// serves all iterations. The body itself masks only what it carries.
bool Emitter::innerLoopsFindTheRest(const tile::Stmt& s) const {
  const auto isInner = [&](const tile::Stmt& inner) {
    return inner.kind == tile::StmtKind::For && inner.space == s.space && inner.axis == s.axis;
  };
  return std::ranges::any_of(s.body, isInner) && std::ranges::all_of(s.body, [&](const tile::Stmt& inner) {
           return isInner(inner) || (inner.kind == tile::StmtKind::Define && !eager_[inner.value]);
         });
}

void Emitter::loop(const tile::Stmt& s) {
  Loop l = planLoop(s);
  std::vector<std::vector<Value*>> carried;
  for (const tile::Carried& c : s.carried) {
    const tile::Value& carry = p_.values[c.carry];
    int64_t lanes = lanesOf(carry);
    std::vector<Value*>& pieces = carried.emplace_back();
    eachPosition(carry.space, carry.digits,
                 [&](const Position& at) { pieces.push_back(vectorPiece(c.init, at, lanes)); });
  }
  if (l.tailOnce && l.tail && innerLoopsFindTheRest(s)) {
    runLoop(s, l, LoopPart::Whole, carried);
  } else {
    runLoop(s, l, LoopPart::Full, carried);
    if (l.tail) {
      runLoop(s, l, LoopPart::Tail, carried);
    }
  }
  for (int64_t i = 0; i < std::ssize(s.carried); i++) {
    pieces_[s.carried[i].result] = std::move(carried[i]);
    scopes_.back().evaluated.push_back(s.carried[i].result);
  }
}

void Emitter::runLoop(const tile::Stmt& s, const Loop& l, LoopPart part, std::vector<std::vector<Value*>>& carried) {
  const bool tail = part == LoopPart::Tail;
  Value* first = scalar(tail ? l.full : IntExpr(0));
  Value* end = scalar(part == LoopPart::Full ? l.full : l.end);
  Value* runs = b_.CreateICmpSLT(first, end);
  const auto* known = dyn_cast<ConstantInt>(runs);
  if (known != nullptr && known->isZero()) {
    return;
  }
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* body = BasicBlock::Create(ctx_, tail ? "tail" : "loop", fn_);
  BasicBlock* after = BasicBlock::Create(ctx_, "", fn_);
  Instruction* entry = known != nullptr ? b_.CreateBr(body) : b_.CreateCondBr(runs, body, after);
  b_.SetInsertPoint(body);
  PHINode* counter = phi(first, before);
  auto phis = mapped(carried, [&](const std::vector<Value*>& pieces) {
    return mapped(pieces, [&](Value* v) { return phi(v, before); });
  });
  enterScope(entry);
  bound_[l.symbol] = {counter, l.step, std::ssize(scopes_) - 1};
  const std::vector<std::vector<Inside>> saved = inside_;
  for (int64_t i = 0; i < std::ssize(l.runs); i++) {
    inside_[l.runs[i].space][l.runs[i].axis] = part == LoopPart::Full ? Inside{l.runs[i].stride}
                                               : i > 0                ? Inside{0}
                                                       : Inside{l.last.value_or(1), tail && l.last.has_value()};
  }
  for (int64_t i = 0; i < std::ssize(s.carried); i++) {
    pieces_[s.carried[i].carry].assign(phis[i].begin(), phis[i].end());
    scopes_.back().evaluated.push_back(s.carried[i].carry);
  }
  block(s.body);
  auto next = mapped(s.carried, [&](const tile::Carried& c) { return nextPieces(s, c, part); });
  Value* stepped = b_.CreateNSWAdd(counter, b_.getInt64(l.step));
  BasicBlock* latch = b_.GetInsertBlock();
  bool once = tail && l.tailOnce;
  if (once) {
    b_.CreateBr(after);  // the phi nodes at its top have one predecessor
  } else {
    b_.CreateCondBr(b_.CreateICmpSLT(stepped, end), body, after);
    counter->addIncoming(stepped, latch);
  }
  b_.SetInsertPoint(after);
  for (int64_t i = 0; i < std::ssize(phis); i++) {
    for (int64_t k = 0; k < std::ssize(phis[i]); k++) {
      if (!once) {
        phis[i][k]->addIncoming(next[i][k], latch);
      }
      if (known == nullptr) {
        PHINode* merged = phi(carried[i][k], before);
        merged->addIncoming(next[i][k], latch);
        carried[i][k] = merged;
      } else {
        carried[i][k] = next[i][k];
      }
    }
  }
  leaveScope();
  bound_.erase(l.symbol);
  inside_ = saved;
}

// The values a loop body yields; positions outside the bound keep the value they had.
std::vector<Value*> Emitter::nextPieces(const tile::Stmt& s, const tile::Carried& c, LoopPart part) {
  const tile::Value& carry = p_.values[c.carry];
  const std::string& symbol = p_.spaces[s.space].axes[s.axis].digits[s.digit].symbol;
  int64_t lanes = lanesOf(carry);
  std::vector<Value*> pieces;
  eachPrepared(c.next, carry.space, carry.digits, [&](const Position& at) {
    Condition inside;
    const tile::Space& space = p_.spaces[carry.space];
    for (int64_t axis = 0; part != LoopPart::Full && axis < std::ssize(space.axes); axis++) {
      for (const tile::Digit& d : space.axes[axis].digits) {
        if (d.symbol == symbol && !inside.never) {
          addBound(inside, carry.space, axis, carry.digits, at);
        }
      }
    }
    Value* old = piece(c.carry, at);
    pieces.push_back(inside.never ? old : selected(inside, vectorPiece(c.next, at, lanes), old, lanes));
  });
  return pieces;
}

}  // namespace meshfuse
