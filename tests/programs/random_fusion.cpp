#include "programs/random_fusion.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "ir/reshape.h"
#include "ir/window.h"
#include "programs/random_transforms.h"

namespace meshfuse {

namespace {

class RandomFusionBuilder {
 public:
  RandomFusionBuilder(uint64_t seed, const RandomFusionOptions& options)
      : random_(seed), options_(options), fusion_(std::make_unique<Fusion>()), f_(*fusion_) {}

  std::unique_ptr<Fusion> build() {
    if (options_.symbolic) {
      symbols_ = {f_.freshSymbol(), f_.freshSymbol({.lower = 1, .upper = 64, .divisor = 4})};
      f_.addInput(f_.tensor(DataType::Bool, {{symbols_[0]}, {symbols_[1]}}));  // gives every symbol a value
    }
    meshes_ = {DeviceMesh::createForNumDevices(2), DeviceMesh::createForShape({2, 3}),
               DeviceMesh({3, 1, 0, 2}, {2, 2})};
    if (options_.symbolic) {
      meshes_.push_back(DeviceMesh::create({{"dp", 2}, {"tp"}}));
    }
    (void)f_.meshNumber(meshes_[1]);
    int inputs = pick(1, 4);
    for (int k = 0; k < inputs; k++) {
      TensorView* t = f_.tensor(pickType(), pickShape(pick(0, 4)));
      if (chance(3)) {
        std::vector<bool> contiguity;
        for (size_t d = 0; d < t->noReductions().size(); d++) {
          contiguity.push_back(!chance(3));
        }
        t->setContiguity(contiguity);
      }
      f_.addInput(t);
      tensors_.push_back(t);
    }
    for (DataType type : {DataType::Double, DataType::Int, DataType::Bool}) {
      Val* s = f_.inputScalar(type);
      f_.addInput(s);
      scalars_.push_back(s);
    }
    for (int made = 0, tries = 0; made < options_.numExprs && tries < 20 * options_.numExprs; tries++) {
      made += addOne() ? 1 : 0;
    }
    int outputs = pick(1, 3);
    for (int k = 0; k < outputs; k++) {
      f_.addOutput(tensors_[tensors_.size() - 1 - static_cast<size_t>(pick(0, static_cast<int>(tensors_.size()) / 2))]);
    }
    f_.addOutput(tensors_.back());
    maybeAlias();
    if (options_.transforms) {
      for (TensorView* t : tensors_) {
        transformAtRandom(t, meshes_, random_);
      }
    }
    return std::move(fusion_);
  }

 private:
  int pick(int low, int high) { return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1)); }
  bool chance(int oneIn) { return pick(1, oneIn) == 1; }
  DataType pickType() { return kDataTypes[pick(0, static_cast<int>(kDataTypes.size()) - 1)].type; }
  TensorView* pickTensor() { return tensors_[pick(0, static_cast<int>(tensors_.size()) - 1)]; }

  Dim pickDim() {
    static constexpr int kExtents[] = {1, 2, 3, 4, 6, 8, 12, 0};
    if (!symbols_.empty() && chance(4)) {
      const IntExpr& s = symbols_[pick(0, 1)];
      return {chance(3) ? s * pick(2, 4) : s};
    }
    int extent = kExtents[pick(0, chance(8) ? 7 : 6)];
    return {extent, extent == 1 ? IterType::Broadcast : IterType::Iteration};
  }
  std::vector<Dim> pickShape(int rank) {
    std::vector<Dim> dims;
    for (int k = 0; k < rank; k++) {
      dims.push_back(pickDim());
    }
    return dims;
  }
  static std::vector<Dim> dimsOf(const TensorView* t) {
    std::vector<Dim> dims;
    for (const IterDomain* id : t->noReductions()) {
      dims.push_back({id->extent(), id->isPartial() ? IterType::Iteration : id->iterType()});
    }
    return dims;
  }

  bool add(ExprKind kind, std::vector<Val*> in, TensorView* out, ExprAttributes attributes = {}) {
    f_.addExpr(kind, std::move(in), {out}, std::move(attributes));
    tensors_.push_back(out);
    return true;
  }
  TensorView* like(const TensorView* t, DataType type) { return f_.tensor(type, dimsOf(t)); }

