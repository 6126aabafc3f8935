// Fusion -> text: see ir/text.h.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/error.h"
#include "ir/attribute_text.h"
#include "ir/fusion.h"
#include "ir/root_text.h"

namespace meshfuse {

namespace {

enum class Numbering : uint8_t { Ids, FromZero };
enum class Detail : uint8_t { All, Math };

// Symbols in the order i2, i10.
struct ByLengthThenName {
  bool operator()(const std::string& a, const std::string& b) const {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  }
};

bool isNamed(const Val* v) {
  return v->isTensor() || v->isFusionInput() || v->definition() != nullptr ||
         (!v->isConst() && v->dtype() != DataType::Int);
}

bool isPlain(const SymbolFacts& facts, bool isAxis) {
  return facts.lower == (isAxis ? 1 : 0) && facts.upper == INT64_MAX && facts.divisor == 1;
}

class Printer {
 public:
  Printer(const Fusion& fusion, Numbering numbering, Detail detail)
      : fusion_(fusion), numbering_(numbering), detail_(detail) {}

  std::string all() {
    const bool unfinished = fusion_.outputs().empty();
    std::vector<Expr*> exprs = fusion_.exprs(unfinished ? ExprSet::All : ExprSet::Needed);
    std::string body;
    for (const Val* v : fusion_.inputs()) {
      body += line({v}, "input()");
    }
    for (const Val* v : undefined(exprs)) {
      body += line({v}, "undefined()");
    }
    for (const Expr* e : exprs) {
      body += line({e->outputs().begin(), e->outputs().end()}, call(*e), e);
    }
    for (const Val* v : fusion_.outputs()) {
      body += "  output " + valueText(v) + "\n";
    }
    for (const auto& [out, in] : fusion_.aliases()) {
      body += "  alias " + valueText(out) + " -> " + valueText(in) + "\n";
    }
    return "fusion {\n" + symbolLines() + meshLines() + plannerLine() + body + "}\n";
  }

 private:
  // Values that are read, neither computed nor given: wrong, and so to be seen.
  std::vector<const Val*> undefined(const std::vector<Expr*>& exprs) const {
    std::map<int, const Val*> found;
    auto visit = [&](const Val* v) {
      if (isNamed(v) && !v->isFusionInput() && v->definition() == nullptr) {
        found[v->id()] = v;
      }
    };
    for (const Expr* e : exprs) {
      std::for_each(e->inputs().begin(), e->inputs().end(), visit);
    }
    std::for_each(fusion_.outputs().begin(), fusion_.outputs().end(), visit);
    std::vector<const Val*> values;
    for (const auto& [id, v] : found) {
      values.push_back(v);
    }
    return values;
  }

  std::string text(const IntExpr& e) {
    if (!e.isConst()) {
      recordSymbols(e);
    }
    return e.toString();
  }

  void recordSymbols(const IntExpr& e) {
    for (const IntTerm& t : e.terms()) {
      for (const IntAtomPtr& atom : t.factors) {
        if (atom->kind == AtomKind::Symbol) {
          symbols_.emplace(atom->key, atom->facts);
        }
        for (const IntExpr& arg : atom->args) {
          recordSymbols(arg);
        }
      }
    }
  }

  std::string valueText(const Val* v) {
    if (!isNamed(v)) {
      return v->dtype() == DataType::Int ? text(v->intExpr()) : v->toString();
    }
    int number = v->id();
    if (numbering_ == Numbering::FromZero) {
      number = numbers_.emplace(v->id(), static_cast<int>(numbers_.size())).first->second;
    }
    return fmt::format("{}{}", v->isTensor() ? 'T' : 'S', number);
  }

  std::string line(const std::vector<const Val*>& results, const std::string& call, const Expr* definition = nullptr) {
    std::string names;
    std::string types;
    for (const Val* v : results) {
      names += (names.empty() ? "" : ", ") + valueText(v);
      types += " : " + (v->isTensor() ? tensorText(*v->asTensor(), definition) : scalarText(*v));
    }
    return fmt::format("  {} = {}{}\n", names, call, types);
  }

  std::string scalarText(const Val& v) {
    std::string type(name(v.dtype()));
    return v.dtype() == DataType::Int ? type + " " + text(v.intExpr()) : type;
  }

  std::string call(const Expr& e) {
    std::string arguments;
    for (const Val* v : e.inputs()) {
      arguments += (arguments.empty() ? "" : ", ") + valueText(v);
    }
    std::string attributes = attributesText(
        e, [this](const IntExpr& x) { return text(x); }, [this](const DeviceMesh& mesh) { return meshNumber(mesh); });
    if (!arguments.empty() && !attributes.empty()) {
      arguments += ", ";
    }
    return fmt::format("{}({}{})", e.opName(), arguments, attributes);
  }

  std::string dims(const std::vector<IterDomain*>& ids) {
    std::string list;
    for (const IterDomain* id : ids) {
      (void)text(id->extent());
      list += (list.empty() ? "" : ", ") + id->toString();
    }
    return "[" + list + "]";
  }

  std::string shapeText(const TensorView& t) {
    return fmt::format("{}[{}]", name(t.dtype()),
                       dimsText(t.getLogicalDomain(), [this](const IntExpr& e) { return text(e); }));
  }

