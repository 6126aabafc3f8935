// The state of one emission, shared by the .cpp files of this folder; see README.md for how a tile becomes IR.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/llvm/emit.h"
#include "codegen/llvm/point_ops.h"

namespace llvm {
class BasicBlock;
class Function;
class Instruction;
class LLVMContext;
class PHINode;
}  // namespace llvm

namespace meshfuse {

// One piece of a tile: a value of each register digit of its space, in the numbering of Value::digits. The vector digit
// counts machine vectors.
struct Position {
  static constexpr int64_t kMostDigits = 16;
  std::array<int64_t, kMostDigits> digit{};
};

// An index expression against the register digits of a space.
struct Affine {
  IntExpr whole;                                    // coordinates replaced by digits
  IntExpr rest;                                     // without register digits, if linear
  std::vector<std::pair<int64_t, IntExpr>> slopes;  // of the register digits that occur, by digit number
  bool linear = true;                               // false: only `whole` holds
};

// The expression for one piece: rest + constant + laneSlope * lane, or `whole` if the expression is not linear in the lane.
struct PieceExpr {
  IntExpr rest;
  int64_t constant = 0;
  IntExpr laneSlope = 0;
  bool linear = true;
  IntExpr whole;
};

// The elements of a piece that are inside its bounds and for which `where` holds. Without both values: all elements.
struct Condition {
  bool never = false;
  llvm::Value* uniform = nullptr;  // one bit for the piece
  llvm::Value* lanes = nullptr;    // one bit for each lane
};

// Positions of an axis, from its base on, that are known to be within the bound.
struct Inside {
  IntExpr positions;
  bool all = false;  // no further ones are within it; then `positions` is a constant
};

class Emitter {
 public:
  Emitter(const tile::Program& program, const CpuTarget& target, llvm::Module& module, llvm::IRBuilderBase& builder);
  void emitKernel();
  void emitScratchBytes();

 private:
  struct SpaceInfo {
    std::vector<tile::DigitRef> digits;
    int64_t vector = -1;         // number of the v digit, -1 without
    int64_t lanes = 1;           // of a machine vector
    int64_t vectorPieces = 1;    // machine vectors of the v digit
    std::vector<int64_t> radix;  // pieces of each digit
  };
  // symbol * scale == value, known from scope `level` on
  struct Binding {
    llvm::Value* value;
    int64_t scale;
    int64_t level;
  };
  // A region of code with one entry. `entry` is the branch into this region, in the scope around it: code of that outer scope is placed
  // before it.
  struct Scope {
    llvm::Instruction* entry = nullptr;
    std::unordered_map<std::string, llvm::Value*> code;  // emitted here, by text
    std::vector<tile::ValueId> evaluated;
    std::map<std::array<llvm::Value*, 3>, std::array<llvm::Value*, 4>> random;
  };
  struct Loop;

  // -- emitter.cpp: the frame and the statements
  void bindArguments(llvm::Function* fn);
  std::vector<IntExpr> scratchOffsets() const;  // the last is the total
  llvm::Function* makeFunction(std::string_view name, llvm::Type* result, std::vector<llvm::Type*> parameters);
  void noteUse(tile::ValueId id, int64_t block);
  void findEager(const std::vector<tile::Stmt>& block, int64_t number, int64_t& blocks);
  void partLoop();
  void bindParts(llvm::Value* part);
  void block(const std::vector<tile::Stmt>& statements);
  void statement(const tile::Stmt& s);
  void conditional(const tile::Stmt& s);
  void lastArriver(const tile::Stmt& s);
  // body(the branch into it) where the condition holds
  void when(llvm::Value* condition, std::string_view name, const std::function<void(llvm::Instruction*)>& body);
  void guarded(llvm::Value* condition, const std::vector<tile::Stmt>& body);
  llvm::PHINode* phi(llvm::Value* first, llvm::BasicBlock* before);  // of two values, the second one still missing
  void enterScope(llvm::Instruction* entry);
  void leaveScope();

  // -- loops.cpp
  void loop(const tile::Stmt& s);
  Loop planLoop(const tile::Stmt& s);
  bool innerLoopsFindTheRest(const tile::Stmt& s) const;
  enum class LoopPart : uint8_t { Full, Tail, Whole };  // Whole: all iterations, as careful as the tail
  void runLoop(const tile::Stmt& s, const Loop& l, LoopPart part, std::vector<std::vector<llvm::Value*>>& carried);
  std::vector<llvm::Value*> nextPieces(const tile::Stmt& s, const tile::Carried& c, LoopPart part);

