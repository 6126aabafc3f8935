// Elementwise ops, casts, reductions, normalizations.
#include <algorithm>
#include <cmath>
#include <functional>

#include "fuzz/graph.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse::fuzz {

namespace {

double reducedElements(const Shape& shape, const std::vector<int64_t>& axes) {
  double n = 1;
  for (int64_t a : axes) {
    n *= static_cast<double>(shape[a < 0 ? a + std::ssize(shape) : a]);
  }
  return n;
}

}  // namespace

void Graph::unary() {
  using Op = PointOp;
  static const std::vector<Op> anywhere = {Op::Abs,  Op::Asinh,   Op::Atan, Op::Ceil, Op::Cos,   Op::Erf,
                                           Op::Erfc, Op::Floor,   Op::Frac, Op::Neg,  Op::Round, Op::Sigmoid,
                                           Op::Sign, Op::Signbit, Op::Sin,  Op::Tanh, Op::Trunc};
  static const std::vector<Op> growing = {Op::Exp, Op::Exp2, Op::Expm1, Op::Sinh, Op::Cosh};
  static const std::vector<Op> ofPositive = {Op::Log,  Op::Log10, Op::Log1p,      Op::Log2,
                                             Op::Sqrt, Op::Rsqrt, Op::Reciprocal, Op::Lgamma};
  static const std::vector<Op> ofUnit = {Op::Acos, Op::Asin, Op::Atanh, Op::Erfinv, Op::Tan};
  static const std::vector<Op> tests = {Op::IsFinite, Op::IsInf, Op::IsNan, Op::IsNegInf, Op::IsPosInf, Op::LogicalNot};
  int64_t kind = random_.below(100);
  if (kind < 50) {
    Op op = random_.of(anywhere);
    bool growsLinearly =
        op == Op::Abs || op == Op::Ceil || op == Op::Floor || op == Op::Neg || op == Op::Round || op == Op::Trunc;
    Item x = pickFloating(1e4);
    add(point(op, x.tv), growsLinearly ? x.magnitude + 1 : std::min(x.magnitude + 1, op == Op::Asinh ? 12.0 : 2.0));
  } else if (kind < 62) {
    add(point(random_.of(growing), pickFloating(3).tv), 21);
  } else if (kind < 80) {
    Item x = positive(pickFloating(50));
    add(point(random_.of(ofPositive), x.tv), 60);
  } else if (kind < 88) {
    add(point(random_.of(ofUnit), pickFloating(0.9).tv), 2);
  } else if (kind < 90) {
    Item x = pickFloating(20);
    add(acosh(meshfuse::add(abs(x.tv), 1.25)), 5);
  } else if (kind < 95) {
    add(point(random_.of(tests), pickFloating(1e30).tv), 1);
  } else {
    add(random_.chance(50) ? bitwise_not(pickInteger(1e6).tv) : logical_not(pickBool().tv), 1e6);
  }
}

void Graph::binary() {
  using Op = PointOp;
  static const std::vector<Op> comparisons = {Op::Eq, Op::Ne, Op::Gt, Op::Ge, Op::Lt, Op::Le};
  int64_t kind = random_.below(100);
  if (kind < 60) {
    static const std::vector<Op> ops = {Op::Add, Op::Sub, Op::Mul, Op::Maximum, Op::Minimum};
    Op op = random_.of(ops);
    Item a = pickFloating(100);
    if (random_.chance(15)) {
      if (random_.chance(25)) {
        add(point(op, a.tv, scalar()), a.magnitude * 1.5 + 1.5);
        return;
      }
      double c = static_cast<double>(random_.between(-12, 12)) / 8;
      TensorView* result = random_.chance(50) ? point(op, a.tv, c) : point(op, c, a.tv);
      add(result, a.magnitude * 1.5 + 1.5);
      return;
    }
    Item b = partner(a, 100);
    double m = op == Op::Mul ? a.magnitude * b.magnitude : a.magnitude + b.magnitude;
    add(random_.chance(50) ? point(op, a.tv, b.tv) : point(op, b.tv, a.tv), m);
  } else if (kind < 72) {
    Item a = pickFloating(100);
    Item b = positive(partner(a, 50));
    int64_t which = random_.below(4);
    add(which == 0   ? truediv(a.tv, b.tv)
        : which == 1 ? div(a.tv, b.tv)
        : which == 2 ? fmod(limited(a, 8).tv, b.tv)
                     : remainder(limited(a, 8).tv, b.tv),
        a.magnitude * 2);
  } else if (kind < 78) {
    Item a = positive(pickFloating(3));
    Item b = limited(partner(a, 2), 2);
    add(pow(a.tv, b.tv), 40);
  } else if (kind < 83) {
    Item a = pickFloating(100);
    add(random_.chance(70) ? atan2(positive(a).tv, partner(a, 100).tv) : nextafter(a.tv, partner(a, 100).tv),
        std::max(4.0, a.magnitude));
  } else if (kind < 93) {
    Item a = random_.chance(70) ? pickFloating(1e6) : pickInteger(1e6);
    add(point(random_.of(comparisons), a.tv, partner(a, 1e6).tv), 1);
  } else if (kind < 97) {
    Item a = pickFloating(50);
    Item b = partner(a, 50);
    double s = random_.chance(50) ? 0.75 : 2.0;
    add(random_.chance(50) ? add_alpha(a.tv, b.tv, s) : sub_alpha(a.tv, b.tv, s), a.magnitude + 2 * b.magnitude);
  } else {
    Item a = pickBool();
    Item b = pickBool();
    if (shapeOf(a.tv) == shapeOf(b.tv)) {
      static const std::vector<Op> ops = {Op::LogicalAnd, Op::LogicalOr, Op::LogicalXor,
                                          Op::BitwiseAnd, Op::BitwiseOr, Op::BitwiseXor};
      add(point(random_.of(ops), a.tv, b.tv), 1);
    }
  }
}

