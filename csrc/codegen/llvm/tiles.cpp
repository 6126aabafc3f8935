// Values: each piece is computed once in the scope that first needs it. A piece whose lanes are all the same stays a scalar
// until it meets a vector.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/error.h"
#include "base/ranges.h"
#include "codegen/llvm/emitter.h"
#include "codegen/llvm/scalar_functions.h"
#include "tensor/tensor.h"

namespace meshfuse {

using namespace llvm;
using tile::kNone;
using tile::ValueId;
using tile::ValueKind;

namespace {

bool isVector(Value* x) { return x->getType()->isVectorTy(); }

}  // namespace

int64_t Emitter::lanesOf(int64_t space, uint64_t digits) const {
  const SpaceInfo& info = spaces_[space];
  return info.vector >= 0 && (digits >> info.vector & 1) != 0 ? info.lanes : 1;
}

int64_t Emitter::pieceIndex(int64_t space, uint64_t digits, const Position& at) const {
  int64_t index = 0;
  for (size_t d = 0; digits >> d != 0; d++) {
    index = (digits >> d & 1) != 0 ? index * spaces_[space].radix[d] + at.digit[d] : index;
  }
  return index;
}

int64_t Emitter::pieceCount(int64_t space, uint64_t digits) const {
  int64_t count = 1;
  for (size_t d = 0; digits >> d != 0; d++) {
    count *= (digits >> d & 1) != 0 ? spaces_[space].radix[d] : 1;
  }
  return count;
}

Value* Emitter::splat(Value* x, int64_t lanes) {
  if (lanes == 1 || x->getType()->isVectorTy()) {
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
      BasicBlock* home = def->getParent();
      b_.SetInsertPoint(home, isa<PHINode>(def) ? home->getFirstInsertionPt() : std::next(def->getIterator()));
    }
    wide = b_.CreateVectorSplat(width, x);
  }
  return wide;
}

void Emitter::splatBeside(std::span<Value*> values, int64_t lanes) {
  if (std::ranges::any_of(values, isVector)) {
    std::ranges::transform(values, values.begin(), [&](Value* x) { return splat(x, lanes); });
  }
}

Value* Emitter::piece(ValueId id, const Position& at) {
  const tile::Value& v = p_.values[id];
  if (isComputed(id, at)) {
    return pieces_[id][pieceIndex(v.space, v.digits, at)];
  }
  Value* value = compute(id, at);
  if (v.kind == ValueKind::Const || v.kind == ValueKind::Scalar) {
    return value;  // of every scope
  }
  setPiece(id, at, value);
  return value;
}

Value* Emitter::vectorPiece(ValueId id, const Position& at, int64_t lanes) { return splat(piece(id, at), lanes); }

void Emitter::evaluate(ValueId id) {
  const tile::Value& v = p_.values[id];
  if (v.kind == ValueKind::Convert) {
    return convert(id);
  }
  eachPrepared(id, v.space, v.digits, [&](const Position& at) { piece(id, at); });
}

bool Emitter::isComputed(ValueId id, const Position& at) const {
  const tile::Value& v = p_.values[id];
  const std::vector<Value*>& pieces = pieces_[id];
  return !pieces.empty() && pieces[pieceIndex(v.space, v.digits, at)] != nullptr;
}

void Emitter::prepare(ValueId id, std::span<const Position> group) {
  const tile::Value& v = p_.values[id];
  bool inner = v.kind == ValueKind::Load || v.kind == ValueKind::Point || v.kind == ValueKind::Cast ||
               v.kind == ValueKind::Index;
  if (!inner) {
    return;
  }
  auto index = [&](const Position& at) { return pieceIndex(v.space, v.digits, at); };
  std::vector<Position> missing;
  for (const Position& at : group) {
    if (!isComputed(id, at) && !isOutside(v.space, v.digits, at) && !contains(mapped(missing, index), index(at))) {
      missing.push_back(at);
    }
  }
  if (missing.empty()) {
    return;
  }
  for (ValueId operand : v.operands) {
    prepare(operand, missing);
  }
  std::vector<Value*> results;
  const bool together = v.kind == ValueKind::Cast || (v.kind == ValueKind::Point && v.operands.size() == 1);
  if (together && (missing.size() > 1 || coarse_[id])) {
    const std::vector<Value*> operands = mapped(missing, [&](const Position& at) { return piece(v.operands[0], at); });
    const DataType from = p_.values[v.operands[0]].dtype;
    if (!std::ranges::all_of(operands, isVector)) {
      // each by itself
    } else if (v.kind == ValueKind::Cast) {
      results = points_.castGroup(operands, from, v.dtype);
    } else {
      results = points_.pointGroup(v.op, from, coarse_[id] ? Precision::Coarse : Precision::Full, operands);
    }
  }
  for (int64_t i = 0; i < std::ssize(missing); i++) {
    if (results.empty()) {
      piece(id, missing[i]);
    } else {
      setPiece(id, missing[i], results[i]);
    }
  }
}

