#include "ir/verify.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

using Dims = std::vector<IterDomain*>;

int64_t category(DataType t) { return t == DataType::Bool ? 0 : isIntegral(t) ? 1 : 2; }

class ExprVerifier : Verifier {
 public:
  ExprVerifier(const Expr& e, std::vector<std::string>& violations) : Verifier(e, violations), e_(e) {}

  void run() {
    if (!require(e_.outputs().size() == 1, "{} results, expected 1", e_.outputs().size()) || !countsFit()) {
      return;
    }
    if (!e_.output()->isTensor()) {
      scalarOp();
      return;
    }
    out_ = e_.tensorOutput();
    const bool mayReduce =
        e_.kind() == ExprKind::Reduce || isContraction(e_) || e_.kind() == ExprKind::Redistribute || countsIndexedDim();
    require(mayReduce || !(reduces(root()) || reduces(logical())),
            "the result has a reduction dim, which only reduce, matmul, linear and redistribute make");
    byRule();
    byKind();
  }

 private:
  const ExprAttributes& attributes() const { return e_.attributes(); }
  DataType typeOf(int64_t operand) const { return e_.input(operand)->dtype(); }
  Dims operandDims(int64_t k) const { return e_.input(k)->asTensor()->noReductions(); }
  const Dims& root() const { return out_->getRootDomain(); }
  const Dims& logical() const { return out_->getLogicalDomain(); }
  static bool reduces(const Dims& dims) { return std::ranges::any_of(dims, &IterDomain::isReduction); }

  // A result that is a sum of rows over parts of a table has the table's indexed dim as its last root dim.
  bool countsIndexedDim() const { return isIndexing(e_) && out_->hasRoot() && root().back()->isReduction(); }

  // -- operand counts -----------------------------------------------------------------------------------------------------------

  bool countsFit() {
    const auto given = std::ssize(e_.inputs());
    const bool isPoint = e_.kind() == ExprKind::Point;
    bool fits = true;
    if (isPoint || e_.kind() == ExprKind::Cast) {
      const int64_t arity = isPoint ? info(attributes().point).arity : 1;
      fits = require(given == arity, "{} operands, expected {}", given, arity);
    } else if (e_.kind() == ExprKind::Cat) {
      fits = require(given > 0 && std::ranges::all_of(e_.inputs(), &Val::isTensor),
                     "expected one tensor or more, and no scalar");
    } else if (const std::optional<Signature>& c = ruleOf(e_).operands) {
      const int64_t least = c->tensors + c->scalars;
      if (!require(given >= least && given <= least + c->optionalTensors, "{} operands, expected {}{}", given, least,
                   c->optionalTensors > 0 ? " or one more" : "")) {
        return false;
      }
      for (int64_t k = 0; k < given; k++) {
        const bool wantTensor = k < c->tensors + c->optionalTensors;
        fits &= require(e_.input(k)->isTensor() == wantTensor, "operand {} is {}, expected a {}", k, e_.input(k),
                        wantTensor ? "tensor" : "scalar");
      }
    }
    fits &= require(isPoint || e_.kind() == ExprKind::Cast || e_.output()->isTensor(),
                    "the result is a scalar, expected a tensor");
    return fits;
  }

  // -- types and shapes -----------------------------------------------------------------------------------------------------------

  void sameType(int64_t k = 0) {
    require(typeOf(k) == out_->dtype(), "operand {} is {}, the result {}; expected equal types", k, typeOf(k),
            out_->dtype());
  }

  // what: of the dims, formatted only if they differ.
  template <class... Args>
  void sameExtent(const IterDomain* a, const IterDomain* b, fmt::format_string<const Args&...> what,
                  const Args&... args) {
    if (provenUnequal(a->extent(), b->extent())) {
      report("{}: extents {} and {} differ{}", fmt::format(what, args...), a->extent(), b->extent(), namedOperands());
    }
  }

