#include <algorithm>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ir/verify.h"

namespace meshfuse {

namespace {

using Dims = std::vector<IterDomain*>;

int category(DataType t) { return t == DataType::Bool ? 0 : isIntegral(t) ? 1 : 2; }

class ExprVerifier {
 public:
  ExprVerifier(const Expr& e, std::vector<std::string>& violations) : e_(e), violations_(violations) {}

  void run() {
    if (e_.outputs().size() != 1) {
      report("{} results, expected 1", e_.outputs().size());
      return;
    }
    if (!countsFit()) {
      return;
    }
    if (!e_.output()->isTensor()) {
      scalarOp();
      return;
    }
    out_ = e_.tensorOutput();
    if (e_.kind() != ExprKind::Reduce && !isContraction(e_) && e_.kind() != ExprKind::Redistribute &&
        !countsIndexedDim() && (reduces(root()) || reduces(logical()))) {
      report("the result has a reduction dim, which only reduce, matmul, linear and redistribute make");
    }
    byRule();
    byKind();
  }

 private:
  template <class... Args>
  void report(fmt::format_string<Args...> message, Args&&... args) {
    violations_.push_back(fmt::format("{} = {}: {}", e_.outputs().empty() ? "nothing" : e_.output()->toString(),
                                      e_.opName(), fmt::format(message, std::forward<Args>(args)...)));
  }

  const ExprAttributes& attributes() const { return e_.attributes(); }
  Dims operandDims(int k) const { return e_.input(k)->asTensor()->noReductions(); }
  const Dims& root() const { return out_->getRootDomain(); }
  const Dims& logical() const { return out_->getLogicalDomain(); }
  static bool reduces(const Dims& dims) {
    return std::any_of(dims.begin(), dims.end(), [](const IterDomain* d) { return d->isReduction(); });
  }

  // A result that is a sum of rows over parts of a table has the table's indexed dim as its last root dim.
  bool countsIndexedDim() const { return isIndexing(e_) && out_->hasRoot() && root().back()->isReduction(); }

  // -- operand counts -----------------------------------------------------------------------------------------------------------

  bool countsFit() {
    size_t given = e_.inputs().size();
    size_t before = violations_.size();
    if (e_.kind() == ExprKind::Point) {
      int arity = info(attributes().point).arity;
      if (given != static_cast<size_t>(arity)) {
        report("{} operands, expected {}", given, arity);
      }
    } else if (e_.kind() == ExprKind::Cast && given != 1) {
      report("{} operands, expected 1", given);
    } else if (e_.kind() == ExprKind::Cat && (given == 0 || std::any_of(e_.inputs().begin(), e_.inputs().end(),
                                                                        [](const Val* v) { return !v->isTensor(); }))) {
      report("expected one tensor or more, and no scalar");
    } else if (const std::optional<Signature>& c = ruleOf(e_).operands) {
      size_t least = static_cast<size_t>(c->tensors + c->scalars);
      if (given < least || given > least + static_cast<size_t>(c->optionalTensors)) {
        report("{} operands, expected {}{}", given, least, c->optionalTensors > 0 ? " or one more" : "");
        return false;
      }
      for (size_t k = 0; k < given; k++) {
        bool wantTensor = k < static_cast<size_t>(c->tensors + c->optionalTensors);
        if (e_.input(static_cast<int>(k))->isTensor() != wantTensor) {
          report("operand {} is {}, expected a {}", k, e_.input(static_cast<int>(k))->toString(),
                 wantTensor ? "tensor" : "scalar");
        }
      }
    }
    if (e_.kind() != ExprKind::Point && e_.kind() != ExprKind::Cast && !e_.output()->isTensor()) {
      report("the result is a scalar, expected a tensor");
    }
    return violations_.size() == before;
  }

  // -- types and shapes -----------------------------------------------------------------------------------------------------------

  void sameType(int k = 0) {
    if (e_.input(k)->dtype() != out_->dtype()) {
      report("operand {} is {}, the result {}; expected equal types", k, name(e_.input(k)->dtype()),
             name(out_->dtype()));
    }
  }