  std::string tensorText(const TensorView& t, const Expr* definition) {
    std::string result = shapeText(t) + rootPart(t, definition);
    const std::vector<bool>& contiguity = t.contiguity();
    if (definition == nullptr || std::find(contiguity.begin(), contiguity.end(), false) != contiguity.end()) {
      result += " contiguity" + flagsText(contiguity);
    }
    if (t.hasAllocation()) {
      result += fmt::format(" alloc[{}]", fmt::join(t.memoryOrder(), ", "));
    }
    if (detail_ == Detail::Math) {
      return result;
    }
    if (t.hasDeviceMesh()) {
      result += fmt::format(" mesh M{}{}", meshNumber(t.getDeviceMesh()), t.isUserSharded() ? " pinned" : "");
    }
    std::vector<LoopTransform> transforms = t.loopTransforms();
    for (const LoopTransform& transform : transforms) {
      result += " " + transformText(transform);
    }
    return transforms.empty() ? result : result + " loop" + dims(t.getLoopDomain());
  }

  std::string rootPart(const TensorView& t, const Expr* definition) {
    auto toText = [this](const IntExpr& e) { return text(e); };
    std::string actual = rootText(t, toText);
    if (definition != nullptr && impliesRoot(definition->kind())) {
      std::string implied = impliedRoot(t, *definition);
      if (implied == actual) {
        return "";
      }
      return actual.empty() ? " root[logical]" : " " + actual;
    }
    return actual.empty() ? "" : " " + actual;
  }

  std::string impliedRoot(const TensorView& t, const Expr& definition) {
    if (definition.inputs().empty() || !definition.input(0)->isTensor()) {
      return "";
    }
    const std::vector<Dim> root = dimsOf(definition.input(0)->asTensor());
    const std::vector<Dim> logical = dimsOf(t.getLogicalDomain());
    try {
      Fusion scratch;
      TensorView* implied =
          scratch.tensorFromRoot(t.dtype(), root, [&](Fusion& fusion, const std::vector<IterDomain*>& ids) {
            return connectImplied(fusion, definition.kind(), definition.attributes(), ids, logical);
          });
      return rootText(*implied, [](const IntExpr& e) { return e.toString(); });
    } catch (const UserError&) {
      return "none";  // the op does not imply a root domain, so the existing one is printed
    }
  }

  std::string transformText(const LoopTransform& t) {
    switch (t.kind) {
      case LoopTransform::Kind::Split:
        return fmt::format("{}_split({}, {})", t.innerSplit ? "inner" : "outer", t.axis, text(t.factor));
      case LoopTransform::Kind::Partition:
        return fmt::format("partition({}, {})", t.axis,
                           listText(t.sizes, [this](const IntExpr& e) { return text(e); }));
      case LoopTransform::Kind::Merge:
        return fmt::format("merge({})", t.axis);
      case LoopTransform::Kind::Parallelize:
        return fmt::format("parallelize({}, {})", t.axis, t.type.toString());
      case LoopTransform::Kind::Reorder:
        break;
    }
    return "reorder" + listText(t.order);
  }

  int meshNumber(const DeviceMesh& mesh) {
    std::vector<DeviceMesh>& all = meshes();
    auto it = std::find(all.begin(), all.end(), mesh);
    if (it == all.end()) {
      all.push_back(mesh);
      it = all.end() - 1;
    }
    return static_cast<int>(it - all.begin());
  }

  // Those with a number first, then in order of appearance.
  std::vector<DeviceMesh>& meshes() {
    if (!meshes_) {
      meshes_ = fusion_.meshes();
    }
    return *meshes_;
  }

  bool isAxisName(const std::string& symbol) {
    return std::any_of(meshes().begin(), meshes().end(), [&](const DeviceMesh& mesh) {
      for (int k = 0; k < mesh.numAxes(); k++) {
        if (mesh.axisName(k) == symbol && !mesh.axisSize(k).isConst()) {
          return true;
        }
      }
      return false;
    });
  }

  std::string symbolLines() {
    std::string lines;
    for (const auto& [symbol, facts] : symbols_) {
      if (isPlain(facts, isAxisName(symbol))) {
        continue;
      }
      std::string line = facts.lower == INT64_MIN ? "lower: none" : fmt::format("lower: {}", facts.lower);
      if (facts.upper != INT64_MAX) {
        line += fmt::format(", upper: {}", facts.upper);
      }
      if (facts.divisor != 1) {
        line += fmt::format(", divisor: {}", facts.divisor);
      }
      lines += fmt::format("  symbol {} {{{}}}\n", symbol, line);
    }
    return lines;
  }

  std::string meshLines() {
    std::string lines;
    if (detail_ == Detail::Math) {
      return lines;
    }
    for (size_t k = 0; k < meshes().size(); k++) {
      std::string text = meshes()[k].toString();
      lines +=
          fmt::format("  mesh M{} {} {}\n", k, text.substr(0, text.find('}') + 1), text.substr(text.find('}') + 1));
    }
    return lines;
  }

  std::string plannerLine() {
    const std::string text = detail_ == Detail::Math ? "" : meshfuse::toString(fusion_.planner());
    return text.empty() ? "" : fmt::format("  planner {{{}}}\n", text);
  }

  const Fusion& fusion_;
  Numbering numbering_;
  Detail detail_;
  std::optional<std::vector<DeviceMesh>> meshes_;
  std::map<std::string, SymbolFacts, ByLengthThenName> symbols_;
  std::map<int, int> numbers_;
};

}  // namespace

std::string Fusion::toString() const { return Printer(*this, Numbering::Ids, Detail::All).all(); }

void Fusion::print() const { fmt::print("{}", toString()); }

void Fusion::printMath() const { fmt::print("{}", Printer(*this, Numbering::Ids, Detail::Math).all()); }

Hash128 Fusion::hash() const { return hashText(Printer(*this, Numbering::FromZero, Detail::All).all()); }

bool Fusion::sameDefinition(const Fusion& other) const {
  return Printer(*this, Numbering::FromZero, Detail::All).all() ==
         Printer(other, Numbering::FromZero, Detail::All).all();
}

}  // namespace meshfuse
