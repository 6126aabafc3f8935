#include "codegen/cuda/point_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse::cuda {

namespace {

// A text under construction: operands a, b, c and the type.
struct Writer {
  DataType t;
  bool coarse;
  std::span<const std::string> args;
  Sections& uses;

  bool floating() const { return isFloatingPoint(t); }
  bool single() const { return t == DataType::Float; }
  std::string a() const { return args[0]; }

  std::string infix(std::string_view op) const { return fmt::format("({} {} {})", args[0], op, args[1]); }
  // A function of CUDA's math library: the float version ends in f.
  std::string math(std::string_view function) const { return call(fmt::format("{}{}", function, single() ? "f" : "")); }
  std::string runtime(std::string_view section, std::string_view function) const {
    uses.emplace(section);
    return call(function);
  }
  std::string call(std::string_view function) const {
    return fmt::format("{}({})", function, joined(args, ", ", unwrapped));
  }
  std::string literal(double value) const { return floatLiteral(value, t, uses); }
  std::string infinity(double sign) const { return literal(sign * __builtin_inf()); }
  std::string isTrue(const std::string& operand) const {
    return t == DataType::Bool ? operand : fmt::format("({} != 0)", operand);
  }
  std::string logical(std::string_view op) const {
    return fmt::format("({} {} {})", isTrue(args[0]), op, isTrue(args[1]));
  }
};

// Empty if the op is no operator on elements of type `t`.
std::string_view operatorOf(PointOp op, DataType t) {
  using enum PointOp;
  struct Row {
    PointOp op;
    std::string_view floating;
    std::string_view integer;
    std::string_view boolean;
  };
  static constexpr Row kRows[] = {
      {Add, "+", "", ""},     {Sub, "-", "", ""},          {Mul, "*", "", ""},         {Eq, "==", "==", "=="},
      {Ne, "!=", "!=", "!="}, {Gt, ">", ">", ">"},         {Ge, ">=", ">=", ">="},     {Lt, "<", "<", "<"},
      {Le, "<=", "<=", "<="}, {BitwiseAnd, "", "&", "&&"}, {BitwiseOr, "", "|", "||"}, {BitwiseXor, "", "^", "!="},
  };
  const Row* row = std::ranges::find(kRows, op, &Row::op);
  return row == std::end(kRows) ? ""
         : isFloatingPoint(t)   ? row->floating
         : t == DataType::Bool  ? row->boolean
                                : row->integer;
}

std::string asInt(const std::string& operand) { return "(int)" + operand; }

std::string opText(PointOp op, const Writer& w) {
  using enum PointOp;
  if (std::string_view text = operatorOf(op, w.t); !text.empty()) {
    return w.infix(text);
  }
  switch (op) {
    case Abs:
      return w.floating() ? w.math("fabs")
                          : (w.uses.insert("wrap"), fmt::format("({} < 0 ? subWrap({}, {}) : {})", w.a(), w.literal(0),
                                                                unwrapped(w.a()), w.a()));
    case Exp:
      return w.single() ? w.runtime("exp_float", "expFloat") : w.math("exp");
    case Frac:
      return fmt::format("({} - {})", w.a(), w.math("trunc"));
    case Neg:
      return w.floating() ? "(-" + w.a() + ")"
                          : (w.uses.insert("wrap"), fmt::format("subWrap({}, {})", w.literal(0), unwrapped(w.a())));
    case Reciprocal:
      return w.coarse ? (w.uses.insert("coarse_div"), fmt::format("coarseDiv(1.0f, {})", unwrapped(w.a())))
                      : fmt::format("({} / {})", w.literal(1), w.a());
    case Round:
      return w.math("rint");
    case Sigmoid:
      return w.coarse     ? w.runtime("coarse_sigmoid", "coarseSigmoid")
             : w.single() ? w.runtime("sigmoid_float", "sigmoidFloat")
                          : w.runtime("sigmoid", "sigmoid");
    case Sign:
      return w.runtime("sign", "signOf");
    case Signbit:
      return w.single()     ? fmt::format("(__float_as_int({}) < 0)", unwrapped(w.a()))
             : w.floating() ? fmt::format("(__double2hiint({}) < 0)", unwrapped(w.a()))
                            : fmt::format("({} < 0)", w.a());
    case Tanh:
      return w.single() ? w.runtime("tanh_float", "tanhFloat") : w.math("tanh");
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
    case Add:
      return w.runtime("wrap", "addWrap");
    case Sub:
      return w.runtime("wrap", "subWrap");
    case Mul:
      return w.runtime("wrap", "mulWrap");
    case Div:
      return w.coarse       ? w.runtime("coarse_div", "coarseDiv")
             : w.floating() ? w.infix("/")
                            : w.runtime("divide", "divide");
    case Fmod:
      return w.floating() ? w.math("fmod") : w.runtime("mod_trunc", "modTrunc");
    case Remainder:
      return w.floating() ? w.runtime("remainder", "remainderFloor") : w.runtime("mod_floor", "modFloor");
    case Mod:
      return w.runtime("mod_trunc", "modTrunc");
    case Pow:
      return w.floating() ? w.math("pow") : w.runtime("pow_int", "powInt");
    case Maximum:
      return w.single() ? w.runtime("maximum_float", "maximumFloat") : w.runtime("maximum", "maximum");
    case Minimum:
      return w.single() ? w.runtime("minimum_float", "minimumFloat") : w.runtime("minimum", "minimum");
    case CeilDiv:
      return w.runtime("ceil_div", "ceilDivide");
    case Gcd:
      return w.runtime("gcd", "gcdOf");
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
    case Where:
      return fmt::format("({} ? {} : {})", w.args[0], w.args[1], w.args[2]);
    case CheckedIndex:
      throwInternalError(fmt::format("[codegen cuda] {} is not a binary op", info(op).name));
    default:
      return w.math(info(op).name);  // the table's names are those of <cmath>
  }
}

}  // namespace

std::string pointText(PointOp op, DataType t, Precision precision, std::span<const std::string> operands,
                      Sections& uses) {
  std::vector<std::string> wide;  // an int holds all values, and functions compare it with negative numbers
  if (isUnsigned(t) && op != PointOp::Where) {
    wide = mapped(operands, asInt);
    operands = wide;
  }
  std::string text = opText(op, {t, precision == Precision::Coarse && t == DataType::Float, operands, uses});
  return info(op).givesBool || op == PointOp::Where ? text : narrowed(std::move(text), t);
}

}  // namespace meshfuse::cuda
