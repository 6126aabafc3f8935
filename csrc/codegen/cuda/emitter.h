// The state of one emission, and its steps. emit.h describes the result.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "codegen/cuda/arena.h"
#include "codegen/cuda/c_text.h"
#include "codegen/cuda/emit.h"
#include "codegen/cuda/exchange.h"
#include "codegen/cuda/geometry.h"
#include "codegen/cuda/names.h"
#include "codegen/cuda/padding.h"
#include "codegen/cuda/usage.h"
#include "tile/tile.h"

namespace meshfuse::cuda {

// A tile in registers: an array over the register digits of its value, the vector digit innermost; a plain variable for
// one element. 16-bit floats lie two in a word if there is a vector digit.
struct Tile {
  std::string name;
  int64_t space = 0;
  uint64_t digits = 0;
  DataType dtype = DataType::Float;
  int64_t elements = 1;
  bool packed = false;
};

// Bytes of the widest access, which GPUs have from sm_100 on; earlier ones move them in two.
inline constexpr int64_t kWideBytes = 32;

// One access of a tensor. Its expressions contain the symbols of register digits; the symbol of the vector digit stands for the first of
// `width` elements. If the access moves single elements, width is 1.
struct Access {
  int64_t tensor = 0;
  int64_t space = 0;
  uint64_t digits = 0;               // of the loops around it
  IntExpr base;                      // offset in elements without register digits
  IntExpr rest;                      // the terms of the register digits
  std::vector<tile::ValueId> tiles;  // data-dependent parts of the index
  std::vector<IntExpr> tileStrides;
  tile::ValueId mask = tile::kNone;
  int64_t vector = 1;  // size of the vector digit
  std::string vectorSymbol;
  int64_t width = 1;
  bool isWide = false;                        // pieces of kWideBytes are provably aligned to that
  bool whole = true;                          // every predicate is constant over `width` elements
  bool straddles = false;                     // not `whole`: vectorConditions test whether the whole vector is inside
  std::vector<tile::Pred> preds;              // of one element
  std::vector<std::string> vectorConditions;  // of `width` elements at once
};

// Of loadVector and storeVector: the bytes of a piece, if it is wide.
[[nodiscard]] std::string wideText(const Access& a);

using Texts = std::span<const std::string>;

// Position in an array over these digits, the last one fastest.
[[nodiscard]] std::string registerIndex(const std::vector<DigitInfo>& registers, Unit unit = Unit::Element);
// The address of an element of a register array.
[[nodiscard]] std::string within(const std::string& array, const std::string& index, int64_t elementsOfAWord);

class Emitter {
 public:
  explicit Emitter(const tile::Program& program);
  CudaSource emit();

 private:
  // The state that emission changes. A copy of it serves to emit a loop body once, to find the effect of the body on barriers.
  struct State {
    std::vector<std::string> lines;
    int64_t indent = 1;
    int64_t site = 0;
    Names names;
    Arena arena;
    Sections uses;
    std::map<tile::ValueId, Tile> tiles;
    std::set<std::string> openSerial;                   // C names of serial digits whose loop is open
    std::set<std::pair<int64_t, int64_t>> guardedAxes;  // (space, axis) whose bound the open loops ensure
  };

  // -- text (emit_text.cpp)
  void line(std::string text);
  void open(const std::string& text);
  void close();
  std::string nextSite() { return std::to_string(++s_.site); }
  std::string text(const IntExpr& e) { return exprText(withThreads(e), s_.uses); }
  // The expression with a * thread in place of a * lane + 32 * a * warp, which the compiler does not find itself.
  IntExpr withThreads(const IntExpr& e) const;
  void use(std::string_view section) { s_.uses.emplace(section); }
  void openLoop(const DigitInfo& d, int64_t step = 1);
  void declare(const Tile& tile);
  Tile newTile(std::string_view stem, tile::ValueId id);
  Tile declaredTile(std::string_view stem, tile::ValueId id);
  std::string elementIndex(const Tile& tile, Unit unit = Unit::Element) const;
  std::string element(const Tile& tile);
  std::string vectorAddress(const Tile& tile, Unit unit = Unit::Vector) const;  // of the vector at the current digits
  // body() inside an `if`, unless the condition is empty.
  void when(const std::string& condition, const std::function<void()>& body);

  // -- the kernel around its body (emit.cpp)
  struct Definition {
    std::string name;
    std::string line;
  };
  struct Argument {
    CudaSlot slot;
    std::string member;  // of the argument struct
    Definition definition;
  };
  std::vector<Argument> arguments() const;  // in the order of the slots
  std::vector<Definition> gridDims();
  std::vector<std::string> threadLines(const std::string& body);
  std::vector<std::string> arenaLines(CudaSource& source);

  // -- evaluation of values inside loops (emit_nest.cpp, emit_values.cpp)
  struct Hooks {
    std::function<void()> beforeVector;
    std::function<void(Texts)> element;
    std::function<void()> afterVector;
  };
  class Nest {
   public:
    Nest(Emitter& emitter, int64_t space, uint64_t digits, std::span<const tile::ValueId> wanted);
    void emit(std::span<const tile::ValueId> wanted, const Hooks& hooks);

