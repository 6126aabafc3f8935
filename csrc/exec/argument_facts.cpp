#include "exec/argument_facts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "exec/arguments.h"
#include "exec/overlaps.h"

namespace meshfuse {

namespace {

std::string differenceOf(const ArgumentFacts& facts, const Argument& argument) {
  const Tensor* t = std::get_if<Tensor>(&argument);
  if (argument.index() != facts.kind) {
    return "is an argument of another kind";
  }
  if (t == nullptr) {
    return fmt::format("is {} instead of {}", std::get<int64_t>(argument), facts.sizes[0]);
  }
  if (t->device() != facts.device) {
    return fmt::format("is on {} instead of {}", t->device().toString(), facts.device.toString());
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

// In one pass without a branch for each number: a warm call finds all of them equal.
bool haveSizesAndStrides(const ArgumentFacts& facts, const Tensor& t) {
  const std::span<const int64_t> sizes = t.sizes();
  const std::span<const int64_t> strides = t.strides();
  if (facts.sizes.size() != sizes.size()) {
    return false;
  }
  int64_t different = 0;
  for (size_t d = 0; d < sizes.size(); d++) {
    different |= (facts.sizes[d] ^ sizes[d]) | (facts.strides[d] ^ strides[d]);
  }
  return different == 0;
}

}  // namespace

bool ArgumentFacts::holdFor(const Argument& argument) const {
  if (argument.index() != kind) {
    return false;
  }
  if (const Tensor* t = std::get_if<Tensor>(&argument)) {
    return t->dtype() == dtype && t->device() == device && alignmentOf(t->data()) == alignment &&
           haveSizesAndStrides(*this, *t) && areEqual(globalShape, t->globalShape()) &&
           (elements.empty() || elements == elementsOf(*t));
  }
  const int64_t* value = std::get_if<int64_t>(&argument);
  return sizes.empty() || (value != nullptr && *value == sizes[0]);
}

std::vector<ArgumentFacts> factsOf(const Fusion& fusion, std::span<const Argument> inputs) {
  const std::vector<bool> givesShapes = shapeInputs(fusion);
  return mapped(indices(inputs), [&](int64_t i) {
    const bool givesShape = i < std::ssize(givesShapes) && givesShapes[i];
    ArgumentFacts facts{.kind = inputs[i].index()};
    if (const Tensor* t = std::get_if<Tensor>(&inputs[i])) {
      facts.device = t->device();
      facts.dtype = t->dtype();
      facts.alignment = alignmentOf(t->data());
      facts.sizes.assign(t->sizes().begin(), t->sizes().end());
      facts.strides.assign(t->strides().begin(), t->strides().end());
      facts.elements = givesShape && t->dtype() == DataType::Int ? elementsOf(*t) : std::vector<int64_t>();
      facts.globalShape.assign(t->globalShape().begin(), t->globalShape().end());
      facts.extent = t->spannedBytes();
    } else if (const int64_t* value = std::get_if<int64_t>(&inputs[i]); value != nullptr && givesShape) {
      facts.sizes = {*value};
    }
    return facts;
  });
}

bool hold(const std::vector<ArgumentFacts>& facts, std::span<const Argument> inputs) {
  return std::ranges::equal(facts, inputs, [](const ArgumentFacts& f, const Argument& a) { return f.holdFor(a); });
}

bool haveSameFactsBesideSizes(const std::vector<ArgumentFacts>& a, const std::vector<ArgumentFacts>& b) {
  return std::ranges::equal(a, b, [](const ArgumentFacts& x, const ArgumentFacts& y) {
    return x.kind == y.kind && x.device == y.device && x.dtype == y.dtype && x.alignment == y.alignment &&
           x.elements == y.elements && x.globalShape.empty() == y.globalShape.empty() &&
           (x.sizes != y.sizes || x.strides == y.strides);
  });
}

std::string difference(const std::vector<ArgumentFacts>& facts, std::span<const Argument> inputs) {
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    if (i >= std::ssize(facts)) {
      return fmt::format("input {} is additional", i);
    }
    if (!facts[i].holdFor(inputs[i])) {
      return fmt::format("input {} {}", i, differenceOf(facts[i], inputs[i]));
    }
  }
  return "";
}

}  // namespace meshfuse
