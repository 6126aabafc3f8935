#include "schedule/fused_activation.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

constexpr double kCubic = 0.044715;
constexpr double kSqrtTwoOverPi = 0.7978845608028654;

// Compares the ops of a group with an activation, from the result back to the contraction.
class Match {
 public:
  explicit Match(const Group& group) : group_(group), product_(group.exprs[0]->output()) {}

  std::optional<Activation> run() {
    const Val* out = group_.outputs[0];
    const Val* inner = definedBy(out, ExprKind::Cast) != nullptr ? out->definition()->input(0) : out;
    for (const Activation activation : {Activation::Relu, Activation::TanhGelu}) {
      seen_ = {group_.exprs[0]->id()};
      if (inner != out) {
        seen_.insert(out->definition()->id());
      }
      const bool found = activation == Activation::Relu ? isRelu(inner) : isTanhGelu(inner);
      if (found && seen_.size() == group_.exprs.size()) {
        return activation;
      }
    }
    return std::nullopt;
  }

 private:
  static const Expr* definedBy(const Val* val, ExprKind kind) {
    const Expr* e = val->definition();
    return e != nullptr && e->kind() == kind ? e : nullptr;
  }

  // The result of the contraction, widened or not.
  bool isProduct(const Val* val) {
    if (val == product_) {
      return true;
    }
    const Expr* cast = definedBy(val, ExprKind::Cast);
    if (cast == nullptr || cast->input(0) != product_ || cast->output()->dtype() != DataType::Float ||
        !isHalfPrecision(product_->dtype())) {
      return false;
    }
    seen_.insert(cast->id());
    return true;
  }

  const Expr* point(const Val* val, PointOp op) {
    const Expr* e = definedBy(val, ExprKind::Point);
    if (e == nullptr || e->attributes().point != op) {
      return nullptr;
    }
    seen_.insert(e->id());
    return e;
  }

  static std::optional<double> number(const Val* val) {
    const ScalarConst constant = val->isTensor() ? ScalarConst() : val->constant();
    if (const auto* real = std::get_if<double>(&constant)) {
      return *real;
    }
    const auto* whole = std::get_if<int64_t>(&constant);
    return whole != nullptr ? std::optional<double>(static_cast<double>(*whole)) : std::nullopt;
  }
  static bool isNear(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }  // equal as Float, or nearly

  // A tree of multiplications: constant * x^power * others, x the product.
  struct Term {
    double constant = 1;
    int64_t power = 0;
    std::vector<const Val*> others;
  };
  void multiply(Term& term, const Val* val) {
    if (const std::optional<double> constant = number(val)) {
      term.constant *= *constant;
    } else if (isProduct(val)) {
      term.power++;
    } else if (const Expr* e = point(val, PointOp::Mul)) {
      multiply(term, e->input(0));
      multiply(term, e->input(1));
    } else {
      term.others.push_back(val);
    }
  }
  Term termOf(const Val* val) {
    Term term;
    multiply(term, val);
    return term;
  }
  // The two terms of a sum, those with the lower power of x first.
  std::optional<std::pair<Term, Term>> sumOf(const Val* val) {
    const Expr* e = point(val, PointOp::Add);
    if (e == nullptr) {
      return std::nullopt;
    }
    std::pair<Term, Term> terms(termOf(e->input(0)), termOf(e->input(1)));
    if (terms.first.power > terms.second.power) {
      std::swap(terms.first, terms.second);
    }
    return terms;
  }

  bool isRelu(const Val* val) {
    const Expr* e = point(val, PointOp::Maximum);
    return e != nullptr && ((isProduct(e->input(0)) && number(e->input(1)) == 0.0) ||
                            (isProduct(e->input(1)) && number(e->input(0)) == 0.0));
  }

  // 0.5 x (1 + tanh(u)), with any order of the factors
  bool isTanhGelu(const Val* val) {
    const Term gelu = termOf(val);
    if (!isNear(gelu.constant, 0.5) || gelu.power != 1 || gelu.others.size() != 1) {
      return false;
    }
    const Expr* gate = point(gelu.others[0], PointOp::Add);
    if (gate == nullptr) {
      return false;
    }
    const int64_t one = number(gate->input(0)) == 1.0 ? 0 : 1;
    const Expr* tanh = point(gate->input(1 - one), PointOp::Tanh);
    return number(gate->input(one)) == 1.0 && tanh != nullptr && isCubic(tanh->input(0));
  }

  // u = sqrt(2 / pi) (x + 0.044715 x^3), or with x outside of the sum
  bool isCubic(const Val* val) {
    const Term u = termOf(val);
    const auto sum = u.others.size() == 1 ? sumOf(u.others[0]) : std::nullopt;
    return sum && sum->first.others.empty() && sum->second.others.empty() && u.power + sum->first.power == 1 &&
           u.power + sum->second.power == 3 && isNear(u.constant * sum->first.constant, kSqrtTwoOverPi) &&
           isNear(u.constant * sum->second.constant, kCubic * kSqrtTwoOverPi);
  }

  const Group& group_;
  const Val* product_;
  std::set<int64_t> seen_;  // the ops that the activation consists of, by id
};

}  // namespace

std::optional<Activation> activationOf(const Group& group) {
  if (group.exprs.size() == 1) {
    return Activation::None;
  }
  if (group.outputs.size() != 1 || group.outputs[0]->dtype() != group.exprs[0]->output()->dtype()) {
    return std::nullopt;
  }
  return Match(group).run();
}

}  // namespace meshfuse
