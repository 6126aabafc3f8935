#include "ir/op_rule.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

using Dims = std::vector<IterDomain*>;

// The links of one operand, as the function of its row makes them.
class DimMap {
 public:
  DimMap(const Expr& expr, int64_t number)
      : e(expr),
        operand(number),
        p(expr.input(number)->asTensor()->noReductions()),
        c(expr.tensorOutput()->getRootDomain()) {
    links.ofConsumer.resize(c.size());
    links.ofProducer.resize(p.size(), DimRead::None);
  }

  int64_t dim() const { return e.attributes().dim; }
  bool countsIndexed() const { return !c.empty() && c.back()->isReduction(); }

  void link(int64_t producer, int64_t consumer, DimRead how, const IntExpr& offset = 0) {
    invariant(producer < std::ssize(p) && consumer < std::ssize(c),
              "[op rule] {}: operand {} has no dim {}, or the result has no dim {}; verify the fusion", e.opName(),
              operand, producer, consumer);
    links.ofConsumer[consumer] = {producer, how, offset};
    links.ofProducer[producer] = how;
  }

  // Same, but for stretched and reduced dims.
  void plain(int64_t producer, int64_t consumer) {
    link(producer, consumer, DimRead::Same);
    const IterDomain* from = p[producer];
    const IterDomain* to = c[consumer];
    if (from->isBroadcast() && !to->isBroadcast() && from->extent() != to->extent()) {
      link(producer, consumer, DimRead::Stretched);
    } else if (to->isReduction()) {
      link(producer, consumer, DimRead::Reduced);
    }
  }

  void inOrder(int64_t firstP, int64_t firstC, int64_t count) {
    for (int64_t k = 0; k < count; k++) {
      plain(firstP + k, firstC + k);
    }
  }

  // The dims other than `dim`, in order.
  void outsideDim() {
    for (int64_t k = 0; k < std::ssize(p); k++) {
      if (k != dim()) {
        plain(k, k);
      }
    }
  }

  // A partial sum of rows has the table's dim as its last.
  void indexed(int64_t producer) {
    if (countsIndexed()) {
      link(producer, c.size() - 1, DimRead::Indexed);
    } else {
      links.ofProducer.at(producer) = DimRead::Indexed;
    }
  }

  const Expr& e;
  const int64_t operand;
  const Dims p;
  const Dims& c;
  OperandDims links;
};

