#include <algorithm>
#include <bit>
#include <cctype>
#include <cstdint>
#include <map>
#include <set>

#include "tile/verify_values.h"

namespace meshfuse::tile {

namespace {

constexpr int64_t kSharedBytes = 227 * 1024;
// Unrolled elements a thread: compile time follows them.
constexpr int64_t kGpuElements = 32;
constexpr int64_t kCpuElements = 1024;

// Arguments, grid and spaces.
class DeclarationVerifier {
 public:
  DeclarationVerifier(const Program& program, Findings& findings) : p_(program), f_(findings) {}

  void verify() {
    for (const SizeParam& s : p_.sizes) {
      declare(s.name, "size");
      f_.expect(s.facts.divisor >= 1, "size {}: divisor {}, expected at least 1", s.name, s.facts.divisor);
    }
    for (const ScalarParam& s : p_.scalars) {
      declare(s.name, "scalar");
    }
    for (const TensorParam& t : p_.tensors) {
      verifyTensor(t);
    }
    for (const GridDim& g : p_.grid) {
      declare(g.symbol, "grid dim");
      onlySizes(g.count, "the count of grid dim " + g.symbol);
    }
    std::set<std::string> spaceNames;
    for (const Space& s : p_.spaces) {
      f_.expect(spaceNames.insert(s.name).second, "two spaces are named {}", s.name);
      for (const Axis& a : s.axes) {
        declare(a.name, "axis");
      }
    }
    for (const Space& s : p_.spaces) {
      verifySpace(s);
    }
    verifyScratch();
  }

 private:
  void declare(const std::string& name, std::string_view what) {
    bool identifier = !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 &&
                      std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
    f_.expect(identifier, "{} '{}' is no identifier", what, name);
    f_.expect(names_.insert(name).second, "{} {}: the name is taken", what, name);
  }
  void onlySizes(const IntExpr& e, const std::string& where) {
    for (const std::string& symbol : e.symbols()) {
      f_.expect(isSize(p_, symbol), "{} is {}: {} is no size of the kernel", where, e.toString(), symbol);
    }
  }
  void verifyTensor(const TensorParam& t) {
    declare(t.name, "tensor");
    f_.expect(t.extents.size() == t.strides.size(), "tensor {}: {} extents, {} strides", t.name, t.extents.size(),
              t.strides.size());
    for (const IntExpr& e : t.extents) {
      onlySizes(e, "an extent of tensor " + t.name);
    }
    for (const IntExpr& e : t.strides) {
      onlySizes(e, "a stride of tensor " + t.name);
    }
    f_.expect(t.alignment >= 1 && std::has_single_bit(static_cast<unsigned>(t.alignment)),
              "tensor {}: alignment {}, expected a power of two", t.name, t.alignment);
    f_.expect(!t.zeroed || t.memory == Memory::Workspace, "tensor {}: only a workspace is zeroed", t.name);
  }