  // -- index_code.cpp: integer expressions
  llvm::Value* scalar(const IntExpr& e);
  llvm::Value* positive(const IntExpr& e);                                         // e > 0, one bit
  llvm::Value* lanesPositive(const IntExpr& rest, int64_t slope, int64_t lanes);   // rest + slope * lane > 0
  llvm::Value* lanesOf(const IntExpr& e, const std::string& lane, int64_t lanes);  // <lanes x i64>
  llvm::Value* pointer(int64_t tensor, const IntExpr& elements);
  int64_t levelOf(const IntExpr& e) const;
  int64_t levelOf(const IntTerm& term) const;
  int64_t levelOf(const IntAtom& atom) const;
  std::vector<std::pair<int64_t, const IntTerm*>> termsByLevel(const IntExpr& e) const;  // outermost scope first
  llvm::Value* atom(const IntAtom& a);
  llvm::Value* term(const IntTerm& t);
  llvm::Value* function(AtomKind kind, const IntExpr& a, const IntExpr& b, llvm::Value* x, llvm::Value* y);
  llvm::Value* reciprocal(const IntExpr& b);
  // The upper 64 bits of the product.
  llvm::Value* highProduct(llvm::Value* x, llvm::Value* y);
  llvm::Value* hoisted(int64_t level, const std::string& key, const std::function<llvm::Value*()>& make);
  IntExpr inDigits(const IntExpr& e, int64_t space) const;         // coordinates replaced by their digits
  const tile::Digit& digitOf(int64_t space, size_t number) const;  // in the numbering of Value::digits
  Affine affine(const IntExpr& e, int64_t space) const;
  // The expression of an index list or predicate of the program, by its place in it: made once.
  const Affine& affineOf(const void* place, int64_t space, const std::function<IntExpr()>& expr);
  PieceExpr pieceExpr(const Affine& a, int64_t space, const Position& at) const;
  IntExpr alignedLanes(const IntExpr& e, const std::string& lane, int64_t lanes) const;
  IntExpr baseOf(int64_t space, int64_t axis) const;

  // -- access.cpp: memory
  const Affine& offsetOf(int64_t tensor, const std::vector<tile::Index>& index, int64_t space);
  const Affine& differenceOf(const tile::Pred& pred, int64_t space);
  uint64_t digitsOf(const Affine& a) const;
  // The bounds of all axes of a space, or of the axes with digits in `bounded`, then `where`.
  Condition condition(int64_t space, uint64_t digits, const std::vector<tile::Pred>& where, const Position& at,
                      uint64_t bounded = ~uint64_t{0});
  llvm::Value* both(llvm::Value* a, llvm::Value* b);  // null: everywhere
  void addBound(Condition& c, int64_t space, int64_t axis, uint64_t digits, const Position& at);
  // Whether a piece is known to be outside the bound of an axis as a whole.
  bool isOutside(int64_t space, uint64_t digits, const Position& at) const;
  void addPredicate(Condition& c, const tile::Pred& pred, int64_t space, uint64_t digits, const Position& at);
  void addComparison(Condition& c, const IntExpr& rest, int64_t slope, int64_t lanes);
  void addMask(Condition& c, tile::ValueId mask, const Position& at);
  llvm::Value* joined(const Condition& c, int64_t lanes);  // as one bit for each lane; null: everywhere
  llvm::Value* selected(const Condition& c, llvm::Value* x, llvm::Value* other, int64_t lanes);  // x where `c` holds
  struct Address {
    llvm::Value* pointer = nullptr;  // of lane 0
    bool contiguous = false;         // lanes are neighbours
    bool same = false;               // lanes are one element
    llvm::Value* offsets = nullptr;  // else: elements from `pointer`, by lane
    int64_t alignment = 1;
  };
  Address address(int64_t tensor, const std::vector<tile::Index>& index, int64_t space, const Position& at,
                  int64_t lanes);
  llvm::Value* load(tile::ValueId id, const Position& at);
  llvm::Value* loadLanes(int64_t tensor, const Address& a, const Condition& c, llvm::Value* fill, int64_t lanes);
  void store(const tile::Stmt& s);
  void storePiece(const tile::Stmt& s, const Position& at, uint64_t digits);
  void storeLanes(const Address& a, llvm::Value* mask, llvm::Value* value, int64_t lanes, tile::Cache cache);
  llvm::Value* pointers(const Address& a, llvm::Type* element, int64_t lanes);
  llvm::Value* gatherShort(llvm::Value* places, llvm::Type* element, int64_t lanes);
  void prefetch(const tile::Stmt& s);
  llvm::Value* fillArea(llvm::Value* fill, int64_t lanes);
  llvm::Type* memoryType(DataType dtype) const;
  llvm::Value* toMemory(llvm::Value* v, DataType dtype);
  llvm::Value* fromMemory(llvm::Value* v, DataType dtype);

