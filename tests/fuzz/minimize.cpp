#include "fuzz/minimize.h"

#include <exception>
#include <map>
#include <optional>

#include "fuzz/graph.h"
#include "interpret/interpret.h"
#include "ir/text.h"

namespace meshfuse::fuzz {

namespace {

Program copyOf(const Program& p) { return {p.seed, p.fusion->clone(), p.inputs, p.ranks, p.mesh}; }

// Text and back leaves out what no output needs; inputs that nobody reads go too.
std::optional<Program> tidy(Program p) {
  Program result{p.seed, nullptr, {}, p.ranks, p.mesh};
  Fusion& fusion = *p.fusion;
  std::vector<bool> needed(fusion.inputs().size(), false);
  for (const Expr* e : fusion.exprs()) {
    for (const Val* in : e->inputs()) {
      for (size_t i = 0; i < fusion.inputs().size(); i++) {
        needed[i] = needed[i] || fusion.inputs()[i] == in;
      }
    }
  }
  std::string text = fusion.toString();
  std::string kept;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find('\n', begin) + 1;
    std::string line = text.substr(begin, end - begin);
    bool drop = false;
    for (size_t i = 0; i < needed.size(); i++) {
      const Val* in = fusion.inputs()[i];
      drop =
          drop ||
          (!needed[i] && !in->isFusionOutput() &&
           line.starts_with("  " + std::string(in->isTensor() ? "T" : "S") + std::to_string(in->id()) + " = input("));
    }
    kept += drop ? "" : line;
    begin = end;
  }
  for (size_t i = 0; i < needed.size(); i++) {
    if (needed[i] || fusion.inputs()[i]->isFusionOutput()) {
      result.inputs.push_back(p.inputs[i]);
    }
  }
  try {
    result.fusion = parseFusion(kept);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  if (result.fusion->inputs().size() != result.inputs.size()) {
    return std::nullopt;
  }
  return result;
}

using Change = std::function<bool(Program&)>;  // false: does not apply

// All single changes of a program, the most promising first.
std::vector<Change> changesOf(const Program& program) {
  std::vector<Change> changes;
  const Fusion& fusion = *program.fusion;
  for (size_t i = 0; i < fusion.outputs().size() && fusion.outputs().size() > 1; i++) {
    changes.push_back([i](Program& p) {
      p.fusion->removeOutput(p.fusion->outputs()[i]);
      return true;
    });
  }
  std::vector<TensorView*> tensors = fusion.tensors();
  for (size_t k = tensors.size(); k-- > 0;) {
    int id = tensors[k]->id();
    if (tensors[k]->isFusionInput()) {
      continue;
    }
    changes.push_back([id](Program& p) {  // what it is made of goes
      TensorView* old = p.fusion->val(id)->asTensor();
      if (old->isFusionOutput() && p.fusion->uses(old).empty()) {
        return false;
      }
      Tensor value = interpretAll(*p.fusion, p.inputs).at(id);
      std::vector<Dim> dims;
      for (const IterDomain* d : old->noReductions()) {
        dims.push_back({d->extent(), d->isPartial() ? IterType::Iteration : d->iterType()});
      }
      TensorView* in = p.fusion->tensor(old->dtype(), dims);
      p.fusion->replaceUses(old, in);
      p.fusion->addInput(in);
      in->setDeviceMesh(old->getDeviceMesh());
      if (!old->hasReduction()) {
        in->applyLoopTransforms(old->loopTransforms());
      }
      p.inputs.emplace_back(value);
      return true;
    });
    changes.push_back([id](Program& p) {  // what reads it goes
      TensorView* tv = p.fusion->val(id)->asTensor();
      if (tv->isFusionOutput()) {
        return false;
      }
      while (!p.fusion->outputs().empty()) {
        p.fusion->removeOutput(p.fusion->outputs()[0]);
      }
      p.fusion->addOutput(tv);
      return true;
    });
    changes.push_back([id](Program& p) {  // an op is left out
      TensorView* tv = p.fusion->val(id)->asTensor();
      if (tv->definition() == nullptr) {
        return false;
      }
      for (Val* in : tv->definition()->inputs()) {
        if (in->isTensor() && in->dtype() == tv->dtype() && shapeOf(in->asTensor()) == shapeOf(tv) &&
            !(tv->isFusionOutput() && in->isFusionInput())) {
          p.fusion->replaceUses(tv, in);
          return true;
        }
      }
      return false;
    });
  }
  for (const TensorView* tv : tensors) {
    int id = tv->id();
    if (tv->loopTransforms().empty() && (tv->isFusionInput() || !tv->hasDeviceMesh())) {
      continue;
    }
    changes.push_back([id](Program& p) {
      TensorView* t = p.fusion->val(id)->asTensor();
      t->resetLoop();
      if (!t->isFusionInput()) {
        t->setDeviceMesh({});
      }
      return true;
    });
  }
  return changes;
}

}  // namespace

Program minimize(const Program& program, const std::function<bool(const Program&)>& fails, int budget) {
  Program best = copyOf(program);
  for (bool progress = true; progress && budget > 0;) {
    progress = false;
    for (const Change& change : changesOf(best)) {
      Program candidate = copyOf(best);
      std::optional<Program> tidied;
      try {
        if (!change(candidate)) {
          continue;
        }
        tidied = tidy(std::move(candidate));
      } catch (const std::exception&) {
        continue;
      }
      if (!tidied || tidied->fusion->toString() == best.fusion->toString() || tidied->fusion->outputs().empty()) {
        continue;
      }
      if (budget-- <= 0) {
        break;
      }
      if (fails(*tidied)) {
        best = std::move(*tidied);
        progress = true;
        break;
      }
    }
  }
  return best;
}

}  // namespace meshfuse::fuzz