  void sameExtent(const IterDomain* a, const IterDomain* b, std::string_view what) {
    if (provenUnequal(a->extent(), b->extent())) {
      report("{}: extents {} and {} differ", what, a->extent().toString(), b->extent().toString());
    }
  }

  // A dim of symbolic structure stretches if its size is 1.
  static bool mayStretch(const IterDomain* d) { return d->isBroadcast() || d->isSymbolic(); }

  // The k-th dim of each is the same. Dims of p that may stretch do if `stretch`.
  void sameDims(const Dims& p, const Dims& c, int operand, bool stretch = false) {
    if (p.size() != c.size()) {
      report("operand {} has {} dims, the result {}", operand, p.size(), c.size());
      return;
    }
    for (size_t k = 0; k < p.size(); k++) {
      bool stretches = stretch && mayStretch(p[k]);
      if (!stretches) {
        sameExtent(p[k], c[k], fmt::format("dim {} of operand {}", k, operand));
        if (c[k]->isBroadcast() && !p[k]->isBroadcast() && !p[k]->extent().isConst(1)) {
          report("dim {} of the result is a broadcast, of operand {} it is not", k, operand);
        }
      }
    }
  }

  bool listFits(const char* what, size_t got, size_t expected) {
    if (got != expected) {
      report("{} {}, expected {}: one for each dim", got, what, expected);
    }
    return got == expected;
  }

  bool axisFits(int axis, size_t rank) {
    bool fits = axis >= 0 && axis < static_cast<int>(rank);
    if (!fits) {
      report("dim={} of {} dims", axis, rank);
    }
    return fits;
  }

  // What the op's row implies.
  void byRule() {
    if (ruleOf(e_).elements == Elements::Moved) {
      sameType();
    }
    if (mapsInOrder(e_)) {
      const bool stretches = e_.kind() == ExprKind::Point || e_.kind() == ExprKind::Expand;
      for (int k = 0; k < std::ssize(e_.inputs()); k++) {
        if (e_.input(k)->isTensor()) {
          sameDims(operandDims(k), root(), k, stretches);
        }
      }
    }
    if (hasIndex(e_) && !isIntegral(e_.input(indexOf(e_))->dtype())) {
      report("the index is {}, expected integers", name(e_.input(indexOf(e_))->dtype()));
    }
  }

  void byKind() {
    switch (e_.kind()) {
      case ExprKind::Set:
      case ExprKind::SegmentSet:
      case ExprKind::Expand:
        return;
      case ExprKind::Cast:
        if (!e_.input(0)->isTensor()) {
          report("a scalar is cast to a tensor; use full");
        }
        return;
      case ExprKind::BitCast:
        if (dataTypeSize(e_.input(0)->dtype()) != dataTypeSize(out_->dtype())) {
          report("{} and {} differ in size", name(e_.input(0)->dtype()), name(out_->dtype()));
        }
        return;
      case ExprKind::Point:
        return point();
      case ExprKind::Broadcast:
      case ExprKind::Squeeze:
        return broadcastOrSqueeze();
      case ExprKind::Permute:
        return permute();
      case ExprKind::Reshape:
        return reshape();
      case ExprKind::Slice:
        return slice();
      case ExprKind::Pad:
        return pad();
      case ExprKind::Cat:
        return cat();
      case ExprKind::Reduce:
        return reduce();
      case ExprKind::Redistribute:
        return redistribute();
      case ExprKind::Matmul:
        return matmul();
      case ExprKind::Linear:
        return linear();
      case ExprKind::Full:
        return full();
      case ExprKind::Iota:
        return positions(1);
      case ExprKind::Eye:
        return positions(2);
      case ExprKind::Random:
        return random();
      case ExprKind::TakeAlongAxis:
      case ExprKind::Gather:
      case ExprKind::IndexSelect:
      case ExprKind::Embedding:
        return indexing();
      case ExprKind::Scan:
        return scan();
      case ExprKind::ArgSort:
        return argSort();
      case ExprKind::Scatter:
        return scatter();
      case ExprKind::IndexPutAccumulate:
        return indexPutAccumulate();
      case ExprKind::Communicate:
        return communicate();
    }
  }

