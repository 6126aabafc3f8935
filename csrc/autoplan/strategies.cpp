#include "autoplan/strategies.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

bool canBeCut(const Factor& factor, bool combines) {
  switch (factor.kind) {
    case FactorKind::Parallel:
      return true;
    case FactorKind::Summed:
    case FactorKind::Indexed:
      return combines;
    case FactorKind::Window:
    case FactorKind::Whole:
      return false;
  }
  return false;
}

bool isSummed(const Factor& factor) { return factor.kind == FactorKind::Summed || factor.kind == FactorKind::Indexed; }

// The placement of the result whose root dims the axes cut; nothing if that is not in blocks of its logical dims.
class ResultPlacements {
 public:
  ResultPlacements(const TensorView* result, const DeviceMesh& mesh)
      : mesh_(mesh), shape_(result->constantShape()), rootShape_(), identity_(!result->hasRoot()) {
    for (const IterDomain* id : result->getRootDomain()) {
      rootShape_.push_back(id->extent().constValue());
    }
    int64_t stored = 0;
    for (const IterDomain* id : result->getLogicalDomain()) {
      storedDim_.push_back(id->isReduction() ? -1 : stored++);
    }
    if (!identity_) {
      logical_ = logicalOverRoot(result);
    }
  }

  std::optional<Placement> of(const Placement& root) const {
    Placement result(root.size(), kUncut);
    if (identity_) {
      for (int64_t axis = 0; axis < std::ssize(root); axis++) {
        result[axis] = root[axis] == kUncut ? kUncut : static_cast<int8_t>(storedDim_[root[axis]]);
      }
      return result;
    }
    std::vector<std::vector<Digit>> owned(storedDim_.size());
    const ShardState state = stateOf(root, rootShape_, mesh_);
    for (int64_t dim = 0; dim < std::ssize(state.dims); dim++) {
      const int64_t same = wholeIn(dim);
      for (const Digit& d : state.dims[dim].digits()) {
        if (!d.owner.isDevice()) {
          continue;
        }
        if (same < std::ssize(owned)) {  // also if its blocks are uneven
          owned[same].push_back(d);
          continue;
        }
        const DigitList digits = fromBase(logical_, d);
        if (digits.isOpaque()) {
          return std::nullopt;
        }
        for (const Digit& part : digits.digits()) {
          owned.at(part.dim).push_back(part);
        }
      }
    }
    ShardState sharded{mesh_, {}, {}};
    for (int64_t k = 0; k < std::ssize(owned); k++) {
      if (const int64_t dim = storedDim_[k]; dim >= 0) {
        std::vector<Digit> digits = owned[k];
        for (Digit& d : digits) {
          d.dim = dim;
        }
        sharded.dims.push_back(fillLocal(dim, shape_[dim], digits));
      }
    }
    return sharded.hasOpaqueDim() ? std::nullopt : placementOf(sharded);
  }

 private:
  // The logical dim that is this root dim; the number of logical dims if there is none.
  int64_t wholeIn(int64_t root) const {
    const DigitList whole = DigitList::whole(root, rootShape_[root]);
    return std::ranges::find_if(logical_, [&](const DigitList& dim) { return provenEqual(dim, whole); }) -
           logical_.begin();
  }

  DeviceMesh mesh_;
  Sizes shape_;
  Sizes rootShape_;
  bool identity_;
  std::vector<int64_t> storedDim_;  // by logical dim
  std::vector<DigitList> logical_;  // over root dims
};

class Strategies {
 public:
  Strategies(const Expr& e, const DeviceMesh& mesh, Division division)
      : e_(e),
        axes_(mesh.axisSizes()),
        division_(division),
        factors_(factors(e)),
        combines_(contributionsOf(e).has_value()),
        results_(e.tensorOutput(), mesh) {
    for (const IterDomain* id : e.tensorOutput()->getRootDomain()) {
      root_.push_back(id->extent().constValue());
    }
    for (const Val* in : e.inputs()) {
      shapes_.push_back(in->isTensor() ? in->asTensor()->constantShape() : Sizes());
    }
  }

  std::vector<Strategy> all() {
    std::vector<int64_t> choice(axes_.size(), -1);
    extend(choice, 0);
    return std::move(found_);
  }

