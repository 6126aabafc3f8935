#include "exec/argument_facts.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "exec/arguments.h"
#include "exec/overlaps.h"

namespace meshfuse {

namespace {

bool holdForTensor(const ArgumentFacts& facts, const Tensor& t) {
  return alignmentOf(t.data()) == facts.alignment && t.dtype() == facts.dtype &&
         std::ranges::equal(facts.sizes, t.sizes()) && std::ranges::equal(facts.globalShape, t.globalShape()) &&
         (facts.elements.empty() || facts.elements == elementsOf(t)) && std::ranges::equal(facts.strides, t.strides());
}

bool hasValue(const ArgumentFacts& facts, const Argument& scalar) {
  const int64_t* value = std::get_if<int64_t>(&scalar);
  return facts.sizes.empty() || (value != nullptr && *value == facts.sizes[0]);
}

std::string differenceOf(const ArgumentFacts& facts, const Argument& argument) {
  const Tensor* t = std::get_if<Tensor>(&argument);
  if (argument.index() != facts.kind) {
    return "is an argument of another kind";
  }
  if (t == nullptr) {
    return fmt::format("is {} instead of {}", std::get<int64_t>(argument), facts.sizes[0]);
  }
  if (t->dtype() != facts.dtype) {
    return fmt::format("has type {} instead of {}", name(t->dtype()), name(facts.dtype));
  }
  const std::vector<int64_t> elements = facts.elements.empty() ? facts.elements : elementsOf(*t);
  const std::tuple<std::string_view, std::span<const int64_t>, std::span<const int64_t>> lists[] = {
      {"has sizes", t->sizes(), facts.sizes},
      {"has global shape", t->globalShape(), facts.globalShape},
      {"has elements", elements, facts.elements},
      {"has strides", t->strides(), facts.strides}};
  for (const auto& [what, now, before] : lists) {
    if (!std::ranges::equal(now, before)) {
      return fmt::format("{} [{}] instead of [{}]", what, fmt::join(now, ", "), fmt::join(before, ", "));
    }
  }
  return fmt::format("has alignment {} instead of {}", alignmentOf(t->data()), facts.alignment);
}

}  // namespace

bool ArgumentFacts::holdFor(const Argument& argument) const {
  const Tensor* t = std::get_if<Tensor>(&argument);
  return argument.index() == kind && (t != nullptr ? holdForTensor(*this, *t) : hasValue(*this, argument));
}

std::vector<ArgumentFacts> factsOf(const Fusion& fusion, std::span<const Argument> inputs) {
  const std::vector<bool> givesShapes = shapeInputs(fusion);
  std::vector<ArgumentFacts> facts(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    facts[i].kind = inputs[i].index();
    if (const Tensor* t = std::get_if<Tensor>(&inputs[i])) {
      facts[i].dtype = t->dtype();
      facts[i].alignment = alignmentOf(t->data());
      facts[i].sizes.assign(t->sizes().begin(), t->sizes().end());
      facts[i].strides.assign(t->strides().begin(), t->strides().end());
      facts[i].globalShape.assign(t->globalShape().begin(), t->globalShape().end());
      facts[i].extent = extentBytes(*t);
      if (i < givesShapes.size() && givesShapes[i]) {
        facts[i].elements = elementsOf(*t);
      }
    } else if (const int64_t* value = std::get_if<int64_t>(&inputs[i]);
               value != nullptr && i < givesShapes.size() && givesShapes[i]) {
      facts[i].sizes = {*value};
    }
  }
  return facts;
}

bool hold(const std::vector<ArgumentFacts>& facts, std::span<const Argument> inputs) {
  return std::ranges::equal(facts, inputs, &ArgumentFacts::holdFor);
}

bool haveSameShapes(const std::vector<ArgumentFacts>& a, const std::vector<ArgumentFacts>& b) {
  return std::ranges::equal(a, b, [](const ArgumentFacts& x, const ArgumentFacts& y) {
    return x.areOfTensor() == y.areOfTensor() && x.dtype == y.dtype && x.sizes == y.sizes && x.elements == y.elements &&
           x.globalShape == y.globalShape;
  });
}

std::string difference(const std::vector<ArgumentFacts>& facts, std::span<const Argument> inputs) {
  for (size_t i = 0; i < inputs.size(); i++) {
    if (i >= facts.size()) {
      return fmt::format("input {} is additional", i);
    }
    if (!facts[i].holdFor(inputs[i])) {
      return fmt::format("input {} {}", i, differenceOf(facts[i], inputs[i]));
    }
  }
  return "";
}

}  // namespace meshfuse