  // -- kinds ------------------------------------------------------------------------------------------------------------------

  void full() {
    if (category(e_.input(0)->dtype()) != category(out_->dtype())) {
      report("the value is {}, the result {}", name(e_.input(0)->dtype()), name(out_->dtype()));
    }
  }

  // Iota and Eye: elements that are functions of their position.
  void positions(size_t rank) {
    if (root().size() != rank) {
      report("the result has {} dims, expected {}", root().size(), rank);
    }
    (void)listFits("starts", attributes().starts.size(), rank);
  }

  void random() {
    if (!isFloatingPoint(out_->dtype()) || isHalfPrecision(out_->dtype())) {
      report("the result is {}, expected Float or Double", name(out_->dtype()));
    }
    (void)listFits("starts", attributes().starts.size(), out_->getLogicalDomain().size());
    (void)listFits("stops", attributes().stops.size(), out_->getLogicalDomain().size());
  }

  void scalarOp() {
    for (const Val* v : e_.inputs()) {
      if (v->isTensor()) {
        report("the result is a scalar but operand {} is a tensor", v->toString());
      }
    }
  }

  void point() {
    const PointOpInfo& op = info(attributes().point);
    std::optional<DataType> type;
    int scalarCategory = -1;
    for (int k = 0; k < op.arity; k++) {
      const Val* v = e_.input(k);
      if (op.op == PointOp::Where && k == 0) {
        if (v->dtype() != DataType::Bool) {
          report("the condition is {}, expected Bool", name(v->dtype()));
        }
        continue;
      }
      if (!v->isTensor()) {
        scalarCategory = category(v->dtype());
        continue;
      }
      if (type && *type != v->dtype()) {
        report("operands of types {} and {}; cast one", name(*type), name(v->dtype()));
      }
      type = v->dtype();
      if (!accepts(op.types, v->dtype())) {
        report("operand {} is {}, which the op does not accept; cast it", k, name(v->dtype()));
      }
    }
    if (type && scalarCategory >= 0 && scalarCategory != category(*type)) {
      report("a scalar of another kind than the {} tensors; convert it", name(*type));
    }
    DataType expected = op.givesBool ? DataType::Bool : type.value_or(out_->dtype());
    if (out_->dtype() != expected) {
      report("the result is {}, expected {}", name(out_->dtype()), name(expected));
    }
  }

  void broadcastOrSqueeze() {
    bool broadcasts = e_.kind() == ExprKind::Broadcast;
    const Dims& longer = broadcasts ? root() : operandDims(0);
    if (!listFits("flags", attributes().flags.size(), longer.size())) {
      return;
    }
    Dims kept;
    for (size_t k = 0; k < longer.size(); k++) {
      if (!attributes().flags[k]) {
        kept.push_back(longer[k]);
      } else if (broadcasts ? !longer[k]->isBroadcast() : provenUnequal(longer[k]->extent(), 1)) {
        report("dim {} is flagged but is {}, expected {}", k, longer[k]->toString(), broadcasts ? "b{1}" : "extent 1");
      }
    }
    sameDims(broadcasts ? operandDims(0) : kept, broadcasts ? kept : root(), 0);
  }

  void permute() {
    const std::vector<int>& order = attributes().order;
    const Dims& logical = out_->getLogicalDomain();
    if (!listFits("axes in the order", order.size(), logical.size()) || root().size() != logical.size()) {
      return;
    }
    std::vector<int> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (size_t k = 0; k < sorted.size(); k++) {
      if (sorted[k] != static_cast<int>(k)) {
        report("the order is no permutation of 0 to {}", sorted.size() - 1);
        return;
      }
    }
    for (size_t k = 0; k < order.size(); k++) {
      if (root()[order[k]] != logical[k]) {
        report("logical dim {} is not root dim {}", k, order[k]);
      }
    }
  }

  void reshape() {
    const IntExpr from = elements(root());
    const IntExpr to = elements(out_->getLogicalDomain());
    if (provenUnequal(from, to)) {
      report("{} elements, the result has {}", from.toString(), to.toString());
    }
  }

