// Stores, and where scratch lives.
#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "codegen/cuda/emitter.h"

namespace meshfuse::cuda {

using namespace tile;

namespace {

std::string_view policy(Cache cache) { return cache == Cache::Once ? "kOnce" : "kKeep"; }

}  // namespace

// Selects one of the threads that hold the same data.
std::vector<std::string> Emitter::replicaConditions(int64_t space, uint64_t digits) {
  std::vector<std::string> conditions =
      mapped(geometry_.threads(space, ~digits), [](const DigitInfo& d) { return d.symbol + " == 0"; });
  auto spare = [&](Level level, std::string_view name, int64_t threads) {
    int64_t used = countOf(geometry_.onLevel(space, ~uint64_t{0}, level));
    if (used < threads) {
      conditions.push_back(used == 1 ? fmt::format("{} == 0", name) : fmt::format("{} < {}", name, used));
    }
  };
  spare(Level::Lane, "lane", 32);
  spare(Level::Warp, "warp", p_.threads() / 32);
  spare(Level::Cluster, "rank", p_.cluster());
  return conditions;
}

void Emitter::store(const Stmt& s) {
  const Value& v = value(s.value);
  int64_t space = s.space;
  // A value without digits fits every space; the index tells which one.
  for (int64_t other = 0;
       v.digits == 0 && accessDigits(space, 0, s.index, s.where) == 0 && other < std::ssize(p_.spaces); other++) {
    space = accessDigits(other, 0, s.index, s.where) != 0 ? other : space;
  }
  Access a = access(s.param, space, v.digits, s.index, s.where, s.mask);
  if (isScratch(s.param) && !isPrivate(s.param)) {
    const std::string& slot = scratchOf_.at(s.param).name;
    if (s_.arena.open.read.contains(slot)) {
      wait(Arena::Wait::Block);
    }
    s_.arena.open.written.insert(slot);
  }
  std::vector<std::string> outer = isPrivate(s.param) ? std::vector<std::string>() : replicaConditions(space, a.digits);
  std::vector<DigitInfo> registers = geometry_.registers(space, a.digits);
  auto inRegisters = [&](const IntExpr& e) {
    return std::ranges::any_of(registers, [&](const DigitInfo& d) { return e.contains(d.symbol); });
  };
  auto ofThread =
      std::ranges::stable_partition(a.preds, [&](const Pred& p) { return inRegisters(p.lhs) || inRegisters(p.rhs); });
  append(outer, mapped(ofThread, [&](const Pred& p) { return conditionText(p); }));
  a.preds.erase(ofThread.begin(), ofThread.end());
  a.vectorConditions.clear();
  a.whole = true;
  vectorPredicates(a);
  when(joined(outer, " && "), [&] {
    std::string pointer = pointerTo(a, Direction::Store);
    a.width > 1 ? storeVectors(s, a, pointer) : storeElements(s, a, pointer);
  });
}

std::string Emitter::storeElement(const Stmt& s, const Access& a, const std::string& pointer, Texts tileTexts,
                                  const std::string& value) {
  DataType dtype = tensor(s.param).dtype;
  if (isPrivate(a.tensor)) {
    return fmt::format("{} = {};", privateElement(a.tensor), unwrapped(value));
  }
  std::string to = address(a, pointer, tileTexts, Unit::Element);
  bool narrow = dataTypeSize(dtype) < 4;
  std::string bits = narrow ? fmt::format("({})({})", storageType(dtype), unwrapped(value)) : unwrapped(value);
  if (isScratch(a.tensor)) {
    return sharedStore(dtype, to, bits);
  }
  use("store_one");
  return fmt::format("storeOne<{}>({}, {}, {});", policy(s.cache), to, bits, nextSite());
}

void Emitter::storeElements(const Stmt& s, const Access& a, const std::string& pointer) {
  auto storeOne = [&](Texts texts) {
    std::string condition = elementCondition(a, texts[a.tiles.size()]);
    std::string call = storeElement(s, a, pointer, texts, texts.back());
    line(condition.empty() ? call : fmt::format("if ({}) {}", condition, call));
  };
  nest(a.space, a.digits, accessValues(a, s.value), {.element = storeOne});
}

void Emitter::storeVectors(const Stmt& s, const Access& a, const std::string& pointer) {
  const Value& v = value(s.value);
  DigitInfo vector = *geometry_.vector(a.space, a.digits);
  bool half = isHalfPrecision(v.dtype);
  auto tile = s_.tiles.find(s.value);
  if (tile != s_.tiles.end() && tile->second.digits == a.digits) {
    std::string from = vectorAddress(tile->second);
    nest(a.space, a.digits & ~vector.bit, accessValues(a),
         {.element = [&](Texts texts) { storeFrom(s, a, pointer, from, texts); }});
    return;
  }
  if (const auto sum = packedSum(s.value, vector)) {
    use("types");
    const std::string words = s_.names.fresh("words");
    nest(a.space, a.digits & ~vector.bit, accessValues(a), {.element = [&](Texts texts) {
           line(fmt::format("u32 {}[{}];", words, vector.size / 2));
           sumVector(words, *sum, vector.size);
           storeFrom(s, a, pointer, words, texts);
         }});
    return;
  }
  ValueId source = half ? packedSource(s.value) : kNone;
  std::string q = s_.names.fresh("q");
  std::string words = source != kNone ? s_.names.fresh("words") : q;
  std::vector<std::string> outer;
  auto declareVector = [&] {
    if (half) {
      use("types");
      line(fmt::format("u32 {}[{}];", words, vector.size / 2));
    }
    if (!half || source != kNone) {
      line(fmt::format("{} {}[{}];", half ? "float" : registerType(v.dtype), q, vector.size));
    }
  };
  auto setElement = [&](Texts texts) {
    outer.assign(texts.begin(), texts.end() - 1);
    if (half && source == kNone) {
      use("put_bits");
      line(fmt::format("putBits({}, {}, {});", q, vector.symbol, unwrapped(texts.back())));
    } else {
      line(fmt::format("{}[{}] = {};", q, vector.symbol, unwrapped(texts.back())));
    }
  };
  auto storeVector = [&] {
    if (source != kNone) {
      packVector(words, q, v.dtype, vector.size);
    }
    storeFrom(s, a, pointer, words, outer);
  };
  nest(a.space, a.digits, accessValues(a, source != kNone ? source : s.value),
       {.beforeVector = declareVector, .element = setElement, .afterVector = storeVector});
}

// Stores the elements of the vector `from`.
void Emitter::storeFrom(const Stmt& s, const Access& a, const std::string& pointer, const std::string& from,
                        Texts tileTexts) {
  DataType dtype = tensor(s.param).dtype;
  DigitInfo vector = *geometry_.vector(a.space, a.digits);
  bool half = isHalfPrecision(dtype);
  const std::string& maskText = tileTexts[a.tiles.size()];
  VectorMove move;
  move.call = [&](Unit unit) {
    std::string piece = unit == Unit::Element ? within(from, vector.symbol, half ? 2 : 1) : from;
    std::string to = address(a, pointer, tileTexts, Unit::Vector);
    if (isScratch(a.tensor)) {
      return sharedVector(Direction::Store, dtype, a.width, to, piece);
    }
    use("store_vector");
    use(wordsSection(dtype));
    return fmt::format("storeVector<{}, {}{}>({}, {}, {});", a.width, policy(s.cache), wideText(a), to, piece,
                       nextSite());
  };
  move.element = [&] {
    if (half) {
      use("bits_at");
    }
    std::string array = from.find(' ') == std::string::npos ? from : "(" + from + ")";
    std::string element =
        half ? fmt::format("bitsAt({}, {})", from, vector.symbol) : fmt::format("{}[{}]", array, vector.symbol);
    line(fmt::format("if ({}) {}", elementCondition(a, maskText), storeElement(s, a, pointer, tileTexts, element)));
  };
  moveVector(a, vector, maskText, move);
}

// -- scratch ----------------------------------------------------------------------------------------------------------

// The element of an array in registers at the current digits.
std::string Emitter::privateElement(int64_t tensor) const {
  const Scratch& scratch = scratchOf_.at(tensor);
  return scratch.registers.empty() ? scratch.name
                                   : fmt::format("{}[{}]", scratch.name, registerIndex(scratch.registers));
}

namespace {

struct ScratchUse {
  int64_t space;
  uint64_t digits;
  std::vector<IntExpr> index;
  bool computed;  // a data-dependent index
};

constexpr int64_t kMostPrivate = 64;  // elements of an array in registers

}  // namespace

// Scratch stays with its thread if every access maps threads and registers to elements in the same way.
void Emitter::planScratch() {
  std::map<int64_t, std::vector<ScratchUse>> uses;
  auto note = [&](int64_t tensor, int64_t space, uint64_t digits, const std::vector<Index>& index,
                  const std::vector<Pred>& where) {
    if (this->tensor(tensor).memory == Memory::Scratch) {
      uses[tensor].push_back({space, accessDigits(space, digits, index, where),
                              mapped(index, [&](const Index& i) { return geometry_.resolve(i.expr); }),
                              std::ranges::any_of(index, [](const Index& i) { return i.tile != kNone; })});
    }
  };
  for (const Value& v : p_.values) {
    if (v.kind == ValueKind::Load) {
      note(v.param, v.space, v.digits, v.index, v.where);
    }
  }
  std::function<void(const std::vector<Stmt>&)> visit = [&](const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      if (s.kind == StmtKind::Store) {
        note(s.param, value(s.value).space, value(s.value).digits, s.index, s.where);
      }
      visit(s.body);
    }
  };
  visit(p_.body);
  for (auto& [tensor, list] : uses) {
    const TensorParam& param = this->tensor(tensor);
    const ScratchUse& first = list.front();
    Scratch scratch;
    scratch.isPrivate = std::ranges::all_of(list, [&](const ScratchUse& u) {
      return !u.computed && u.space == first.space && u.digits == first.digits && u.index == first.index;
    });
    int64_t elements = 1;
    for (const Axis& axis : space(first.space).axes) {
      for (const Digit& d : axis.digits) {
        const std::string& symbol = geometry_.cName(d.symbol);
        bool indexes = std::ranges::any_of(first.index, [&](const IntExpr& e) { return e.contains(symbol); });
        if (indexes && (isRegister(d.level) || d.level == Level::Serial)) {
          bool constant = d.size.isConst();
          elements = constant && elements <= kMostPrivate ? elements * d.size.constValue() : kMostPrivate + 1;
          scratch.registers.push_back({0, 0, d.level, constant ? d.size.constValue() : 0, d.stride, symbol});
        }
      }
    }
    scratch.isPrivate = scratch.isPrivate && elements <= kMostPrivate;
    if (scratch.isPrivate) {
      scratch.name = s_.names.fresh(param.name);
      std::string_view type = registerType(param.dtype);
      line(elements > 1 ? fmt::format("{} {}[{}];", type, scratch.name, elements)
                        : fmt::format("{} {};", type, scratch.name));
    } else {
      invariant(p_.cluster() == 1,
                "[codegen cuda] kernel {}: scratch {} is shared by the threads of a cluster; keep it in registers",
                p_.name, param.name);
      scratch.name = s_.names.fresh("k" + param.name);
      s_.arena.reserve(scratch.name, productOf(param.extents) * dataTypeSize(param.dtype));
    }
    scratchOf_[tensor] = std::move(scratch);
  }
}

}  // namespace meshfuse::cuda
