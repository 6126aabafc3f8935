#include "tile/verify_values.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"

namespace meshfuse::tile {

namespace {

bool isUniform(const Axis& axis) { return std::ranges::none_of(axis.digits, isInTile, &Digit::level); }

// True if `given` claims no more than `known`.
bool implied(const SymbolFacts& given, const SymbolFacts& known) {
  return given.lower <= known.lower && given.upper >= known.upper && given.divisor >= 1 &&
         known.divisor % given.divisor == 0;
}

}  // namespace

bool isSize(const Program& program, std::string_view symbol) {
  return std::ranges::find(program.sizes, symbol, &SizeParam::name) != program.sizes.end();
}

bool isGridDim(const Program& program, std::string_view symbol) {
  return std::ranges::find(program.grid, symbol, &GridDim::symbol) != program.grid.end();
}

const Axis* ValueVerifier::axisNamed(std::string_view name) const {
  for (const Space& s : p_.spaces) {
    for (const Axis& a : s.axes) {
      if (a.name == name) {
        return &a;
      }
    }
  }
  return nullptr;
}

uint64_t ValueVerifier::digitsNamed(const std::vector<Index>& index, const std::vector<Pred>& where,
                                    int64_t space) const {
  uint64_t digits = sameSpace(space) ? tile::digitsNamed(p_.spaces[space], index, where) : 0;
  for (const Index& i : index) {
    digits |= exists(i.tile) ? p_.values[i.tile].digits : 0;
  }
  return digits;
}

std::string ValueVerifier::digitNames(int64_t space, uint64_t digits) const {
  return sameSpace(space) ? tile::digitNames(p_.spaces[space], digits) : "?";
}

int64_t ValueVerifier::elements(const Value& v, bool (*counts)(Level)) const {
  const Space& s = p_.spaces[v.space];
  std::vector<DigitRef> refs = digitsOf(s);
  int64_t n = 1;
  for (int64_t i = 0; i < std::ssize(refs); i++) {
    const Digit& d = s.axes[refs[i].axis].digits[refs[i].digit];
    n *= (v.digits >> i & 1) != 0 && counts(d.level) ? d.size.constValue() : 1;
  }
  return n;
}

// -- symbols ----------------------------------------------------------------------------------------------------------

void ValueVerifier::factsHold(const IntExpr& e, const std::string& what) {
  for (const IntTerm& t : e.terms()) {
    for (const IntAtomPtr& f : t.factors) {
      for (const IntExpr& arg : f->args) {
        factsHold(arg, what);
      }
      if (f->kind != AtomKind::Symbol) {
        continue;
      }
      for (const SizeParam& s : p_.sizes) {
        f_.expect(s.name != f->key || implied(f->facts, s.facts),
                  "{}: assumes more about size {} than its declaration says", what, s.name);
      }
      if (const Axis* a = axisNamed(f->key)) {
        f_.expect(implied(f->facts, factsBelow(a->bound)), "{}: assumes more about coordinate {} than its bound says",
                  what, a->name);
      }
    }
  }
}

void ValueVerifier::symbol(const std::string& name, int64_t space, const std::string& what) {
  if (isSize(p_, name)) {
    return;
  }
  if (isGridDim(p_, name)) {
    return f_.expect(!scope_.hidden.contains(name), "{}: {} is the part that arrived last", what, name);
  }
  for (int64_t s : indices(p_.spaces)) {
    bool own = s == space;
    for (const Axis& a : p_.spaces[s].axes) {
      for (const Digit& d : a.digits) {
        if (d.symbol == name) {
          return d.level == Level::Serial
                     ? f_.expect(scope_.open.contains(name), "{}: {} has no value outside of its loop", what, name)
                     : f_.expect(own, "{}: digit {} is of another space", what, name);
        }
      }
      if (a.name != name) {
        continue;
      }
      f_.expect(own || isUniform(a), "{}: coordinate {} is of another space", what, name);
      for (const Digit& d : a.digits) {
        f_.expect(d.level != Level::Serial || scope_.open.contains(d.symbol),
                  "{}: coordinate {} has no value outside of loop {}", what, name, d.symbol);
        f_.expect(d.level != Level::Part || !scope_.hidden.contains(d.symbol),
                  "{}: coordinate {} depends on {}, which is the part that arrived last", what, name, d.symbol);
      }
      return;
    }
  }
  f_.add("{}: unknown symbol {}", what, name);
}

void ValueVerifier::expression(const IntExpr& e, int64_t space, const std::string& what) {
  for (const std::string& name : e.symbols()) {
    symbol(name, space, what);
  }
  factsHold(e, what);
}

void ValueVerifier::predicates(const std::vector<Pred>& where, int64_t space, const std::string& what) {
  for (const Pred& p : where) {
    expression(p.lhs, space, what);
    expression(p.rhs, space, what);
  }
}

// -- operands ---------------------------------------------------------------------------------------------------------

bool ValueVerifier::operand(ValueId id, const std::string& what) {
  if (!exists(id)) {
    f_.add("{}: value {} does not exist", what, id);
    return false;
  }
  const Value& v = p_.values[id];
  if (hasPlace(v.kind)) {
    f_.expect(scope_.defined.contains(id), "{}: value {} is not defined here", what, id);
    f_.expect(!scope_.outside.contains(id), "{}: value {} belongs to the part that arrived last; compute it inside",
              what, id);
    return true;
  }
  f_.expect(sameSpace(v.space) || v.digits == 0, "{}: value {} names space {}, which does not exist", what, id,
            v.space);
  const ScalarParam* scalar = elementAt(p_.scalars, v.param);
  f_.expect(v.kind == ValueKind::Const || (scalar != nullptr && v.digits == 0 && v.dtype == scalar->dtype),
            "{}: value {} is no scalar of the kernel", what, id);
  return true;
}

uint64_t ValueVerifier::mask(ValueId id, int64_t space, const std::string& what) {
  if (id == kNone || !operand(id, what)) {
    return 0;
  }
  f_.expect(p_.values[id].dtype == DataType::Bool, "{}: its mask is no Bool", what);
  return digitsOfOperand(id, space, what);
}

uint64_t ValueVerifier::digitsOfOperand(ValueId id, int64_t space, const std::string& what) {
  const Value& v = p_.values[id];
  f_.expect(v.digits == 0 || v.space == space, "{}: value {} lies in another space; convert it", what, id);
  return v.digits;
}

void ValueVerifier::access(int64_t tensor, const std::vector<Index>& index, const std::vector<Pred>& where,
                           int64_t space, const std::string& what) {
  const TensorParam* t = elementAt(p_.tensors, tensor);
  if (t == nullptr) {
    return f_.add("{}: tensor {} does not exist", what, tensor);
  }
  f_.expect(!t->zeroed, "{}: only last arrivers use a zeroed workspace", what);
  f_.expect(sameSpace(space), "{}: space {} does not exist", what, space);
  f_.expect(index.size() == t->extents.size(), "{}: {} indices for {} dims of {}", what, index.size(),
            t->extents.size(), t->name);
  for (const Index& i : index) {
    expression(i.expr, space, what);
    if (i.tile != kNone && operand(i.tile, what)) {
      f_.expect(p_.values[i.tile].dtype == DataType::Int, "{}: an index tile is {}, expected Int", what,
                name(p_.values[i.tile].dtype));
      digitsOfOperand(i.tile, space, what);
    }
  }
  predicates(where, space, what);
}

uint64_t ValueVerifier::unionOfOperands(const Value& v, const std::string& what) {
  uint64_t digits = 0;
  for (ValueId id : v.operands) {
    digits |= digitsOfOperand(id, v.space, what);
  }
  return digits;
}

void ValueVerifier::expectDigits(const Value& v, uint64_t expected, const std::string& what) {
  f_.expect(v.digits == expected, "{}: spread over digits ({}), expected ({})", what, digitNames(v.space, v.digits),
            digitNames(v.space, expected));
}

// -- values -----------------------------------------------------------------------------------------------------------

void ValueVerifier::verify(ValueId id) {
  const Value& v = p_.values[id];
  constexpr std::string_view kinds[] = {"constant", "scalar", "index",  "load",    "elementwise", "cast",  "random",
                                        "reduce",   "carry",  "result", "convert", "scan",        "total", "shift"};
  std::string what = fmt::format("value {} ({})", id, kinds[static_cast<size_t>(v.kind)]);
  if (!sameSpace(v.space)) {
    return f_.add("{}: space {} does not exist", what, v.space);
  }
  size_t count = digitsOf(p_.spaces[v.space]).size();
  if (count < 64 && v.digits >> count != 0) {
    return f_.add("{}: digits {:#x}, its space has {}", what, v.digits, count);
  }
  for (ValueId operandId : v.operands) {
    if (!operand(operandId, what)) {
      return;
    }
  }
  constexpr int64_t arities[] = {0, 0, 0, 0, -1, 1, 3, 1, 0, 0, 1, 2, 1, 2};
  int64_t arity = v.kind == ValueKind::Point ? info(v.op).arity : arities[static_cast<size_t>(v.kind)];
  if (std::ssize(v.operands) != arity) {
    return f_.add("{}: {} operands, expected {}", what, v.operands.size(), arity);
  }
  switch (v.kind) {
    case ValueKind::Const:
    case ValueKind::Scalar:
    case ValueKind::Carry:
    case ValueKind::LoopResult:
      return;
    case ValueKind::Index:
      f_.expect(v.index.size() == 1 && v.index[0].tile == kNone && v.dtype == DataType::Int,
                "{}: expected one expression and Int", what);
      for (const Index& i : v.index) {
        expression(i.expr, v.space, what);
      }
      return expectDigits(v, tile::digitsNamed(p_.spaces[v.space], v.index, {}), what);
    case ValueKind::Load:
      return verifyLoad(v, what);
    case ValueKind::Point:
      return verifyPoint(v, what);
    case ValueKind::Cast:
      return expectDigits(v, unionOfOperands(v, what), what);
    case ValueKind::Random:
      for (ValueId o : v.operands) {
        f_.expect(p_.values[o].dtype == DataType::Int, "{}: operand {} is no Int", what, o);
      }
      f_.expect(v.param >= 0 && v.param < 4 && v.dtype == DataType::Int, "{}: word {} as {}, expected 0 to 3 as Int",
                what, v.param, name(v.dtype));
      return expectDigits(v, unionOfOperands(v, what), what);
    case ValueKind::Reduce:
      return verifyReduce(v, what);
    case ValueKind::Convert:
      return verifyConvert(v, what);
    case ValueKind::Scan:
      return verifyScan(v, what);
    case ValueKind::ScanTotal:
      return verifyScanTotal(v, what);
    case ValueKind::Shift:
      return verifyShift(v, what);
  }
}

void ValueVerifier::verifyLoad(const Value& v, const std::string& what) {
  access(v.param, v.index, v.where, v.space, what);
  const TensorParam* t = elementAt(p_.tensors, v.param);
  if (t == nullptr) {
    return;
  }
  f_.expect(t->memory != Memory::Output, "{}: {} is an output and is only written", what, t->name);
  f_.expect(v.dtype == t->dtype, "{}: it is {}, {} is {}", what, name(v.dtype), t->name, name(t->dtype));
  uint64_t digits = digitsNamed(v.index, v.where, v.space) | mask(v.mask, v.space, what);
  if (v.fill != kNone && operand(v.fill, what)) {
    const Value& fill = p_.values[v.fill];
    f_.expect(!hasPlace(fill.kind) && fill.dtype == t->dtype && fill.digits == 0,
              "{}: its fill is no constant or scalar of type {}", what, name(t->dtype));
  }
  expectDigits(v, digits, what);
}

void ValueVerifier::verifyPoint(const Value& v, const std::string& what) {
  const PointOpInfo& row = info(v.op);
  DataType dtype = p_.values[v.operands.back()].dtype;
  for (int64_t i = 0; i < std::ssize(v.operands); i++) {
    DataType expected = v.op == PointOp::Where && i == 0 ? DataType::Bool : dtype;
    DataType got = p_.values[v.operands[i]].dtype;
    f_.expect(got == expected, "{}: operand {} of {} is {}, expected {}", what, i, row.name, name(got), name(expected));
  }
  f_.expect(accepts(row.types, dtype), "{}: {} takes no {}", what, row.name, name(dtype));
  DataType result = row.givesBool ? DataType::Bool : dtype;
  f_.expect(v.dtype == result, "{}: {} of {} gives {}, got {}", what, row.name, name(dtype), name(result),
            name(v.dtype));
  f_.expect(v.where.empty() || v.op == PointOp::CheckedIndex, "{}: {} takes no predicates", what, row.name);
  predicates(v.where, v.space, what);
  expectDigits(v, unionOfOperands(v, what) | digitsNamed({}, v.where, v.space), what);
}

void ValueVerifier::verifyReduce(const Value& v, const std::string& what) {
  const Value& from = p_.values[v.operands[0]];
  bool typed = !isHalfPrecision(from.dtype) &&
               (isBitwise(v.combiner) ? !isFloatingPoint(from.dtype) : from.dtype != DataType::Bool);
  f_.expect(typed && v.dtype == from.dtype, "{}: {} of {} as {}", what, name(v.combiner), name(from.dtype),
            name(v.dtype));
  f_.expect(from.digits == 0 || from.space == v.space, "{}: its operand lies in another space", what);
  f_.expect((v.digits & ~from.digits) == 0, "{}: it has digits ({}) its operand lacks", what,
            digitNames(v.space, v.digits & ~from.digits));
  predicates(v.where, v.space, what);
  uint64_t named = digitsNamed({}, v.where, v.space);
  f_.expect((named & ~from.digits) == 0, "{}: its condition names digits ({}) its operand lacks", what,
            digitNames(v.space, named & ~from.digits));
}

void ValueVerifier::verifyScan(const Value& v, const std::string& what) {
  const Value& x = p_.values[v.operands[0]];
  const Value& before = p_.values[v.operands[1]];
  const Axis* axis = axisAt(p_, v.space, v.param);
  if (axis == nullptr) {
    return f_.add("{}: its space has no axis {}", what, v.param);
  }
  f_.expect(p_.target == Target::Gpu, "{}: CPUs have no scans; use a routine", what);
  f_.expect(hasScan(v.combiner, x.dtype) && v.dtype == x.dtype, "{}: {} of {} as {}", what, name(v.combiner),
            name(x.dtype), name(v.dtype));
  f_.expect(before.dtype == totalType(v.combiner, v.dtype), "{}: the total before it is {}, expected {}", what,
            name(before.dtype), name(totalType(v.combiner, v.dtype)));
  const uint64_t along = axisDigits(p_.spaces[v.space], v.param);
  f_.expect((x.digits & along) == along, "{}: its operand lacks digits ({}) of the axis", what,
            digitNames(v.space, along & ~x.digits));
  f_.expect((before.digits & along) == 0, "{}: the total before it runs along the axis", what);
  bool inSegment = false;
  bool inLanes = false;
  for (const Digit& d : axis->digits) {
    f_.expect(d.level != Level::Cluster || d.size.isConst(1), "{}: a scan within a cluster is not supported", what);
    f_.expect(!inLanes || isRegister(d.level), "{}: digit {} lies within the lanes of a line", what, d.symbol);
    inLanes = inLanes || d.level == Level::Lane;
    f_.expect(!inSegment || isRegister(d.level), "{}: digit {} lies within a segment", what, d.symbol);
    inSegment = inSegment || isRegister(d.level);
  }
  expectDigits(v, unionOfOperands(v, what), what);
}

void ValueVerifier::verifyScanTotal(const Value& v, const std::string& what) {
  const Value& scan = p_.values[v.operands[0]];
  if (scan.kind != ValueKind::Scan || scan.space != v.space || axisAt(p_, scan.space, scan.param) == nullptr) {
    return f_.add("{}: its operand is no scan of its space", what);
  }
  f_.expect(v.dtype == totalType(scan.combiner, scan.dtype), "{}: it is {}, expected {}", what, name(v.dtype),
            name(totalType(scan.combiner, scan.dtype)));
  expectDigits(v, scan.digits & ~axisDigits(p_.spaces[scan.space], scan.param), what);
}

void ValueVerifier::verifyConvert(const Value& v, const std::string& what) {
  const Value& from = p_.values[v.operands[0]];
  f_.expect(v.dtype == from.dtype, "{}: it changes {} to {}", what, name(from.dtype), name(v.dtype));
  const Space& source = p_.spaces[from.space];
  const Space& target = p_.spaces[v.space];
  if (source.axes.size() != target.axes.size()) {
    return f_.add("{}: space {} has {} axes, {} has {}", what, source.name, source.axes.size(), target.name,
                  target.axes.size());
  }
  uint64_t digits = 0;
  for (int64_t a = 0; a < std::ssize(source.axes); a++) {
    const Axis& s = source.axes[a];
    const Axis& t = target.axes[a];
    if ((from.digits & axisDigits(source, a)) == 0) {
      continue;
    }
    digits |= axisDigits(target, a);
    f_.expect(s.bound == t.bound, "{}: axes {} and {} have the bounds {} and {}", what, s.name, t.name,
              s.bound.toString(), t.bound.toString());
    // The digits outside of the tile must place both tiles alike, and lie outside.
    std::vector<const Digit*> outer[2];
    IntExpr extent[2] = {1, 1};
    for (int64_t side = 0; side < 2; side++) {
      const Axis& axis = side == 0 ? s : t;
      bool inTile = false;
      for (const Digit& d : axis.digits) {
        if (isInTile(d.level)) {
          inTile = true;
          extent[side] *= d.size;
        } else {
          f_.expect(!inTile, "{}: digit {} lies within the tile's digits", what, d.symbol);
          outer[side].push_back(&d);
        }
      }
    }
    f_.expect(extent[0] == extent[1], "{}: the tiles extend over {} and {} of axes {} and {}", what,
              extent[0].toString(), extent[1].toString(), s.name, t.name);
    bool alike = std::ranges::equal(outer[0], outer[1], [](const Digit* x, const Digit* y) {
      return x->symbol == y->symbol && x->size == y->size;
    });
    f_.expect(alike, "{}: parts and loops place axes {} and {} differently", what, s.name, t.name);
  }
  expectDigits(v, digits, what);
}

void ValueVerifier::verifyShift(const Value& v, const std::string& what) {
  if (v.index.size() != 1 || v.index[0].tile != kNone || p_.target != Target::Cpu) {
    return f_.add("{}: expected one expression, and a program for a CPU", what);
  }
  const IntExpr& by = v.index[0].expr;
  expression(by, v.space, what);
  int64_t lanes = 0;
  const std::vector<DigitRef> digits = digitsOf(p_.spaces[v.space]);
  for (int64_t d : indices(digits)) {
    const Digit& digit = p_.spaces[v.space].axes[digits[d].axis].digits[digits[d].digit];
    if (digit.level == Level::Vector && (v.digits >> d & 1) != 0) {
      lanes = digit.size.isConst() ? digit.size.constValue() : 0;
      f_.expect((digitsNamed(v.index, {}, v.space) >> d & 1) == 0, "{}: it shifts lanes by different numbers", what);
    }
  }
  for (ValueId o : v.operands) {
    f_.expect(p_.values[o].dtype == v.dtype, "{}: it changes {} to {}", what, name(p_.values[o].dtype), name(v.dtype));
  }
  f_.expect(by.lower().value_or(-1) >= 0 && by.upper().value_or(lanes + 1) <= lanes,
            "{}: it shifts {} lanes by {}, which is not known to be between 0 and that", what, lanes, by.toString());
  expectDigits(v, unionOfOperands(v, what) | digitsNamed(v.index, {}, v.space), what);
}

}  // namespace meshfuse::tile
