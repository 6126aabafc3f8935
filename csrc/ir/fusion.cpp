#include "ir/fusion.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <queue>

#include "base/error.h"
#include "base/ranges.h"
#include "digits/part_sizes.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// A part of a Partial dim, or what it is merged into, counts something else.
IterType typeOfPart(const IterDomain* whole) { return whole->isPartial() ? IterType::Iteration : whole->iterType(); }

IterType mergedType(const IterDomain* outer, const IterDomain* inner) {
  if (outer->iterType() == inner->iterType()) {
    return typeOfPart(outer);
  }
  return outer->isSymbolic() || inner->isSymbolic() ? IterType::Symbolic : IterType::Iteration;
}

thread_local Fusion* currentFusion = nullptr;

constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/:";

// T12 or S12, as values are printed
bool isValueNumber(std::string_view name) {
  return name.size() > 1 && contains(std::string_view("TS"), name[0]) &&
         name.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

void checkName(std::string_view function, const std::string& name, const std::vector<std::string>& others) {
  if (name.empty()) {
    return;
  }
  const size_t bad = name.find_first_not_of(kNameCharacters);
  check(bad == std::string::npos,
        "[{}] the name \"{}\" has the character '{}'; expected letters, digits and _ . - / :", function, name,
        bad == std::string::npos ? ' ' : name[bad]);
  check(!isValueNumber(name), "[{}] the name {} has the form of a value's number (T or S and digits); choose another",
        function, name);
  check(!contains(others, name), "[{}] the name {} is given twice; give each its own", function, name);
}

std::string textOf(std::string_view what, int64_t position, const Val* val, const std::string& name) {
  return fmt::format("{} {} ({})", what, name.empty() ? std::to_string(position) : name, val->toString());
}

}  // namespace

std::vector<Dim> dimsOf(const std::vector<IterDomain*>& ids) {
  return mapped(ids, [](const IterDomain* id) { return Dim{id->extent(), id->iterType(), id->combine()}; });
}

std::vector<Dim> dimsOf(const TensorView* tv) { return dimsOf(tv->noReductions()); }

Fusion::Fusion() = default;
Fusion::~Fusion() = default;

// -- inputs and outputs -------------------------------------------------------------------------------------------------

void Fusion::checkOwn(const Val* val, const char* what) const {
  check(val != nullptr, "[{}] got null; give a value of this fusion", what);
  if (&val->fusion() != this) [[unlikely]] {  // the text is made where it is needed
    throwUserError(fmt::format("[{}] {} belongs to another fusion; build all values in one", what, val->toString()));
  }
}

void Fusion::addInput(Val* val, std::string name) {
  checkOwn(val, "addInput");
  checkName("addInput", name, inputNames_);
  check(val->definition() == nullptr,
        "[addInput] {} is computed by {}; an input is not computed: pass a tensor that no op makes", val->toString(),
        val->definition() == nullptr ? "" : val->definition()->opName());
  check(!val->isInput_, "[addInput] {} is an input already; add it once", val->toString());
  check(val->isTensor() || !val->isConst(),
        "[addInput] {} is a constant, expected a tensor or a symbolic scalar; leave it out", val->toString());
  val->isInput_ = true;
  inputs_.push_back(val);
  inputNames_.push_back(std::move(name));
}

void Fusion::addOutput(Val* val, std::string name) {
  checkOwn(val, "addOutput");
  checkName("addOutput", name, outputNames_);
  check(val->isTensor(), "[addOutput] {} is a scalar, expected a tensor; make one of it with full", val->toString());
  val->isOutput_ = true;
  outputs_.push_back(val);
  outputNames_.push_back(std::move(name));
}

void Fusion::removeOutput(Val* val) {
  checkOwn(val, "removeOutput");
  auto it = std::ranges::find(outputs_, val);
  check(it != outputs_.end(), "[removeOutput] {} is no output; name one of Fusion::outputs()", val->toString());
  outputNames_.erase(outputNames_.begin() + (it - outputs_.begin()));
  outputs_.erase(it);
  val->isOutput_ = contains(outputs_, val);
  if (!val->isOutput_) {
    std::erase_if(aliases_, [&](const auto& alias) { return alias.first == val; });
  }
}

