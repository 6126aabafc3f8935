// Converts: the tile of one space laid out in another. Shifts along the vector digit.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cstdint>
#include <numeric>

#include "base/ranges.h"
#include "codegen/llvm/emitter.h"

namespace meshfuse {

using namespace llvm;
using tile::ValueId;

// Where a piece begins along each axis, from the tile's corner.
std::vector<int64_t> Emitter::cornerOf(int64_t space, uint64_t digits, const Position& at) const {
  const SpaceInfo& info = spaces_[space];
  std::vector<int64_t> corner(p_.spaces[space].axes.size(), 0);
  for (int64_t d = 0; d < std::ssize(info.digits); d++) {
    if ((digits >> d & 1) != 0) {
      int64_t value = at.digit[d] * (d == info.vector ? info.lanes : 1);
      corner[info.digits[d].axis] += value * digitOf(space, d).stride.constValue();
    }
  }
  return corner;
}

// Square blocks, one lane of each row to a column, in log2(rows) steps. Each step makes two rows of two, and each is one instruction on
// x86: first they interleave the elements within 16 bytes, then they collect every other 16 bytes. Of the bits of an element's place, row
// and lane, a step moves one from the lane to the row and one from the row to the lane:
//
//   4 lanes of 16 bytes:  row x1 x0, lane c1 c0  ->  rows 2 apart:  c1 x0, c0 x1  ->  rows 1 apart:  c1 c0, x1 x0
void Emitter::transposePieces(std::vector<Value*>& rows, int64_t elementBytes) {
  constexpr int64_t kShuffledBytes = 16;
  const int64_t n = std::ssize(rows);
  const int64_t run = std::min(n, kShuffledBytes / elementBytes);
  const auto step = [&](int64_t apart, const auto& source) {
    std::vector<int> masks[2];
    for (int64_t k = 0; k < n; k++) {
      masks[0].push_back(static_cast<int>(source(k, 0)));
      masks[1].push_back(static_cast<int>(source(k, 1)));
    }
    for (int64_t i = 0; i < n; i++) {
      if ((i & apart) == 0) {
        Value* a = rows[i];
        Value* b = rows[i + apart];
        rows[i] = b_.CreateShuffleVector(a, b, masks[0]);
        rows[i + apart] = b_.CreateShuffleVector(a, b, masks[1]);
      }
    }
  };
  for (int64_t apart = run / 2; apart > 0; apart /= 2) {
    step(apart, [&](int64_t k, int64_t half) { return k % 2 * n + k / run * run + half * run / 2 + k % run / 2; });
  }
  for (int64_t apart = run; apart < n; apart *= 2) {
    step(apart, [&](int64_t k, int64_t odd) { return (k / run * 2 + odd) * run + k % run; });
  }
}

// In registers: rows along one axis become rows along another. False if the tiles are not made of whole square blocks.
bool Emitter::convertBlocks(ValueId id) {
  const tile::Value& v = p_.values[id];
  const tile::Value& operand = p_.values[v.operands[0]];
  int64_t lanes = lanesOf(v);
  if (lanes == 1 || lanes != lanesOf(operand)) {
    return false;
  }
  const SpaceInfo& from = spaces_[operand.space];
  const SpaceInfo& to = spaces_[v.space];
  int64_t row = from.digits[from.vector].axis;
  int64_t column = to.digits[to.vector].axis;
  if (row == column || !digitOf(operand.space, from.vector).stride.isConst(1) ||
      !digitOf(v.space, to.vector).stride.isConst(1)) {
    return false;
  }
  std::map<std::vector<int64_t>, Position> rows;
  eachPosition(operand.space, operand.digits,
               [&](const Position& at) { rows.emplace(cornerOf(operand.space, operand.digits, at), at); });
  bool whole = true;
  auto blockOf = [&](const Position& at) {
    std::vector<int64_t> corner = cornerOf(v.space, v.digits, at);
    corner[row] -= corner[row] % lanes;
    return corner;
  };
  eachPosition(v.space, v.digits, [&](const Position& at) {
    std::vector<int64_t> corner = blockOf(at);
    for (int64_t k = 0; k < lanes; k++, corner[column]++) {
      whole = whole && rows.contains(corner);
    }
  });
  if (!whole) {
    return false;
  }
  std::map<std::vector<int64_t>, std::vector<Value*>> blocks;
  eachPosition(v.space, v.digits, [&](const Position& at) {
    std::vector<int64_t> corner = blockOf(at);
    std::vector<Value*>& block = blocks[corner];
    if (block.empty()) {
      std::vector<int64_t> next = corner;
      for (int64_t k = 0; k < lanes; k++, next[column]++) {
        block.push_back(toMemory(vectorPiece(v.operands[0], rows.at(next), lanes), v.dtype));
      }
      transposePieces(block, dataTypeSize(v.dtype));
    }
    int64_t lane = cornerOf(v.space, v.digits, at)[row] - corner[row];
    setPiece(id, at, fromMemory(block[lane], v.dtype));
  });
  return true;
}

// Through a buffer on the stack that holds the tile row-major over its axes, the operand's vector axis last.
void Emitter::convert(ValueId id) {
  if (convertBlocks(id)) {
    return;
  }
  const tile::Value& v = p_.values[id];
  const tile::Value& operand = p_.values[v.operands[0]];
  const SpaceInfo& from = spaces_[operand.space];
  const tile::Space& source = p_.spaces[operand.space];
  // elements a tile spans along each axis, by either layout
  std::vector<int64_t> extent(source.axes.size(), 1);
  for (int64_t d = 0; d < std::ssize(from.digits); d++) {
    const tile::Digit& digit = digitOf(operand.space, d);
    extent[from.digits[d].axis] +=
        (operand.digits >> d & 1) != 0 ? (digit.size.constValue() - 1) * digit.stride.constValue() : 0;
  }
  int64_t last = lanesOf(operand) > 1 ? from.digits[from.vector].axis : std::ssize(source.axes) - 1;
  std::vector<int64_t> step(source.axes.size(), 1);
  int64_t total = extent[last];
  for (int64_t axis = std::ssize(source.axes) - 1; axis >= 0; axis--) {
    if (axis != last) {
      step[axis] = total;
      total *= extent[axis];
    }
  }
  Type* element = memoryType(v.dtype);
  Value* buffer = entrySlot(ArrayType::get(element, total), 1000 + id);
  auto place = [&](int64_t space, uint64_t digits, const Position& at) {
    std::vector<int64_t> corner = cornerOf(space, digits, at);
    int64_t offset = std::inner_product(corner.begin(), corner.end(), step.begin(), int64_t{0});
    return b_.CreateConstInBoundsGEP1_64(element, buffer, offset);
  };
  auto laneStep = [&](const tile::Value& tile) {
    const SpaceInfo& info = spaces_[tile.space];
    return lanesOf(tile) == 1
               ? 1
               : digitOf(tile.space, info.vector).stride.constValue() * step[info.digits[info.vector].axis];
  };
  auto align = Align(dataTypeSize(v.dtype));
  eachPosition(operand.space, operand.digits, [&](const Position& at) {
    int64_t lanes = lanesOf(operand);
    Value* x = toMemory(vectorPiece(v.operands[0], at, lanes), v.dtype);
    Value* p = place(operand.space, operand.digits, at);
    int64_t apart = laneStep(operand);
    if (apart == 1) {
      b_.CreateAlignedStore(x, p, align);
      return;
    }
    for (int64_t k = 0; k < lanes; k++) {
      b_.CreateStore(b_.CreateExtractElement(x, k), b_.CreateConstInBoundsGEP1_64(element, p, k * apart));
    }
  });
  eachPosition(v.space, v.digits, [&](const Position& at) {
    Value* p = place(v.space, v.digits, at);
    int64_t lanes = lanesOf(v);
    int64_t apart = laneStep(v);
    Type* type = lanes > 1 ? FixedVectorType::get(element, lanes) : element;
    if (apart == 1) {
      setPiece(id, at, fromMemory(b_.CreateAlignedLoad(type, p, align), v.dtype));
      return;
    }
    Value* x = PoisonValue::get(type);
    for (int64_t k = 0; k < lanes; k++) {
      Value* e = b_.CreateAlignedLoad(element, b_.CreateConstInBoundsGEP1_64(element, p, k * apart), align);
      x = b_.CreateInsertElement(x, e, k);
    }
    setPiece(id, at, fromMemory(x, v.dtype));
  });
}

// Of pieces one after the other, one that begins within them: a shuffle of two, or a load from a copy of all of them.
Value* Emitter::shift(const tile::Value& v, const Position& at) {
  const SpaceInfo& info = spaces_[v.space];
  const int64_t lanes = info.lanes;
  std::vector<Value*> pieces;
  for (ValueId operand : v.operands) {
    Position from = at;
    for (int64_t k = 0; k < info.vectorPieces; k++) {
      from.digit[info.vector] = k;
      pieces.push_back(toMemory(vectorPiece(operand, from, lanes), v.dtype));
    }
  }
  const PieceExpr by = pieceExpr(affineOf(&v.index, v.space, [&] { return v.index[0].expr; }), v.space, at);
  const IntExpr first = IntExpr((info.vectorPieces + at.digit[info.vector]) * lanes) - by.rest - by.constant;
  if (first.isConst()) {
    const int64_t begin = first.constValue();
    Value* a = pieces[begin / lanes];
    Value* b = begin % lanes == 0 ? a : pieces[begin / lanes + 1];
    std::vector<int> mask(lanes);
    std::iota(mask.begin(), mask.end(), static_cast<int>(begin % lanes));
    return fromMemory(b_.CreateShuffleVector(a, b, mask), v.dtype);
  }
  Type* type = pieces[0]->getType();
  constexpr int64_t kWideLanes = 16;
  if (info.vectorPieces == 1 && lanes == kWideLanes && type->getScalarSizeInBits() == 32 && target_.has("avx512f")) {
    Type* words = FixedVectorType::get(b_.getInt32Ty(), kWideLanes);
    std::vector<uint32_t> numbers(kWideLanes);
    std::iota(numbers.begin(), numbers.end(), 0);
    Value* places = b_.CreateAdd(splat(b_.CreateTrunc(scalar(first), b_.getInt32Ty()), lanes),
                                 ConstantDataVector::get(ctx_, numbers));
    Value* shifted =
        b_.CreateIntrinsic(Intrinsic::x86_avx512_vpermi2var_d_512, {},
                           {b_.CreateBitCast(pieces[0], words), places, b_.CreateBitCast(pieces[1], words)});
    return fromMemory(b_.CreateBitCast(shifted, type), v.dtype);
  }
  Type* element = type->getScalarType();
  Value* all = entrySlot(ArrayType::get(element, lanes * std::ssize(pieces)), 2);
  const auto align = Align(dataTypeSize(v.dtype));
  for (int64_t k : indices(pieces)) {
    b_.CreateAlignedStore(pieces[k], b_.CreateConstInBoundsGEP1_64(element, all, k * lanes), align);
  }
  return fromMemory(b_.CreateAlignedLoad(type, b_.CreateInBoundsGEP(element, all, scalar(first)), align), v.dtype);
}

}  // namespace meshfuse
