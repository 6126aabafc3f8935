#include "codegen/cuda/point_text.h"

#include "base/error.h"

namespace meshfuse::cuda {

namespace {

// A text under construction: operands a, b, c and the type.
struct Writer {
  DataType t;
  std::span<const std::string> args;
  Sections& uses;

  bool floating() const { return isFloatingPoint(t); }
  bool single() const { return t == DataType::Float; }
  std::string a() const { return args[0]; }
  std::string b() const { return args[1]; }

  std::string infix(std::string_view op) const { return fmt::format("({} {} {})", args[0], op, args[1]); }
  // A function of CUDA's math library: the float version ends in f.
  std::string math(std::string_view function) const { return call(fmt::format("{}{}", function, single() ? "f" : "")); }
  std::string runtime(std::string_view section, std::string_view function) const {
    uses.emplace(section);
    return call(function);
  }
  std::string call(std::string_view function) const {
    std::string text = fmt::format("{}(", function);
    for (size_t i = 0; i < args.size(); i++) {
      text += (i > 0 ? ", " : "") + unwrapped(args[i]);
    }
    return text + ")";
  }
  std::string literal(double value) const { return floatLiteral(value, t, uses); }
  std::string infinity(double sign) const { return literal(sign * __builtin_inf()); }
  // floats by an operator, integers modulo 2^n
  std::string arithmetic(std::string_view op, std::string_view wrapped) const {
    return floating() ? infix(op) : runtime("wrap", wrapped);
  }
  std::string isTrue(const std::string& operand) const {
    return t == DataType::Bool ? operand : fmt::format("({} != 0)", operand);
  }
  std::string logical(std::string_view op) const {
    return fmt::format("({} {} {})", isTrue(args[0]), op, isTrue(args[1]));
  }
};

std::string unaryText(PointOp op, const Writer& w) {
  using enum PointOp;
  switch (op) {
    case Abs:
      return w.floating() ? w.math("fabs")
                          : (w.uses.insert("wrap"), fmt::format("({} < 0 ? subWrap({}, {}) : {})", w.a(), w.literal(0),
                                                                unwrapped(w.a()), w.a()));
    case Frac:
      return fmt::format("({} - {})", w.a(), w.math("trunc"));
    case Neg:
      return w.floating() ? "(-" + w.a() + ")"
                          : (w.uses.insert("wrap"), fmt::format("subWrap({}, {})", w.literal(0), unwrapped(w.a())));
    case Reciprocal:
      return fmt::format("({} / {})", w.literal(1), w.a());
    case Round:
      return w.math("rint");
    case Sigmoid:
      return w.runtime("sigmoid", "sigmoid");
    case Sign:
      return w.runtime("sign", "signOf");
    case Signbit:
      return w.single()     ? fmt::format("(__float_as_int({}) < 0)", unwrapped(w.a()))
             : w.floating() ? fmt::format("(__double2hiint({}) < 0)", unwrapped(w.a()))
                            : fmt::format("({} < 0)", w.a());
    case BitwiseNot:
      return fmt::format("({}{})", w.t == DataType::Bool ? '!' : '~', w.a());
    case LogicalNot:
      return fmt::format("(!{})", w.a());
    case IsFinite:
      return fmt::format("({} < {})", w.math("fabs"), w.infinity(1));
    case IsInf:
      return fmt::format("({} == {})", w.math("fabs"), w.infinity(1));
    case IsNan:
      return fmt::format("({} != {})", w.a(), w.a());
    case IsNegInf:
      return fmt::format("({} == {})", w.a(), w.infinity(-1));
    case IsPosInf:
      return fmt::format("({} == {})", w.a(), w.infinity(1));
    default:
      return w.math(info(op).name);  // the table's names are those of <cmath>
  }
}

std::string binaryText(PointOp op, const Writer& w) {
  using enum PointOp;
  switch (op) {
    case Add:
      return w.arithmetic("+", "addWrap");
    case Sub:
      return w.arithmetic("-", "subWrap");
    case Mul:
      return w.arithmetic("*", "mulWrap");
    case Div:
      return w.floating() ? w.infix("/") : w.runtime("divide", "divide");
    case Fmod:
      return w.floating() ? w.math("fmod") : w.runtime("mod_trunc", "modTrunc");
    case Remainder:
      return w.floating() ? w.runtime("remainder", "remainderFloor") : w.runtime("mod_floor", "modFloor");
    case Mod:
      return w.runtime("mod_trunc", "modTrunc");
    case Pow:
      return w.floating() ? w.math("pow") : w.runtime("pow_int", "powInt");
    case Atan2:
      return w.math("atan2");
    case Maximum:
      return w.single() ? w.runtime("maximum_float", "maximumFloat") : w.runtime("maximum", "maximum");
    case Minimum:
      return w.single() ? w.runtime("minimum_float", "minimumFloat") : w.runtime("minimum", "minimum");
    case NextAfter:
      return w.math("nextafter");
    case CeilDiv:
      return w.runtime("ceil_div", "ceilDivide");
    case Gcd:
      return w.runtime("gcd", "gcdOf");
    case Eq:
      return w.infix("==");
    case Ne:
      return w.infix("!=");
    case Gt:
      return w.infix(">");
    case Ge:
      return w.infix(">=");
    case Lt:
      return w.infix("<");
    case Le:
      return w.infix("<=");
    case BitwiseAnd:
      return w.infix(w.t == DataType::Bool ? "&&" : "&");
    case BitwiseOr:
      return w.infix(w.t == DataType::Bool ? "||" : "|");
    case BitwiseXor:
      return w.infix(w.t == DataType::Bool ? "!=" : "^");
    case Shl:
      return w.runtime("shifts", "shiftLeft");
    case Shr:
      return w.runtime("shifts", "shiftRight");
    case LogicalAnd:
      return w.logical("&&");
    case LogicalOr:
      return w.logical("||");
    case LogicalXor:
      return w.logical("!=");
    default:
      throwInternalError(fmt::format("[codegen cuda] {} is not a binary op", info(op).name));
  }
}

}  // namespace

std::string pointText(PointOp op, DataType t, Precision precision, std::span<const std::string> operands,
                      Sections& uses) {
  Writer w{t, operands, uses};
  if (precision == Precision::Coarse && t == DataType::Float) {
    if (op == PointOp::Exp) {
      return w.runtime("coarse_exp", "coarseExp");
    }
    if (op == PointOp::Tanh) {
      return w.runtime("coarse_tanh", "coarseTanh");
    }
    if (op == PointOp::Sigmoid) {
      return w.runtime("coarse_sigmoid", "coarseSigmoid");
    }
    if (op == PointOp::Div) {
      return w.runtime("coarse_div", "coarseDiv");
    }
    if (op == PointOp::Reciprocal) {
      uses.insert("coarse_div");
      return fmt::format("coarseDiv(1.0f, {})", unwrapped(operands[0]));
    }
  }
  if (op == PointOp::Where) {
    return fmt::format("({} ? {} : {})", operands[0], operands[1], operands[2]);
  }
  if (op == PointOp::Fma) {
    return w.math("fma");
  }
  std::string text = info(op).arity == 1 ? unaryText(op, w) : binaryText(op, w);
  return info(op).givesBool ? text : narrowed(std::move(text), t);
}

bool isCheap(PointOp op) {
  using enum PointOp;
  return op == Neg || op == Abs || op == LogicalNot || op == BitwiseNot;
}

}  // namespace meshfuse::cuda