  static IntExpr elements(const Dims& dims) {
    IntExpr count = 1;
    for (const IterDomain* d : dims) {
      count *= d->extent();
    }
    return count;
  }

  void hasExtent(size_t k, const IntExpr& expected) {
    if (provenUnequal(expected, logical()[k]->extent())) {
      report("dim {} has extent {}, expected {}", k, logical()[k]->extent().toString(), expected.toString());
    }
  }

  void slice() {
    Dims p = operandDims(0);
    const ExprAttributes& a = attributes();
    if (!listFits("starts", a.starts.size(), p.size()) || !listFits("stops", a.stops.size(), p.size()) ||
        !listFits("steps", a.steps.size(), p.size()) || out_->getLogicalDomain().size() != p.size()) {
      return;
    }
    for (size_t k = 0; k < p.size(); k++) {
      if (provenLess(a.starts[k], 0) || provenLess(p[k]->extent(), a.stops[k]) || provenLess(a.steps[k], 1)) {
        report("the range [{}, {}) with step {} does not fit dim {} of extent {}", a.starts[k].toString(),
               a.stops[k].toString(), a.steps[k].toString(), k, p[k]->extent().toString());
        continue;
      }
      hasExtent(k, ceilDiv(a.stops[k] - a.starts[k], a.steps[k]));
    }
  }

  void pad() {
    sameType();
    Dims p = operandDims(0);
    const ExprAttributes& a = attributes();
    if (category(e_.input(1)->dtype()) != category(out_->dtype())) {
      report("the fill is {}, the tensor {}", name(e_.input(1)->dtype()), name(out_->dtype()));
    }
    if (!listFits("left widths", a.starts.size(), p.size()) || !listFits("right widths", a.stops.size(), p.size()) ||
        out_->getLogicalDomain().size() != p.size()) {
      return;
    }
    for (size_t k = 0; k < p.size(); k++) {
      hasExtent(k, p[k]->extent() + a.starts[k] + a.stops[k]);
    }
  }

  void cat() {
    if (!axisFits(attributes().dim, root().size())) {
      return;
    }
    size_t axis = static_cast<size_t>(attributes().dim);
    IntExpr total = 0;
    for (int k = 0; k < std::ssize(e_.inputs()); k++) {
      sameType(k);
      Dims p = operandDims(k);
      if (p.size() != root().size()) {
        report("operand {} has {} dims, the result {}", k, p.size(), root().size());
        return;
      }
      total += p[axis]->extent();
      for (size_t d = 0; d < p.size(); d++) {
        if (d != axis) {
          sameExtent(p[d], root()[d], fmt::format("dim {} of operand {}", d, k));
        }
      }
    }
    if (provenUnequal(total, root()[axis]->extent())) {
      report("dim {} has extent {}, the operands have {}", axis, root()[axis]->extent().toString(), total.toString());
    }
  }

  void reduce() {
    sameType();
    if (!reduces(root())) {
      report("no dim is reduced; mark one r{{..}}");
    }
    reducesType();
  }

  void reducesType() {
    DataType t = out_->dtype();
    ReduceOp op = attributes().reduce;
    if (isBitwise(op) ? isFloatingPoint(t) : t == DataType::Bool) {
      report("{} of {}", name(op), name(t));
    }
  }

  void redistribute() {
    const Dims& c = root();
    std::ptrdiff_t reduced = std::count_if(c.begin(), c.end(), [](const IterDomain* d) { return d->isReduction(); });
    if (reduced > 1) {
      report("{} dims are combined, expected one or none", reduced);
    }
    if (reduced == 1 && axisFits(attributes().dim, c.size()) && !c[attributes().dim]->isReduction()) {
      report("dim={} is not the reduction dim", attributes().dim);
    }
  }

  // The last root dim is the contraction.
  bool contracts(const IterDomain* a, const IterDomain* b) {
    sameExtent(a, b, "contracted dims");
    bool last = !root().empty() && root().back()->isReduction();
    if (!last) {
      report("the last dim of the result is the contraction, expected r{{{}}}", a->extent().toString());
    } else {
      sameExtent(a, root().back(), "contracted dim");
      if (reduces({root().begin(), root().end() - 1})) {
        report("a dim before the contraction is reduced, expected the last one only");
      }
    }
    return last;
  }