  void verifySpace(const Space& space) {
    int64_t lanes = 1, warps = 1, cluster = 1;
    int64_t vectors = 0;
    size_t count = 0;
    for (const Axis& axis : space.axes) {
      onlySizes(axis.bound, "the bound of axis " + axis.name);
      IntExpr stride = 1;
      for (int64_t i = std::ssize(axis.digits) - 1; i >= 0; i--) {
        const Digit& d = axis.digits[i];
        verifyDigit(axis, d);
        f_.expect(d.stride == stride, "axis {}: digit {} has stride {}, the digits within it extend over {}", axis.name,
                  d.symbol, d.stride.toString(), stride.toString());
        stride *= d.size;
        int64_t size = d.size.isConst() ? d.size.constValue() : 1;
        lanes *= d.level == Level::Lane ? size : 1;
        warps *= d.level == Level::Warp ? size : 1;
        cluster *= d.level == Level::Cluster ? size : 1;
        count += isInTile(d.level) ? 1 : 0;
        if (d.level == Level::Vector) {
          vectors++;
          f_.expect(i + 1 == std::ssize(axis.digits), "axis {}: the vector digit is not innermost", axis.name);
        }
      }
      f_.expect(!provenLess(stride, axis.bound), "axis {}: its digits reach {} positions of {}", axis.name,
                stride.toString(), axis.bound.toString());
    }
    f_.expect(lanes <= 32, "space {}: {} lanes, a warp has 32", space.name, lanes);
    f_.expect(32 * warps <= 1024, "space {}: {} threads, a block has at most 1024", space.name, 32 * warps);
    f_.expect(cluster <= 16, "space {}: a cluster of {} blocks, at most 16", space.name, cluster);
    f_.expect(vectors <= 1, "space {}: {} vector digits, at most one", space.name, vectors);
    f_.expect(count <= 64, "space {}: {} thread and register digits, at most 64", space.name, count);
  }
  void verifyDigit(const Axis& axis, const Digit& d) {
    bool outer = !isInTile(d.level);
    f_.expect(outer || d.size.isConst(), "axis {}: digit {} has the run-time size {}; only parts and serial digits may",
              axis.name, d.symbol, d.size.toString());
    onlySizes(d.size, "the size of digit " + d.symbol);
    if (d.size.isConst()) {
      int64_t size = d.size.constValue();
      f_.expect(size >= 1 || outer, "axis {}: digit {} has size {}", axis.name, d.symbol, size);
      f_.expect(size < 1 || outer || d.level == Level::Repeat || std::has_single_bit(static_cast<uint64_t>(size)),
                "axis {}: digit {} has size {}, expected a power of two", axis.name, d.symbol, size);
    }
    f_.expect(p_.target == Target::Gpu || !isThread(d.level), "axis {}: digit {} is on a level a CPU does not have",
              axis.name, d.symbol);
    if (d.level == Level::Part) {
      return f_.expect(isGridDim(p_, d.symbol), "axis {}: part digit {} names no grid dim", axis.name, d.symbol);
    }
    auto [it, first] = serials_.try_emplace(d.symbol, &d);
    bool shared = d.level == Level::Serial && it->second->level == Level::Serial && it->second->size == d.size;
    f_.expect(first || shared, "axis {}: digit symbol {} is taken; serial digits share one only at equal sizes",
              axis.name, d.symbol);
    f_.expect(!names_.contains(d.symbol), "axis {}: digit symbol {} is also a name", axis.name, d.symbol);
  }

  // Scratch of a GPU block has a constant size. Several tiles may be in flight, so the memory of each convert is checked separately.
  void verifyScratch() {
    if (p_.target != Target::Gpu) {
      return;
    }
    int64_t bytes = 0;
    for (const TensorParam& t : p_.tensors) {
      if (t.memory != Memory::Scratch) {
        continue;
      }
      int64_t elements = 1;
      for (int64_t d = 0; d < std::min(std::ssize(t.extents), std::ssize(t.strides)); d++) {
        bool constant = t.extents[d].isConst() && t.strides[d].isConst();
        f_.expect(constant, "scratch {} of a GPU block: dim {} is not constant", t.name, d);
        elements += constant ? (t.extents[d].constValue() - 1) * t.strides[d].constValue() : 0;
      }
      bytes += elements * dataTypeSize(t.dtype);
    }
    f_.expect(bytes <= kSharedBytes, "scratch takes {} bytes, a block has {}", bytes, kSharedBytes);
  }

  const Program& p_;
  Findings& f_;
  std::set<std::string> names_;
  std::map<std::string, const Digit*> serials_;  // by symbol: all digits but parts
};

// Statements: scopes, writers, uniformity.
class StatementVerifier {
 public:
  StatementVerifier(const Program& program, Findings& findings)
      : p_(program), f_(findings), values_(program, scope_, findings) {}

  void verify() { block(p_.body, 0); }

 private:
  void block(const std::vector<Stmt>& body, int64_t depth) {
    Scope before = scope_;
    for (const Stmt& s : body) {
      statement(s, depth);
    }
    scope_.defined = std::move(before.defined);
    scope_.overwritten = std::move(before.overwritten);
  }
  void statement(const Stmt& s, int64_t depth) {
    switch (s.kind) {
      case StmtKind::Define:
        return define(s);
      case StmtKind::Keep:
        values_.operand(s.value, "keep");
        return;
      case StmtKind::Store:
        return store(s);
      case StmtKind::Prefetch:
        values_.access(s.param, s.index, {}, s.space, "prefetch");
        for (const Index& i : s.index) {
          f_.expect(!values_.exists(i.tile) || p_.values[i.tile].digits == 0,
                    "prefetch: index {} differs between the elements of a step", i.tile);
        }
        return;
      case StmtKind::For:
        return loop(s, depth);
      case StmtKind::If:
        return when(s, depth);
      case StmtKind::LastArriver:
        return lastArriver(s, depth);
    }
  }

