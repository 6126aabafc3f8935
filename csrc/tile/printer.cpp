#include <fmt/format.h>

#include <cstdint>
#include <map>

#include "base/ranges.h"
#include "tile/tile.h"

namespace meshfuse::tile {

namespace {

class Printer {
 public:
  explicit Printer(const Program& program) : p_(program) {}

  std::string print() {
    line("kernel {} {}", p_.name, p_.target == Target::Cpu ? "cpu" : "gpu");
    for (const SizeParam& s : p_.sizes) {
      line("size {}{}", s.name, facts(s.facts));
    }
    for (const ScalarParam& s : p_.scalars) {
      line("scalar {} {}", s.name, info(s.dtype).token);
    }
    for (const TensorParam& t : p_.tensors) {
      line("{} {} {} [{}] strides [{}] align {}{}", memory(t.memory), t.name, info(t.dtype).token,
           expressions(t.extents), expressions(t.strides), t.alignment, t.zeroed ? " zeroed" : "");
    }
    for (const GridDim& g : p_.grid) {
      line("grid {} < {}", g.symbol, g.count.toString());
    }
    for (const Space& space : p_.spaces) {
      line("space {}", space.name);
      for (const Axis& axis : space.axes) {
        line("  {} < {} ={}", axis.name, axis.bound.toString(), digits(axis));
      }
    }
    block(p_.body);
    return std::move(text_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(2 * depth_, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  // -- declarations ---------------------------------------------------------------------------------------------------
  static std::string facts(const SymbolFacts& f) {
    return fmt::format(" >= {}", f.lower) + (f.upper == INT64_MAX ? "" : fmt::format(" <= {}", f.upper)) +
           (f.divisor == 1 ? "" : fmt::format(" % {}", f.divisor));
  }
  static std::string_view memory(Memory m) {
    constexpr std::string_view kNames[] = {"input", "output", "inout", "workspace", "scratch"};
    return kNames[static_cast<size_t>(m)];
  }
  static std::string expressions(const std::vector<IntExpr>& list) { return joined(list, ", ", &IntExpr::toString); }
  // ` p(pm: ceilDiv(M, 16)) s16 r4 v16`: a symbol where it is not the axis' name and the level, a stride where it is not the
  // extent of the digits within.
  static std::string digits(const Axis& axis) {
    std::vector<IntExpr> within(axis.digits.size(), 1);
    for (int64_t i = std::ssize(axis.digits) - 1; i > 0; i--) {
      within[i - 1] = within[i] * axis.digits[i].size;
    }
    std::vector<int64_t> seen(7, 0);  // by level
    std::string text;
    for (int64_t i = 0; i < std::ssize(axis.digits); i++) {
      const Digit& d = axis.digits[i];
      char letter = letterOf(d.level);
      int64_t nth = seen[static_cast<size_t>(d.level)]++;
      std::string symbol = d.symbol == usualSymbol(axis.name, d.level, nth) ? "" : d.symbol + ": ";
      std::string size = d.size.toString();
      text += symbol.empty() && d.size.isConst() ? fmt::format(" {}{}", letter, size)
                                                 : fmt::format(" {}({}{})", letter, symbol, size);
      if (d.stride != within[i]) {
        text += fmt::format("@{}", d.stride.toString());
      }
    }
    return text;
  }

  // -- values ---------------------------------------------------------------------------------------------------------
  std::string type(const Value* v) const {
    return v == nullptr ? "?" : fmt::format("{} {}", info(v->dtype).token, spread(v->space, v->digits));
  }
  // `s(n_r n_v)`
  std::string spread(int64_t space, uint64_t set) const {
    if (const Space* s = elementAt(p_.spaces, space)) {
      return fmt::format("{}({})", s->name, digitNames(*s, set));
    }
    return set == 0 ? "()" : fmt::format("?({:#x})", set);
  }
  // The name of a scalar, tensor or space where it is used.
  template <class T>
  static std::string nameAt(const std::vector<T>& list, int64_t position) {
    const T* element = elementAt(list, position);
    return element != nullptr ? element->name : fmt::format("?{}", position);
  }
  // A value where it is used: constants and scalars in full, others by number.
  std::string use(ValueId id) const {
    const Value* v = elementAt(p_.values, id);
    if (v != nullptr && !hasPlace(v->kind)) {
      std::string digits = v->digits == 0 ? "" : " " + spread(v->space, v->digits);
      if (v->kind == ValueKind::Scalar) {
        return nameAt(p_.scalars, v->param) + digits;
      }
      std::string number = isFloatingPoint(v->dtype) ? fmt::format("{}", v->constant) : fmt::format("{}", v->integer);
      return fmt::format("{}:{}{}", number, info(v->dtype).token, digits);
    }
    auto it = numbers_.find(id);
    return v == nullptr || it == numbers_.end() ? fmt::format("%?{}", id) : fmt::format("%{}", it->second);
  }
  std::string number(ValueId id) {
    numbers_.try_emplace(id, std::ssize(numbers_));
    return use(id);
  }
  std::string list(const std::vector<ValueId>& ids) const {
    return joined(ids, ", ", [&](ValueId id) { return use(id); });
  }
  std::string position(const Index& i) const {
    if (i.tile == kNone) {
      return i.expr.toString();
    }
    return i.expr.isConst(0) ? use(i.tile) : i.expr.toString() + " + " + use(i.tile);
  }
  std::string access(int64_t tensor, const std::vector<Index>& index) const {
    return fmt::format("{}[{}]", nameAt(p_.tensors, tensor),
                       joined(index, ", ", [&](const Index& i) { return position(i); }));
  }
  static std::string predicates(const std::vector<Pred>& where) {
    return joined(where, ", ", [](const Pred& p) { return p.lhs.toString() + " < " + p.rhs.toString(); });
  }
  std::string guards(const std::vector<Pred>& where, ValueId mask = kNone, ValueId fill = kNone,
                     Cache cache = Cache::Keep) const {
    std::string text = where.empty() ? "" : " where " + predicates(where);
    text += mask == kNone ? "" : " mask " + use(mask);
    text += fill == kNone ? "" : " else " + use(fill);
    text += cache == Cache::Once ? " once" : "";
    return text;
  }
  std::string definition(const Value& v) const {
    switch (v.kind) {
      case ValueKind::Const:
        return "const";
      case ValueKind::Scalar:
        return "scalar";
      case ValueKind::Index:
        return fmt::format("index {}", v.index.empty() ? "?" : v.index[0].expr.toString());
      case ValueKind::Load:
        return fmt::format("load {}{}", access(v.param, v.index), guards(v.where, v.mask, v.fill, v.cache));
      case ValueKind::Point:
        return fmt::format("{} {}{}", info(v.op).name, list(v.operands), guards(v.where));
      case ValueKind::Cast:
        return fmt::format("cast {}", list(v.operands));
      case ValueKind::Random:
        return fmt::format("random {} of {}", v.param, list(v.operands));
      case ValueKind::Reduce: {
        const Value* from = v.operands.empty() ? nullptr : elementAt(p_.values, v.operands[0]);
        uint64_t over = from == nullptr ? 0 : from->digits & ~v.digits;
        return fmt::format("reduce {} {} over {}{}", name(v.combiner), list(v.operands), spread(v.space, over),
                           guards(v.where));
      }
      case ValueKind::Carry:
        return "carry";
      case ValueKind::LoopResult:
        return fmt::format("result {}", v.param);
      case ValueKind::Convert:
        return fmt::format("convert {}", list(v.operands));
      case ValueKind::Scan: {
        const Axis* axis = axisAt(p_, v.space, v.param);
        return fmt::format("scan {} {} along {}", name(v.combiner), list(v.operands),
                           axis == nullptr ? "?" : axis->name);
      }
      case ValueKind::ScanTotal:
        return fmt::format("total {}", list(v.operands));
      case ValueKind::Shift:
        return fmt::format("shift {} by {}", list(v.operands), v.index.empty() ? "?" : v.index[0].expr.toString());
    }
    return "";
  }

  // -- statements -----------------------------------------------------------------------------------------------------
  void block(const std::vector<Stmt>& body) {
    depth_++;
    for (const Stmt& s : body) {
      statement(s);
    }
    depth_--;
  }
  void statement(const Stmt& s) {
    switch (s.kind) {
      case StmtKind::Define:
        if (const Value* v = elementAt(p_.values, s.value)) {
          std::string text = definition(*v);  // before this value has a number
          line("{}: {} = {}", number(s.value), type(v), text);
        }
        return;
      case StmtKind::Keep:
        return line("keep {}", use(s.value));
      case StmtKind::Store:
        return line("store {} = {}{}{}", access(s.param, s.index), use(s.value),
                    guards(s.where, s.mask, kNone, s.cache), in(s));
      case StmtKind::Prefetch:
        return line("prefetch {} lines {}{}{}", access(s.param, s.index), s.lines,
                    s.level == 1 ? "" : fmt::format(" level {}", s.level), in(s));
      case StmtKind::For:
        return loop(s);
      case StmtKind::If:
        line("if {}:", predicates(s.where));
        return block(s.body);
      case StmtKind::LastArriver:
        line("last arriver of {}:", access(s.param, s.index));
        return block(s.body);
    }
  }
  // The space of an access, where its value does not show it.
  std::string in(const Stmt& s) const {
    const Value* v = elementAt(p_.values, s.value);
    return v != nullptr && v->digits != 0 && v->space == s.space ? "" : " in " + nameAt(p_.spaces, s.space);
  }
  void loop(const Stmt& s) {
    line("for {}:", serialSymbol(s));
    for (const Carried& c : s.carried) {
      std::string init = use(c.init);
      std::string carry = number(c.carry);
      line("  carry {}: {} = {}", carry, type(elementAt(p_.values, c.carry)), init);
    }
    block(s.body);
    for (const Carried& c : s.carried) {
      std::string next = use(c.next);
      line("  yield {} -> {}", next, number(c.result));
    }
  }
  std::string serialSymbol(const Stmt& s) const {
    const Axis* axis = axisAt(p_, s.space, s.axis);
    const Digit* digit = axis == nullptr ? nullptr : elementAt(axis->digits, s.digit);
    return digit == nullptr ? fmt::format("?{}.{}.{}", s.space, s.axis, s.digit)
                            : fmt::format("{} of {}", digit->symbol, axis->name);
  }

  const Program& p_;
  std::string text_;
  size_t depth_ = 0;
  std::map<ValueId, int64_t> numbers_;  // printed numbers, in the order of definition
};

}  // namespace

std::string toString(const Program& program) { return Printer(program).print(); }

}  // namespace meshfuse::tile
