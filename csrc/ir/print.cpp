// Fusion -> text: see ir/text.h.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <ranges>

#include "base/error.h"
#include "base/ranges.h"
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
      : fusion_(fusion), numbering_(numbering), detail_(detail), meshes_(fusion.meshes()) {}

  std::string all() {
    const bool unfinished = fusion_.outputs().empty();
    std::vector<Expr*> exprs = fusion_.exprs(unfinished ? ExprSet::All : ExprSet::Needed);
    std::string body;
    for (const int64_t k : indices(fusion_.inputs())) {
      body += line({fusion_.inputs()[k]}, fmt::format("input({})", fusion_.inputNames()[k]));
    }
    for (const Val* v : undefined(exprs)) {
      body += line({v}, "undefined()");
    }
    for (const Expr* e : exprs) {
      body += line({e->outputs().begin(), e->outputs().end()}, call(*e), e);
    }
    for (const int64_t k : indices(fusion_.outputs())) {
      const std::string& name = fusion_.outputNames()[k];
      body += fmt::format("  output {}{}\n", valueText(fusion_.outputs()[k]), name.empty() ? "" : " as " + name);
    }
    for (const auto& [out, in] : fusion_.aliases()) {
      body += "  alias " + valueText(out) + " -> " + valueText(in) + "\n";
    }
    return "fusion {\n" + symbolLines() + meshLines() + plannerLine() + body + "}\n";
  }

 private:
  // Values that are read, neither computed nor given: wrong, and so to be seen.
  std::vector<const Val*> undefined(const std::vector<Expr*>& exprs) const {
    std::map<int64_t, const Val*> found;
    auto visit = [&](const Val* v) {
      if (isNamed(v) && !v->isFusionInput() && v->definition() == nullptr) {
        found[v->id()] = v;
      }
    };
    for (const Expr* e : exprs) {
      std::ranges::for_each(e->inputs(), visit);
    }
    std::ranges::for_each(fusion_.outputs(), visit);
    return mapped(found, [](const auto& entry) { return entry.second; });
  }

  std::string text(const IntExpr& e) {
    recordSymbols(e);
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
    int64_t number = v->id();
    if (numbering_ == Numbering::FromZero) {
      number = numbers_.emplace(v->id(), std::ssize(numbers_)).first->second;
    }
    return fmt::format("{}{}", v->isTensor() ? 'T' : 'S', number);
  }

  std::string line(const std::vector<const Val*>& results, const std::string& call, const Expr* definition = nullptr) {
    const std::string names = joined(results, ", ", [&](const Val* v) { return valueText(v); });
    const std::string types = joined(results, "", [&](const Val* v) {
      return " : " + (v->isTensor() ? tensorText(*v->asTensor(), definition) : scalarText(*v));
    });
    return fmt::format("  {} = {}{}\n", names, call, types);
  }

  std::string scalarText(const Val& v) {
    std::string type(name(v.dtype()));
    return v.dtype() == DataType::Int ? type + " " + text(v.intExpr()) : type;
  }

  std::string call(const Expr& e) {
    const std::string arguments = joined(e.inputs(), ", ", [&](const Val* v) { return valueText(v); });
    const std::string attributes = attributesText(
        e, [this](const IntExpr& x) { return text(x); }, [this](const DeviceMesh& mesh) { return meshNumber(mesh); });
    const std::string_view comma = arguments.empty() || attributes.empty() ? "" : ", ";
    return fmt::format("{}({}{}{})", e.opName(), arguments, comma, attributes);
  }

  std::string tensorText(const TensorView& t, const Expr* definition) {
    const auto toText = [this](const IntExpr& e) { return text(e); };
    std::string result = fmt::format("{}[{}]", name(t.dtype()), dimsText(t.getLogicalDomain(), toText));
    result += rootPart(t, definition);
    if (definition == nullptr || contains(t.contiguity(), false)) {
      result += " contiguity" + flagsText(t.contiguity());
    }
    if (t.hasAllocation()) {
      result += " alloc" + listText(t.memoryOrder());
    }
    if (detail_ == Detail::Math) {
      return result;
    }
    if (t.hasDeviceMesh()) {
      result += fmt::format(" mesh M{}{}", meshNumber(t.getDeviceMesh()), t.isUserSharded() ? " pinned" : "");
    }
    const std::vector<LoopTransform> transforms = t.loopTransforms();
    if (transforms.empty()) {
      return result;
    }
    for (const LoopTransform& transform : transforms) {
      result += " " + transformText(transform);
    }
    return result + " loop" + listText(t.getLoopDomain(), [this](const IterDomain* id) {
             recordSymbols(id->extent());
             return id->toString();
           });
  }

  std::string rootPart(const TensorView& t, const Expr* definition) {
    auto toText = [this](const IntExpr& e) { return text(e); };
    const std::string actual = rootText(t, toText);
    const bool implies = definition != nullptr && impliesRoot(definition->kind());
    if (actual == (implies ? impliedRoot(t, *definition) : "")) {
      return "";
    }
    return actual.empty() ? " root[logical]" : " " + actual;
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

  int64_t meshNumber(const DeviceMesh& mesh) {
    const int64_t number = positionIn(meshes_, mesh);
    if (number == std::ssize(meshes_)) {
      meshes_.push_back(mesh);
    }
    return number;
  }

  bool isAxisName(const std::string& symbol) const {
    return std::ranges::any_of(meshes_, [&](const DeviceMesh& mesh) {
      return std::ranges::any_of(std::views::iota(int64_t{0}, mesh.numAxes()),
                                 [&](int64_t k) { return mesh.axisName(k) == symbol && !mesh.axisSize(k).isConst(); });
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
    for (int64_t k = 0; k < std::ssize(meshes_); k++) {
      std::string text = meshes_[k].toString();
      const size_t end = text.find('}') + 1;
      lines += fmt::format("  mesh M{} {} {}\n", k, text.substr(0, end), text.substr(end));
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
  std::vector<DeviceMesh> meshes_;  // those with a number first, then in order of appearance
  std::map<std::string, SymbolFacts, ByLengthThenName> symbols_;
  std::map<int64_t, int64_t> numbers_;
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