namespace {

void inOrder(DimMap& m) { m.inOrder(0, 0, m.p.size()); }

// The unflagged dims of the longer side map in order to the other side.
void byFlags(DimMap& m) {
  const bool adds = ruleOf(m.e).form == OpForm::Broadcast;
  const std::vector<bool>& flags = m.e.attributes().flags;
  const int64_t longer = adds ? m.c.size() : m.p.size();
  invariant(std::ssize(flags) == longer, "[op rule] {} flags for {} dims; verify the fusion", flags.size(), longer);
  int64_t next = 0;
  for (int64_t k = 0; k < longer; k++) {
    if (!flags[k]) {
      m.plain(adds ? next : k, adds ? k : next);
      next++;
    }
  }
}

void concatenated(DimMap& m) {
  IntExpr offset = 0;
  for (int64_t k = 0; k < m.operand; k++) {
    offset += m.e.input(k)->asTensor()->noReductions().at(m.dim())->extent();
  }
  m.outsideDim();
  m.link(m.dim(), m.dim(), m.e.inputs().size() == 1 ? DimRead::Same : DimRead::Window, offset);
}

void matmul(DimMap& m) {
  const int64_t other = m.e.input(1 - m.operand)->asTensor()->noReductions().size();
  const int64_t rank = m.p.size();
  const int64_t rows = (m.operand == 0 ? rank : other) > 1 ? 1 : 0;
  const int64_t batch = std::max(rank > 2 ? rank - 2 : 0, other > 2 ? other - 2 : 0);
  const int64_t contraction = m.c.size() - 1;
  for (int64_t k = 0; k + 2 < rank; k++) {
    m.plain(k, batch - (rank - 2) + k);
  }
  if (m.operand == 0) {
    if (rows == 1) {
      m.plain(rank - 2, batch);
    }
    m.plain(rank - 1, contraction);
  } else if (rank == 1) {
    m.plain(0, contraction);
  } else {
    m.plain(rank - 2, contraction);
    m.plain(rank - 1, batch + rows);
  }
}

void linear(DimMap& m) {
  const int64_t contraction = m.c.size() - 1;
  if (m.operand == 0) {
    m.inOrder(0, 0, m.p.size() - 1);
  } else if (m.operand == 2 ? !m.p.empty() : m.p.size() == 2) {
    m.plain(0, contraction - 1);
  }
  if (m.operand < 2) {
    m.plain(m.p.size() - 1, contraction);
  }
}

void takeAlongAxis(DimMap& m) {
  if (m.operand != 0) {
    return inOrder(m);
  }
  m.outsideDim();
  m.indexed(m.dim());
}

void gather(DimMap& m) {
  takeAlongAxis(m);
  for (int64_t k = 0; m.operand == 0 && k < std::ssize(m.p); k++) {
    if (k != m.dim() && m.p[k]->extent() != m.c.at(k)->extent()) {
      m.link(k, k, DimRead::Window);  // the index may be shorter
    }
  }
}

void indexSelect(DimMap& m) {
  if (m.operand == 0) {
    takeAlongAxis(m);
  } else {
    m.plain(0, m.dim());
  }
}

void embedding(DimMap& m) {
  if (m.operand == 0) {
    m.inOrder(0, 0, m.p.size());
  } else {
    m.indexed(0);
    m.plain(1, m.c.size() - (m.countsIndexed() ? 2 : 1));
  }
}

// Every position along one dim may depend on all of the operand's.
void line(DimMap& m) {
  m.outsideDim();
  m.link(m.dim(), m.dim(), DimRead::Whole);
}

// The op may read any position of the written values along the dim.
void scatter(DimMap& m) {
  if (m.operand == 0) {
    return inOrder(m);
  }
  m.outsideDim();
  m.links.ofProducer.at(m.dim()) = DimRead::Whole;
}

void indexPutAccumulate(DimMap& m) {
  if (m.operand == 0) {
    return inOrder(m);
  }
  const int64_t indexed = m.e.input(1)->asTensor()->noReductions().size();
  invariant(indexed <= std::ssize(m.p), "[op rule] {}: operand {} has {} dims, the index has {}; verify the fusion",
            m.e.opName(), m.operand, m.p.size(), indexed);
  std::fill_n(m.links.ofProducer.begin(), indexed, DimRead::Whole);
  m.inOrder(indexed, 1, m.p.size() - indexed);
}

void communicate(DimMap& m) {
  const CommAttributes& comm = m.e.attributes().comm;
  if (!comm.sends.empty() || !comm.receives.empty() || (comm.kind == Collective::Transfer && comm.sources.empty())) {
    std::ranges::fill(m.links.ofProducer, DimRead::Whole);
    return;
  }
  const int64_t fromP = traits(comm.kind).operandHasBlocks ? 1 : 0;
  const int64_t fromC = traits(comm.kind).resultHasBlocks ? 1 : 0;
  if (fromP == 1 && fromC == 1) {
    m.link(0, 0, DimRead::Whole);
  } else if (fromP == 1) {
    m.links.ofProducer.at(0) = DimRead::Whole;
  }
  m.inOrder(fromP, fromC, m.p.size() - fromP);
}

constexpr int64_t kKinds = static_cast<int64_t>(ExprKind::Communicate) + 1;

const std::array<OpRule, kKinds>& rows() {
  using enum Attribute;
  using F = OpForm;
  using R = Repeat;
  using K = ExprKind;
  using X = Executor;
  using V = View;
  using L = Linearity;
  using E = Elements;
  constexpr std::nullopt_t kAny = std::nullopt;
  constexpr Signature kNone{0}, kOne{1}, kTwo{2}, kTwoOrThree{2, 0, 1};
  constexpr Signature kWithScalar{1, 1}, kScalar{0, 1}, kScalars{0, 2};
  constexpr Signature kTableAndIndex{.tensors = 2, .index = 1}, kIndexAndTable{.tensors = 2, .index = 0};
  constexpr Signature kTableAndRows{.tensors = 3, .index = 1};
  const auto on = [](Executor executor, OpRule rule) {
    rule.executor = executor;
    return rule;
  };
  static const std::array<OpRule, kKinds> kRows = {{
      {K::Set, "set", {}, kOne, F::Pointwise, R::Reader, inOrder, L::ByTerm, E::Moved, V::InOrder},
      {K::SegmentSet, "segment_set", {}, kOne, F::Pointwise, R::No, inOrder, L::Together, E::Moved},
      {K::Point, "point", {}, kAny, F::Pointwise, R::Rank, inOrder, L::ByPoint},
      {K::Cast, "cast", {}, kAny, F::Pointwise, R::Reader, inOrder, L::ByTerm, E::Computed, V::SameType},
      on(X::Alias, {K::BitCast, "bit_cast", {}, kOne, F::Pointwise, R::Rank, inOrder, L::No, E::Computed, V::InOrder}),
      {K::Broadcast, "broadcast", {Flags}, kOne, F::Broadcast, R::Reader, byFlags, L::Together, E::Moved, V::InOrder},
      {K::Squeeze, "squeeze", {Flags}, kOne, F::Squeeze, R::Reader, byFlags, L::Together, E::Moved, V::InOrder},
      {K::Expand, "expand", {}, kOne, F::Expand, R::Reader, inOrder, L::Together, E::Moved, V::Strided},
      {K::Permute, "permute", {Order}, kOne, F::Permute, R::Rank, inOrder, L::ByTerm, E::Moved, V::Reordered},
      {K::Reshape, "reshape", {}, kOne, F::Reshape, R::Rank, inOrder, L::ByTerm, E::Moved, V::Contiguous},
      {K::Slice,
       "slice",
       {Starts, Stops, Steps, Halo},
       kOne,
       F::Window,
       R::Rank,
       inOrder,
       L::ByTerm,
       E::Moved,
       V::Strided},
      {K::Pad, "pad", {Starts, Stops, Halo}, kWithScalar, F::Window, R::Rank, inOrder},
      {K::Cat, "cat", {Dim, Halo}, kAny, F::Concatenate, R::No, concatenated, L::Together},
      {K::Reduce, "reduce", {Reduce}, kOne, F::Reduce, R::No, inOrder, L::ByTermIfSum},
      on(X::Library, {K::Matmul, "matmul", {}, kTwo, F::Contract, R::No, matmul, L::Product}),
      on(X::Library, {K::Linear, "linear", {}, kTwoOrThree, F::Contract, R::No, linear, L::Product}),
      {K::Full, "full", {}, kScalar, F::Fill, R::Reader},
      {K::Iota, "iota", {Starts}, kScalars, F::Positions, R::Reader},
      {K::Eye, "eye", {Starts}, kNone, F::Positions, R::Reader},
      {K::Random, "random", {Random, Ordinal, Starts, Stops}, kScalars, F::Positions},
      {K::TakeAlongAxis, "take_along_axis", {Dim}, kTableAndIndex, F::Index, R::No, takeAlongAxis, L::Together},
      {K::Gather, "gather", {Dim}, kTableAndIndex, F::Index, R::No, gather, L::Together},
      {K::IndexSelect, "index_select", {Dim, Halo}, kTableAndIndex, F::Index, R::No, indexSelect, L::Together},
      {K::Embedding, "embedding", {Starts, Flags}, kIndexAndTable, F::Index, R::No, embedding, L::Together},
      on(X::Library, {K::Scan, "scan", {Reduce, Dim}, kOne, F::Line, R::No, line, L::IfSum}),
      on(X::Library, {K::ArgSort, "argsort", {Dim, Flags}, kOne, F::Line, R::No, line, L::No, E::Positions}),
      on(X::Library, {K::Scatter, "scatter", {Dim, Starts, Flags}, kTableAndRows, F::Put, R::No, scatter, L::Together}),
      on(X::Library, {K::IndexPutAccumulate,
                      "index_put_accumulate",
                      {Starts, Flags},
                      kTableAndRows,
                      F::Put,
                      R::No,
                      indexPutAccumulate,
                      L::Together}),
      on(X::Ranks, {K::Redistribute,
                    "redistribute",
                    {Reduce, Dim, Plan, Pack},
                    kOne,
                    F::Ranks,
                    R::No,
                    inOrder,
                    L::IfSum,
                    E::Moved}),
      on(X::Ranks, {K::Communicate, "communicate", {}, kOne, F::Ranks, R::No, communicate, L::No}),
  }};
  return kRows;
}

}  // namespace