  // "; operand 1 is from input w (T1)": the operands that are inputs with names, or that copies, casts, moves and elementwise ops make of one.
  std::string namedOperands() const {
    std::string list;
    for (const int64_t k : e_.tensorPositions()) {
      const Val* source = sourceOf(e_.input(k));
      const Fusion& fusion = e_.output()->fusion();
      const int64_t input = positionIn(fusion.inputs(), source);
      if (input < std::ssize(fusion.inputs()) && !fusion.inputNames()[input].empty()) {
        list += fmt::format("{} operand {} is from {}", list.empty() ? ";" : ",", k, inputText(fusion, input));
      }
    }
    return list;
  }

  // The tensor from which such ops make `val`; null if there are several.
  static const Val* sourceOf(const Val* val) {
    std::set<const Val*> seen = {val};
    std::set<const Val*> sources;
    for (std::vector<const Val*> left = {val}; !left.empty();) {
      const Val* v = left.back();
      left.pop_back();
      const Expr* e = v->definition();
      const bool isMade = e != nullptr && (e->kind() == ExprKind::Cast || e->kind() == ExprKind::Point ||
                                           ruleOf(*e).elements == Elements::Moved);
      if (!isMade) {
        sources.insert(v);
        continue;
      }
      for (const int64_t k : e->tensorPositions()) {
        if (seen.insert(e->input(k)).second) {
          left.push_back(e->input(k));
        }
      }
    }
    return sources.size() == 1 ? *sources.begin() : nullptr;
  }

  // A dim of symbolic structure stretches if its size is 1.
  static bool mayStretch(const IterDomain* d) { return d->isBroadcast() || d->isSymbolic(); }

  // The k-th dim of each is the same. Dims of p that may stretch do if `stretch`.
  void sameDims(const Dims& p, const Dims& c, int64_t operand, bool stretch = false) {
    if (!require(p.size() == c.size(), "operand {} has {} dims, the result {}", operand, p.size(), c.size())) {
      return;
    }
    for (int64_t k = 0; k < std::ssize(p); k++) {
      if (!(stretch && mayStretch(p[k]))) {
        sameExtent(p[k], c[k], "dim {} of operand {}", k, operand);
        require(!c[k]->isBroadcast() || p[k]->isBroadcast() || p[k]->extent().isConst(1),
                "dim {} of the result is a broadcast, of operand {} it is not", k, operand);
      }
    }
  }

  bool listFits(const char* what, size_t got, size_t expected) {
    return require(got == expected, "{} {}, expected {}: one for each dim", got, what, expected);
  }

  bool axisFits(int64_t axis, int64_t rank) {
    return require(axis >= 0 && axis < rank, "dim={} is no dim of {}; expected 0 to {}", axis, rank, rank - 1);
  }

  // What the op's row implies.
  void byRule() {
    if (ruleOf(e_).elements == Elements::Moved) {
      sameType();
    }
    if (mapsInOrder(e_)) {
      const bool stretches = e_.kind() == ExprKind::Point || e_.kind() == ExprKind::Expand;
      for (const int64_t k : e_.tensorPositions()) {
        sameDims(operandDims(k), root(), k, stretches);
      }
    }
    if (hasIndex(e_)) {
      require(isIntegral(typeOf(indexOf(e_))), "the index is {}, expected integers", typeOf(indexOf(e_)));
    }
  }