 private:
  void extend(std::vector<int64_t>& choice, int64_t axis) {
    if (axis == std::ssize(axes_)) {
      add(choice);
      return;
    }
    for (int64_t f = -1; f < std::ssize(factors_); f++) {
      if (f < 0 || (canBeCut(factors_[f], combines_) && isReal(factors_[f]))) {
        choice[axis] = f;
        extend(choice, axis + 1);
      }
    }
    choice[axis] = -1;
  }

  // Whether the factor has more than one position.
  bool isReal(const Factor& f) const {
    if (f.result >= 0) {
      return root_[f.result] > 1;
    }
    for (int64_t operand = 0; operand < std::ssize(f.operands); operand++) {
      if (f.operands[operand] >= 0) {
        return shapes_[operand][f.operands[operand]] > 1;
      }
    }
    return false;
  }

  void add(const std::vector<int64_t>& choice) {
    Strategy s{choice, {}, {}, {}};
    Placement root(axes_.size(), kUncut);
    for (const Sizes& shape : shapes_) {
      const int64_t operand = std::ssize(s.operands);
      Placement& needed = s.operands.emplace_back();
      if (!e_.input(operand)->isTensor()) {
        continue;
      }
      needed.assign(axes_.size(), kUncut);
      for (int64_t axis = 0; axis < std::ssize(choice); axis++) {
        needed[axis] = choice[axis] < 0 ? kUncut : static_cast<int8_t>(factors_[choice[axis]].operands[operand]);
      }
      if (!fits(needed, shape, axes_, division_)) {
        return;
      }
    }
    for (int64_t axis = 0; axis < std::ssize(choice); axis++) {
      if (choice[axis] < 0) {
        continue;
      }
      const Factor& f = factors_[choice[axis]];
      if (isSummed(f)) {
        s.summed.push_back(axis);
      } else if (f.result >= 0) {
        root[axis] = static_cast<int8_t>(f.result);
      }
    }
    if (!fits(root, root_, axes_, division_)) {
      return;
    }
    std::optional<Placement> result = results_.of(root);
    if (result && fits(*result, e_.tensorOutput()->constantShape(), axes_, division_)) {
      s.result = std::move(*result);
      found_.push_back(std::move(s));
    }
  }

  const Expr& e_;
  const Sizes axes_;
  const Division division_;
  const std::vector<Factor> factors_;
  const bool combines_;
  const ResultPlacements results_;
  Sizes root_;
  std::vector<Sizes> shapes_;
  std::vector<Strategy> found_;
};

// The name of a factor of a contraction: M is rows, N columns; else of its dim.
std::string nameOf(const Expr& e, const Factor& f) {
  if (isSummed(f)) {
    return f.kind == FactorKind::Indexed ? "table rows" : isContraction(e) ? "contracted" : "reduced";
  }
  if (isContraction(e)) {
    const bool first = f.operands[0] >= 0;
    const bool second = f.operands[1] >= 0;
    return first && second ? "batch" : first ? "rows" : "columns";
  }
  return fmt::format("dim {}", f.result);
}

}  // namespace

std::vector<Strategy> strategiesOf(const Expr& expr, const DeviceMesh& mesh, Division division) {
  const bool hasRule = ruleOf(expr).form != OpForm::Ranks && expr.outputs().size() == 1 && expr.output()->isTensor() &&
                       (ruleOf(expr).dims != nullptr || expr.tensorInputs().empty());
  check(hasRule,
        "[autoplan] {} has no rule for sharding: it communicates, or its result is not one tensor; plan the program as "
        "it "
        "was written, before passes run",
        expr.opName());
  return Strategies(expr, mesh, division).all();
}

std::string describe(const Expr& expr, const Strategy& strategy, const DeviceMesh& mesh) {
  const std::vector<Factor> all = factors(expr);
  std::vector<std::string> parts;
  for (int64_t axis = 0; axis < std::ssize(strategy.factors); axis++) {
    if (const int64_t f = strategy.factors[axis]; f >= 0) {
      parts.push_back(fmt::format("{} over {}", nameOf(expr, all[f]), mesh.axisName(axis)));
    }
  }
  return parts.empty() ? "replicated" : joined(parts, ", ");
}

bool isView(const Expr& expr) {
  switch (ruleOf(expr).form) {
    case OpForm::Broadcast:
    case OpForm::Squeeze:
    case OpForm::Expand:
    case OpForm::Permute:
    case OpForm::Reshape:
      return true;
    default:
      return false;
  }
}

}  // namespace meshfuse