  bool addOne() {
    auto kind = static_cast<ExprKind>(pick(0, static_cast<int>(ExprKind::Communicate)));
    TensorView* p = pickTensor();
    std::vector<Dim> dims = dimsOf(p);
    int rank = static_cast<int>(dims.size());
    switch (kind) {
      case ExprKind::Set:
      case ExprKind::SegmentSet:
        return add(kind, {p}, like(p, p->dtype()));
      case ExprKind::Point:
        return point(p);
      case ExprKind::Cast:
        return add(kind, {p}, like(p, pickType()));
      case ExprKind::BitCast:
        return dataTypeSize(p->dtype()) == 4 && add(kind, {p}, like(p, DataType::Int32));
      case ExprKind::Broadcast:
        return broadcast(p, dims);
      case ExprKind::Squeeze:
        return squeeze(p, dims);
      case ExprKind::Expand:
        return expand(p, dims);
      case ExprKind::Permute:
        return permute(p, dims);
      case ExprKind::Reshape:
        return reshape(p, dims);
      case ExprKind::Slice:
      case ExprKind::Pad:
        return rank > 0 && window(kind, p, dims);
      case ExprKind::Cat:
        return rank > 0 && cat(p, dims);
      case ExprKind::Reduce:
        return rank > 0 && reduce(p, dims);
      case ExprKind::Matmul:
        return rank > 0 && p->dtype() != DataType::Bool && matmul(p, dims);
      case ExprKind::Linear:
        return rank > 0 && p->dtype() != DataType::Bool && linear(p, dims);
      case ExprKind::Full:
        return add(kind, {f_.scalar(chance(4) ? 1.0 / 0.0 : pick(-99, 99) / 7.0)},
                   f_.tensor(DataType::Float, pickShape(pick(0, 3))));
      case ExprKind::Iota:
        return add(kind, {f_.scalar(int64_t{pick(-5, 5)}), scalars_[1]}, f_.tensor(DataType::Int, {pickDim()}),
                   startsOf({chance(2) ? 3 : 0}));
      case ExprKind::Eye:
        return add(kind, {}, f_.tensor(DataType::Float, pickShape(2)), startsOf({0, 0}));
      case ExprKind::Random:
        return random();
      case ExprKind::TakeAlongAxis:
      case ExprKind::Gather:
      case ExprKind::IndexSelect:
        return rank > 0 && index(kind, p, dims);
      case ExprKind::Embedding:
        return rank == 2 && embedding(p, dims);
      case ExprKind::Scan:
      case ExprKind::ArgSort:
        return rank > 0 && scanOrSort(kind, p, dims);
      case ExprKind::Scatter:
      case ExprKind::IndexPutAccumulate:
        return rank > 0 && put(kind, p, dims);
      case ExprKind::Redistribute:
        return redistribute(p, dims);
      case ExprKind::Communicate:
        return communicate(p, dims);
    }
    return false;
  }

  static ExprAttributes startsOf(std::vector<IntExpr> starts) {
    ExprAttributes a;
    a.starts = std::move(starts);
    return a;
  }

  bool point(TensorView* p) {
    ExprAttributes a;
    const PointOpInfo& op = kPointOps[pick(0, static_cast<int>(kPointOps.size()) - 1)];
    a.point = op.op;
    DataType t = p->dtype();
    bool number = t != DataType::Bool;
    bool floating = isFloatingPoint(t);
    bool fits = !isHalfPrecision(t) && !mayRefuse(op.op) &&
                (op.types == OpTypes::Any || (op.types == OpTypes::Number && number) ||
                 (op.types == OpTypes::Floating && floating) || (op.types == OpTypes::Integer && isIntegral(t)) ||
                 (op.types == OpTypes::Bits && !floating));
    if (!fits) {
      return false;
    }
    std::vector<Val*> in;
    for (int k = 0; k < op.arity; k++) {
      if (op.op == PointOp::Where && k == 0) {
        in.push_back(scalars_[2]);
      } else if (k > 0 && chance(3) && op.op != PointOp::Where) {
        in.push_back(floating ? (chance(2) ? scalars_[0] : f_.scalar(pick(-9, 9) * 0.1))
                     : number ? f_.intScalar(symbols_.empty() ? IntExpr(pick(0, 9)) : symbols_[0] * 2 + 1)
                              : f_.scalar(chance(2)));
      } else {
        in.push_back(p);
      }
    }
    return add(ExprKind::Point, in, like(p, op.givesBool ? DataType::Bool : t), a);
  }

  bool broadcast(TensorView* p, const std::vector<Dim>& dims) {
    ExprAttributes a;
    std::vector<Dim> out;
    size_t next = 0;
    while (next < dims.size() || a.flags.empty()) {
      bool isNew = chance(3) || next == dims.size();
      a.flags.push_back(isNew);
      out.push_back(isNew ? Dim{1, IterType::Broadcast} : dims[next++]);
      if (out.size() > 6) {
        return false;
      }
    }
    return add(ExprKind::Broadcast, {p}, f_.tensor(p->dtype(), out), a);
  }