  void byKind() {
    switch (e_.kind()) {
      case ExprKind::Set:
      case ExprKind::SegmentSet:
      case ExprKind::Expand:
        return;
      case ExprKind::Cast:
        require(e_.input(0)->isTensor(), "a scalar is cast to a tensor; use full");
        return;
      case ExprKind::BitCast:
        require((typeOf(0) == DataType::Bool) == (out_->dtype() == DataType::Bool),
                "{} and {}: the bits of other types are no Bools; use ne", typeOf(0), out_->dtype());
        require(dataTypeSize(typeOf(0)) == dataTypeSize(out_->dtype()), "{} and {} differ in size", typeOf(0),
                out_->dtype());
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
    require(category(typeOf(0)) == category(out_->dtype()), "the value is {}, the result {}", typeOf(0), out_->dtype());
  }

  // Iota and Eye: elements that are functions of their position.
  void positions(size_t rank) {
    for (int64_t k = 0; k < std::ssize(e_.inputs()); k++) {
      require(category(typeOf(k)) == category(out_->dtype()), "operand {} is {}, the result {}; convert it", k,
              typeOf(k), out_->dtype());
    }
    require(root().size() == rank, "the result has {} dims, expected {}", root().size(), rank);
    listFits("starts", attributes().starts.size(), rank);
  }

  void random() {
    require(isFloatingPoint(out_->dtype()) && !isHalfPrecision(out_->dtype()),
            "the result is {}, expected Float or Double", out_->dtype());
    for (int64_t k = 0; k < std::ssize(e_.inputs()); k++) {
      require(typeOf(k) == DataType::Int, "operand {} is {}, expected Int: the seed and the offset are integers", k,
              typeOf(k));
    }
    listFits("starts", attributes().starts.size(), logical().size());
    listFits("stops", attributes().stops.size(), logical().size());
  }

  void scalarOp() {
    bool scalars = true;
    for (const Val* v : e_.inputs()) {
      scalars &= require(!v->isTensor(), "the result is a scalar but operand {} is a tensor", v);
    }
    if (scalars && e_.kind() == ExprKind::Point) {
      scalarPoint();
    }
  }

  // Scalars compute in the widest type of their category.
  void scalarPoint() {
    const PointOpInfo& op = info(attributes().point);
    const int64_t first = op.op == PointOp::Where ? 1 : 0;
    const DataType type = wideType(typeOf(first));
    require(first == 0 || typeOf(0) == DataType::Bool, "the condition is {}, expected Bool", typeOf(0));
    require(accepts(op.types, type), "operand {} is {}, which the op does not accept; cast it", first, typeOf(first));
    for (int64_t k = first + 1; k < op.arity; k++) {
      require(wideType(typeOf(k)) == type, "operands {} and {} are {} and {}; cast one", first, k, typeOf(first),
              typeOf(k));
    }
    const DataType result = e_.output()->dtype();
    require(op.givesBool ? result == DataType::Bool : wideType(result) == type, "the result is {}, expected {}", result,
            op.givesBool ? DataType::Bool : type);
  }

  void point() {
    const PointOpInfo& op = info(attributes().point);
    if (!require(!e_.tensorInputs().empty(), "no operand is a tensor, but the result is; make one of them with full")) {
      return;
    }
    std::optional<DataType> type;
    int64_t scalarCategory = -1;
    for (int64_t k = 0; k < op.arity; k++) {
      if (op.op == PointOp::Where && k == 0) {
        require(typeOf(k) == DataType::Bool, "the condition is {}, expected Bool", typeOf(k));
      } else if (!e_.input(k)->isTensor()) {
        scalarCategory = category(typeOf(k));
      } else {
        require(!type || *type == typeOf(k), "operands of types {} and {}; cast one", type.value_or(typeOf(k)),
                typeOf(k));
        type = typeOf(k);
        require(accepts(op.types, *type), "operand {} is {}, which the op does not accept; cast it", k, *type);
      }
    }
    const DataType result = type.value_or(out_->dtype());
    require(!type || scalarCategory < 0 || scalarCategory == category(result),
            "a scalar operand is of another kind of number than the {} tensors; convert the scalar", result);
    const DataType expected = op.givesBool ? DataType::Bool : result;
    require(out_->dtype() == expected, "the result is {}, expected {}", out_->dtype(), expected);
  }

  void broadcastOrSqueeze() {
    bool broadcasts = e_.kind() == ExprKind::Broadcast;
    const Dims& longer = broadcasts ? root() : operandDims(0);
    if (!listFits("flags", attributes().flags.size(), longer.size())) {
      return;
    }
    Dims kept;
    for (int64_t k = 0; k < std::ssize(longer); k++) {
      if (!attributes().flags[k]) {
        kept.push_back(longer[k]);
      } else {
        require(broadcasts ? longer[k]->isBroadcast() : !provenUnequal(longer[k]->extent(), 1),
                "dim {} is flagged but is {}, expected {}", k, longer[k], broadcasts ? "b{1}" : "extent 1");
      }
    }
    sameDims(broadcasts ? operandDims(0) : kept, broadcasts ? kept : root(), 0);
  }

  void permute() {
    const std::vector<int64_t>& order = attributes().order;
    if (!listFits("axes in the order", order.size(), logical().size()) || root().size() != logical().size() ||
        !require(std::ranges::is_permutation(order, indices(order)), "the order is no permutation of 0 to {}",
                 order.size() - 1)) {
      return;
    }
    for (int64_t k = 0; k < std::ssize(order); k++) {
      require(root()[order[k]] == logical()[k], "logical dim {} is not root dim {}", k, order[k]);
    }
  }

  void reshape() {
    const IntExpr from = productOf(root(), &IterDomain::extent);
    const IntExpr to = productOf(logical(), &IterDomain::extent);
    require(!provenUnequal(from, to), "{} elements, the result has {}", from, to);
  }

  void hasExtent(size_t k, const IntExpr& expected) {
    const IntExpr& extent = logical()[k]->extent();
    require(!provenUnequal(expected, extent), "dim {} has extent {}, expected {}", k, extent, expected);
  }

  void slice() {
    Dims p = operandDims(0);
    const ExprAttributes& a = attributes();
    if (!listFits("starts", a.starts.size(), p.size()) || !listFits("stops", a.stops.size(), p.size()) ||
        !listFits("steps", a.steps.size(), p.size()) || logical().size() != p.size()) {
      return;
    }
    for (int64_t k = 0; k < std::ssize(p); k++) {
      const bool isOutside =
          provenLess(a.starts[k], 0) || provenLess(p[k]->extent(), a.stops[k]) || provenLess(a.steps[k], 1);
      if (require(!isOutside, "the range [{}, {}) with step {} does not fit dim {} of extent {}", a.starts[k],
                  a.stops[k], a.steps[k], k, p[k]->extent())) {
        hasExtent(k, ceilDiv(a.stops[k] - a.starts[k], a.steps[k]));
      }
    }
  }

  void pad() {
    sameType();
    Dims p = operandDims(0);
    const ExprAttributes& a = attributes();
    require(category(typeOf(1)) == category(out_->dtype()), "the fill is {}, the tensor {}", typeOf(1), out_->dtype());
    if (!listFits("left widths", a.starts.size(), p.size()) || !listFits("right widths", a.stops.size(), p.size()) ||
        logical().size() != p.size()) {
      return;
    }
    for (int64_t k = 0; k < std::ssize(p); k++) {
      hasExtent(k, p[k]->extent() + a.starts[k] + a.stops[k]);
    }
  }

  void cat() {
    if (!axisFits(attributes().dim, root().size())) {
      return;
    }
    const int64_t axis = attributes().dim;
    IntExpr total = 0;
    for (int64_t k = 0; k < std::ssize(e_.inputs()); k++) {
      sameType(k);
      Dims p = operandDims(k);
      if (!require(p.size() == root().size(), "operand {} has {} dims, the result {}", k, p.size(), root().size())) {
        return;
      }
      total += p[axis]->extent();
      for (int64_t d = 0; d < std::ssize(p); d++) {
        if (d != axis) {
          sameExtent(p[d], root()[d], "dim {} of operand {}", d, k);
        }
      }
    }
    const IntExpr& extent = root()[axis]->extent();
    require(!provenUnequal(total, extent), "dim {} has extent {}, the operands have {}", axis, extent, total);
  }

  void reduce() {
    sameType();
    require(reduces(root()), "no dim is reduced; mark one r{{..}}");
    reducesType(attributes().reduce);
  }

  void reducesType(ReduceOp op) {
    const DataType t = out_->dtype();
    require(accepts(op, t), "{} of {} elements; expected {}", op, t,
            isBitwise(op) ? "integers or Bool" : "numbers: Bools combine by and, or, xor");
  }

  void redistribute() {
    const Dims& c = root();
    const auto reduced = std::ranges::count_if(c, &IterDomain::isReduction);
    require(reduced <= 1, "{} dims are combined, expected one or none", reduced);
    if (reduced == 1 && axisFits(attributes().dim, c.size())) {
      const int64_t dim = attributes().dim;
      const Dims p = operandDims(0);
      require(c[dim]->isReduction(), "dim={} is not the reduction dim", dim);
      require(dim >= std::ssize(p) || p[dim]->isPartial(),
              "dim {} of the operand is {}, expected contributions to a reduction: p{{{}}}", dim, p[dim],
              c[dim]->extent());
      reducesType(attributes().reduce);
    }
  }

  // The last root dim is the contraction.
  bool contracts(const IterDomain* a, const IterDomain* b) {
    sameExtent(a, b, "contracted dims");
    const bool last = require(!root().empty() && root().back()->isReduction(),
                              "the last dim of the result is not the contracted dim; expected r{{{}}}", a->extent());
    if (last) {
      sameExtent(a, root().back(), "contracted dim");
      require(!reduces({root().begin(), root().end() - 1}),
              "a dim before the contraction is reduced, expected the last one only");
    }
    return last;
  }

  // One type of all; of 16-bit operands the result may be Float, in which it is summed.
  void contractedTypes() {
    const DataType type = typeOf(0);
    require(type != DataType::Bool, "operands of Bool elements, expected numbers; cast them");
    const bool wide = out_->dtype() == DataType::Float && isHalfPrecision(type);
    for (int64_t k = 0; k < std::ssize(e_.inputs()); k++) {
      if (wide) {
        require(typeOf(k) == type, "operands of types {} and {}; cast one", type, typeOf(k));
      } else {
        sameType(k);
      }
    }
  }

  void matmul() {
    contractedTypes();
    Dims a = operandDims(0);
    Dims b = operandDims(1);
    if (!require(!a.empty() && !b.empty(), "a 0-d operand, expected 1 dim or more") ||
        !contracts(a.back(), b.size() == 1 ? b[0] : b[b.size() - 2])) {
      return;
    }
    size_t rows = a.size() > 1 ? 1 : 0;
    size_t columns = b.size() > 1 ? 1 : 0;
    size_t batch = std::max({a.size(), b.size(), size_t{2}}) - 2;
    if (!require(root().size() == batch + rows + columns + 1, "the result has {} dims, expected {} and the contraction",
                 root().size() - 1, batch + rows + columns)) {
      return;
    }
    for (int64_t operand = 0; operand < 2; operand++) {
      const Dims& p = operand == 0 ? a : b;
      for (int64_t d = 0; d + 2 < std::ssize(p); d++) {
        if (!mayStretch(p[d])) {
          sameExtent(p[d], root()[batch + 2 - p.size() + d], "batch dim {} of operand {}", d, operand);
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
    if (!require(!x.empty() && !w.empty() && w.size() <= 2,
                 "an input of {} dims and a weight of {}, expected [.., K] and [N, K] or [K]", x.size(), w.size()) ||
        !contracts(x.back(), w.back()) ||
        !require(root().size() == x.size() + w.size() - 1, "the result has {} dims, expected {} and the contraction",
                 root().size() - 1, x.size() + w.size() - 2)) {
      return;
    }
    for (int64_t k = 0; k + 1 < std::ssize(x); k++) {
      sameExtent(x[k], root()[k], "dim {} of the input", k);
    }
    if (w.size() == 2) {
      sameExtent(w[0], root()[x.size() - 1], "output features");
    }
    if (e_.inputs().size() == 3) {
      Dims bias = operandDims(2);
      if (require(bias.size() == w.size() - 1, "a bias of {} dims, expected {}", bias.size(), w.size() - 1) &&
          bias.size() == 1) {
        sameExtent(bias[0], root()[x.size() - 1], "bias");
      }
    }
  }

  // Of an op that sees a part of a table: its first row, and whether rows outside are left out.
  void startAndFlag() {
    const ExprAttributes& a = attributes();
    require(a.starts.size() == 1 && a.flags.size() == 1, "{} starts and {} flags, expected one each", a.starts.size(),
            a.flags.size());
  }

  void indexing() {
    const Dims index = operandDims(indexOf(e_));
    const Dims data = operandDims(tableOf(e_));
    Dims result = root();
    if (countsIndexedDim()) {
      result.pop_back();
    }
    sameType(tableOf(e_));
    if (e_.kind() == ExprKind::Embedding) {
      if (!require(data.size() == 2 && result.size() == index.size() + 1,
                   "a weight of {} dims and a result of {}, expected 2 and {}", data.size(), result.size(),
                   index.size() + 1)) {
        return;
      }
      Dims expected = index;
      expected.push_back(data[1]);
      sameDims(expected, result, 0);
      return startAndFlag();
    }
    const size_t wanted = e_.kind() == ExprKind::IndexSelect ? 1 : data.size();
    if (!dimFits(data, result) ||
        !require(index.size() == wanted, "the index has {} dims, expected {}", index.size(), wanted)) {
      return;
    }
    const int64_t axis = attributes().dim;
    if (e_.kind() == ExprKind::Gather) {
      sameDims(index, result, 1);
      for (int64_t k = 0; k < std::ssize(data); k++) {
        require(k == axis || !provenLess(data[k]->extent(), index[k]->extent()),
                "dim {} of the index has extent {}, expected at most operand 0's {}", k, index[k]->extent(),
                data[k]->extent());
      }
      return;
    }
    const bool along = e_.kind() == ExprKind::TakeAlongAxis;
    sameExtent(index[along ? axis : 0], result[axis], "the index");
    for (int64_t k = 0; k < std::ssize(data); k++) {
      if (k != axis && !(along && mayStretch(data[k]))) {
        sameExtent(data[k], result[k], "dim {}", k);
      }
      if (k != axis && along && !mayStretch(index[k])) {
        sameExtent(index[k], result[k], "dim {} of the index", k);
      }
    }
  }

  // The result has as many dims as operand 0, and `dim` is one of them.
  bool dimFits(const Dims& in, const Dims& result) {
    return require(in.size() == result.size(), "operand 0 has {} dims, the result {}; expected as many", in.size(),
                   result.size()) &&
           axisFits(attributes().dim, in.size());
  }

  void scan() {
    sameType();
    sameDims(operandDims(0), root(), 0);
    axisFits(attributes().dim, root().size());
    reducesType(attributes().reduce);
    require(!isHalfPrecision(out_->dtype()), "elements of type {} cannot be accumulated; cast them", out_->dtype());
  }

  void argSort() {
    Dims in = operandDims(0);
    require(out_->dtype() == DataType::Int && !isHalfPrecision(typeOf(0)),
            "operand 0 is {} and the result {}; expected elements of more than 16 bits, and Int", typeOf(0),
            out_->dtype());
    require(attributes().flags.size() == 1, "{} flags, expected one: descending", attributes().flags.size());
    if (!dimFits(in, root())) {
      return;
    }
    const int64_t axis = attributes().dim;
    for (int64_t k = 0; k < std::ssize(in); k++) {
      if (k != axis) {
        sameExtent(in[k], root()[k], "dim {} of operand 0", k);
      } else {
        require(!provenLess(in[k]->extent(), root()[k]->extent()),
                "dim {} of the result has extent {}, expected at most operand 0's {}", k, root()[k]->extent(),
                in[k]->extent());
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
    if (!require(index.size() == root().size() && src.size() == index.size(),
                 "an index of {} dims and elements of {}, expected {} of both", index.size(), src.size(),
                 root().size())) {
      return;
    }
    for (int64_t k = 0; k < std::ssize(index); k++) {
      if (k != attributes().dim) {
        sameExtent(index[k], root()[k], "dim {} of the index", k);
      }
      sameExtent(src[k], index[k], "dim {} of operand 2 and of the index", k);
    }
  }

  void indexPutAccumulate() {
    reducesType(ReduceOp::Sum);
    if (!puts()) {
      return;
    }
    Dims expected = operandDims(1);
    expected.insert(expected.end(), root().begin() + 1, root().end());
    const Dims value = operandDims(2);
    if (!require(value.size() == expected.size(),
                 "operand 2 has {} dims, expected {}: those of the index, and those of a row", value.size(),
                 expected.size())) {
      return;
    }
    for (int64_t k = 0; k < std::ssize(value); k++) {
      sameExtent(value[k], expected[k], "dim {} of operand 2", k);
    }
  }

  void blocksInside(const std::vector<Part>& list, const Dims& dims, const char* what) {
    const auto isInside = [](const IndexRuns& runs, const IterDomain* dim) {
      return runs.empty() || !dim->extent().isConst() || runs.back().last() < dim->extent().constValue();
    };
    for (const Part& part : list) {
      require(std::ranges::equal(part.dims, dims, isInside), "the {} block {} is not in the tensor", what, part);
    }
  }

  void transfer(const CommAttributes& c) {
    if (require(c.sends.size() == c.to.size() && c.receives.size() == c.from.size(),
                "got {} blocks to send to {} ranks, and {} blocks to receive from {}; expected one for each rank",
                c.sends.size(), c.to.size(), c.receives.size(), c.from.size())) {
      blocksInside(c.sends, operandDims(0), "sent");
      blocksInside(c.receives, root(), "received");
    }
  }

  // Blocks of one rank: as many as the team has ranks, all inside the tensor.
  void uneven(const CommAttributes& c, const IntExpr& team) {
    auto blocks = [&](const std::vector<Part>& list, const Dims& dims, bool wanted, const char* what) {
      if (require(wanted ? !provenUnequal(team, std::ssize(list)) : list.empty(),
                  "got {} {} blocks for a team of {} ranks; expected one for each rank", list.size(), what, team)) {
        blocksInside(list, dims, what);
      }
    };
    blocks(c.sends, operandDims(0), c.kind != Collective::AllGather, "sent");
    blocks(c.receives, root(), c.kind != Collective::ReduceScatter, "received");
  }

  void communicate() {
    sameType();
    const CommAttributes& c = attributes().comm;
    if (meshfuse::reduces(c.kind)) {
      reducesType(c.reduce);
    }
    const std::vector<DeviceMesh>& meshes = e_.fusion().meshes();
    if (!require(c.mesh >= 0 && c.mesh < std::ssize(meshes), "mesh M{} does not exist; the fusion has {} meshes",
                 c.mesh, meshes.size())) {
      return;
    }
    const DeviceMesh& mesh = meshes[c.mesh];
    IntExpr team = 1;
    for (int64_t axis : c.axes) {
      if (!require(axis >= 0 && axis < mesh.numAxes(), "axis {} does not exist on mesh M{}", axis, c.mesh)) {
        return;
      }
      team *= mesh.axisSize(axis);
    }
    if (c.kind == Collective::Transfer && c.sources.empty()) {
      return transfer(c);
    }
    if (c.isUneven()) {
      return uneven(c, team);
    }
    Dims in = operandDims(0);
    Dims out = root();
    auto stripTeam = [&](Dims& dims, const char* what) {
      require(!dims.empty() && !provenUnequal(dims[0]->extent(), team),
              "dim 0 of the {} is {}, expected the team's size {}", what,
              dims.empty() ? "missing" : dims[0]->toString(), team);
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
    const size_t devices = mesh.devices().size();
    require(c.kind != Collective::Transfer || devices == 0 || c.sources.size() == devices,
            "got {} sources for {} devices; expected one for each device", c.sources.size(), devices);
  }

  const Expr& e_;
  const TensorView* out_ = nullptr;
};

}  // namespace

void verifyExpr(const Expr& expr, std::vector<std::string>& violations) { ExprVerifier(expr, violations).run(); }

}  // namespace meshfuse