  void define(const Stmt& s) {
    if (!values_.exists(s.value)) {
      return f_.add("a definition names value {}, which does not exist", s.value);
    }
    const Value& v = p_.values[s.value];
    f_.expect(v.kind != ValueKind::Carry && v.kind != ValueKind::LoopResult,
              "value {} is a carry or result of a loop, so no statement can define it", s.value);
    f_.expect(everDefined_.insert(s.value).second, "value {} is defined twice", s.value);
    values_.verify(s.value);
    if (v.kind == ValueKind::Load && scope_.overwritten.contains(v.param)) {
      f_.add("value {}: it loads {} after a store to it", s.value, p_.tensors[v.param].name);
    }
    scope_.defined.insert(s.value);
    if (elementAt(p_.spaces, v.space) == nullptr) {
      return;
    }
    int64_t elements = values_.elements(v, isRegister);
    int64_t limit = p_.target == Target::Gpu ? kGpuElements : kCpuElements;
    f_.expect(elements <= limit, "value {}: {} unrolled elements a thread, at most {}", s.value, elements, limit);
    if (v.kind == ValueKind::Convert && p_.target == Target::Gpu) {
      int64_t bytes = values_.elements(v, isInTile) * dataTypeSize(v.dtype);
      f_.expect(bytes <= kSharedBytes, "value {}: converting {} bytes through shared memory of {}", s.value, bytes,
                kSharedBytes);
    }
  }

  void store(const Stmt& s) {
    const TensorParam* t = elementAt(p_.tensors, s.param);
    if (t == nullptr) {
      return f_.add("a store names tensor {}, which does not exist", s.param);
    }
    std::string what = "store " + t->name;
    values_.access(s.param, s.index, s.where, s.space, what);
    f_.expect(t->memory != Memory::Input, "{}: it is an input", what);
    if (t->memory == Memory::InOut) {
      scope_.overwritten.insert(s.param);
    }
    if (!values_.operand(s.value, what)) {
      return;
    }
    const Value& v = p_.values[s.value];
    f_.expect(v.dtype == t->dtype, "{}: the value is {}, the tensor {}", what, name(v.dtype), name(t->dtype));
    uint64_t needed = values_.digitsOfOperand(s.value, s.space, what);
    needed |= values_.mask(s.mask, s.space, what) | values_.digitsNamed({}, s.where, s.space);
    uint64_t placed = values_.digitsNamed(s.index, {}, s.space);
    bool scattered = std::ranges::any_of(s.index, [&](const Index& i) { return values_.exists(i.tile); });
    f_.expect((needed & ~placed) == 0, "{}: several elements go to one place: digits {} do not occur in its index",
              what, values_.digitNames(s.space, needed & ~placed));
    if (!scattered && t->memory != Memory::Scratch) {
      oneWriter(s, *t, what);
    }
  }
  // Digits that run several times or in several workers must occur in the index, or be restricted by a condition or a last arriver.
  void oneWriter(const Stmt& s, const TensorParam& t, const std::string& what) {
    std::set<std::string> placed = scope_.restricted;
    for (const Index& i : s.index) {
      for (const std::string& symbol : i.expr.symbols()) {
        placed.insert(symbol);
        if (const Axis* axis = values_.axisNamed(symbol)) {
          for (const Digit& d : axis->digits) {
            placed.insert(d.symbol);
          }
        }
      }
    }
    for (const GridDim& g : p_.grid) {
      f_.expect(placed.contains(g.symbol) || g.count.isConst(1), "{}: all parts of grid dim {} write the same elements",
                what, g.symbol);
    }
    if (t.memory != Memory::Workspace) {
      for (const std::string& symbol : scope_.open) {
        f_.expect(placed.contains(symbol), "{}: every step of loop {} writes the same elements", what, symbol);
      }
    }
  }