void Emitter::setPiece(ValueId id, const Position& at, Value* value) {
  const tile::Value& v = p_.values[id];
  std::vector<Value*>& pieces = pieces_[id];
  if (pieces.empty()) {
    pieces.resize(pieceCount(v.space, v.digits));
    scopes_.back().evaluated.push_back(id);
  }
  pieces[pieceIndex(v.space, v.digits, at)] = value;
}

Value* Emitter::compute(ValueId id, const Position& at) {
  const tile::Value& v = p_.values[id];
  switch (v.kind) {
    case ValueKind::Const:
      if (isHalfPrecision(v.dtype)) {
        uint16_t bits = 0;  // no instructions: a fill is used where no block of the loop reaches
        storeElement(&bits, v.dtype, v.constant);
        return b_.getInt16(bits);
      }
      return isFloatingPoint(v.dtype) ? ConstantFP::get(elementType(v.dtype), v.constant)
                                      : ConstantInt::get(elementType(v.dtype), v.integer, true);
    case ValueKind::Scalar:
      return scalars_[v.param];
    case ValueKind::Index:
      return indexValue(id, at);
    case ValueKind::Load:
      return load(id, at);
    case ValueKind::Point:
      return v.op == PointOp::CheckedIndex ? checkedIndex(v, at) : pointValue(v, at);
    case ValueKind::Cast:
      return points_.cast(piece(v.operands[0], at), p_.values[v.operands[0]].dtype, v.dtype);
    case ValueKind::Random:
      return random(v, at);
    case ValueKind::Reduce:
      return reduce(v, at);
    case ValueKind::Shift:
      return shift(v, at);
    case ValueKind::Carry:
    case ValueKind::LoopResult:
    case ValueKind::Convert:
    case ValueKind::Scan:  // of GPUs only
    case ValueKind::ScanTotal:
      break;
  }
  throwInternalError("[emit] a value is used outside the block that defines it; verify the program");
}

Value* Emitter::pointValue(const tile::Value& v, const Position& at) {
  std::vector<Value*> operands = mapped(v.operands, [&](ValueId operand) { return piece(operand, at); });
  splatBeside(operands, lanesOf(v));
  return points_.point(v.op, p_.values[v.operands.back()].dtype, operands);
}

// The unchanged index, and a rarely taken branch that reports a bad lane and replaces bad indices by 0.
Value* Emitter::checkedIndex(const tile::Value& v, const Position& at) {
  Condition c = condition(v.space, v.digits, v.where, at);
  if (c.never) {
    return Constant::getNullValue(elementType(v.dtype));
  }
  Value* index = piece(v.operands[0], at);
  Value* extent = piece(v.operands[1], at);
  int64_t lanes = isVector(index) || isVector(extent) || c.lanes != nullptr ? lanesOf(v) : 1;
  index = splat(index, lanes);
  extent = splat(extent, lanes);
  // Compared as unsigned numbers a negative index is beyond any extent that is not negative itself.
  Value* bad = b_.CreateICmpUGE(index, extent);
  if (!isUnsigned(v.dtype)) {
    Value* negative = b_.CreateICmpSLT(extent, Constant::getNullValue(extent->getType()));
    if (auto* constant = dyn_cast<Constant>(negative); constant == nullptr || !constant->isNullValue()) {
      bad = b_.CreateOr(bad, negative);
    }
  }
  if (Value* inside = lanes > 1 ? joined(c, lanes) : c.uniform; inside != nullptr) {
    bad = b_.CreateLogicalAnd(inside, bad);
  }
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* refused = BasicBlock::Create(ctx_, "refused", fn_);
  BasicBlock* after = BasicBlock::Create(ctx_, "", fn_);
  b_.CreateCondBr(lanes > 1 ? b_.CreateOrReduce(bad) : bad, refused, after,
                  MDBuilder(ctx_).createBranchWeights(1, 1 << 20));
  b_.SetInsertPoint(refused);
  Value* places[] = {entrySlot(index->getType(), 0), entrySlot(index->getType(), 1)};
  b_.CreateAlignedStore(index, places[0], Align(64));
  b_.CreateAlignedStore(extent, places[1], Align(64));
  Value* bits = lanes > 1 ? b_.CreateBitCast(bad, b_.getIntNTy(lanes)) : bad;
  callRuntime(v.op, v.dtype, {places[0], places[1], b_.CreateZExt(bits, b_.getInt64Ty())});
  Value* mended = b_.CreateSelect(bad, Constant::getNullValue(index->getType()), index);
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  PHINode* result = phi(index, before);
  result->addIncoming(mended, refused);
  return result;
}