   private:
    size_t loopsOf(tile::ValueId id) const;
    bool dividesByInverse(tile::ValueId id) const;
    std::string textOf(tile::ValueId id) const;
    void evaluate(size_t level);

    Emitter& e_;
    std::vector<DigitInfo> registers_;
    std::vector<tile::ValueId> values_;          // to evaluate, operands before users
    std::map<tile::ValueId, size_t> level_;      // loops that are open when the value is evaluated
    std::map<tile::ValueId, size_t> userLevel_;  // and when its last user is
    std::map<tile::ValueId, int64_t> uses_;
    std::map<tile::ValueId, std::string> known_;
    struct Inverse {
      std::string scale, scaled, inverse;  // names
    };
    std::map<std::pair<tile::ValueId, bool>, Inverse> inverses_;  // of a divisor; coarse or not
  };
  // Loops over the registers of `digits`; hooks get the texts of `wanted` at the innermost element.
  void nest(int64_t space, uint64_t digits, std::span<const tile::ValueId> wanted, const Hooks& hooks);
  std::string valueText(tile::ValueId id, const std::map<tile::ValueId, std::string>& known);
  std::string checkedIndexText(const tile::Value& v, Texts operands);
  std::vector<tile::ValueId> inlineValues(std::span<const tile::ValueId> wanted) const;
  void assign(const Tile& tile, const std::string& text);  // the element at the current digits
  void fill(const Tile& tile, tile::ValueId id);           // all its elements
  void materialise(tile::ValueId id);
  // The float that is rounded to a 16-bit value, if two values can be rounded at once.
  tile::ValueId packedSource(tile::ValueId id) const;
  // The sum or difference of two packed tiles, if a value is one that is rounded to their 16-bit type.
  struct PackedSum {
    Tile a;
    Tile b;
    int64_t sign = 1;  // of b
  };
  std::optional<PackedSum> packedSum(tile::ValueId id, const DigitInfo& vector) const;
  void sumVector(const std::string& destination, const PackedSum& sum, int64_t width);
  void packVector(const std::string& destination, const std::string& floats, DataType dtype, int64_t width);
  const tile::Value& value(tile::ValueId id) const { return p_.values[id]; }
  const tile::Space& space(int64_t id) const { return p_.spaces[id]; }

  // -- memory (emit_access.cpp, emit_load.cpp, emit_store.cpp)
  uint64_t accessDigits(int64_t space, uint64_t digits, const std::vector<tile::Index>& index,
                        const std::vector<tile::Pred>& where) const;
  // Unproven predicates, resolved: the bounds of the axes that `digits`, `index` or `where` name, then `where`.
  // `wanted` selects among the axes.
  std::vector<tile::Pred> openPredicates(int64_t space, uint64_t digits, const std::vector<tile::Index>& index,
                                         const std::vector<tile::Pred>& where,
                                         const std::function<bool(int64_t axis)>& wanted = {}) const;
  // The coordinate where two kinds of digits are zero: digits that are not in `digits`, and serial digits whose loop is not open.
  IntExpr lowestCoordinate(int64_t space, int64_t axis, uint64_t digits) const;
  bool proven(int64_t space, int64_t axis) const;
  Access access(int64_t tensor, int64_t space, uint64_t digits, const std::vector<tile::Index>& index,
                const std::vector<tile::Pred>& where, tile::ValueId mask);
  void chooseWidth(Access& a, const IntExpr& offset) const;
  void vectorPredicates(Access& a);
  std::string conditionText(const tile::Pred& p) { return fmt::format("{} < {}", text(p.lhs), text(p.rhs)); }
  std::string conditionText(const std::vector<tile::Pred>& preds);  // empty without any
  std::string elementCondition(const Access& a, const std::string& maskText);
  std::vector<tile::ValueId> accessValues(const Access& a, tile::ValueId last = tile::kNone) const;
  std::string offsetText(const Access& a, Texts tileTexts, Unit unit);
  std::string address(const Access& a, const std::string& pointer, Texts tileTexts, Unit unit);
  enum class Direction : uint8_t { Load, Store };
  std::string pointerTo(const Access& a, Direction direction);  // empty if the thread has the tensor in registers
  void load(tile::ValueId id);
  void loadVectors(const Access& a, const Tile& tile, tile::ValueId id, const std::string& pointer);
  std::string fillText(tile::ValueId load, const std::string& given);
  // Moves a vector: whole, in pieces, or one element after the other where a bound cuts through it.
  struct VectorMove {
    std::function<std::string(Unit)> call;  // of the vector, or of a piece that begins at the current element
    std::function<void()> outside = [] {};  // if no element is inside
    std::function<void()> element;
  };
  void moveVector(const Access& a, const DigitInfo& vector, const std::string& maskText, const VectorMove& move);
  std::string sharedLoad(DataType t, const std::string& address);
  std::string remoteLoad(DataType t, const std::string& address, const std::string& rank);
  std::string sharedStore(DataType t, const std::string& address, const std::string& value);
  std::string sharedVector(Direction direction, DataType t, int64_t width, const std::string& to,
                           const std::string& from);
  std::string loadElement(const Access& a, const std::string& pointer, Texts tileTexts, tile::Cache cache);
  std::string loadCall(const Access& a, const std::string& destination, const std::string& address, tile::Cache cache);
  void store(const tile::Stmt& s);
  void storeElements(const tile::Stmt& s, const Access& a, const std::string& pointer);
  void storeVectors(const tile::Stmt& s, const Access& a, const std::string& pointer);
  void storeFrom(const tile::Stmt& s, const Access& a, const std::string& pointer, const std::string& from,
                 Texts tileTexts);
  std::string storeElement(const tile::Stmt& s, const Access& a, const std::string& pointer, Texts tileTexts,
                           const std::string& value);
  std::vector<std::string> replicaConditions(int64_t space, uint64_t digits);
  void planScratch();
  bool isScratch(int64_t tensor) const { return scratchOf_.contains(tensor); }
  std::string privateElement(int64_t tensor) const;
  bool isPrivate(int64_t tensor) const { return isScratch(tensor) && scratchOf_.at(tensor).isPrivate; }
  const tile::TensorParam& tensor(int64_t id) const { return p_.tensors[id]; }