  bool squeeze(TensorView* p, const std::vector<Dim>& dims) {
    ExprAttributes a;
    std::vector<Dim> out;
    for (const Dim& d : dims) {
      a.flags.push_back(d.extent.isConst(1) && !chance(3));
      if (!a.flags.back()) {
        out.push_back(d);
      }
    }
    return out.size() < dims.size() && add(ExprKind::Squeeze, {p}, f_.tensor(p->dtype(), out), a);
  }

  bool expand(TensorView* p, std::vector<Dim> dims) {
    bool any = false;
    for (Dim& d : dims) {
      if (d.type == IterType::Broadcast && !chance(3)) {
        d = {pick(2, 5)};
        any = true;
      }
    }
    return any && add(ExprKind::Expand, {p}, f_.tensor(p->dtype(), dims));
  }

  bool permute(TensorView* p, const std::vector<Dim>& dims) {
    ExprAttributes a;
    a.order.resize(dims.size());
    std::iota(a.order.begin(), a.order.end(), 0);
    for (size_t k = dims.size(); k-- > 1;) {
      std::swap(a.order[k], a.order[pick(0, static_cast<int>(k))]);
    }
    TensorView* out = f_.tensorFromRoot(p->dtype(), dims, [&](Fusion&, const std::vector<IterDomain*>& root) {
      std::vector<IterDomain*> logical;
      for (int k : a.order) {
        logical.push_back(root[k]);
      }
      return logical;
    });
    return add(ExprKind::Permute, {p}, out, a);
  }

  bool reshape(TensorView* p, const std::vector<Dim>& dims) {
    // The prime-ish factors of all extents, regrouped.
    std::vector<IntExpr> factors;
    std::vector<IntExpr> from;
    for (const Dim& d : dims) {
      from.push_back(d.extent);
      IntExpr rest = d.extent;
      for (int prime : {2, 3}) {
        while (rest.isConst() && !rest.isConst(0) && rest.constValue() % prime == 0) {
          factors.emplace_back(prime);
          rest = rest.constValue() / prime;
        }
      }
      if (!rest.isConst(1)) {
        factors.push_back(rest);
      }
    }
    std::vector<IntExpr> to;
    bool open = false;
    for (const IntExpr& f : factors) {
      if (open && chance(2)) {
        to.back() *= f;
      } else {
        to.push_back(f);
      }
      open = true;
      if (chance(6)) {
        to.emplace_back(1);
        open = false;
      }
    }
    if (to.size() > 6 || !canConnectReshape(from, to)) {
      return false;
    }
    bool wait = options_.symbolic && chance(6) && !to.empty();
    TensorView* out = f_.tensorFromRoot(p->dtype(), dims, [&](Fusion& f, const std::vector<IterDomain*>& root) {
      if (!wait) {
        return connectReshape(f, root, to);
      }
      std::vector<IterDomain*> logical;
      for (const IntExpr& e : to) {
        logical.push_back(
            f.idNew(e, e.isConst() ? (e.isConst(1) ? IterType::Broadcast : IterType::Iteration) : IterType::Symbolic));
      }
      return logical;
    });
    return add(ExprKind::Reshape, {p}, out);
  }

  bool window(ExprKind kind, TensorView* p, const std::vector<Dim>& dims) {
    ExprAttributes a;
    bool pad = kind == ExprKind::Pad;
    for (const Dim& d : dims) {
      int64_t n = d.extent.isConst() ? d.extent.constValue() : 2;
      bool cut = d.extent.isConst() && chance(2) && n > 0;
      if (pad) {
        a.starts.emplace_back(cut ? -pick(0, 1) : pick(0, 2));
        a.stops.emplace_back(pick(0, 2));
      } else {
        int64_t start = cut ? pick(0, static_cast<int>(n) - 1) : 0;
        a.starts.emplace_back(start);
        a.stops.push_back(cut ? IntExpr(pick(static_cast<int>(start), static_cast<int>(n))) : d.extent);
        a.steps.emplace_back(chance(3) ? pick(2, 3) : 1);
      }
    }
    TensorView* out = f_.tensorFromRoot(p->dtype(), dims, [&](Fusion& f, const std::vector<IterDomain*>& root) {
      return pad ? connectPad(f, root, a.starts, a.stops) : connectSlice(f, root, a.starts, a.stops, a.steps);
    });
    std::vector<Val*> in = {p};
    if (pad) {
      in.push_back(isFloatingPoint(p->dtype())    ? f_.scalar(-0.0)
                   : p->dtype() == DataType::Bool ? f_.scalar(true)
                                                  : f_.intScalar(7));
    }
    return add(kind, in, out, a);
  }