  // One type of all; of 16-bit operands the result may be Float, in which it is summed.
  void contractedTypes() {
    const DataType type = e_.input(0)->dtype();
    const bool wide = out_->dtype() == DataType::Float && isHalfPrecision(type);
    for (int k = 0; k < std::ssize(e_.inputs()); k++) {
      if (!wide) {
        sameType(k);
      } else if (e_.input(k)->dtype() != type) {
        report("operands of types {} and {}; cast one", name(type), name(e_.input(k)->dtype()));
      }
    }
  }

  void matmul() {
    contractedTypes();
    Dims a = operandDims(0);
    Dims b = operandDims(1);
    if (a.empty() || b.empty()) {
      report("a 0-d operand, expected 1 dim or more");
      return;
    }
    IterDomain* k = a.back();
    if (!contracts(k, b.size() == 1 ? b[0] : b[b.size() - 2])) {
      return;
    }
    size_t rows = a.size() > 1 ? 1 : 0;
    size_t columns = b.size() > 1 ? 1 : 0;
    size_t batch = std::max(a.size() > 2 ? a.size() - 2 : 0, b.size() > 2 ? b.size() - 2 : 0);
    if (root().size() != batch + rows + columns + 1) {
      report("the result has {} dims, expected {} and the contraction", root().size() - 1, batch + rows + columns);
      return;
    }
    for (int operand = 0; operand < 2; operand++) {
      const Dims& p = operand == 0 ? a : b;
      for (size_t d = 0; d + 2 < p.size(); d++) {
        size_t at = batch - (p.size() - 2) + d;
        if (!mayStretch(p[d])) {
          sameExtent(p[d], root()[at], fmt::format("batch dim {} of operand {}", d, operand));
        }
      }
    }
    if (rows == 1) {
      sameExtent(a[a.size() - 2], root()[batch], "rows");
    }
    if (columns == 1) {
      sameExtent(b.back(), root()[batch + rows], "columns");
    }
  }

  void linear() {
    Dims x = operandDims(0);
    Dims w = operandDims(1);
    contractedTypes();
    if (x.empty() || w.empty() || w.size() > 2) {
      report("an input of {} dims and a weight of {}, expected [.., K] and [N, K] or [K]", x.size(), w.size());
      return;
    }
    if (!contracts(x.back(), w.back())) {
      return;
    }
    if (root().size() != x.size() - 1 + (w.size() - 1) + 1) {
      report("the result has {} dims, expected {} and the contraction", root().size() - 1, x.size() + w.size() - 2);
      return;
    }
    for (size_t k = 0; k + 1 < x.size(); k++) {
      sameExtent(x[k], root()[k], fmt::format("dim {} of the input", k));
    }
    if (w.size() == 2) {
      sameExtent(w[0], root()[x.size() - 1], "output features");
    }
    if (e_.inputs().size() == 3) {
      Dims bias = operandDims(2);
      if (bias.size() != w.size() - 1) {
        report("a bias of {} dims, expected {}", bias.size(), w.size() - 1);
      } else if (bias.size() == 1) {
        sameExtent(bias[0], root()[x.size() - 1], "bias");
      }
    }
  }

  // Of an op that sees a part of a table: its first row, and whether rows outside are left out.
  void startAndFlag() {
    if (attributes().starts.size() != 1 || attributes().flags.size() != 1) {
      report("{} starts and {} flags, expected one each", attributes().starts.size(), attributes().flags.size());
    }
  }

