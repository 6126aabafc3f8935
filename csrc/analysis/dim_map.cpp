#include "analysis/dim_map.h"

#include <algorithm>

#include "base/error.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

using Dims = std::vector<IterDomain*>;

class Mapper {
 public:
  Mapper(const Expr& e, int operand)
      : e_(e),
        operand_(operand),
        p_(e.input(operand)->asTensor()->noReductions()),
        c_(e.tensorOutput()->getRootDomain()) {
    map_.ofConsumer.resize(c_.size());
    map_.ofProducer.resize(p_.size(), DimRead::None);
  }

  OperandDims map() {
    switch (e_.kind()) {
      case ExprKind::Set:
      case ExprKind::SegmentSet:
      case ExprKind::Point:
      case ExprKind::Cast:
      case ExprKind::BitCast:
      case ExprKind::Expand:
      case ExprKind::Permute:
      case ExprKind::Reshape:
      case ExprKind::Slice:
      case ExprKind::Pad:
      case ExprKind::Reduce:
      case ExprKind::Redistribute:
        inOrder(0, 0, p_.size());
        break;
      case ExprKind::Broadcast:
        withFlags(c_.size(), true);
        break;
      case ExprKind::Squeeze:
        withFlags(p_.size(), false);
        break;
      case ExprKind::Cat:
        cat();
        break;
      case ExprKind::Matmul:
        matmul();
        break;
      case ExprKind::Linear:
        linear();
        break;
      case ExprKind::TakeAlongAxis:
      case ExprKind::Gather:
        alongAxis();
        break;
      case ExprKind::IndexSelect:
        indexSelect();
        break;
      case ExprKind::Embedding:
        embedding();
        break;
      case ExprKind::Scan:
      case ExprKind::ArgSort:
        allOfOneDim();
        break;
      case ExprKind::Communicate:
        communicate();
        break;
      case ExprKind::Full:
      case ExprKind::Iota:
      case ExprKind::Eye:
      case ExprKind::Random:
        break;  // no tensor operands
    }
    return std::move(map_);
  }

 private:
  void link(size_t p, size_t c, DimRead how, const IntExpr& offset = 0) {
    invariant(p < p_.size() && c < c_.size(), "[dim_map] {} of operand {} has no dims {} and {}; verify the fusion",
              e_.opName(), operand_, p, c);
    map_.ofConsumer[c] = {static_cast<int>(p), how, offset};
    map_.ofProducer[p] = how;
  }

  // Same, but for stretched and reduced dims.
  void plain(size_t p, size_t c) {
    invariant(p < p_.size() && c < c_.size(), "[dim_map] {} of operand {} has no dims {} and {}; verify the fusion",
              e_.opName(), operand_, p, c);
    bool stretches = p_[p]->isBroadcast() && !c_[c]->isBroadcast() && p_[p]->extent() != c_[c]->extent();
    link(p, c, stretches ? DimRead::Stretched : c_[c]->isReduction() ? DimRead::Reduced : DimRead::Same);
  }

  void inOrder(size_t firstP, size_t firstC, size_t count) {
    for (size_t k = 0; k < count; k++) {
      plain(firstP + k, firstC + k);
    }
  }

  // The unflagged dims of the longer side map in order to the other side.
  void withFlags(size_t longer, bool consumerIsLonger) {
    const std::vector<bool>& flags = e_.attributes().flags;
    invariant(flags.size() == longer, "[dim_map] {} flags for {} dims; verify the fusion", flags.size(), longer);
    size_t next = 0;
    for (size_t k = 0; k < longer; k++) {
      if (!flags[k]) {
        plain(consumerIsLonger ? next : k, consumerIsLonger ? k : next);
        next++;
      }
    }
  }

  void cat() {
    size_t axis = static_cast<size_t>(e_.attributes().dim);
    IntExpr offset = 0;
    for (int k = 0; k < operand_; k++) {
      offset += e_.input(k)->asTensor()->noReductions().at(axis)->extent();
    }
    for (size_t k = 0; k < p_.size(); k++) {
      if (k == axis) {
        link(k, k, e_.inputs().size() == 1 ? DimRead::Same : DimRead::Window, offset);
      } else {
        plain(k, k);
      }
    }
  }

  void matmul() {
    size_t other = e_.input(1 - operand_)->asTensor()->noReductions().size();
    size_t rankA = operand_ == 0 ? p_.size() : other;
    size_t rankB = operand_ == 0 ? other : p_.size();
    size_t rows = rankA > 1 ? 1 : 0;
    size_t batch = std::max(rankA > 2 ? rankA - 2 : 0, rankB > 2 ? rankB - 2 : 0);
    for (size_t k = 0; k + 2 < p_.size(); k++) {
      plain(k, batch - (p_.size() - 2) + k);
    }
    size_t contraction = c_.size() - 1;
    if (operand_ == 0) {
      if (rows == 1) {
        plain(p_.size() - 2, batch);
      }
      plain(p_.size() - 1, contraction);
    } else if (p_.size() == 1) {
      plain(0, contraction);
    } else {
      plain(p_.size() - 2, contraction);
      plain(p_.size() - 1, batch + rows);
    }
  }