  bool cat(TensorView* p, std::vector<Dim> dims) {
    ExprAttributes a;
    a.dim = pick(0, static_cast<int>(dims.size()) - 1);
    Dim& d = dims[a.dim];
    d = {d.extent * 2};
    return add(ExprKind::Cat, {p, p}, f_.tensor(p->dtype(), dims), a);
  }

  bool reduce(TensorView* p, std::vector<Dim> dims) {
    ExprAttributes a;
    bool bits = !isFloatingPoint(p->dtype());
    a.reduce = bits ? static_cast<ReduceOp>(pick(4, 6)) : static_cast<ReduceOp>(pick(0, 3));
    const int reduced = pick(0, static_cast<int>(dims.size()) - 1);
    dims[reduced].type = IterType::Reduction;
    if (reduced == p->partialDim()) {
      a.reduce = p->partialDomain()->combine();
    }
    size_t split = dims.size();
    for (size_t k = 0; k < dims.size(); k++) {
      split = dims[k].type == IterType::Reduction && chance(3) ? k : split;
    }
    if (split == dims.size()) {
      return add(ExprKind::Reduce, {p}, f_.tensor(p->dtype(), dims), a);
    }
    // a partial reduction: the outer part is stored, in front
    TensorView* out = f_.tensorFromRoot(p->dtype(), dims, [&](Fusion& f, std::vector<IterDomain*> ids) {
      auto [outer, inner] = f.idSplit(ids[split], 2, false, IterType::Iteration);
      ids[split] = inner;
      ids.insert(ids.begin(), f.idPartial(outer, a.reduce));
      return ids;
    });
    return add(ExprKind::Reduce, {p}, out, a);
  }

  bool matmul(TensorView* p, std::vector<Dim> dims) {
    Dim k = dims.back();
    std::vector<Dim> other = {k, {5}};
    dims.back() = {5};
    dims.push_back({k.extent, IterType::Reduction});
    TensorView* b = f_.tensor(p->dtype(), other);
    f_.addInput(b);
    tensors_.push_back(b);
    return add(ExprKind::Matmul, {p, b}, f_.tensor(p->dtype(), dims));
  }

  bool linear(TensorView* p, std::vector<Dim> dims) {
    Dim k = dims.back();
    std::vector<Val*> in = {p};
    dims.pop_back();
    bool vector = chance(3);
    TensorView* w = f_.tensor(p->dtype(), vector ? std::vector<Dim>{k} : std::vector<Dim>{{5}, k});
    f_.addInput(w);
    in.push_back(w);
    if (chance(2)) {
      in.push_back(f_.tensor(p->dtype(), vector ? std::vector<Dim>{} : std::vector<Dim>{{5}}));
      f_.addInput(in.back());
    }
    if (!vector) {
      dims.push_back({5});
    }
    dims.push_back({k.extent, IterType::Reduction});
    return add(ExprKind::Linear, in, f_.tensor(p->dtype(), dims));
  }

  bool random() {
    ExprAttributes a;
    a.random = static_cast<RandomKind>(pick(0, 1));
    a.ordinal = f_.nextOrdinal();
    std::vector<Dim> dims = pickShape(pick(0, 3));
    for (const Dim& d : dims) {
      a.starts.emplace_back(0);
      a.stops.push_back(d.extent);
    }
    return add(ExprKind::Random, {f_.scalar(int64_t{1}), scalars_[1]}, f_.tensor(DataType::Float, dims), a);
  }

  bool index(ExprKind kind, TensorView* p, std::vector<Dim> dims) {
    ExprAttributes a;
    a.dim = pick(0, static_cast<int>(dims.size()) - 1);
    dims[a.dim] = {pick(2, 4)};
    std::vector<Dim> index = kind == ExprKind::IndexSelect ? std::vector<Dim>{dims[a.dim]} : dims;
    TensorView* i = f_.tensor(DataType::Int, index);
    f_.addInput(i);
    return add(kind, {p, i}, f_.tensor(p->dtype(), dims), a);
  }

