// Integer expressions as IR. A sum is emitted scope by scope, outermost first, each prefix once and before the innermost
// branch it can stand before: what a loop does not change is outside it, without a pass that moves code.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "codegen/llvm/emitter.h"

namespace meshfuse {

using namespace llvm;
using tile::Level;

namespace {

std::string textOf(const IntTerm& t) {
  std::string text = std::to_string(t.coefficient);
  for (const IntAtomPtr& a : t.factors) {
    text += '*' + a->key;
  }
  return text;
}

IntExpr exprOf(const IntAtom& a, const std::function<IntExpr(const IntExpr&)>& map) {
  return a.kind == AtomKind::Symbol ? IntExpr::symbol(a.key, a.facts)
                                    : functionOf(a.kind).of(map(a.args[0]), map(a.args[1]));
}

bool isPowerOfTwo(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

// Both have 32 bits, and b is a number of the launch; 1/1 would not fit.
bool fitsReciprocal(const IntExpr& a, const IntExpr& b) {
  const auto isNarrow = [](const IntExpr& e) { return e.upper().value_or(INT64_MAX) <= UINT32_MAX; };
  return !b.isConst() && b.lower().value_or(0) >= 2 && isNarrow(a) && isNarrow(b);
}

}  // namespace

Value* Emitter::hoisted(int64_t level, const std::string& key, const std::function<Value*()>& make) {
  auto& code = scopes_[level].code;
  if (auto found = code.find(key); found != code.end()) {
    return found->second;
  }
  IRBuilderBase::InsertPointGuard guard(b_);
  if (level + 1 < std::ssize(scopes_)) {
    b_.SetInsertPoint(scopes_[level + 1].entry);
  }
  return code[key] = make();
}

int64_t Emitter::levelOf(const IntAtom& atom) const {
  if (atom.kind != AtomKind::Symbol) {
    return std::max(levelOf(atom.args[0]), levelOf(atom.args[1]));
  }
  auto found = bound_.find(atom.key);
  invariant(found != bound_.end(), "[emit] kernel {}: symbol {} has no value here; is its loop or grid dim missing?",
            p_.name, atom.key);
  return found->second.level;
}

int64_t Emitter::levelOf(const IntTerm& term) const {
  return std::ranges::max(mapped(term.factors, [&](const IntAtomPtr& a) { return levelOf(*a); }));
}

int64_t Emitter::levelOf(const IntExpr& e) const { return e.isConst() ? 0 : termsByLevel(e).back().first; }

std::vector<std::pair<int64_t, const IntTerm*>> Emitter::termsByLevel(const IntExpr& e) const {
  auto terms = mapped(e.terms(), [&](const IntTerm& t) { return std::pair(levelOf(t), &t); });
  std::ranges::stable_sort(terms, {}, &std::pair<int64_t, const IntTerm*>::first);
  return terms;
}

Value* Emitter::atom(const IntAtom& a) {
  if (a.kind == AtomKind::Symbol) {
    const Binding& bound = bound_.at(a.key);
    auto divided = [&] { return b_.CreateExactSDiv(bound.value, b_.getInt64(bound.scale)); };
    return bound.scale == 1 ? bound.value : hoisted(bound.level, a.key, divided);
  }
  return hoisted(levelOf(a), a.key,
                 [&] { return function(a.kind, a.args[0], a.args[1], scalar(a.args[0]), scalar(a.args[1])); });
}

// x and y are the values of a and b: scalars, or vectors over the lanes.
Value* Emitter::function(AtomKind kind, const IntExpr& a, const IntExpr& b, Value* x, Value* y) {
  auto constant = [&](int64_t v) { return ConstantInt::get(x->getType(), v, true); };
  if (kind == AtomKind::Min || kind == AtomKind::Max) {
    return b_.CreateBinaryIntrinsic(kind == AtomKind::Min ? Intrinsic::smin : Intrinsic::smax, x, y);
  }
  bool nonnegative = a.lower().value_or(-1) >= 0;
  if (kind == AtomKind::CeilDiv) {
    x = b_.CreateAdd(x, b_.CreateSub(y, constant(1)));
  }
  if (b.isConst() && isPowerOfTwo(b.constValue())) {
    int64_t divisor = b.constValue();
    return kind == AtomKind::Mod ? b_.CreateAnd(x, constant(divisor - 1))
                                 : b_.CreateAShr(x, constant(__builtin_ctzll(divisor)));
  }
  if (nonnegative && kind != AtomKind::CeilDiv && !x->getType()->isVectorTy() && fitsReciprocal(a, b)) {
    Value* quotient = highProduct(x, reciprocal(b));
    return kind == AtomKind::Mod ? b_.CreateSub(x, b_.CreateMul(quotient, y)) : quotient;
  }
  if (nonnegative) {
    return kind == AtomKind::Mod ? b_.CreateURem(x, y) : b_.CreateUDiv(x, y);
  }
  Value* remainder = b_.CreateSRem(x, y);
  Value* below = b_.CreateICmpSLT(remainder, constant(0));
  if (kind == AtomKind::Mod) {
    return b_.CreateSelect(below, b_.CreateAdd(remainder, y), remainder);
  }
  return b_.CreateAdd(b_.CreateSDiv(x, y), b_.CreateSExt(below, x->getType()));
}

// The least number of 2^-64 that is 1/b or more: its product with a is floor(a / b) and a remainder, if a and b have 32 bits (Lemire, Kaser
// and Kurz, "Faster remainder by direct computation", 2019). A division takes as long as the read of a line; this is a multiplication.
Value* Emitter::reciprocal(const IntExpr& b) {
  return hoisted(levelOf(b), "1/" + b.toString(),
                 [&] { return b_.CreateAdd(b_.CreateUDiv(b_.getInt64(-1), scalar(b)), b_.getInt64(1)); });
}

Value* Emitter::highProduct(Value* x, Value* y) {
  Type* wide = b_.getInt128Ty();
  Value* product = b_.CreateMul(b_.CreateZExt(x, wide), b_.CreateZExt(y, wide));
  return b_.CreateTrunc(b_.CreateLShr(product, 64), b_.getInt64Ty());
}

Value* Emitter::term(const IntTerm& t) {
  int64_t coefficient = t.coefficient;
  Value* product = nullptr;
  for (const IntAtomPtr& a : t.factors) {
    const Binding* bound = a->kind == AtomKind::Symbol ? &bound_.at(a->key) : nullptr;
    bool divides = bound != nullptr && coefficient % bound->scale == 0;
    coefficient /= divides ? bound->scale : 1;
    Value* factor = divides ? bound->value : atom(*a);
    product = product == nullptr ? factor : b_.CreateNSWMul(product, factor);
  }
  if (coefficient == 1) {
    return product;
  }
  if (isPowerOfTwo(coefficient)) {
    return b_.CreateShl(product, b_.getInt64(__builtin_ctzll(coefficient)), "", false, true);
  }
  return b_.CreateNSWMul(product, b_.getInt64(coefficient));
}

Value* Emitter::scalar(const IntExpr& e) {
  if (e.isConst()) {
    return b_.getInt64(e.constValue());
  }
  Value* sum = nullptr;
  std::string key;
  std::vector<std::pair<int64_t, const IntTerm*>> terms = termsByLevel(e);
  for (const auto& [level, t] : terms) {
    key += '+' + textOf(*t);
    sum = hoisted(level, key, [&] {
      Value* value = term(*t);
      return sum == nullptr ? value : b_.CreateNSWAdd(sum, value);
    });
  }
  if (e.constantTerm() == 0) {
    return sum;
  }
  key += '+' + std::to_string(e.constantTerm());
  return hoisted(terms.back().first, key, [&] { return b_.CreateNSWAdd(sum, b_.getInt64(e.constantTerm())); });
}

Value* Emitter::positive(const IntExpr& e) {
  return hoisted(levelOf(e), "?" + e.toString(), [&] { return b_.CreateICmpSGT(scalar(e), b_.getInt64(0)); });
}

// Lane numbers and slopes are small: a rest clamped far outside their range compares the same in 32 bits.
Value* Emitter::lanesPositive(const IntExpr& rest, int64_t slope, int64_t lanes) {
  std::string key = "?" + rest.toString() + "@" + std::to_string(slope) + "x" + std::to_string(lanes);
  return hoisted(levelOf(rest), key, [&] {
    int64_t far = int64_t{1} << 29;
    invariant(slope > -far / 64 && slope < far / 64, "[emit] a predicate's lane slope {} is out of range", slope);
    Value* near = b_.CreateBinaryIntrinsic(Intrinsic::smin, scalar(rest), b_.getInt64(far));
    near = b_.CreateBinaryIntrinsic(Intrinsic::smax, near, b_.getInt64(-far));
    Value* wide = b_.CreateVectorSplat(lanes, b_.CreateTrunc(near, b_.getInt32Ty()));
    auto limit = [&](int64_t lane) { return b_.getInt32(-slope * lane); };  // rest > -slope * lane
    return b_.CreateICmpSGT(wide, ConstantVector::get(mapped<Constant*>(std::views::iota(int64_t{0}, lanes), limit)));
  });
}

Value* Emitter::lanesOf(const IntExpr& e, const std::string& lane, int64_t lanes) {
  auto width = static_cast<unsigned>(lanes);
  if (!e.contains(lane)) {
    return b_.CreateVectorSplat(width, scalar(e));
  }
  Value* sum = nullptr;
  IntExpr uniform = e.constantTerm();
  for (const IntTerm& t : e.terms()) {
    IntExpr whole = t.coefficient;
    for (const IntAtomPtr& a : t.factors) {
      whole *= exprOf(*a, std::identity());
    }
    if (!whole.contains(lane)) {
      uniform += whole;
      continue;
    }
    Value* product = b_.CreateVectorSplat(width, b_.getInt64(t.coefficient));
    for (const IntAtomPtr& a : t.factors) {
      Value* factor = nullptr;
      if (a->kind == AtomKind::Symbol && a->key == lane) {
        auto number = [&](int64_t k) { return b_.getInt64(k); };
        factor = ConstantVector::get(mapped<Constant*>(std::views::iota(int64_t{0}, lanes), number));
      } else if (a->kind == AtomKind::Symbol) {
        factor = b_.CreateVectorSplat(width, atom(*a));
      } else {
        factor = function(a->kind, a->args[0], a->args[1], lanesOf(a->args[0], lane, lanes),
                          lanesOf(a->args[1], lane, lanes));
      }
      product = b_.CreateMul(product, factor);
    }
    sum = sum == nullptr ? product : b_.CreateAdd(sum, product);
  }
  return uniform.isConst(0) ? sum : b_.CreateAdd(sum, b_.CreateVectorSplat(width, scalar(uniform)));
}

// The address of an element, as one step from the tensor's base for every scope on the way.
Value* Emitter::pointer(int64_t tensor, const IntExpr& elements) {
  Type* type = memoryType(p_.tensors[tensor].dtype);
  Value* at = tensors_[tensor];
  std::string key = "&" + std::to_string(tensor);
  std::vector<std::pair<int64_t, const IntTerm*>> terms = termsByLevel(elements);
  for (int64_t i = 0; i < std::ssize(terms);) {
    int64_t level = terms[i].first;
    size_t end = i;
    std::string step;
    while (end < terms.size() && terms[end].first == level) {
      step += '+' + textOf(*terms[end++].second);
    }
    key += step;
    at = hoisted(level, key, [&] {
      Value* sum = hoisted(level, step, [&] {
        Value* s = nullptr;
        for (size_t k = i; k < end; k++) {
          Value* value = term(*terms[k].second);
          s = s == nullptr ? value : b_.CreateNSWAdd(s, value);
        }
        return s;
      });
      return b_.CreateInBoundsGEP(type, at, sum);
    });
    i = end;
  }
  return elements.constantTerm() == 0 ? at : b_.CreateConstInBoundsGEP1_64(type, at, elements.constantTerm());
}

// -- expressions against the digits of a space ------------------------------------------------------------------------

IntExpr Emitter::inDigits(const IntExpr& e, int64_t space) const {
  return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
    for (int64_t s : indices(p_.spaces)) {
      for (const tile::Axis& axis : p_.spaces[s].axes) {
        if (axis.name == symbol) {
          return sumOf(axis.digits, [&](const tile::Digit& d) {
            bool here = tile::isRegister(d.level) ? s == space : bound_.contains(d.symbol);
            return here ? IntExpr::symbol(d.symbol, factsBelow(d.size)) * d.stride : IntExpr(0);
          });
        }
      }
    }
    return std::nullopt;
  });
}