  void linear() {
    size_t contraction = c_.size() - 1;
    if (operand_ == 0) {
      inOrder(0, 0, p_.size() - 1);
      plain(p_.size() - 1, contraction);
    } else if (operand_ == 1) {
      if (p_.size() == 2) {
        plain(0, contraction - 1);
      }
      plain(p_.size() - 1, contraction);
    } else if (!p_.empty()) {
      plain(0, contraction - 1);
    }
  }

  void alongAxis() {
    size_t axis = static_cast<size_t>(e_.attributes().dim);
    for (size_t k = 0; k < p_.size(); k++) {
      if (operand_ == 1) {
        plain(k, k);
      } else if (k == axis) {
        map_.ofProducer[k] = DimRead::Indexed;
      } else if (e_.kind() == ExprKind::Gather && p_[k]->extent() != c_.at(k)->extent()) {
        link(k, k, DimRead::Window);  // the index may be shorter
      } else {
        plain(k, k);
      }
    }
  }

  void indexSelect() {
    size_t axis = static_cast<size_t>(e_.attributes().dim);
    if (operand_ == 1) {
      plain(0, axis);
      return;
    }
    for (size_t k = 0; k < p_.size(); k++) {
      if (k == axis) {
        map_.ofProducer[k] = DimRead::Indexed;
      } else {
        plain(k, k);
      }
    }
  }

  void embedding() {
    if (operand_ == 0) {
      inOrder(0, 0, p_.size());
    } else {
      map_.ofProducer.at(0) = DimRead::Indexed;
      // A partial sum over the rows has their dim behind.
      plain(1, c_.size() - (c_.back()->isReduction() ? 2 : 1));
    }
  }

  // Every position along one dim may depend on all of the operand's.
  void allOfOneDim() {
    size_t axis = static_cast<size_t>(e_.attributes().dim);
    inOrder(0, 0, axis);
    map_.ofProducer.at(axis) = DimRead::Whole;
    inOrder(axis + 1, axis + 1, p_.size() - axis - 1);
  }

  void communicate() {
    CommKind kind = e_.attributes().comm.kind;
    if (kind == CommKind::Transfer || !e_.attributes().comm.sends.empty() || !e_.attributes().comm.receives.empty()) {
      std::fill(map_.ofProducer.begin(), map_.ofProducer.end(), DimRead::Whole);
      return;
    }
    size_t fromP = kind == CommKind::ReduceScatter || kind == CommKind::AllToAll ? 1 : 0;
    size_t fromC = kind == CommKind::AllGather || kind == CommKind::AllToAll ? 1 : 0;
    if (fromP == 1 && fromC == 1) {
      link(0, 0, DimRead::Whole);
    } else if (fromP == 1) {
      map_.ofProducer.at(0) = DimRead::Whole;
    }
    inOrder(fromP, fromC, p_.size() - fromP);
  }

  const Expr& e_;
  int operand_;
  Dims p_;
  Dims c_;
  OperandDims map_;
};

}  // namespace

std::string_view name(DimRead how) {
  constexpr std::string_view kNames[] = {"None", "Same", "Stretched", "Window", "Reduced", "Whole", "Indexed"};
  return kNames[static_cast<size_t>(how)];
}

OperandDims dimsRead(const Expr& expr, int operand) {
  if (!expr.output()->isTensor() || !expr.input(operand)->isTensor()) {
    OperandDims none;
    if (expr.output()->isTensor()) {
      none.ofConsumer.resize(expr.tensorOutput()->getRootDomain().size());
    }
    return none;
  }
  return Mapper(expr, operand).map();
}

std::vector<IdLink> idLinks(const Expr& expr, int operand) {
  std::vector<IdLink> links;
  OperandDims dims = dimsRead(expr, operand);
  if (dims.ofProducer.empty()) {
    return links;
  }
  std::vector<IterDomain*> p = expr.input(operand)->asTensor()->noReductions();
  const std::vector<IterDomain*>& c = expr.tensorOutput()->getRootDomain();
  for (size_t k = 0; k < c.size(); k++) {
    const DimLink& link = dims.ofConsumer[k];
    if (link.producer >= 0) {
      links.push_back({p[static_cast<size_t>(link.producer)], c[k], link.how, link.offset});
    }
  }
  return links;
}

std::vector<IdLink> idLinks(const Expr& expr) {
  std::vector<IdLink> links;
  for (size_t k = 0; k < expr.inputs().size(); k++) {
    std::vector<IdLink> more = idLinks(expr, static_cast<int>(k));
    links.insert(links.end(), more.begin(), more.end());
  }
  return links;
}

}  // namespace meshfuse