  bool scanOrSort(ExprKind kind, TensorView* p, std::vector<Dim> dims) {
    ExprAttributes a;
    a.dim = pick(0, static_cast<int>(dims.size()) - 1);
    if (isHalfPrecision(p->dtype())) {
      return false;
    }
    if (kind == ExprKind::ArgSort) {
      a.flags = {chance(2)};
      Dim& d = dims[a.dim];
      d.extent = d.extent.isConst() && chance(2) ? min(d.extent, IntExpr(2)) : d.extent;
      return add(kind, {p}, f_.tensor(DataType::Int, dims), a);
    }
    a.reduce = isFloatingPoint(p->dtype())    ? static_cast<ReduceOp>(pick(0, 3))
               : p->dtype() == DataType::Bool ? static_cast<ReduceOp>(pick(4, 6))
                                              : static_cast<ReduceOp>(pick(0, 6));
    return add(kind, {p}, f_.tensor(p->dtype(), dims), a);
  }

  bool put(ExprKind kind, TensorView* p, const std::vector<Dim>& dims) {
    ExprAttributes a = startsOf({0});
    a.flags = {chance(3)};
    std::vector<Dim> index = dims;
    std::vector<Dim> values = dims;
    if (kind == ExprKind::Scatter) {
      a.dim = pick(0, static_cast<int>(dims.size()) - 1);
      index[a.dim] = values[a.dim] = {pick(2, 4)};
    } else if (p->dtype() == DataType::Bool) {
      return false;
    } else {
      index = {{2}, {3}};
      values[0] = {3};
      values.insert(values.begin(), {2});
    }
    TensorView* i = f_.tensor(DataType::Int32, index);
    TensorView* v = f_.tensor(p->dtype(), values);
    f_.addInput(i);
    f_.addInput(v);
    return add(kind, {p, i, v}, like(p, p->dtype()), a);
  }

  bool embedding(TensorView* p, const std::vector<Dim>& dims) {
    TensorView* i = f_.tensor(DataType::Int32, {{2}, {3}});
    f_.addInput(i);
    ExprAttributes a = startsOf({0});
    a.flags = {chance(2)};
    return add(ExprKind::Embedding, {i, p}, f_.tensor(p->dtype(), {{2}, {3}, dims[1]}), a);
  }

  bool redistribute(TensorView* p, std::vector<Dim> dims) {
    ExprAttributes a;
    const auto partial = std::ranges::find(dims, IterType::Partial, &Dim::type);
    if (partial != dims.end()) {
      a.dim = partial - dims.begin();
      a.reduce = partial->combine;
      partial->type = IterType::Reduction;
    }
    return add(ExprKind::Redistribute, {p}, f_.tensor(p->dtype(), dims), a);
  }

  bool communicate(TensorView* p, std::vector<Dim> dims) {
    ExprAttributes a;
    a.comm.kind = static_cast<Collective>(pick(1, 6));
    a.comm.mesh = f_.meshNumber(meshes_[1]);
    a.comm.axes = {0, 1};
    a.comm.reduce = p->dtype() == DataType::Bool ? ReduceOp::And : ReduceOp::Min;
    if (a.comm.kind == Collective::Transfer) {
      a.comm.sources = {1, 2, 3, 4, 5, 0};
    }
    if (a.comm.kind == Collective::AllGather) {
      dims.insert(dims.begin(), {6});
    } else if (a.comm.kind == Collective::ReduceScatter || a.comm.kind == Collective::AllToAll) {
      if (dims.empty() || !dims[0].extent.isConst(6)) {
        return false;
      }
      if (a.comm.kind == Collective::ReduceScatter) {
        dims.erase(dims.begin());
      }
    }
    return add(ExprKind::Communicate, {p}, f_.tensor(p->dtype(), dims), a);
  }

  void maybeAlias() {
    auto* out = static_cast<TensorView*>(f_.outputs()[0]);
    for (Val* v : f_.inputs()) {
      if (v->isTensor() && v != out && v->dtype() == out->dtype() && v->asTensor()->shape() == out->shape() &&
          chance(2)) {
        f_.aliasOutputToInput(out, v);
        return;
      }
    }
  }

  std::mt19937_64 random_;
  RandomFusionOptions options_;
  std::unique_ptr<Fusion> fusion_;
  Fusion& f_;
  std::vector<IntExpr> symbols_;
  std::vector<DeviceMesh> meshes_;
  std::vector<TensorView*> tensors_;
  std::vector<Val*> scalars_;
};

}  // namespace

std::unique_ptr<Fusion> randomFusion(uint64_t seed, const RandomFusionOptions& options) {
  return RandomFusionBuilder(seed, options).build();
}

}  // namespace meshfuse