Value* Emitter::indexValue(ValueId id, const Position& at) {
  const tile::Value& v = p_.values[id];
  PieceExpr e = pieceExpr(affineOf(&v.index, v.space, [&] { return v.index[0].expr; }), v.space, at);
  int64_t lanes = lanesOf(v);
  if (e.linear && (lanes == 1 || e.laneSlope.isConst(0))) {
    return scalar(e.rest + e.constant);
  }
  const std::string lane = "lane ";
  if (e.linear) {
    Value* base = splat(scalar(e.rest + e.constant), lanes);
    return b_.CreateAdd(base, lanesOf(e.laneSlope * IntExpr::symbol(lane), lane, lanes));
  }
  return lanesOf(e.whole, digitOf(v.space, spaces_[v.space].vector).symbol, lanes);
}

// -- random -----------------------------------------------------------------------------------------------------------

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011: Philox4x32-10. Words are held in 64 bits.
Value* Emitter::random(const tile::Value& v, const Position& at) {
  std::array<Value*, 3> operands{};
  for (int64_t i = 0; i < 3; i++) {
    operands[i] = points_.cast(piece(v.operands[i], at), p_.values[v.operands[i]].dtype, DataType::Int);
  }
  auto [entry, isNew] = scopes_.back().random.try_emplace(operands);
  auto word = static_cast<size_t>(v.param);
  if (!isNew) {
    return entry->second[word];
  }
  splatBeside(operands, lanesOf(v));
  auto constant = [&](uint64_t value) { return ConstantInt::get(operands[0]->getType(), value); };
  auto low = [&](Value* x) { return b_.CreateAnd(x, constant(0xffffffff)); };
  auto high = [&](Value* x) { return b_.CreateLShr(x, constant(32)); };
  // A loop: ten rounds in a row take LLVM forty times as long to compile.
  std::array<Value*, 6> start{operands[2],       high(operands[2]), operands[1],
                              high(operands[1]), operands[0],       high(operands[0])};
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* body = BasicBlock::Create(ctx_, "philox", fn_);
  BasicBlock* after = BasicBlock::Create(ctx_, "", fn_);
  b_.CreateBr(body);
  b_.SetInsertPoint(body);
  PHINode* round = phi(b_.getInt32(0), before);
  std::vector<PHINode*> c = mapped(start, [&](Value* x) { return phi(x, before); });
  Value* p0 = b_.CreateMul(low(c[0]), constant(0xD2511F53));
  Value* p1 = b_.CreateMul(low(c[2]), constant(0xCD9E8D57));
  // Only the low half of each word counts; the upper one is cut off where it would be seen.
  std::array<Value*, 6> next{
      b_.CreateXor(b_.CreateXor(high(p1), c[1]), c[4]), p1,
      b_.CreateXor(b_.CreateXor(high(p0), c[3]), c[5]), p0,
      b_.CreateAdd(c[4], constant(0x9E3779B9)),         b_.CreateAdd(c[5], constant(0xBB67AE85))};
  Value* nextRound = b_.CreateAdd(round, b_.getInt32(1));
  round->addIncoming(nextRound, body);
  for (int64_t i = 0; i < 6; i++) {
    c[i]->addIncoming(next[i], body);
  }
  b_.CreateCondBr(b_.CreateICmpULT(nextRound, b_.getInt32(10)), body, after);
  b_.SetInsertPoint(after);
  for (int64_t i = 0; i < 4; i++) {
    entry->second[i] = low(next[i]);
  }
  return entry->second[word];
}