void Fusion::aliasOutputToInput(Val* output, Val* input) {
  checkOwn(output, "aliasOutputToInput");
  checkOwn(input, "aliasOutputToInput");
  check(output->isTensor() && input->isTensor(), "[aliasOutputToInput] got {} and {}, expected two tensors",
        output->toString(), input->toString());
  check(input->isInput_, "[aliasOutputToInput] {} is no input of the fusion; alias to one", input->toString());
  check(output->dtype() == input->dtype(), "[aliasOutputToInput] {} has type {}, {} has {}; cast the output",
        output->toString(), name(output->dtype()), input->toString(), name(input->dtype()));
  std::vector<IntExpr> from = output->asTensor()->shape();
  std::vector<IntExpr> to = input->asTensor()->shape();
  check(from.size() == to.size(), "[aliasOutputToInput] {} has {} dims, {} has {}; expected equal shapes",
        output->toString(), from.size(), input->toString(), to.size());
  for (int64_t k = 0; k < std::ssize(from); k++) {
    check(!provenUnequal(from[k], to[k]),
          "[aliasOutputToInput] dim {} differs: {} has {}, {} has {}; expected equal shapes", k, output->toString(),
          from[k].toString(), input->toString(), to[k].toString());
  }
  for (const auto& [out, in] : aliases_) {
    check(out != output && in != input,
          "[aliasOutputToInput] {} -> {} exists, a value is aliased once; leave one of them out", out->toString(),
          in->toString());
  }
  if (!output->isOutput_) {
    addOutput(output);
  }
  aliases_.emplace_back(output, input);
}

std::string inputText(const Fusion& fusion, int64_t input) {
  return textOf("input", input, fusion.inputs().at(input), fusion.inputNames().at(input));
}

std::string operandText(const Val* val) {
  const std::vector<Val*>& inputs = val->fusion().inputs();
  return val->isFusionInput() ? inputText(val->fusion(), std::ranges::find(inputs, val) - inputs.begin())
                              : val->toString();
}

std::string outputText(const Fusion& fusion, int64_t output) {
  return textOf("output", output, fusion.outputs().at(output), fusion.outputNames().at(output));
}

std::optional<int64_t> Fusion::aliasOf(int64_t output) const {
  for (const auto& [out, in] : aliases_) {
    // of an output listed twice, the first place holds the alias
    if (positionIn(outputs_, out) == output) {
      return positionIn(inputs_, in);
    }
  }
  return std::nullopt;
}

// -- nodes ----------------------------------------------------------------------------------------------------------------

namespace {

// Other ranks wait for this op even if no op of this rank reads its result.
bool isAwaited(const Expr& e) { return e.kind() == ExprKind::Communicate; }

}  // namespace

std::vector<Expr*> Fusion::exprs(ExprSet set) const {
  std::vector<bool> needed = mapped(exprs_, [&](const auto& e) { return e != nullptr && set == ExprSet::All; });
  if (set == ExprSet::Needed) {
    bool readsEarlier = true;        // each expr reads results of exprs with smaller ids
    std::vector<Expr*> order;        // the last first, if so
    std::vector<const Expr*> later;  // with ids from `place` on
    int64_t place = numExprs();
    const auto need = [&](const Val* v, int64_t reader) {
      if (const Expr* e = v->definition(); e != nullptr) {
        readsEarlier = readsEarlier && e->id() < reader;
        if (!needed[e->id()] && e->id() >= place) {
          later.push_back(e);
        }
        needed[e->id()] = true;
      }
    };
    for (const Val* out : outputs_) {
      need(out, numExprs());
    }
    while (--place >= 0) {
      Expr* e = exprs_[place].get();
      if (needed[place] || (e != nullptr && isAwaited(*e))) {
        needed[place] = true;
        order.push_back(e);
        later.push_back(e);
      }
      while (!later.empty()) {
        const Expr* reader = later.back();
        later.pop_back();
        for (const Val* in : reader->inputs()) {
          need(in, reader->id());
        }
      }
    }
    if (readsEarlier) {
      std::ranges::reverse(order);
      return order;
    }
  }

  // Kahn's algorithm, smallest id first.
  std::vector<int64_t> waitsFor(exprs_.size(), 0);
  for (const std::unique_ptr<Val>& v : vals_) {
    if (v != nullptr && v->definition() != nullptr) {
      for (const Expr* use : uses_[v->id()]) {
        waitsFor[use->id()]++;
      }
    }
  }
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> ready;
  for (int64_t k = 0; k < numExprs(); k++) {
    if (needed[k] && waitsFor[k] == 0) {
      ready.push(k);
    }
  }
  const auto total = static_cast<size_t>(std::ranges::count(needed, true));
  std::vector<Expr*> order;
  order.reserve(total);
  while (!ready.empty()) {
    Expr* e = exprs_[ready.top()].get();
    ready.pop();
    order.push_back(e);
    for (Val* out : e->outputs()) {
      for (Expr* use : uses_[out->id()]) {
        if (needed[use->id()] && --waitsFor[use->id()] == 0) {
          ready.push(use->id());
        }
      }
    }
  }
  invariant(order.size() == total, "[ir] {} of {} expressions form a cycle", total - order.size(), total);
  return order;
}