  // -- tiles.cpp: values
  llvm::Value* piece(tile::ValueId id, const Position& at);
  llvm::Value* vectorPiece(tile::ValueId id, const Position& at, int64_t lanes);  // a scalar if `lanes` is 1
  llvm::Value* compute(tile::ValueId id, const Position& at);
  void evaluate(tile::ValueId id);
  // Computes a value at all positions, each operation for all of them before the next.
  void prepare(tile::ValueId id, std::span<const Position> group);
  void setPiece(tile::ValueId id, const Position& at, llvm::Value* value);
  bool isComputed(tile::ValueId id, const Position& at) const;
  // fn(position) as eachPosition; before, `id` is prepared in groups that fit the registers
  template <class Fn>
  void eachPrepared(tile::ValueId id, int64_t space, uint64_t digits, Fn fn) {
    std::vector<Position> all;
    eachPosition(space, digits, [&](const Position& at) { all.push_back(at); });
    size_t most = target_.vectorBytes == 64 ? 4 : 2;
    for (int64_t i = 0; i < std::ssize(all); i += most) {
      std::span<const Position> group(all.data() + i, std::min(most, all.size() - i));
      prepare(id, group);
      for (const Position& at : group) {
        fn(at);
      }
    }
  }
  llvm::Value* pointValue(const tile::Value& v, const Position& at);
  llvm::Value* checkedIndex(const tile::Value& v, const Position& at);
  llvm::Value* indexValue(tile::ValueId id, const Position& at);
  llvm::Value* random(const tile::Value& v, const Position& at);
  llvm::Value* reduce(const tile::Value& v, const Position& at);
  llvm::Value* shift(const tile::Value& v, const Position& at);
  llvm::Value* reduceLanes(llvm::Value* x, tile::Combiner combiner, DataType dtype);

  // -- convert.cpp
  void convert(tile::ValueId id);
  bool convertBlocks(tile::ValueId id);
  void transposePieces(std::vector<llvm::Value*>& rows, int64_t elementBytes);
  std::vector<int64_t> cornerOf(int64_t space, uint64_t digits, const Position& at) const;

  // -- tiles.cpp, continued
  llvm::Value* splat(llvm::Value* x, int64_t lanes);
  void splatBeside(std::span<llvm::Value*> values, int64_t lanes);  // all of them if one is a vector
  void callRuntime(PointOp op, DataType dtype, const std::vector<llvm::Value*>& arguments);
  llvm::Value* callScalar(PointOp op, DataType dtype, std::span<llvm::Value* const> operands);
  llvm::Value* entrySlot(llvm::Type* type, int64_t number);
  llvm::Type* elementType(DataType dtype) const;
  int64_t lanesOf(int64_t space, uint64_t digits) const;  // of a piece: 1 without the vector digit
  int64_t lanesOf(const tile::Value& v) const { return lanesOf(v.space, v.digits); }
  int64_t pieceIndex(int64_t space, uint64_t digits, const Position& at) const;
  // fn(position) for every piece of a tile over `digits`, digits ascending, the last fastest
  template <class Fn>
  void eachPosition(int64_t space, uint64_t digits, Fn fn) const {
    const std::vector<int64_t>& radix = spaces_[space].radix;
    Position at;
    for (bool more = true; more;) {
      fn(at);
      more = false;
      for (auto d = std::ssize(radix) - 1; d >= 0 && !more; d--) {
        at.digit[d] = (digits >> d & 1) != 0 ? (at.digit[d] + 1) % radix[d] : 0;
        more = at.digit[d] != 0;
      }
    }
  }
  int64_t pieceCount(int64_t space, uint64_t digits) const;

  const tile::Program& p_;
  CpuTarget target_;
  llvm::Module& module_;
  llvm::LLVMContext& ctx_;
  llvm::IRBuilderBase& b_;
  PointEmitter points_;
  std::vector<bool> coarse_;  // by value: rounded to 16 bits by all that reads it
  std::vector<SpaceInfo> spaces_;

  llvm::Function* fn_ = nullptr;
  std::vector<llvm::Value*> tensors_;
  std::vector<llvm::Value*> scalars_;
  std::unordered_map<std::string, Binding> bound_;
  std::vector<Scope> scopes_ = std::vector<Scope>(1);  // outermost first
  std::vector<std::vector<Inside>> inside_;            // per space and axis
  std::vector<bool> eager_;
  std::vector<int64_t> home_;  // block that defines a value, -1: none
  std::vector<std::vector<llvm::Value*>> pieces_;
  std::map<std::pair<llvm::Value*, int64_t>, llvm::Value*> splats_;
  std::map<const void*, Affine> affine_;  // of index lists and predicates of the program, by their place in it
  std::map<std::pair<llvm::Value*, int64_t>, llvm::Value*> fillAreas_;
  std::map<std::pair<llvm::Type*, int64_t>, llvm::Value*> entrySlots_;
  bool streams_ = false;  // a streaming store was emitted
};

}  // namespace meshfuse