  void loop(const Stmt& s, int64_t depth) {
    const Axis* axis = axisAt(p_, s.space, s.axis);
    const Digit* d = axis == nullptr ? nullptr : elementAt(axis->digits, s.digit);
    if (d == nullptr) {
      return f_.add("a loop names digit {} of axis {} of space {}, which does not exist", s.digit, s.axis, s.space);
    }
    const std::string what = "loop " + d->symbol;
    f_.expect(d->level == Level::Serial, "{}: the digit is not serial", what);
    f_.expect(!scope_.open.contains(d->symbol), "{} runs inside itself", what);
    for (const Carried& c : s.carried) {
      values_.operand(c.init, what);
    }
    Scope before = scope_;
    scope_.open.insert(d->symbol);
    for (const Carried& c : s.carried) {
      scope_.defined.insert(c.carry);
    }
    for (const Stmt& inner : s.body) {
      statement(inner, depth + 1);
    }
    for (int64_t i = 0; i < std::ssize(s.carried); i++) {
      carried(s.carried[i], i, what);
    }
    scope_ = std::move(before);
    for (const Carried& c : s.carried) {
      scope_.defined.insert(c.result);
    }
  }
  void carried(const Carried& c, int64_t position, const std::string& what) {
    bool exist = values_.operand(c.next, what);
    if (!exist || !values_.exists(c.init) || !values_.exists(c.carry) || !values_.exists(c.result)) {
      return f_.add("{}: carry {} lacks a value", what, position);
    }
    const Value& init = p_.values[c.init];
    const Value& carry = p_.values[c.carry];
    const Value& next = p_.values[c.next];
    const Value& result = p_.values[c.result];
    f_.expect(carry.kind == ValueKind::Carry && result.kind == ValueKind::LoopResult && result.param == position,
              "{}: carry {} is held by values of other kinds", what, position);
    f_.expect(everDefined_.insert(c.carry).second && everDefined_.insert(c.result).second,
              "{}: carry {} belongs to another loop too", what, position);
    for (const Value* v : {&init, &next, &result}) {
      f_.expect(v->dtype == carry.dtype, "{}: carry {} is {} and {}", what, position, name(carry.dtype),
                name(v->dtype));
    }
    f_.expect(init.digits == carry.digits && result.digits == carry.digits, "{}: carry {} changes its digits", what,
              position);
    f_.expect(carry.digits == 0 || (init.space == carry.space && result.space == carry.space),
              "{}: carry {} changes its space", what, position);
    f_.expect(next.digits == 0 || (next.space == carry.space && (next.digits & ~carry.digits) == 0),
              "{}: carry {} lacks digits {} of its next value", what, position,
              values_.digitNames(next.space, next.digits & ~carry.digits));
  }

  void when(const Stmt& s, int64_t depth) {
    std::set<std::string> restricted = scope_.restricted;
    values_.predicates(s.where, -1, "the condition of an if");
    for (const Pred& p : s.where) {
      for (const IntExpr* e : {&p.lhs, &p.rhs}) {
        const std::vector<std::string> symbols = e->symbols();
        scope_.restricted.insert(symbols.begin(), symbols.end());
      }
    }
    block(s.body, depth + 1);
    scope_.restricted = std::move(restricted);
  }

  void lastArriver(const Stmt& s, int64_t depth) {
    f_.expect(depth == 0, "a last arriver stands inside a loop, a condition or another one: each worker arrives once");
    const TensorParam* t = elementAt(p_.tensors, s.param);
    if (t == nullptr) {
      return f_.add("a last arriver names tensor {}, which does not exist", s.param);
    }
    f_.expect(t->memory == Memory::Workspace && t->dtype == DataType::Int32 && t->zeroed,
              "last arriver: counter {} is no zeroed workspace of Int32", t->name);
    f_.expect(s.index.empty() || s.index.size() == t->extents.size(),
              "last arriver: {} indices for counter {} of {} dims", s.index.size(), t->name, t->extents.size());
    Scope before = scope_;
    for (const Index& i : s.index) {
      f_.expect(i.tile == kNone, "last arriver: the index of counter {} depends on data", t->name);
      for (const std::string& symbol : i.expr.symbols()) {
        f_.expect(isGridDim(p_, symbol) || isSize(p_, symbol),
                  "last arriver: the index of counter {} names {}, which is no grid dim", t->name, symbol);
      }
    }
    for (const GridDim& g : p_.grid) {
      if (!isNamed(g.symbol, s.index, {})) {
        scope_.hidden.insert(g.symbol);
        scope_.restricted.insert(g.symbol);
      }
    }
    scope_.outside.insert(scope_.defined.begin(), scope_.defined.end());
    block(s.body, depth + 1);
    scope_ = std::move(before);
  }

  const Program& p_;
  Findings& f_;
  Scope scope_;
  ValueVerifier values_;
  std::set<ValueId> everDefined_;
};

}  // namespace

std::vector<std::string> verify(const Program& program) {
  Findings findings;
  DeclarationVerifier(program, findings).verify();
  if (findings.list.empty()) {  // statements are verified only if all declarations are valid
    StatementVerifier(program, findings).verify();
  }
  return std::move(findings.list);
}

}  // namespace meshfuse::tile