const OpRule& ruleOf(ExprKind kind) {
  const OpRule& row = rows().at(static_cast<int64_t>(kind));
  invariant(row.kind == kind, "[ir] the rows of expr kinds do not stand in the order of the enumeration at {}",
            row.name);
  return row;
}

const OpRule& ruleOf(const Expr& expr) { return ruleOf(expr.kind()); }

std::optional<ExprKind> parseExprKind(std::string_view name) {
  const auto row = std::ranges::find(rows(), name, &OpRule::name);
  return row == rows().end() ? std::nullopt : std::optional(row->kind);
}

std::string_view name(DimRead how) {
  constexpr std::string_view kNames[] = {"None", "Same", "Stretched", "Window", "Reduced", "Whole", "Indexed"};
  return kNames[static_cast<int64_t>(how)];
}

OperandDims dimsRead(const Expr& expr, int64_t operand) {
  if (!expr.output()->isTensor()) {
    return {};
  }
  if (!expr.input(operand)->isTensor()) {
    return {.ofConsumer = std::vector<DimLink>(expr.tensorOutput()->getRootDomain().size()), .ofProducer = {}};
  }
  DimMap map(expr, operand);
  ruleOf(expr).dims(map);
  return std::move(map.links);
}

bool mapsInOrder(const Expr& expr) { return ruleOf(expr).dims == inOrder; }