const tile::Digit& Emitter::digitOf(int64_t space, size_t number) const {
  const tile::DigitRef& ref = spaces_[space].digits[number];
  return p_.spaces[space].axes[ref.axis].digits[ref.digit];
}

const Affine& Emitter::affineOf(const void* place, int64_t space, const std::function<IntExpr()>& expr) {
  auto found = affine_.find(place);
  return found != affine_.end() ? found->second : affine_.emplace(place, affine(expr(), space)).first->second;
}

Affine Emitter::affine(const IntExpr& e, int64_t space) const {
  Affine a;
  a.whole = inDigits(e, space);
  a.rest = a.whole;
  const SpaceInfo& info = spaces_[space];
  for (int64_t i = 0; i < std::ssize(info.digits); i++) {
    const std::string& symbol = digitOf(space, i).symbol;
    if (!a.whole.contains(symbol)) {
      continue;
    }
    std::optional<LinearForm> form = a.linear ? a.rest.linearIn(symbol) : std::nullopt;
    a.linear = form.has_value();
    if (form) {
      a.rest = form->rest;
    }
    a.slopes.emplace_back(i, form ? form->slope : IntExpr(0));
  }
  for (auto& [digit, slope] : a.slopes) {  // a product of two register digits is not linear in either
    for (int64_t i = 0; i < std::ssize(info.digits); i++) {
      a.linear = a.linear && !slope.contains(digitOf(space, i).symbol);
    }
  }
  return a;
}