  void indexing() {
    bool embeds = e_.kind() == ExprKind::Embedding;
    const Dims index = operandDims(indexOf(e_));
    const Dims data = operandDims(tableOf(e_));
    Dims result = root();
    if (countsIndexedDim()) {
      result.pop_back();
    }
    sameType(tableOf(e_));
    if (embeds) {
      if (data.size() != 2 || result.size() != index.size() + 1) {
        report("a weight of {} dims and a result of {}, expected 2 and {}", data.size(), result.size(),
               index.size() + 1);
        return;
      }
      Dims expected = index;
      expected.push_back(data[1]);
      sameDims(expected, result, 0);
      return startAndFlag();
    }
    if (data.size() != result.size() || !axisFits(attributes().dim, result.size())) {
      report("operand 0 has {} dims, the result {}; dim={}", data.size(), result.size(), attributes().dim);
      return;
    }
    size_t axis = static_cast<size_t>(attributes().dim);
    if (e_.kind() == ExprKind::IndexSelect ? index.size() != 1 : index.size() != data.size()) {
      report("the index has {} dims, expected {}", index.size(), e_.kind() == ExprKind::IndexSelect ? 1 : data.size());
      return;
    }
    if (e_.kind() == ExprKind::Gather) {
      sameDims(index, result, 1);
      for (size_t k = 0; k < data.size(); k++) {
        if (k != axis && provenLess(data[k]->extent(), index[k]->extent())) {
          report("dim {} of the index has extent {}, expected at most operand 0's {}", k, index[k]->extent().toString(),
                 data[k]->extent().toString());
        }
      }
      return;
    }
    const bool along = e_.kind() == ExprKind::TakeAlongAxis;
    sameExtent(index[along ? axis : 0], result[axis], "the index");
    for (size_t k = 0; k < data.size(); k++) {
      if (k != axis && !(along && mayStretch(data[k]))) {
        sameExtent(data[k], result[k], fmt::format("dim {}", k));
      }
      if (k != axis && along && !mayStretch(index[k])) {
        sameExtent(index[k], result[k], fmt::format("dim {} of the index", k));
      }
    }
  }

  void scan() {
    sameType();
    sameDims(operandDims(0), root(), 0);
    (void)axisFits(attributes().dim, root().size());
    reducesType();
    if (isHalfPrecision(out_->dtype())) {
      report("elements of type {} cannot be accumulated; cast them", name(out_->dtype()));
    }
  }

  void argSort() {
    Dims in = operandDims(0);
    if (out_->dtype() != DataType::Int || isHalfPrecision(e_.input(0)->dtype())) {
      report("operand 0 is {} and the result {}; expected elements of more than 16 bits, and Int",
             name(e_.input(0)->dtype()), name(out_->dtype()));
    }
    if (attributes().flags.size() != 1) {
      report("{} flags, expected one: descending", attributes().flags.size());
    }
    if (in.size() != root().size() || !axisFits(attributes().dim, in.size())) {
      report("operand 0 has {} dims, the result {}; dim={}", in.size(), root().size(), attributes().dim);
      return;
    }
    const auto axis = static_cast<size_t>(attributes().dim);
    for (size_t k = 0; k < in.size(); k++) {
      if (k != axis) {
        sameExtent(in[k], root()[k], fmt::format("dim {} of operand 0", k));
      } else if (provenLess(in[k]->extent(), root()[k]->extent())) {
        report("dim {} of the result has extent {}, expected at most operand 0's {}", k, root()[k]->extent().toString(),
               in[k]->extent().toString());
      }
    }
  }

  // Checks a table and the values put into it; returns whether all dims can be compared.
  bool puts() {
    sameType();
    sameType(2);
    sameDims(operandDims(0), root(), 0);
    startAndFlag();
    return operandDims(0).size() == root().size() && axisFits(attributes().dim, root().size());
  }

  void scatter() {
    if (!puts()) {
      return;
    }
    const Dims index = operandDims(1);
    const Dims src = operandDims(2);
    if (index.size() != root().size() || src.size() != index.size()) {
      report("an index of {} dims and elements of {}, expected {} of both", index.size(), src.size(), root().size());
      return;
    }
    for (size_t k = 0; k < index.size(); k++) {
      if (static_cast<int>(k) != attributes().dim) {
        sameExtent(index[k], root()[k], fmt::format("dim {} of the index", k));
      }
      sameExtent(src[k], index[k], fmt::format("dim {} of operand 2 and of the index", k));
    }
  }