void Graph::integers() {
  using Op = PointOp;
  Item a = pickInteger(1000);
  Item b = partner(a, 1000);
  switch (random_.below(6)) {
    case 0: {
      static const std::vector<Op> ops = {Op::Add, Op::Sub, Op::Mul, Op::Maximum, Op::Minimum};
      add(point(random_.of(ops), a.tv, b.tv), std::max(a.magnitude + b.magnitude, a.magnitude * b.magnitude));
      return;
    }
    case 1: {
      static const std::vector<Op> ops = {Op::Div, Op::Mod, Op::Remainder, Op::Fmod, Op::CeilDiv, Op::Gcd};
      add(point(random_.of(ops), a.tv, b.tv), std::max(a.magnitude, b.magnitude));
      return;
    }
    case 2: {
      static const std::vector<Op> ops = {Op::BitwiseAnd, Op::BitwiseOr, Op::BitwiseXor};
      add(point(random_.of(ops), a.tv, b.tv), 2 * std::max(a.magnitude, b.magnitude) + 2);
      return;
    }
    case 3: {
      TensorView* by = bitwise_and(b.tv, 3);
      add(random_.chance(50) ? bitwise_left_shift(a.tv, by) : bitwise_right_shift(a.tv, by), 8 * a.magnitude + 8);
      return;
    }
    case 4:
      add(pow(clamp(a.tv, -3, 3), bitwise_and(b.tv, 3)), 27);
      return;
    default:
      add(random_.chance(50) ? abs(a.tv) : random_.chance(50) ? neg(a.tv) : sign(a.tv), a.magnitude);
      return;
  }
}

void Graph::ternary() {
  Item a = pickFloating(100);
  Item b = partner(a, 100, false);
  switch (random_.below(4)) {
    case 0:
    case 1: {
      Item c = partner(a, 100, false);
      TensorView* condition = random_.chance(60) ? gt(c.tv, 0.1) : isfinite(c.tv);
      TensorView* result = random_.chance(70) ? where(condition, a.tv, b.tv) : where(condition, a.tv, 0.5);
      add(result, std::max(a.magnitude, b.magnitude));
      return;
    }
    case 2: {
      Item c = partner(a, 100, false);
      add(random_.chance(60) ? fma(a.tv, b.tv, c.tv) : addcmul(a.tv, b.tv, c.tv, 0.5),
          a.magnitude * std::max(b.magnitude, c.magnitude) + a.magnitude + c.magnitude);
      return;
    }
    default:
      add(lerp(a.tv, b.tv, random_.chance(50) ? 0.25 : 0.75), a.magnitude + b.magnitude);
      return;
  }
}

void Graph::activation() {
  Item x = pickFloating(8);
  TensorView* t = x.tv;
  switch (random_.below(12)) {
    case 0:
      add(relu(t), x.magnitude);
      return;
    case 1:
      add(gelu(t), x.magnitude);
      return;
    case 2:
      add(tanh_gelu(t), x.magnitude);
      return;
    case 3:
      add(silu(t), x.magnitude);
      return;
    case 4:
      add(softplus(t), x.magnitude + 1);
      return;
    case 5:
      add(leaky_relu(t), x.magnitude);
      return;
    case 6:
      add(threshold(t, 0.25, -1.5), x.magnitude + 1.5);
      return;
    case 7:
      add(clamp(t, -0.5, 1.25), 1.25);
      return;
    case 8:
      add(gelu_backward(cos(t), t), 2);
      return;
    case 9:
      add(silu_backward(sin(t), t), 2);
      return;
    case 10:
      add(relu_backward(sin(t), t), 1);
      return;
    default:
      add(tanh_backward(cos(t), tanh(t)), 1);
      return;
  }
}