// -- reductions -------------------------------------------------------------------------------------------------------

// Register digits ascending, each lane by itself; then the vector digit in halves, machine vectors first.
Value* Emitter::reduce(const tile::Value& v, const Position& at) {
  const tile::Value& operand = p_.values[v.operands[0]];
  const SpaceInfo& info = spaces_[operand.space];
  uint64_t removed = operand.digits & ~v.digits;
  int64_t lanes = lanesOf(operand);
  bool acrossLanes = info.vector >= 0 && (removed >> info.vector & 1) != 0;
  Type* type = elementType(v.dtype);
  Constant* identity = isFloatingPoint(v.dtype) ? ConstantFP::get(type, floatingIdentity(v.combiner))
                                                : ConstantInt::get(type, integerIdentity(v.combiner, v.dtype), true);
  std::vector<Value*> sums(acrossLanes ? info.vectorPieces : 1, nullptr);
  auto combined = [&](Value* a, Value* b) {  // null: no elements
    return a == nullptr ? b : b == nullptr ? a : points_.combine(v.combiner, v.dtype, a, b);
  };
  eachPosition(operand.space, removed, [&](const Position& inner) {
    Position whole = at;
    for (int64_t d = 0; d < std::ssize(info.radix); d++) {
      if ((removed >> d & 1) != 0) {
        whole.digit[d] = inner.digit[d];
      }
    }
    Condition c = condition(operand.space, operand.digits, v.where, whole, removed);
    if (c.never) {
      return;
    }
    Value* x = selected(c, vectorPiece(v.operands[0], whole, lanes), splat(identity, lanes), lanes);
    Value*& sum = sums[acrossLanes ? inner.digit[info.vector] : 0];
    sum = combined(sum, x);
  });
  for (size_t n = sums.size(); n > 1; n /= 2) {
    for (size_t i = 0; i < n / 2; i++) {
      sums[i] = combined(sums[i], sums[i + n / 2]);
    }
  }
  if (sums[0] == nullptr) {
    return identity;
  }
  return acrossLanes && lanes > 1 ? reduceLanes(sums[0], v.combiner, v.dtype) : sums[0];
}

Value* Emitter::reduceLanes(Value* x, tile::Combiner combiner, DataType dtype) {
  auto lanes = static_cast<int64_t>(cast<FixedVectorType>(x->getType())->getNumElements());
  std::vector<int> numbers(lanes);
  std::iota(numbers.begin(), numbers.end(), 0);
  for (; lanes > 2; lanes /= 2) {
    ArrayRef<int> lower = ArrayRef(numbers).slice(0, lanes / 2);
    ArrayRef<int> upper = ArrayRef(numbers).slice(lanes / 2, lanes / 2);
    x = points_.combine(combiner, dtype, b_.CreateShuffleVector(x, lower), b_.CreateShuffleVector(x, upper));
  }
  return points_.combine(combiner, dtype, b_.CreateExtractElement(x, uint64_t{0}),
                         b_.CreateExtractElement(x, uint64_t{1}));
}

// -- calls ------------------------------------------------------------------------------------------------------------

Value* Emitter::entrySlot(Type* type, int64_t number) {
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

void Emitter::callRuntime(PointOp op, DataType dtype, const std::vector<Value*>& arguments) {
  FunctionType* type = FunctionType::get(b_.getVoidTy(), mapped(arguments, &Value::getType), false);
  b_.CreateCall(module_.getOrInsertFunction(scalarFunctionSymbol(op, dtype), type), arguments);
}

Value* Emitter::callScalar(PointOp op, DataType dtype, std::span<Value* const> operands) {
  Type* type = operands[0]->getType();
  uint64_t lanes = type->isVectorTy() ? cast<FixedVectorType>(type)->getNumElements() : 1;
  std::array<Value*, 3> slots{};
  for (int64_t i = 0; i < 3; i++) {
    slots[i] = entrySlot(type, i);
    if (i > 0 && i <= std::ssize(operands)) {
      b_.CreateAlignedStore(operands[i - 1], slots[i], Align(64));
    }
  }
  callRuntime(op, dtype, {slots[0], slots[1], slots[2], b_.getInt64(lanes)});
  return b_.CreateAlignedLoad(type, slots[0], Align(64));
}

}  // namespace meshfuse