std::vector<TensorView*> Fusion::tensors(ExprSet set) const {
  std::vector<TensorView*> all;
  const auto add = [&](Val* v) {
    if (v->isTensor()) {
      all.push_back(v->asTensor());
    }
  };
  std::ranges::for_each(inputs_, add);
  if (set == ExprSet::All) {
    for (const auto& v : vals_) {
      if (v != nullptr && !v->isInput_ && v->definition() == nullptr) {
        add(v.get());
      }
    }
  }
  for (const Expr* e : exprs(set)) {
    std::ranges::for_each(e->outputs(), add);
  }
  return all;
}

Val* Fusion::take(std::unique_ptr<Val> val, DataType dtype) {
  const int64_t id = std::exchange(nextValId_, std::nullopt).value_or(numVals());
  reserveId(id);
  invariant(vals_[id] == nullptr, "[ir] value id {} is already in use", id);
  val->fusion_ = this;
  val->id_ = id;
  val->dtype_ = dtype;
  vals_[id] = std::move(val);
  return vals_[id].get();
}

void Fusion::reserveId(int64_t id) {
  if (id >= numVals()) {
    vals_.resize(id + 1);
    uses_.resize(id + 1);
  }
}

void Fusion::renumber(Val* val, int64_t id) {
  reserveId(id);
  const int64_t from = std::exchange(val->id_, id);
  std::swap(vals_[id], vals_[from]);
  std::swap(uses_[id], uses_[from]);
  if (vals_[from] != nullptr) {
    vals_[from]->id_ = from;
  }
}

Val* Fusion::scalar(ScalarConst value) {
  if (const int64_t* i = std::get_if<int64_t>(&value)) {
    return intScalar(*i);
  }
  check(!std::holds_alternative<std::monostate>(value),
        "[scalar] got no value; use inputScalar for one known at run time");
  const bool* flag = std::get_if<bool>(&value);
  std::string key = flag != nullptr ? fmt::format("Bool {}", *flag ? 1 : 0)
                                    : fmt::format("Double {:x}", std::bit_cast<uint64_t>(std::get<double>(value)));
  Val*& interned = scalars_[key];
  if (interned == nullptr) {
    interned = take(std::make_unique<Val>(), flag != nullptr ? DataType::Bool : DataType::Double);
    interned->constant_ = value;
  }
  return interned;
}

Val* Fusion::zeroVal(DataType dtype) {
  return isFloatingPoint(dtype) ? scalar(0.0) : dtype == DataType::Bool ? scalar(false) : intScalar(0);
}

Val* Fusion::oneVal(DataType dtype) {
  return isFloatingPoint(dtype) ? scalar(1.0) : dtype == DataType::Bool ? scalar(true) : intScalar(1);
}

Val* Fusion::intScalar(const IntExpr& expr) {
  Val*& interned = scalars_["Int " + expr.toString()];
  if (interned == nullptr) {
    interned = take(std::make_unique<Val>(), DataType::Int);
    interned->intExpr_ = expr;
  }
  return interned;
}

Val* Fusion::inputScalar(DataType dtype) {
  Val* v = take(std::make_unique<Val>(), dtype);
  if (dtype == DataType::Int) {
    v->intExpr_ = freshSymbol({.lower = INT64_MIN});
    scalars_["Int " + v->intExpr_.toString()] = v;
  }
  return v;
}

IntExpr Fusion::freshSymbol(SymbolFacts facts) { return IntExpr::symbol(fmt::format("i{}", nextSymbol_++), facts); }

TensorView* Fusion::newTensor(DataType dtype) {
  auto tensor = std::make_unique<TensorView>();
  tensor->isTensor_ = true;
  return static_cast<TensorView*>(take(std::move(tensor), dtype));
}

TensorView* Fusion::tensor(DataType dtype, const std::vector<Dim>& logical) {
  return tensorFromRoot(dtype, logical, [](Fusion&, const std::vector<IterDomain*>& root) { return root; });
}