void Graph::cast() {
  static const std::vector<DataType> types = {DataType::Float, DataType::Half, DataType::BFloat16, DataType::BFloat16,
                                              DataType::Double};
  int64_t kind = random_.below(10);
  if (kind < 6) {
    Item x = random_.chance(80) ? pickFloating(1000) : pick();
    x = x.magnitude > 1000 ? pickFloating(1000) : x;
    add(castOp(random_.of(types), x.tv), x.magnitude);
  } else if (kind < 7) {
    add(castOp(DataType::Bool, pickInteger(1e6).tv), 1);
  } else if (kind < 8) {
    Item x = pickInteger(1e6);
    add(castOp(x.tv->dtype() == DataType::Int ? integerType(0) : DataType::Int, x.tv), x.magnitude);  // wraps
  } else {
    Item x = pickFloating(100);
    add(toInteger(integerType(2.3 * x.magnitude), mul(x.tv, 2.3)), 2.3 * x.magnitude);
  }
}

void Graph::reduction() {
  Item x = pick();
  int rank = static_cast<int>(shapeOf(x.tv).size());
  if (rank == 0) {
    return;
  }
  std::vector<int64_t> axes = someAxes(rank);
  bool keep = random_.chance(30);
  if (isIntegral(x.tv->dtype())) {
    double n = reducedElements(shapeOf(x.tv), axes);
    switch (random_.below(6)) {
      case 0:
        add(sum(x.tv, axes, keep), x.magnitude * n);
        return;
      case 1:
        add(max(x.tv, axes, keep), x.magnitude);
        return;
      case 2:
        add(min(x.tv, axes, keep), x.magnitude);
        return;
      case 3:
        add(bitwise_and(x.tv, axes, keep), 2 * x.magnitude + 2);
        return;
      case 4:
        add(bitwise_or(x.tv, axes, keep), 2 * x.magnitude + 2);
        return;
      default:
        add(bitwise_xor(x.tv, axes, keep), 2 * x.magnitude + 2);
        return;
    }
  }
  if (x.tv->dtype() == DataType::Bool) {
    add(random_.chance(40)   ? any(x.tv, axes, keep)
        : random_.chance(50) ? all(x.tv, axes, keep)
                             : castOp(DataType::Int, sum(x.tv, axes, keep)),
        reducedElements(shapeOf(x.tv), axes));
    return;
  }
  x = limited(x, 1000);
  double n = reducedElements(shapeOf(x.tv), axes);
  int64_t kind = random_.below(100);
  if (kind < 40) {
    add(sum(x.tv, axes, keep), x.magnitude * n);
  } else if (kind < 55) {
    add(mean(x.tv, axes, keep), x.magnitude);
  } else if (kind < 70) {
    add(max(x.tv, axes, keep), x.magnitude);
  } else if (kind < 80) {
    add(min(x.tv, axes, keep), x.magnitude);
  } else if (kind < 88) {
    TensorView* nearOne = meshfuse::add(mul(sin(x.tv), 0.5 / n), 1.0);
    add(prod(nearOne, axes, keep), 2);
  } else if (kind < 92) {
    Shape to = shapeOf(x.tv);
    to[random_.below(rank)] = 1;
    add(sum_to(x.tv, to), x.magnitude * n);
  } else if (kind < 96) {
    TensorView* centred = sub(x.tv, mean(x.tv, axes, true));  // a variance
    add(mean(mul(centred, centred), axes, keep), x.magnitude * x.magnitude);
  } else {
    add(random_.chance(50) ? any(gt(x.tv, 0.5), axes, keep) : all(lt(x.tv, 1.5), axes, keep), 1);
  }
}

void Graph::normalization() {
  Item x = pickFloating(100);
  Shape shape = shapeOf(x.tv);
  if (shape.empty()) {
    return;
  }
  auto rank = std::ssize(shape);
  int64_t dim = random_.chance(70) ? rank - 1 : random_.below(rank);
  int64_t norm = random_.chance(75) || rank == 1 ? 1 : random_.between(1, rank);
  Shape normShape(shape.end() - norm, shape.end());
  bool weighted = inputs_ < 5 && random_.chance(60);
  switch (random_.below(7)) {
    case 0:
    case 1:
      add(softmax(limited(x, 20).tv, dim), 1);
      return;
    case 2:
      add(log_softmax(limited(x, 20).tv, dim), 45);
      return;
    case 3:
    case 4: {
      TensorView* w = weighted ? input(normShape, DataType::Float, -2, 2).tv : nullptr;
      TensorView* b = weighted && random_.chance(70) ? input(normShape, DataType::Float, -2, 2).tv : nullptr;
      ForwardNormResult r = layer_norm(x.tv, normShape, w, b, 1e-2);
      add(r.output, 20);
      if (random_.chance(20)) {
        BackwardNormResult g = layer_norm_backward(sin(x.tv), x.tv, normShape, r.mean, r.invstd, w, b);
        add(g.grad_input, 40);
        if (g.grad_weight != nullptr) {
          add(g.grad_weight, 1000);
        }
      }
      return;
    }
    case 5: {
      TensorView* w = weighted ? input(normShape, DataType::Float, -2, 2).tv : nullptr;
      add(rms_norm(x.tv, normShape, w, 1e-2).output, 20);
      return;
    }
    default: {
      TensorView* y = softmax(limited(x, 20).tv, dim);
      add(softmax_backward(sin(x.tv), y, dim), 2);
      return;
    }
  }
}

}  // namespace meshfuse::fuzz
