#include <fmt/format.h>

#include <map>

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
    std::string text = fmt::format(" >= {}", f.lower);
    if (f.upper != INT64_MAX) {
      text += fmt::format(" <= {}", f.upper);
    }
    if (f.divisor != 1) {
      text += fmt::format(" % {}", f.divisor);
    }
    return text;
  }
  static std::string_view memory(Memory m) {
    constexpr std::string_view kNames[] = {"input", "output", "inout", "workspace", "scratch"};
    return kNames[static_cast<size_t>(m)];
  }
  static std::string expressions(const std::vector<IntExpr>& list) {
    std::string text;
    for (const IntExpr& e : list) {
      text += (text.empty() ? "" : ", ") + e.toString();
    }
    return text;
  }
  // ` p(pm: ceilDiv(M, 16)) s16 r4 v16`: a symbol where it is not the axis' name and the level, a stride where it is not the
  // extent of the digits within.
  static std::string digits(const Axis& axis) {
    std::vector<IntExpr> within(axis.digits.size(), 1);
    for (size_t i = axis.digits.size(); i-- > 1;) {
      within[i - 1] = within[i] * axis.digits[i].size;
    }
    std::vector<int> seen(7, 0);  // by level
    std::string text;
    for (size_t i = 0; i < axis.digits.size(); i++) {
      const Digit& d = axis.digits[i];
      char letter = letterOf(d.level);
      int nth = seen[static_cast<size_t>(d.level)]++;
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
  std::string type(const Value& v) const {
    return fmt::format("{} {}", info(v.dtype).token, spread(v.space, v.digits));
  }
  // `s(n_r n_v)`
  std::string spread(int space, uint64_t set) const {
    if (space < 0 || space >= std::ssize(p_.spaces)) {
      return set == 0 ? "()" : fmt::format("?({:#x})", set);
    }
    const Space& s = p_.spaces[space];
    return fmt::format("{}({})", s.name, digitNames(s, set));
  }
  bool exists(ValueId id) const { return id >= 0 && id < std::ssize(p_.values); }
  // A value where it is used: constants and scalars in full, others by number.
  std::string use(ValueId id) const {
    if (!exists(id)) {
      return fmt::format("%?{}", id);
    }
    const Value& v = p_.values[id];
    if (v.kind == ValueKind::Const) {
      std::string number = isFloatingPoint(v.dtype) ? fmt::format("{}", v.constant) : fmt::format("{}", v.integer);
      return fmt::format("{}:{}{}", number, info(v.dtype).token, v.digits == 0 ? "" : " " + spread(v.space, v.digits));
    }
    if (v.kind == ValueKind::Scalar) {
      std::string scalar =
          v.param >= 0 && v.param < std::ssize(p_.scalars) ? p_.scalars[v.param].name : fmt::format("?{}", v.param);
      return v.digits == 0 ? scalar : fmt::format("{} {}", scalar, spread(v.space, v.digits));
    }
    auto it = numbers_.find(id);
    return it == numbers_.end() ? fmt::format("%?{}", id) : fmt::format("%{}", it->second);
  }
  std::string number(ValueId id) {
    numbers_.try_emplace(id, static_cast<int>(numbers_.size()));
    return use(id);
  }
  std::string list(const std::vector<ValueId>& ids) const {
    std::string text;
    for (ValueId id : ids) {
      text += (text.empty() ? "" : ", ") + use(id);
    }
    return text;
  }
  std::string access(int tensor, const std::vector<Index>& index) const {
    std::string at;
    for (const Index& i : index) {
      at += at.empty() ? "" : ", ";
      if (i.tile == kNone || !i.expr.isConst(0)) {
        at += i.expr.toString() + (i.tile == kNone ? "" : " + ");
      }
      at += i.tile == kNone ? "" : use(i.tile);
    }
    std::string name =
        tensor >= 0 && tensor < std::ssize(p_.tensors) ? p_.tensors[tensor].name : fmt::format("?{}", tensor);
    return fmt::format("{}[{}]", name, at);
  }
  static std::string predicates(const std::vector<Pred>& where) {
    std::string text;
    for (const Pred& p : where) {
      text += fmt::format("{}{} < {}", text.empty() ? "" : ", ", p.lhs.toString(), p.rhs.toString());
    }
    return text;
  }
  std::string guards(const std::vector<Pred>& where, ValueId mask, ValueId fill, Cache cache) const {
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
        return fmt::format("{} {}{}", info(v.op).name, list(v.operands), guards(v.where, kNone, kNone, Cache::Keep));
      case ValueKind::Cast:
        return fmt::format("cast {}", list(v.operands));
      case ValueKind::Random:
        return fmt::format("random {} of {}", v.param, list(v.operands));
      case ValueKind::Reduce: {
        uint64_t over = v.operands.empty() || !exists(v.operands[0]) ? 0 : p_.values[v.operands[0]].digits & ~v.digits;
        return fmt::format("reduce {} {} over {}{}", name(v.combiner), list(v.operands), spread(v.space, over),
                           guards(v.where, kNone, kNone, Cache::Keep));
      }
      case ValueKind::Carry:
        return "carry";
      case ValueKind::LoopResult:
        return fmt::format("result {}", v.param);
      case ValueKind::Convert:
        return fmt::format("convert {}", list(v.operands));
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
        if (exists(s.value)) {
          const Value& v = p_.values[s.value];
          std::string text = definition(v);
          line("{}: {} = {}", number(s.value), type(v), text);
        }
        return;
      case StmtKind::Keep:
        return line("keep {}", use(s.value));
      case StmtKind::Store:
        return line("store {} = {}{}{}", access(s.param, s.index), use(s.value),
                    guards(s.where, s.mask, kNone, s.cache), in(s));
      case StmtKind::Prefetch:
        return line("prefetch {} lines {}{}", access(s.param, s.index), s.lines, in(s));
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
    if (exists(s.value)) {
      const Value& v = p_.values[s.value];
      if (v.digits != 0 && v.space == s.space) {
        return "";
      }
    }
    return " in " +
           (s.space >= 0 && s.space < std::ssize(p_.spaces) ? p_.spaces[s.space].name : fmt::format("?{}", s.space));
  }
  void loop(const Stmt& s) {
    line("for {}:", serialSymbol(s));
    depth_++;
    for (const Carried& c : s.carried) {
      std::string init = use(c.init);
      std::string carry = number(c.carry);
      line("carry {}: {} = {}", carry, exists(c.carry) ? type(p_.values[c.carry]) : "?", init);
    }
    depth_--;
    block(s.body);
    depth_++;
    for (const Carried& c : s.carried) {
      std::string next = use(c.next);
      line("yield {} -> {}", next, number(c.result));
    }
    depth_--;
  }
  std::string serialSymbol(const Stmt& s) const {
    if (s.space >= 0 && s.space < std::ssize(p_.spaces)) {
      const std::vector<Axis>& axes = p_.spaces[s.space].axes;
      if (s.axis >= 0 && s.axis < std::ssize(axes)) {
        const Axis& axis = axes[s.axis];
        if (s.digit >= 0 && s.digit < std::ssize(axis.digits)) {
          return fmt::format("{} of {}", axis.digits[s.digit].symbol, axis.name);
        }
      }
    }
    return fmt::format("?{}.{}.{}", s.space, s.axis, s.digit);
  }

  const Program& p_;
  std::string text_;
  size_t depth_ = 0;
  std::map<ValueId, int> numbers_;  // printed numbers, in the order of definition
};

}  // namespace

std::string toString(const Program& program) { return Printer(program).print(); }

}  // namespace meshfuse::tile