namespace {

FactorKind kindOf(DimRead how) {
  using enum FactorKind;
  constexpr FactorKind kKindOf[] = {Parallel, Parallel, Parallel, Window, Summed, Whole, Indexed};
  return kKindOf[static_cast<int64_t>(how)];
}

}  // namespace

bool cutsOrPads(const Expr& expr, int64_t dim) {
  const ExprAttributes& a = expr.attributes();
  const IntExpr end = expr.kind() == ExprKind::Slice ? expr.input(0)->asTensor()->shape()[dim] : IntExpr(0);
  return !a.starts[dim].isConst(0) || !(a.stops[dim] == end);
}

std::vector<Factor> factors(const Expr& expr) {
  const auto changes = [&](int64_t k) {
    return isWindow(expr) &&
           (cutsOrPads(expr, k) || (expr.kind() == ExprKind::Slice && !expr.attributes().steps[k].isConst(1)));
  };
  const int64_t operands = std::ssize(expr.inputs());
  std::vector<Factor> all(expr.tensorOutput()->getRootDomain().size());
  for (int64_t k = 0; k < std::ssize(all); k++) {
    all[k] = {changes(k) ? FactorKind::Window : FactorKind::Parallel, k, std::vector<int64_t>(operands, -1)};
  }
  for (int64_t operand = 0; operand < operands; operand++) {
    const OperandDims dims = dimsRead(expr, operand);
    std::vector<bool> linked(dims.ofProducer.size(), false);
    for (int64_t k = 0; k < std::ssize(dims.ofConsumer); k++) {
      const DimLink& link = dims.ofConsumer[k];
      if (link.producer >= 0) {
        linked[link.producer] = true;
        if (link.how != DimRead::Stretched) {
          all[k].operands[operand] = link.producer;
          all[k].kind = std::max(all[k].kind, kindOf(link.how));
        }
      }
    }
    for (int64_t p = 0; p < std::ssize(linked); p++) {
      if (!linked[p] && dims.ofProducer[p] != DimRead::None) {
        all.push_back({kindOf(dims.ofProducer[p]), -1, std::vector<int64_t>(operands, -1)});
        all.back().operands[operand] = p;
      }
    }
  }
  return all;
}

namespace {

// The tensor operands except an index.
std::vector<int64_t> dataOperands(const Expr& expr) {
  return filtered(expr.tensorPositions(), [&](int64_t operand) { return operand != indexOf(expr); });
}

bool isPointLinearIn(const Expr& e, const std::vector<int64_t>& operands, const std::vector<int64_t>& tensors) {
  switch (e.attributes().point) {
    case PointOp::Add:
    case PointOp::Sub:
    case PointOp::Neg:
      return operands == tensors && tensors.size() == e.inputs().size();
    case PointOp::Mul:
      return operands.size() == 1;
    case PointOp::Div:
      return operands == std::vector<int64_t>{0};
    default:
      return false;
  }
}

}  // namespace

bool isLinearIn(const Expr& expr, const std::vector<int64_t>& operands) {
  const std::vector<int64_t> tensors = dataOperands(expr);
  const bool hasAddend = tensors.size() == 3;
  switch (ruleOf(expr).linear) {
    case Linearity::No:
      return false;
    case Linearity::Together:
    case Linearity::ByTerm:
      return operands == tensors;
    case Linearity::Product:
      return operands.size() == (hasAddend ? 2 : 1) && operands[0] < 2 && (!hasAddend || operands[1] == 2);
    case Linearity::IfSum:
    case Linearity::ByTermIfSum:
      return operands == tensors && expr.attributes().reduce == ReduceOp::Sum;
    case Linearity::ByPoint:
      return isPointLinearIn(expr, operands, tensors);
  }
  return false;
}

bool keepsContributions(const Expr& expr) {
  const Linearity linear = ruleOf(expr).linear;
  const bool byTerm = linear == Linearity::ByTerm || linear == Linearity::ByTermIfSum || linear == Linearity::ByPoint;
  return byTerm && isLinearIn(expr, dataOperands(expr));
}

Repeat repeatOf(const Expr& expr) {
  const bool checks = expr.kind() == ExprKind::Point && mayRefuse(expr.attributes().point);
  return checks ? Repeat::Reader : ruleOf(expr).repeat;
}

std::optional<ReduceOp> contributionsOf(const Expr& expr) {
  switch (ruleOf(expr).form) {
    case OpForm::Reduce:
      return expr.attributes().reduce;
    case OpForm::Contract:
      return ReduceOp::Sum;
    case OpForm::Index:  // one rank has the element, the others 0
      return expr.output()->dtype() == DataType::Bool ? ReduceOp::Or : ReduceOp::Sum;
    default:
      return std::nullopt;
  }
}

}  // namespace meshfuse
