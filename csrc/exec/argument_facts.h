// Facts of the arguments of a call: a plan may be used for any call whose arguments have the same facts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tensor/argument.h"

namespace meshfuse {

class Fusion;

static_assert(std::is_same_v<std::variant_alternative_t<0, Argument>, Tensor>);

struct ArgumentFacts {
  size_t kind = 0;  // index in the variant Argument
  DeviceId device;  // this and the members below: of tensors
  DataType dtype = DataType::Float;
  int64_t alignment = 1;       // see alignmentOf in arguments.h
  std::vector<int64_t> sizes;  // of a scalar that shapes depend on: its value
  std::vector<int64_t> strides;
  std::vector<int64_t> elements;     // of a tensor whose elements are sizes
  std::vector<int64_t> globalShape;  // see Tensor::withGlobalShape
  int64_t extent = 0;                // bytes from the first element to the end of the last; follows from the above

  bool areOfTensor() const { return kind == 0; }
  bool holdFor(const Argument& argument) const;
};

// Of short lists, such as sizes, this takes less time than a call of memcmp.
[[nodiscard]] inline bool areEqual(std::span<const int64_t> a, std::span<const int64_t> b) {
  bool equal = a.size() == b.size();
  for (size_t k = 0; equal && k < a.size(); k++) {
    equal = a[k] == b[k];
  }
  return equal;
}

// One for each argument.
[[nodiscard]] std::vector<ArgumentFacts> factsOf(const Fusion& fusion, std::span<const Argument> inputs);

// True if the arguments have these facts. They then need no other check, because kinds of scalars are compared too.
[[nodiscard]] bool hold(const std::vector<ArgumentFacts>& facts, std::span<const Argument> inputs);

// Compares all facts but sizes, and but the strides of tensors whose sizes differ.
[[nodiscard]] bool haveSameFactsBesideSizes(const std::vector<ArgumentFacts>& a, const std::vector<ArgumentFacts>& b);

// The first fact that does not hold, as `input 0 has sizes [9] instead of [8]`; empty if all hold.
[[nodiscard]] std::string difference(const std::vector<ArgumentFacts>& facts, std::span<const Argument> inputs);

}  // namespace meshfuse