  void indexPutAccumulate() {
    reducesType();
    if (!puts()) {
      return;
    }
    Dims expected = operandDims(1);
    expected.insert(expected.end(), root().begin() + 1, root().end());
    const Dims value = operandDims(2);
    if (value.size() != expected.size()) {
      report("operand 2 has {} dims, expected {}: those of the index, and those of a row", value.size(),
             expected.size());
      return;
    }
    for (size_t k = 0; k < value.size(); k++) {
      sameExtent(value[k], expected[k], fmt::format("dim {} of operand 2", k));
    }
  }

  void blocksInside(const std::vector<Part>& list, const Dims& dims, const char* what) {
    for (const Part& part : list) {
      bool fits = part.dims.size() == dims.size();
      for (size_t k = 0; fits && k < dims.size(); k++) {
        fits = part.dims[k].empty() || !dims[k]->extent().isConst() ||
               part.dims[k].back().last() < dims[k]->extent().constValue();
      }
      if (!fits) {
        report("the {} block {} is not in the tensor", what, toString(part));
      }
    }
  }

  void transfer(const CommAttributes& c) {
    if (c.sends.size() != c.to.size() || c.receives.size() != c.from.size()) {
      report("got {} blocks to send to {} ranks, and {} blocks to receive from {}; expected one for each rank",
             c.sends.size(), c.to.size(), c.receives.size(), c.from.size());
      return;
    }
    blocksInside(c.sends, operandDims(0), "sent");
    blocksInside(c.receives, root(), "received");
  }

  // Blocks of one rank: as many as the team has ranks, all inside the tensor.
  void uneven(const CommAttributes& c, const IntExpr& team) {
    auto blocks = [&](const std::vector<Part>& list, const Dims& dims, bool wanted, const char* what) {
      if (!wanted || provenUnequal(team, IntExpr(std::ssize(list)))) {
        if (wanted || !list.empty()) {
          report("got {} {} blocks for a team of {} ranks; expected one for each rank", list.size(), what,
                 team.toString());
        }
        return;
      }
      blocksInside(list, dims, what);
    };
    blocks(c.sends, operandDims(0), c.kind != Collective::AllGather, "sent");
    blocks(c.receives, root(), c.kind != Collective::ReduceScatter, "received");
  }

  void communicate() {
    sameType();
    const CommAttributes& c = attributes().comm;
    const std::vector<DeviceMesh>& meshes = e_.fusion().meshes();
    if (c.mesh < 0 || c.mesh >= std::ssize(meshes)) {
      report("mesh M{} does not exist; the fusion has {} meshes", c.mesh, meshes.size());
      return;
    }
    IntExpr team = 1;
    for (int axis : c.axes) {
      if (axis < 0 || axis >= meshes[c.mesh].numAxes()) {
        report("axis {} does not exist on mesh M{}", axis, c.mesh);
        return;
      }
      team *= meshes[c.mesh].axisSize(axis);
    }
    if (c.kind == Collective::Transfer && c.sources.empty()) {
      transfer(c);
      return;
    }
    if (c.isUneven()) {
      uneven(c, team);
      return;
    }
    Dims in = operandDims(0);
    Dims out = root();
    auto stripTeam = [&](Dims& dims, const char* what) {
      if (dims.empty() || provenUnequal(dims[0]->extent(), team)) {
        report("dim 0 of the {} is {}, expected the team's size {}", what,
               dims.empty() ? "missing" : dims[0]->toString(), team.toString());
      }
      if (!dims.empty()) {
        dims.erase(dims.begin());
      }
    };
    if (traits(c.kind).resultHasBlocks) {
      stripTeam(out, "result");
    }
    if (traits(c.kind).operandHasBlocks) {
      stripTeam(in, "operand");
    }
    sameDims(in, out, 0);
    if (c.kind == Collective::Transfer && !meshes[c.mesh].devices().empty() &&
        c.sources.size() != meshes[c.mesh].devices().size()) {
      report("got {} sources for {} devices; expected one for each device", c.sources.size(),
             meshes[c.mesh].devices().size());
    }
  }

  const Expr& e_;
  std::vector<std::string>& violations_;
  const TensorView* out_ = nullptr;
};

}  // namespace

void verifyExpr(const Expr& expr, std::vector<std::string>& violations) { ExprVerifier(expr, violations).run(); }

}  // namespace meshfuse