PieceExpr Emitter::pieceExpr(const Affine& a, int64_t space, const Position& at) const {
  const SpaceInfo& info = spaces_[space];
  PieceExpr piece;
  if (a.linear) {
    piece.rest = a.rest;
    for (const auto& [digit, slope] : a.slopes) {
      int64_t value = at.digit[digit];
      if (digit == info.vector) {
        piece.laneSlope = slope;
        value *= info.lanes;
      }
      if (slope.isConst()) {
        piece.constant += slope.constValue() * value;
      } else {
        piece.rest += slope * IntExpr(value);
      }
    }
    return piece;
  }
  std::string lane;
  piece.whole = a.whole.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
    for (int64_t i = 0; i < std::ssize(info.digits); i++) {
      if (digitOf(space, i).symbol != symbol) {
        continue;
      }
      if (i != info.vector) {
        return at.digit[i];
      }
      lane = symbol;
      return IntExpr::symbol(lane, factsBelow(info.lanes)) + IntExpr(at.digit[i]) * info.lanes;
    }
    return std::nullopt;
  });
  piece.rest = piece.whole;
  if (!lane.empty()) {
    piece.whole = alignedLanes(piece.whole, lane, info.lanes);
    std::optional<LinearForm> form = piece.whole.linearIn(lane);
    piece.linear = form.has_value();
    if (form) {
      piece.rest = form->rest;
      piece.laneSlope = form->slope;
    }
  }
  return piece;
}