TensorView* Fusion::tensorFromRoot(
    DataType dtype, const std::vector<Dim>& root,
    const std::function<std::vector<IterDomain*>(Fusion&, const std::vector<IterDomain*>&)>& connect) {
  TensorView* t = newTensor(dtype);
  t->root_ = mapped(root, [this](const Dim& d) { return idNew(d); });
  t->logical_ = connect(*this, t->root_);
  t->hasRoot_ = t->logical_ != t->root_;
  if (!t->hasRoot_) {
    t->root_.clear();
  }
  t->loop_ = t->logical_;
  t->contiguity_.assign(t->noReductions().size(), true);
  return t;
}

Expr* Fusion::addExpr(ExprKind kind, std::vector<Val*> inputs, std::vector<Val*> outputs, ExprAttributes attributes) {
  std::string_view op = kind == ExprKind::Point ? info(attributes.point).name : ruleOf(kind).name;
  for (const Val* v : inputs) {
    check(v != nullptr, "[{}] an operand is null, expected a value of this fusion", op);
    check(&v->fusion() == this, "[{}] an operand belongs to another fusion; build all values in one", op);
  }
  auto owned = std::make_unique<Expr>();
  Expr* e = owned.get();
  e->fusion_ = this;
  e->id_ = std::ssize(exprs_);
  e->kind_ = kind;
  e->attributes_ = std::move(attributes);
  for (Val* v : outputs) {
    invariant(v != nullptr && &v->fusion() == this, "[{}] a result belongs to another fusion", op);
    if (v->definition_ != nullptr || v->isInput_) [[unlikely]] {  // the text is made where it is needed
      throwInternalError(fmt::format("[{}] {} has a definition or is an input", op, v->toString()));
    }
    v->definition_ = e;
  }
  e->inputs_ = std::move(inputs);
  e->outputs_ = std::move(outputs);
  exprs_.push_back(std::move(owned));
  for (Val* v : e->inputs_) {
    addUse(v, e);
  }
  return e;
}

TensorView* Fusion::addOp(ExprKind kind, std::vector<Val*> inputs, DataType dtype, const std::vector<Dim>& logical,
                          ExprAttributes attributes) {
  TensorView* out = tensor(dtype, logical);
  addExpr(kind, std::move(inputs), {out}, std::move(attributes));
  return out;
}

IterDomain* Fusion::idPartial(IterDomain* stored, ReduceOp combine) {
  stored->iterType_ = IterType::Partial;
  stored->combine_ = combine;
  return stored;
}

IterDomain* Fusion::idNew(const Dim& dim) {
  IterDomain* id = ids_.emplace_back(std::make_unique<IterDomain>()).get();
  id->id_ = std::ssize(ids_) - 1;
  id->extent_ = dim.extent;
  id->iterType_ = dim.type;
  id->combine_ = dim.combine;
  return id;
}

IdExpr* Fusion::newIdExpr(IdExpr expr) {
  IdExpr* e = idExprs_.emplace_back(std::make_unique<IdExpr>(std::move(expr))).get();
  for (IterDomain* in : e->in) {
    in->replaced_ = true;
  }
  for (IterDomain* out : e->out) {
    out->definition_ = e;
  }
  return e;
}

std::pair<IterDomain*, IterDomain*> Fusion::idSplit(IterDomain* in, const IntExpr& factor, bool innerSplit,
                                                    std::optional<IterType> outerType) {
  if (factor.upper() && *factor.upper() < 1) [[unlikely]] {  // the text is made where it is needed
    throwUserError(
        fmt::format("[split] got factor {} for dim {}; expected at least 1", factor.toString(), in->toString()));
  }
  IntExpr other = ceilDiv(in->extent(), factor);
  IterDomain* outer = idNew(innerSplit ? other : factor, outerType.value_or(typeOfPart(in)));
  IterDomain* inner = idNew(innerSplit ? factor : other, typeOfPart(in));
  newIdExpr({.kind = IdExprKind::Split, .in = {in}, .out = {outer, inner}, .factor = factor, .innerSplit = innerSplit});
  return {outer, inner};
}

IterDomain* Fusion::idMerge(IterDomain* outer, IterDomain* inner) {
  IterDomain* out = idNew(outer->extent() * inner->extent(), mergedType(outer, inner));
  newIdExpr({.kind = IdExprKind::Merge, .in = {outer, inner}, .out = {out}});
  return out;
}