  // -- communication (emit_reduce.cpp, emit_scan.cpp, emit_convert.cpp)
  void wait(Arena::Wait barrier);
  void beforeWrite(const std::string& slot);
  void beforeRead(const std::string& slot);
  Tile accumulator(std::string_view stem, tile::ValueId id);
  void reduce(tile::ValueId id);
  bool reducesTogether(const tile::Stmt& first, const tile::Stmt& second) const;
  void reducePair(tile::ValueId first, tile::ValueId second);
  void finishReduction(tile::ValueId id, const Tile& acc);
  std::string combination(const Tile& acc, tile::Combiner combiner, const std::string& x);
  void reduceRegisters(tile::ValueId id, const Tile& acc);
  void reduceLanes(tile::ValueId id, const Tile& acc);
  void reduceThroughMemory(tile::ValueId id, const Tile& acc, tile::Level level, Held held = Held::One);
  void butterfly(tile::ValueId id, const Tile& acc, int64_t highest, int64_t lowest);
  Partials planPartials(tile::ValueId id, const Tile& acc, tile::Level level, Held held);
  void writePartials(tile::ValueId id, const Tile& acc, const Partials& p);
  std::string readPartial(tile::ValueId id, const Tile& acc, const Partials& p, const IntExpr& part);
  std::string partialAddress(const Tile& acc, const Partials& p, const IntExpr& part);
  void scan(tile::ValueId id);
  int64_t residentBlocks() const;  // that the compiler shall leave registers for on a multiprocessor; 0: it decides
  std::string scanned(tile::Combiner combiner, DataType wide, const std::string& total, const std::string& x);
  void addSegments(tile::ValueId id, const Tile& total, const std::function<void()>& then);
  void exchangeTotals(tile::ValueId id, const Tile& total, const Tile& before, tile::ValueId whole);
  void combineWhere(const std::string& condition, tile::ValueId id, const Tile& to, const std::string& first,
                    const std::string& second);
  void scanLanes(tile::ValueId id, const Tile& total);
  void chainWarps(tile::ValueId id, const Tile& total, const Tile& before, tile::ValueId whole);
  void convert(tile::ValueId id);
  Exchange planExchange(tile::ValueId id) const;
  void exchangeOut(tile::ValueId id, const Exchange& e, const std::string& slot);
  void exchangeIn(tile::ValueId id, const Exchange& e, const std::string& slot);

  // -- control (emit_control.cpp)
  void block(const std::vector<tile::Stmt>& body);
  void statement(const tile::Stmt& s);
  void define(tile::ValueId id);
  void loop(const tile::Stmt& s);
  void loopOnce(const tile::Stmt& s, const std::string& header, const std::set<std::pair<int64_t, int64_t>>& guards);
  std::string loopHeader(const tile::Stmt& s, std::set<std::pair<int64_t, int64_t>>& guards);
  void assignCarried(const tile::Stmt& s);
  void branch(const tile::Stmt& s);
  // body() in a block that some threads or all may skip.
  void skippable(const std::string& header, const std::function<void()>& body);
  void lastArriver(const tile::Stmt& s);

  struct Scratch {
    bool isPrivate = false;
    std::vector<DigitInfo> registers;  // private: the digits its array is indexed by
    std::string name;                  // of the array, or of the arena slot
  };

  const tile::Program& p_;
  Usage usage_;
  Padding padding_;
  State s_;
  Geometry geometry_;
  std::vector<std::string> tensorNames_;
  std::vector<std::string> scalarNames_;
  std::string kernelName_;
  std::string structName_;
  std::string refusedName_;  // of the record of refused indices, if the program checks any
  std::map<int64_t, Scratch> scratchOf_;
};

}  // namespace meshfuse::cuda