// With a and d divisible by the lanes: floorDiv(a + lane, d) == floorDiv(a, d) and mod(a + lane, d) == mod(a, d) + lane.
IntExpr Emitter::alignedLanes(const IntExpr& e, const std::string& lane, int64_t lanes) const {
  IntExpr sum = e.constantTerm();
  for (const IntTerm& t : e.terms()) {
    IntExpr product = t.coefficient;
    for (const IntAtomPtr& a : t.factors) {
      bool divides = a->kind == AtomKind::FloorDiv || a->kind == AtomKind::Mod;
      if (divides && a->args[0].contains(lane) && a->args[1].divisibleBy(lanes)) {
        IntExpr inner = alignedLanes(a->args[0], lane, lanes);
        std::optional<LinearForm> form = inner.linearIn(lane);
        if (form && form->slope.isConst(1) && form->rest.divisibleBy(lanes)) {
          product *= a->kind == AtomKind::FloorDiv
                         ? floorDiv(form->rest, a->args[1])
                         : mod(form->rest, a->args[1]) + IntExpr::symbol(lane, factsBelow(lanes));
          continue;
        }
      }
      product *= exprOf(*a, [&](const IntExpr& x) { return alignedLanes(x, lane, lanes); });
    }
    sum += product;
  }
  return sum;
}

// The coordinate of an axis where its register digits are 0.
IntExpr Emitter::baseOf(int64_t space, int64_t axis) const {
  return sumOf(p_.spaces[space].axes[axis].digits, [&](const tile::Digit& d) {
    bool isBound = !tile::isRegister(d.level) && bound_.contains(d.symbol);
    return isBound ? IntExpr::symbol(d.symbol) * d.stride : IntExpr(0);
  });
}

}  // namespace meshfuse