std::pair<IterDomain*, IterDomain*> Fusion::idPartition(IterDomain* in, const std::vector<IntExpr>& sizes,
                                                        std::optional<IterType> outerType) {
  for (const IntExpr& size : sizes) {
    if (size.upper().value_or(0) < 0) [[unlikely]] {
      throwUserError(fmt::format("[partition] got a part of size {} for dim {}; expected 0 or more", size.toString(),
                                 in->toString()));
    }
  }
  const IntExpr together = sumOf(sizes);
  if (sizes.empty() || (together.isConst() && in->extent().isConst() && together != in->extent())) [[unlikely]] {
    throwUserError(
        fmt::format("[partition] got {} parts with {} elements in total for dim {}; expected at least one part, and as "
                    "many elements as the dim has: give the sizes of all parts",
                    sizes.size(), together.toString(), in->toString()));
  }
  IterDomain* outer = idNew(std::ssize(sizes), outerType.value_or(typeOfPart(in)));
  IterDomain* inner = idNew(largestOf(sizes), typeOfPart(in));
  newIdExpr({.kind = IdExprKind::Partition, .in = {in}, .out = {outer, inner}, .sizes = sizes});
  return {outer, inner};
}

IterDomain* Fusion::idResize(IterDomain* in, const IntExpr& left, const IntExpr& right, std::optional<IterType> type) {
  IterType outType = type.value_or(in->isBroadcast() ? IterType::Iteration : typeOfPart(in));
  IterDomain* out = idNew(in->extent() + left + right, outType);
  newIdExpr({.kind = IdExprKind::Resize, .in = {in}, .out = {out}, .left = left, .right = right});
  return out;
}

// -- rewriting --------------------------------------------------------------------------------------------------------------

void Fusion::addUse(Val* val, Expr* expr) {
  std::vector<Expr*>& uses = uses_[val->id()];
  const auto at = std::ranges::lower_bound(uses, expr->id(), {}, &Expr::id);
  if (at == uses.end() || *at != expr) {
    uses.insert(at, expr);
  }
}

void Fusion::removeUse(Val* val, Expr* expr) { std::erase(uses_[val->id()], expr); }

void Fusion::replaceUses(Val* from, Val* to) {
  checkOwn(from, "replaceUses");
  checkOwn(to, "replaceUses");
  if (from == to) {
    return;
  }
  for (Expr* e : std::exchange(uses_[from->id()], {})) {
    if (e == to->definition()) {
      addUse(from, e);
    } else {
      std::ranges::replace(e->inputs_, from, to);
      addUse(to, e);
    }
  }
  if (from->isOutput_) {
    invariant(to->isTensor(), "[replaceUses] output {} cannot be replaced by the scalar {}", from->toString(),
              to->toString());
    std::ranges::replace(outputs_, from, to);
    from->isOutput_ = false;
    to->isOutput_ = true;
    for (auto& alias : aliases_) {
      alias.first = alias.first == from ? to : alias.first;
    }
  }
}

void Fusion::replaceInput(Expr* expr, int64_t operand, Val* to) {
  checkOwn(to, "replaceInput");
  Val* from = std::exchange(expr->inputs_.at(operand), to);
  if (!contains(expr->inputs_, from)) {
    removeUse(from, expr);
  }
  addUse(to, expr);
}

void Fusion::removeExpr(Expr* expr) {
  for (Val* v : expr->inputs_) {
    removeUse(v, expr);
  }
  for (Val* v : expr->outputs_) {
    v->definition_ = nullptr;
  }
  exprs_[expr->id()].reset();
}

int64_t Fusion::meshNumber(const DeviceMesh& mesh) {
  const int64_t number = positionIn(meshes_, mesh);
  if (number == std::ssize(meshes_)) {
    invariant(!mesh.empty(), "[ir] the empty mesh has no number");
    meshes_.push_back(mesh);
  }
  return number;
}

// -- FusionGuard --------------------------------------------------------------------------------------------------------------

FusionGuard::FusionGuard(Fusion* fusion) : previous_(std::exchange(currentFusion, fusion)) {}
FusionGuard::~FusionGuard() { currentFusion = previous_; }

Fusion* FusionGuard::current() {
  check(currentFusion != nullptr,
        "[FusionGuard] no fusion is being defined on this thread; write FusionGuard guard(&fusion) first");
  return currentFusion;
}

}  // namespace meshfuse
