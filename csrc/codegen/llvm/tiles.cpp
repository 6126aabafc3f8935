// Values: each piece is computed once in the scope that first needs it. A piece whose lanes are all the same stays a scalar
// until it meets a vector.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>

#include "base/error.h"
#include "codegen/llvm/emitter.h"
#include "codegen/llvm/scalar_functions.h"

namespace meshfuse {

using namespace llvm;
using tile::kNone;
using tile::ValueId;
using tile::ValueKind;

int Emitter::lanesOf(const tile::Value& v) const {
  const SpaceInfo& info = spaces_[static_cast<size_t>(v.space)];
  return info.vector >= 0 && (v.digits >> info.vector & 1) != 0 ? info.lanes : 1;
}

int Emitter::pieceIndex(int space, uint64_t digits, const Position& at) const {
  if (digits == 0) {
    return 0;
  }
  const SpaceInfo& info = spaces_[static_cast<size_t>(space)];
  int index = 0;
  for (size_t d = 0; d < info.radix.size(); d++) {
    if ((digits >> d & 1) != 0) {
      index = index * info.radix[d] + at.digit[d];
    }
  }
  return index;
}

int Emitter::pieceCount(int space, uint64_t digits) const {
  int count = 1;
  const SpaceInfo& info = spaces_[static_cast<size_t>(space)];
  for (size_t d = 0; digits != 0 && d < info.radix.size(); d++) {
    count *= (digits >> d & 1) != 0 ? info.radix[d] : 1;
  }
  return count;
}

Value* Emitter::splat(Value* x, int lanes) {
  if (x->getType()->isVectorTy()) {
    return x;
  }
  auto width = static_cast<unsigned>(lanes);
  if (auto* c = dyn_cast<Constant>(x)) {
    return ConstantVector::getSplat(ElementCount::getFixed(width), c);
  }
  Value*& wide = splats_[{x, lanes}];
  if (wide == nullptr) {  // next to its definition: outside the loops that use it
    IRBuilderBase::InsertPointGuard guard(b_);
    if (auto* def = dyn_cast<Instruction>(x)) {
      if (isa<PHINode>(def)) {
        b_.SetInsertPoint(def->getParent(), def->getParent()->getFirstInsertionPt());
      } else {
        b_.SetInsertPoint(def->getParent(), std::next(def->getIterator()));
      }
    }
    wide = b_.CreateVectorSplat(width, x);
  }
  return wide;
}

Value* Emitter::piece(ValueId id, const Position& at) {
  const tile::Value& v = p_.values[static_cast<size_t>(id)];
  if (v.kind == ValueKind::Const) {
    return compute(id, at);
  }
  if (v.kind == ValueKind::Scalar) {
    return scalars_[static_cast<size_t>(v.param)];
  }
  if (isComputed(id, at)) {
    return pieces_[static_cast<size_t>(id)][static_cast<size_t>(pieceIndex(v.space, v.digits, at))];
  }
  Value* value = compute(id, at);
  setPiece(id, at, value);
  return value;
}

Value* Emitter::vectorPiece(ValueId id, const Position& at, int lanes) { return splat(piece(id, at), lanes); }

void Emitter::evaluate(ValueId id) {
  const tile::Value& v = p_.values[static_cast<size_t>(id)];
  if (v.kind == ValueKind::Convert) {
    convert(id);
    return;
  }
  eachPrepared(id, v.space, v.digits, [&](const Position& at) { piece(id, at); });
}

bool Emitter::isComputed(ValueId id, const Position& at) const {
  const tile::Value& v = p_.values[static_cast<size_t>(id)];
  const std::vector<Value*>& pieces = pieces_[static_cast<size_t>(id)];
  return !pieces.empty() && pieces[static_cast<size_t>(pieceIndex(v.space, v.digits, at))] != nullptr;
}

void Emitter::prepare(ValueId id, std::span<const Position> group) {
  const tile::Value& v = p_.values[static_cast<size_t>(id)];
  bool inner = v.kind == ValueKind::Load || v.kind == ValueKind::Point || v.kind == ValueKind::Cast || v.kind == ValueKind::Index;
  if (!inner) {
    return;
  }
  std::vector<Position> missing;
  for (const Position& at : group) {
    bool isNew = std::none_of(missing.begin(), missing.end(), [&](const Position& m) {
      return pieceIndex(v.space, v.digits, m) == pieceIndex(v.space, v.digits, at);
    });
    if (isNew && !isComputed(id, at)) {
      missing.push_back(at);
    }
  }
  if (missing.empty()) {
    return;
  }
  for (ValueId operand : v.operands) {
    prepare(operand, missing);
  }
  std::vector<Value*> operands;
  if (v.kind == ValueKind::Point && v.operands.size() == 1 && missing.size() > 1) {
    for (const Position& at : missing) {
      operands.push_back(piece(v.operands[0], at));
    }
    bool vectors = std::all_of(operands.begin(), operands.end(), [](Value* x) { return x->getType()->isVectorTy(); });
    operands = vectors ? points_.pointGroup(v.op, p_.values[static_cast<size_t>(v.operands[0])].dtype, operands) : std::vector<Value*>{};
  }
  for (size_t i = 0; i < missing.size(); i++) {
    if (operands.empty()) {
      piece(id, missing[i]);
    } else {
      setPiece(id, missing[i], operands[i]);
    }
  }
}

void Emitter::setPiece(ValueId id, const Position& at, Value* value) {
  const tile::Value& v = p_.values[static_cast<size_t>(id)];
  std::vector<Value*>& pieces = pieces_[static_cast<size_t>(id)];
  if (pieces.empty()) {
    pieces.resize(static_cast<size_t>(pieceCount(v.space, v.digits)));
    scopes_.back().evaluated.push_back(id);
  }
  pieces[static_cast<size_t>(pieceIndex(v.space, v.digits, at))] = value;
}

Value* Emitter::compute(ValueId id, const Position& at) {
  const tile::Value& v = p_.values[static_cast<size_t>(id)];
  switch (v.kind) {
    case ValueKind::Const:
      if (isHalfPrecision(v.dtype)) {
        return points_.cast(ConstantFP::get(b_.getDoubleTy(), v.constant), DataType::Double, v.dtype);
      }
      return isFloatingPoint(v.dtype) ? static_cast<Value*>(ConstantFP::get(elementType(v.dtype), v.constant))
                                      : ConstantInt::get(elementType(v.dtype), static_cast<uint64_t>(v.integer), true);
    case ValueKind::Scalar: return scalars_[static_cast<size_t>(v.param)];
    case ValueKind::Index: return indexValue(id, at);
    case ValueKind::Load: return load(id, at);
    case ValueKind::Point: return pointValue(v, at);
    case ValueKind::Cast:
      return points_.cast(piece(v.operands[0], at), p_.values[static_cast<size_t>(v.operands[0])].dtype, v.dtype);
    case ValueKind::Random: return random(v, at);
    case ValueKind::Reduce: return reduce(v, at);
    case ValueKind::Carry:
    case ValueKind::LoopResult:
    case ValueKind::Convert: break;
  }
  throwInternalError("[emit] a value is used outside the block that defines it; verify the program");
}

Value* Emitter::pointValue(const tile::Value& v, const Position& at) {
  std::array<Value*, 3> operands{};
  bool vector = false;
  size_t n = v.operands.size();
  for (size_t i = 0; i < n; i++) {
    operands[i] = piece(v.operands[i], at);
    vector = vector || operands[i]->getType()->isVectorTy();
  }
  for (size_t i = 0; vector && i < n; i++) {
    operands[i] = splat(operands[i], lanesOf(v));
  }
  DataType dtype = p_.values[static_cast<size_t>(v.operands.back())].dtype;
  return points_.point(v.op, dtype, {operands.data(), n});
}

Value* Emitter::indexValue(ValueId id, const Position& at) {
  const tile::Value& v = p_.values[static_cast<size_t>(id)];
  auto found = affine_.find(&v.index);
  const Affine& a = found != affine_.end() ? found->second : affine_.emplace(&v.index, affine(v.index[0].expr, v.space)).first->second;
  PieceExpr e = pieceExpr(a, v.space, at);
  int lanes = lanesOf(v);
  if (e.linear && (lanes == 1 || e.laneSlope.isConst(0))) {
    return scalar(e.rest + e.constant);
  }
  const std::string lane = "lane ";
  if (e.linear) {
    Value* base = splat(scalar(e.rest + e.constant), lanes);
    return b_.CreateAdd(base, lanesOf(e.laneSlope * IntExpr::symbol(lane), lane, lanes));
  }
  const SpaceInfo& info = spaces_[static_cast<size_t>(v.space)];
  const tile::DigitRef& ref = info.digits[static_cast<size_t>(info.vector)];
  const tile::Axis& axis = p_.spaces[static_cast<size_t>(v.space)].axes[static_cast<size_t>(ref.axis)];
  return lanesOf(e.whole, axis.digits[static_cast<size_t>(ref.digit)].symbol, lanes);
}

// -- random -----------------------------------------------------------------------------------------------------------

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011: Philox4x32-10. Words are held in 64 bits.
Value* Emitter::random(const tile::Value& v, const Position& at) {
  std::array<Value*, 3> operands{};
  bool vector = false;
  for (size_t i = 0; i < 3; i++) {
    operands[i] = points_.cast(piece(v.operands[i], at), p_.values[static_cast<size_t>(v.operands[i])].dtype, DataType::Int);
    vector = vector || operands[i]->getType()->isVectorTy();
  }
  auto [entry, isNew] = scopes_.back().random.try_emplace(operands);
  auto word = static_cast<size_t>(v.param);
  if (!isNew) {
    return entry->second[word];
  }
  for (size_t i = 0; vector && i < 3; i++) {
    operands[i] = splat(operands[i], lanesOf(v));
  }
  auto constant = [&](uint64_t value) { return ConstantInt::get(operands[0]->getType(), value); };
  auto low = [&](Value* x) { return b_.CreateAnd(x, constant(0xffffffff)); };
  auto high = [&](Value* x) { return b_.CreateLShr(x, constant(32)); };
  std::array<Value*, 2> key{low(operands[0]), high(operands[0])};
  std::array<Value*, 4> c{low(operands[2]), high(operands[2]), low(operands[1]), high(operands[1])};
  for (int round = 0; round < 10; round++) {
    Value* p0 = b_.CreateMul(c[0], constant(0xD2511F53));
    Value* p1 = b_.CreateMul(c[2], constant(0xCD9E8D57));
    c = {b_.CreateXor(b_.CreateXor(high(p1), c[1]), key[0]), low(p1), b_.CreateXor(b_.CreateXor(high(p0), c[3]), key[1]), low(p0)};
    if (round < 9) {
      key = {low(b_.CreateAdd(key[0], constant(0x9E3779B9))), low(b_.CreateAdd(key[1], constant(0xBB67AE85)))};
    }
  }
  entry->second = c;
  return c[word];
}

// -- reductions -------------------------------------------------------------------------------------------------------

Constant* Emitter::identityOf(tile::Combiner combiner, DataType dtype) const {
  Type* type = elementType(dtype);
  bool floating = isFloatingPoint(dtype);
  auto width = type->isIntegerTy() ? type->getIntegerBitWidth() : 0;
  switch (combiner) {
    case ReduceOp::Sum:
    case ReduceOp::Or:
    case ReduceOp::Xor: return Constant::getNullValue(type);
    case ReduceOp::Prod: return floating ? ConstantFP::get(type, 1) : ConstantInt::get(type, 1);
    case ReduceOp::And: return Constant::getAllOnesValue(type);
    case ReduceOp::Max:
      return floating      ? ConstantFP::getInfinity(type, true)
             : width == 1 ? Constant::getNullValue(type)
                          : ConstantInt::get(type, APInt::getSignedMinValue(width));
    case ReduceOp::Min:
      return floating      ? ConstantFP::getInfinity(type)
             : width == 1 ? Constant::getAllOnesValue(type)
                          : ConstantInt::get(type, APInt::getSignedMaxValue(width));
  }
  throwInternalError("[emit] unknown combiner");
}

// Register digits ascending, each lane by itself; then the vector digit in halves, machine vectors first.
Value* Emitter::reduce(const tile::Value& v, const Position& at) {
  const tile::Value& operand = p_.values[static_cast<size_t>(v.operands[0])];
  const SpaceInfo& info = spaces_[static_cast<size_t>(operand.space)];
  uint64_t removed = operand.digits & ~v.digits;
  int lanes = lanesOf(operand);
  bool acrossLanes = info.vector >= 0 && (removed >> info.vector & 1) != 0;
  Constant* identity = identityOf(v.combiner, v.dtype);
  std::vector<Value*> sums(acrossLanes ? static_cast<size_t>(info.vectorPieces) : 1, nullptr);
  eachPosition(operand.space, removed, [&](const Position& inner) {
    Position whole = at;
    for (size_t d = 0; d < info.radix.size(); d++) {
      if ((removed >> d & 1) != 0) {
        whole.digit[d] = inner.digit[d];
      }
    }
    Condition c = condition(operand.space, operand.digits, v.where, whole, removed);
    if (c.never) {
      return;
    }
    Value* x = piece(v.operands[0], whole);
    if (lanes > 1) {
      x = splat(x, lanes);
    }
    if (c.lanes != nullptr) {
      x = b_.CreateSelect(joined(c, lanes), x, splat(identity, lanes));
    } else if (c.uniform != nullptr) {
      x = b_.CreateSelect(c.uniform, x, lanes > 1 ? splat(identity, lanes) : identity);
    }
    Value*& sum = sums[acrossLanes ? static_cast<size_t>(inner.digit[static_cast<size_t>(info.vector)]) : 0];
    sum = sum == nullptr ? x : points_.combine(v.combiner, v.dtype, sum, x);
  });
  for (size_t n = sums.size(); n > 1; n /= 2) {
    for (size_t i = 0; i < n / 2; i++) {
      Value* other = sums[i + n / 2];
      if (sums[i] == nullptr || other == nullptr) {
        sums[i] = sums[i] == nullptr ? other : sums[i];
      } else {
        sums[i] = points_.combine(v.combiner, v.dtype, sums[i], other);
      }
    }
  }
  if (sums[0] == nullptr) {
    return identity;
  }
  return acrossLanes && lanes > 1 ? reduceLanes(sums[0], v.combiner, v.dtype) : sums[0];
}

Value* Emitter::reduceLanes(Value* x, tile::Combiner combiner, DataType dtype) {
  auto lanes = static_cast<int>(cast<FixedVectorType>(x->getType())->getNumElements());
  for (; lanes > 2; lanes /= 2) {
    SmallVector<int, 16> lower;
    SmallVector<int, 16> upper;
    for (int k = 0; k < lanes / 2; k++) {
      lower.push_back(k);
      upper.push_back(k + lanes / 2);
    }
    x = points_.combine(combiner, dtype, b_.CreateShuffleVector(x, lower), b_.CreateShuffleVector(x, upper));
  }
  return points_.combine(combiner, dtype, b_.CreateExtractElement(x, uint64_t{0}), b_.CreateExtractElement(x, uint64_t{1}));
}

// -- convert ----------------------------------------------------------------------------------------------------------

// Through a buffer on the stack that holds the tile row-major over its axes, the operand's vector axis last.
void Emitter::convert(ValueId id) {
  const tile::Value& v = p_.values[static_cast<size_t>(id)];
  const tile::Value& operand = p_.values[static_cast<size_t>(v.operands[0])];
  const SpaceInfo& from = spaces_[static_cast<size_t>(operand.space)];
  const SpaceInfo& to = spaces_[static_cast<size_t>(v.space)];
  const tile::Space& source = p_.spaces[static_cast<size_t>(operand.space)];
  const tile::Space& result = p_.spaces[static_cast<size_t>(v.space)];
  auto stride = [](const tile::Space& s, const tile::DigitRef& r) {
    return s.axes[static_cast<size_t>(r.axis)].digits[static_cast<size_t>(r.digit)].stride.constValue();
  };
  auto size = [](const tile::Space& s, const tile::DigitRef& r) {
    return s.axes[static_cast<size_t>(r.axis)].digits[static_cast<size_t>(r.digit)].size.constValue();
  };
  // elements a tile spans along each axis, by either layout
  std::vector<int64_t> extent(source.axes.size(), 1);
  for (size_t d = 0; d < from.digits.size(); d++) {
    extent[static_cast<size_t>(from.digits[d].axis)] +=
        (operand.digits >> d & 1) != 0 ? (size(source, from.digits[d]) - 1) * stride(source, from.digits[d]) : 0;
  }
  int last = lanesOf(operand) > 1 ? from.digits[static_cast<size_t>(from.vector)].axis : static_cast<int>(source.axes.size()) - 1;
  std::vector<int64_t> step(source.axes.size(), 0);
  int64_t total = 1;
  for (int k = static_cast<int>(source.axes.size()); k >= 0; k--) {
    int axis = k == static_cast<int>(source.axes.size()) ? last : k;
    if (k == last) {
      continue;
    }
    step[static_cast<size_t>(axis)] = total;
    total *= extent[static_cast<size_t>(axis)];
  }
  Type* element = memoryType(v.dtype);
  Value* buffer = entrySlot(ArrayType::get(element, static_cast<uint64_t>(total)), 1000 + id);
  auto place = [&](const tile::Space& s, const SpaceInfo& info, uint64_t digits, const Position& at) {
    int64_t offset = 0;
    for (size_t d = 0; d < info.digits.size(); d++) {
      if ((digits >> d & 1) != 0) {
        int64_t value = at.digit[d] * (static_cast<int>(d) == info.vector ? info.lanes : 1);
        offset += value * stride(s, info.digits[d]) * step[static_cast<size_t>(info.digits[d].axis)];
      }
    }
    return b_.CreateConstInBoundsGEP1_64(element, buffer, static_cast<uint64_t>(offset));
  };
  auto laneStep = [&](const tile::Space& s, const SpaceInfo& info) {
    const tile::DigitRef& r = info.digits[static_cast<size_t>(info.vector)];
    return stride(s, r) * step[static_cast<size_t>(r.axis)];
  };
  eachPosition(operand.space, operand.digits, [&](const Position& at) {
    Value* x = piece(v.operands[0], at);
    int lanes = lanesOf(operand);
    x = toMemory(lanes > 1 ? splat(x, lanes) : x, v.dtype);
    Value* p = place(source, from, operand.digits, at);
    int64_t apart = lanes > 1 ? laneStep(source, from) : 1;
    if (apart == 1) {
      b_.CreateAlignedStore(x, p, Align(static_cast<uint64_t>(dataTypeSize(v.dtype))));
      return;
    }
    for (int k = 0; k < lanes; k++) {
      b_.CreateStore(b_.CreateExtractElement(x, static_cast<uint64_t>(k)),
                     b_.CreateConstInBoundsGEP1_64(element, p, static_cast<uint64_t>(k * apart)));
    }
  });
  std::vector<Value*>& pieces = pieces_[static_cast<size_t>(id)];
  pieces.clear();
  scopes_.back().evaluated.push_back(id);
  eachPosition(v.space, v.digits, [&](const Position& at) {
    Value* p = place(result, to, v.digits, at);
    int lanes = lanesOf(v);
    auto align = Align(static_cast<uint64_t>(dataTypeSize(v.dtype)));
    int64_t apart = lanes > 1 ? laneStep(result, to) : 1;
    Value* x = nullptr;
    if (apart == 1) {
      x = b_.CreateAlignedLoad(lanes > 1 ? static_cast<Type*>(FixedVectorType::get(element, static_cast<unsigned>(lanes))) : element, p, align);
    } else {
      x = PoisonValue::get(FixedVectorType::get(element, static_cast<unsigned>(lanes)));
      for (int k = 0; k < lanes; k++) {
        Value* e = b_.CreateAlignedLoad(element, b_.CreateConstInBoundsGEP1_64(element, p, static_cast<uint64_t>(k * apart)), align);
        x = b_.CreateInsertElement(x, e, static_cast<uint64_t>(k));
      }
    }
    pieces.push_back(fromMemory(x, v.dtype));
  });
}

// -- calls ------------------------------------------------------------------------------------------------------------

Value* Emitter::entrySlot(Type* type, int number) {
  Value*& slot = entrySlots_[{type, number}];
  if (slot == nullptr) {
    IRBuilderBase::InsertPointGuard guard(b_);
    b_.SetInsertPoint(&fn_->getEntryBlock(), fn_->getEntryBlock().begin());
    AllocaInst* a = b_.CreateAlloca(type);
    a->setAlignment(Align(64));
    slot = a;
  }
  return slot;
}

Value* Emitter::callScalar(PointOp op, DataType dtype, std::span<Value* const> operands) {
  Type* type = operands[0]->getType();
  uint64_t lanes = type->isVectorTy() ? cast<FixedVectorType>(type)->getNumElements() : 1;
  std::array<Value*, 3> slots{};
  for (size_t i = 0; i < 3; i++) {
    slots[i] = entrySlot(type, static_cast<int>(i));
    if (i > 0 && i <= operands.size()) {
      b_.CreateAlignedStore(operands[i - 1], slots[i], Align(64));
    }
  }
  Type* pointer = b_.getPtrTy();
  FunctionCallee callee = module_.getOrInsertFunction(
      scalarFunctionSymbol(op, dtype), FunctionType::get(b_.getVoidTy(), {pointer, pointer, pointer, b_.getInt64Ty()}, false));
  b_.CreateCall(callee, {slots[0], slots[1], slots[2], b_.getInt64(lanes)});
  return b_.CreateAlignedLoad(type, slots[0], Align(64));
}

}  // namespace meshfuse
