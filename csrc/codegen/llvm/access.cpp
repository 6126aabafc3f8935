// Loads and stores. The shape of an access follows from the slope of its offset along the vector digit: 1 is a vector access,
// 0 one element for all lanes, else a gather or scatter. A condition that is the same for all lanes never becomes a mask: a
// load then reads its fill from a small area of the stack, a store is branched around.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <cstdint>
#include <numeric>

#include "base/ranges.h"
#include "base/rounding.h"
#include "codegen/llvm/emitter.h"

namespace meshfuse {

using namespace llvm;
using tile::kNone;
using tile::Memory;
using tile::ValueId;

Type* Emitter::elementType(DataType dtype) const {
  return dtype == DataType::Double  ? b_.getDoubleTy()
         : dtype == DataType::Float ? b_.getFloatTy()
                                    : b_.getIntNTy(dtype == DataType::Bool ? 1 : bitWidth(dtype));
}

Type* Emitter::memoryType(DataType dtype) const {
  return dtype == DataType::Bool ? b_.getInt8Ty() : elementType(dtype);
}

Value* Emitter::toMemory(Value* v, DataType dtype) {
  return dtype == DataType::Bool ? b_.CreateZExt(v, v->getType()->getWithNewType(b_.getInt8Ty())) : v;
}

Value* Emitter::fromMemory(Value* v, DataType dtype) {
  return dtype == DataType::Bool ? b_.CreateICmpNE(v, Constant::getNullValue(v->getType())) : v;
}

// -- conditions -------------------------------------------------------------------------------------------------------

const Affine& Emitter::differenceOf(const tile::Pred& pred, int64_t space) {
  return affineOf(&pred, space, [&] { return pred.rhs - pred.lhs; });
}

uint64_t Emitter::digitsOf(const Affine& a) const {
  return sumOf(a.slopes, [](const auto& slope) { return uint64_t{1} << slope.first; });
}

Value* Emitter::both(Value* a, Value* b) { return a == nullptr ? b : b == nullptr ? a : b_.CreateAnd(a, b); }

void Emitter::addComparison(Condition& c, const IntExpr& rest, int64_t slope, int64_t lanes) {
  int64_t last = slope * (lanes - 1);
  std::optional<int64_t> lower = rest.lower();
  std::optional<int64_t> upper = rest.upper();
  if (lower && *lower + std::min<int64_t>(0, last) > 0) {
    return;
  }
  if (upper && *upper + std::max<int64_t>(0, last) <= 0) {
    c.never = true;
    return;
  }
  Value*& condition = last == 0 ? c.uniform : c.lanes;
  condition = both(condition, last == 0 ? positive(rest) : lanesPositive(rest, slope, lanes));
}

void Emitter::addBound(Condition& c, int64_t space, int64_t axis, uint64_t digits, const Position& at) {
  const SpaceInfo& info = spaces_[space];
  const tile::Axis& a = p_.spaces[space].axes[axis];
  uint64_t taken = digits & tile::axisDigits(p_.spaces[space], axis);
  bool takesPart = taken != 0 || std::ranges::any_of(a.digits, [&](const tile::Digit& d) {
                     return !tile::isRegister(d.level) && bound_.contains(d.symbol);
                   });
  bool spread = info.vector >= 0 && (taken >> info.vector & 1) != 0;
  int64_t laneStride = spread ? digitOf(space, info.vector).stride.constValue() : 0;
  int64_t offset = cornerOf(space, taken, at)[axis];
  int64_t lanes = spread ? info.lanes : 1;
  const auto& [covered, all] = inside_[space][axis];
  int64_t span = offset + (lanes - 1) * laneStride + 1;
  // A multiple of 64 that is at least 1 is at least 64.
  int64_t divisor = covered.divisor();
  std::optional<int64_t> least = covered.lower();
  bool enough = least && divisor > 0 && roundUp(*least, divisor) >= span;
  if (!takesPart || enough || provenLessEqual(span, covered)) {
    return;
  }
  addComparison(c, (all ? covered : a.bound - baseOf(space, axis)) - offset, -laneStride, lanes);
}

bool Emitter::isOutside(int64_t space, uint64_t digits, const Position& at) const {
  const std::vector<int64_t> corner = cornerOf(space, digits, at);
  return std::ranges::any_of(indices(corner), [&](int64_t axis) {
    const auto& [positions, all] = inside_[space][axis];
    return all && corner[axis] >= positions.constValue();
  });
}

void Emitter::addPredicate(Condition& c, const tile::Pred& pred, int64_t space, uint64_t digits, const Position& at) {
  const SpaceInfo& info = spaces_[space];
  PieceExpr e = pieceExpr(differenceOf(pred, space), space, at);
  int64_t lanes = lanesOf(space, digits);
  constexpr int64_t kSmall = 1 << 16;
  if (e.linear && (lanes == 1 || (e.laneSlope.isConst() && std::abs(e.laneSlope.constValue()) < kSmall))) {
    addComparison(c, e.rest + e.constant, lanes == 1 ? 0 : e.laneSlope.constValue(), lanes);
    return;
  }
  const std::string& lane = digitOf(space, info.vector).symbol;
  IntExpr whole = e.linear ? e.rest + e.constant + e.laneSlope * IntExpr::symbol(lane) : e.whole;
  Value* values = lanesOf(whole, lane, info.lanes);
  c.lanes = both(c.lanes, b_.CreateICmpSGT(values, Constant::getNullValue(values->getType())));
}

Condition Emitter::condition(int64_t space, uint64_t digits, const std::vector<tile::Pred>& where, const Position& at,
                             uint64_t bounded) {
  Condition c;
  const tile::Space& s = p_.spaces[space];
  for (int64_t axis = 0; axis < std::ssize(s.axes) && !c.never; axis++) {
    if (bounded == ~uint64_t{0} || (tile::axisDigits(s, axis) & bounded) != 0) {
      addBound(c, space, axis, digits, at);
    }
  }
  for (const tile::Pred& p : where) {
    if (!c.never) {
      addPredicate(c, p, space, digits, at);
    }
  }
  return c;
}

void Emitter::addMask(Condition& c, ValueId mask, const Position& at) {
  if (mask != kNone && !c.never) {
    Value* m = piece(mask, at);
    Value*& target = m->getType()->isVectorTy() ? c.lanes : c.uniform;
    target = both(target, m);
  }
}

Value* Emitter::joined(const Condition& c, int64_t lanes) {
  return both(c.lanes, c.uniform == nullptr ? nullptr : b_.CreateVectorSplat(lanes, c.uniform));
}

Value* Emitter::selected(const Condition& c, Value* x, Value* other, int64_t lanes) {
  Value* holds = c.lanes == nullptr ? c.uniform : joined(c, lanes);
  return holds == nullptr ? x : b_.CreateSelect(holds, x, other);
}

// -- addresses --------------------------------------------------------------------------------------------------------

const Affine& Emitter::offsetOf(int64_t tensor, const std::vector<tile::Index>& index, int64_t space) {
  return affineOf(&index, space, [&] {
    return sumOf(indices(index), [&](int64_t k) { return index[k].expr * p_.tensors[tensor].strides[k]; });
  });
}

Emitter::Address Emitter::address(int64_t tensor, const std::vector<tile::Index>& index, int64_t space,
                                  const Position& at, int64_t lanes) {
  const tile::TensorParam& t = p_.tensors[tensor];
  Type* type = memoryType(t.dtype);
  int64_t size = dataTypeSize(t.dtype);
  PieceExpr e = pieceExpr(offsetOf(tensor, index, space), space, at);
  const IntExpr lane = IntExpr::symbol("lane ", factsBelow(lanes));
  Address a;
  a.alignment = t.memory == Memory::Scratch ? 64 : std::max<int64_t>(t.alignment, 1);
  if (e.linear || lanes == 1) {
    a.pointer = pointer(tensor, e.rest);
    if (e.constant != 0) {
      a.pointer = b_.CreateConstInBoundsGEP1_64(type, a.pointer, e.constant);
    }
    a.contiguous = e.laneSlope.isConst(1);
    a.same = lanes == 1 || e.laneSlope.isConst(0);
    a.alignment = std::gcd(a.alignment, std::gcd(e.rest.divisor() * size, e.constant * size));
    if (!a.contiguous && !a.same) {
      a.offsets = lanesOf(e.laneSlope * lane, "lane ", lanes);
    }
  } else {
    a.pointer = tensors_[tensor];
    a.offsets = lanesOf(e.whole, digitOf(space, spaces_[space].vector).symbol, lanes);
  }
  for (int64_t k = 0; k < std::ssize(index); k++) {
    if (index[k].tile == kNone) {
      continue;
    }
    Value* row = points_.cast(piece(index[k].tile, at), p_.values[index[k].tile].dtype, DataType::Int);
    Value* stride = scalar(t.strides[k]);
    a.alignment = 1;
    if (!row->getType()->isVectorTy()) {
      a.pointer = b_.CreateInBoundsGEP(type, a.pointer, b_.CreateMul(row, stride));
      continue;
    }
    Value* step = b_.CreateMul(row, b_.CreateVectorSplat(lanes, stride));
    if (a.contiguous) {
      a.offsets = lanesOf(lane, "lane ", lanes);
    }
    a.offsets = a.offsets == nullptr ? step : b_.CreateAdd(a.offsets, step);
    a.contiguous = false;
    a.same = false;
  }
  a.alignment = std::max(std::gcd(a.alignment, int64_t{64}), size);  // tensors are aligned to their elements
  return a;
}

Value* Emitter::pointers(const Address& a, Type* element, int64_t lanes) {
  Value* offsets =
      a.offsets != nullptr ? a.offsets : Constant::getNullValue(FixedVectorType::get(b_.getInt64Ty(), lanes));
  return b_.CreateGEP(element, a.pointer, offsets);
}

// -- loads ------------------------------------------------------------------------------------------------------------

// A vector of the fill on the stack, for loads whose condition holds for all lanes or none.
Value* Emitter::fillArea(Value* fill, int64_t lanes) {
  Value*& area = fillAreas_[{fill, lanes}];
  if (area != nullptr) {
    return area;
  }
  IRBuilderBase::InsertPointGuard guard(b_);
  if (scopes_.size() > 1) {
    b_.SetInsertPoint(scopes_[1].entry);
  }
  Type* type = FixedVectorType::get(fill->getType(), lanes);
  AllocaInst* slot = b_.CreateAlloca(type);
  slot->setAlignment(Align(64));
  b_.CreateStore(b_.CreateVectorSplat(lanes, fill), slot);
  return area = slot;
}

Value* Emitter::load(ValueId id, const Position& at) {
  const tile::Value& v = p_.values[id];
  int64_t lanes = lanesOf(v);
  Condition c = condition(v.space, v.digits, v.where, at);
  addMask(c, v.mask, at);
  Value* fill = v.fill == kNone ? Constant::getNullValue(memoryType(v.dtype)) : toMemory(piece(v.fill, at), v.dtype);
  if (c.never) {
    return fromMemory(fill, v.dtype);
  }
  Address a = address(v.param, v.index, v.space, at, lanes);
  return fromMemory(loadLanes(v.param, a, c, fill, lanes), v.dtype);
}

Value* Emitter::loadLanes(int64_t tensor, const Address& a, const Condition& c, Value* fill, int64_t lanes) {
  Type* element = memoryType(p_.tensors[tensor].dtype);
  auto elementAlign = Align(dataTypeSize(p_.tensors[tensor].dtype));
  auto width = static_cast<unsigned>(lanes);
  auto orFill = [&](Value* condition, int64_t area) {
    return condition == nullptr ? a.pointer : b_.CreateSelect(condition, a.pointer, fillArea(fill, area));
  };
  if (lanes == 1) {
    return b_.CreateAlignedLoad(element, orFill(c.uniform, 1), elementAlign);
  }
  Type* type = FixedVectorType::get(element, width);
  auto align = Align(a.alignment);
  if (a.same) {
    Value* any = c.lanes == nullptr ? c.uniform : both(b_.CreateOrReduce(c.lanes), c.uniform);
    Value* x = b_.CreateAlignedLoad(element, orFill(any, 1), elementAlign);
    return c.lanes == nullptr
               ? x
               : b_.CreateSelect(c.lanes, b_.CreateVectorSplat(width, x), b_.CreateVectorSplat(width, fill));
  }
  if (a.contiguous && c.lanes == nullptr) {
    return b_.CreateAlignedLoad(type, orFill(c.uniform, lanes),
                                c.uniform == nullptr ? align : std::min(align, Align(64)));
  }
  Value* mask = joined(c, lanes);
  Value* rest = b_.CreateVectorSplat(width, fill);
  if (a.contiguous) {
    return b_.CreateMaskedLoad(type, a.pointer, align, mask, rest);
  }
  Value* places = pointers(a, element, lanes);
  if (element->getPrimitiveSizeInBits() >= 32) {
    return b_.CreateMaskedGather(type, places, elementAlign, mask, mask == nullptr ? nullptr : rest);
  }
  // No machine gathers shorter elements: LLVM would branch for every lane. Lanes that are masked off load the fill instead.
  if (mask != nullptr) {
    places = b_.CreateSelect(mask, places, b_.CreateVectorSplat(width, fillArea(fill, 1)));
  }
  return gatherShort(places, element, lanes);
}

// One element after the other, in a loop: as straight code it would be a hundred instructions a piece.
Value* Emitter::gatherShort(Value* places, Type* element, int64_t lanes) {
  Type* vector = FixedVectorType::get(element, lanes);
  Value* from = entrySlot(places->getType(), 500);
  Value* to = entrySlot(vector, 501);
  b_.CreateAlignedStore(places, from, Align(64));
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* loop = BasicBlock::Create(ctx_, "", fn_);
  BasicBlock* after = BasicBlock::Create(ctx_, "", fn_);
  b_.CreateBr(loop);
  b_.SetInsertPoint(loop);
  PHINode* lane = phi(b_.getInt64(0), before);
  Value* place = b_.CreateLoad(b_.getPtrTy(), b_.CreateGEP(b_.getPtrTy(), from, lane));
  b_.CreateStore(b_.CreateAlignedLoad(element, place, Align(element->getPrimitiveSizeInBits() / 8)),
                 b_.CreateGEP(element, to, lane));
  Value* next = b_.CreateAdd(lane, b_.getInt64(1));
  lane->addIncoming(next, loop);
  b_.CreateCondBr(b_.CreateICmpULT(next, b_.getInt64(lanes)), loop, after);
  b_.SetInsertPoint(after);
  return b_.CreateAlignedLoad(vector, to, Align(64));
}

// -- stores -----------------------------------------------------------------------------------------------------------

void Emitter::store(const tile::Stmt& s) {
  const tile::Value& v = p_.values[s.value];
  uint64_t digits = v.digits | digitsOf(offsetOf(s.param, s.index, s.space));
  for (const tile::Index& i : s.index) {
    digits |= i.tile == kNone ? 0 : p_.values[i.tile].digits;
  }
  for (const tile::Pred& p : s.where) {
    digits |= digitsOf(differenceOf(p, s.space));
  }
  if (s.mask != kNone) {
    digits |= p_.values[s.mask].digits;
  }
  eachPrepared(s.value, s.space, digits, [&](const Position& at) { storePiece(s, at, digits); });
}

void Emitter::storePiece(const tile::Stmt& s, const Position& at, uint64_t digits) {
  DataType dtype = p_.tensors[s.param].dtype;
  int64_t lanes = lanesOf(s.space, digits);
  Condition c = condition(s.space, digits, s.where, at);
  addMask(c, s.mask, at);
  if (c.never) {
    return;
  }
  Value* x = toMemory(vectorPiece(s.value, at, lanes), dtype);
  Address a = address(s.param, s.index, s.space, at, lanes);
  if (c.lanes != nullptr || c.uniform == nullptr) {
    storeLanes(a, joined(c, lanes), x, lanes, s.cache);
    return;
  }
  // The values above are computed before the branch: values that this scope computes once must not depend on a condition.
  when(c.uniform, "", [&](Instruction*) { storeLanes(a, nullptr, x, lanes, s.cache); });
}

void Emitter::storeLanes(const Address& a, Value* mask, Value* value, int64_t lanes, tile::Cache cache) {
  Type* element = value->getType()->getScalarType();
  auto elementBytes = static_cast<int64_t>(element->getPrimitiveSizeInBits()) / 8;
  auto align = Align(a.alignment);
  if (lanes == 1) {
    b_.CreateAlignedStore(value, a.pointer, Align(elementBytes));
  } else if (!a.contiguous) {
    b_.CreateMaskedScatter(value, pointers(a, element, lanes), Align(elementBytes), mask);
  } else if (mask != nullptr) {
    b_.CreateMaskedStore(value, a.pointer, align, mask);
  } else {
    StoreInst* store = b_.CreateAlignedStore(value, a.pointer, align);
    int64_t machine = std::min<int64_t>(elementBytes * lanes, target_.vectorBytes);
    if (cache == tile::Cache::Once && machine >= 16 && a.alignment % machine == 0) {
      store->setMetadata(LLVMContext::MD_nontemporal, MDNode::get(ctx_, ConstantAsMetadata::get(b_.getInt32(1))));
      streams_ = true;
    }
  }
}

void Emitter::prefetch(const tile::Stmt& s) {
  Position first;
  const PieceExpr e = pieceExpr(offsetOf(s.param, s.index, s.space), s.space, first);
  const auto ofFirstLane = [&](std::string_view symbol) {
    return symbol == digitOf(s.space, spaces_[s.space].vector).symbol ? std::optional(IntExpr(0)) : std::nullopt;
  };
  Value* line = pointer(s.param, e.linear ? e.rest + e.constant : e.whole.substitute(ofFirstLane));
  for (int64_t k : indices(s.index)) {
    if (s.index[k].tile != kNone) {
      Value* number = points_.cast(piece(s.index[k].tile, first), p_.values[s.index[k].tile].dtype, DataType::Int);
      line = b_.CreateGEP(memoryType(p_.tensors[s.param].dtype), line,
                          b_.CreateMul(number, scalar(p_.tensors[s.param].strides[k])));
    }
  }
  for (int64_t k = 0; k < s.lines; k++) {
    Value* at = k == 0 ? line : b_.CreateConstGEP1_64(b_.getInt8Ty(), line, 64 * k);
    Value* locality = b_.getInt32(static_cast<uint32_t>(4 - s.level));
    b_.CreateIntrinsic(Intrinsic::prefetch, {at->getType()},
                       {at, b_.getInt32(0), locality, b_.getInt32(1)});  // reads data
  }
}

}  // namespace meshfuse
