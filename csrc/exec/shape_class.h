// ShapeClass: the shapes that share one plan.
//
// The first call is planned for constant sizes, which gives the fastest kernels. A size that has had two values in the calls of a fusion varies:
// later plans hold for all its values in a class. Kernels, steps and their order are those of the class; sizes, strides and offsets in memory
// are evaluated for each shape.
//
//   calls of T0 [i0, i1]     class
//   [32, 384]                i0 = 32, i1 = 384                              compiled
//   [48, 384]                i0 a multiple of 16 from 16 on, i1 = 384       compiled
//   [64, 384]                the same
//   [50, 384]                i0 from 2 on, i1 = 384                         compiled
//   [51, 384]                the same
//   [1, 384]                 i0 = 1, i1 = 384: 0 and 1 are constants, because dims of 0 and 1 elements make other programs
//
// Sizes that vary and are equal are one symbol of the plan.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "preseg_passes/concretize.h"
#include "tensor/argument.h"

namespace meshfuse {

class Fusion;

struct ShapeClass {
  // By symbol of the fusion: a constant, or a symbol of the plan with the facts of the class.
  SymbolSizes sizes = {};
  std::string whyConstant = {};  // why all sizes are constants, whether they vary or not; empty if they need not be
  std::map<std::string, std::string> reasons = {};  // by symbol: why a size that varies is a constant
  SymbolValues values = {};                         // in a call: of the symbols of the plan

  bool isConstant() const { return values.empty(); }
  // One line for each symbol: "i0 is a multiple of 16 from 16 on", "i1 is 384, because linear T5 takes constant sizes".
  std::vector<std::string> toLines() const;
};

// The fusion for a class. The sizes of the inputs in a call of the class are checked as those of a call with constant sizes are: a class may
// contain shapes that the fusion refuses.
[[nodiscard]] std::unique_ptr<Fusion> concretizeFor(const ShapeClass& sizes, const Fusion& fusion,
                                                    std::span<const std::vector<int64_t>> ofCall);

// Whether concretize() accepts each value of the symbol of a class between two that it accepts. It compares sizes with sizes, and a comparison
// of linear expressions that holds at two values holds between them. So there must be one symbol in which all sizes are linear, dims must
// have two elements or more and grow with it, and reshapes must keep the number of elements for all values. `ofClass`: of concretizeFor().
[[nodiscard]] bool acceptsBetween(const Fusion& ofClass);

// Whether a plan for the one holds for the other too.
[[nodiscard]] bool isSameClass(const ShapeClass& a, const ShapeClass& b);

// A dim that becomes a broadcast dim if it has one element.
struct SymbolicDim {
  int64_t tensor = 0;
  IntExpr extent;
};

// The sizes of the calls of a fusion that got a plan. Ranks that make the same calls have the same one.
class ShapeHistory {
 public:
  explicit ShapeHistory(const Fusion& fusion);
  // The sizes of a call, by symbol. Nothing if all its plans are for constant sizes, and for arguments that do not fit the fusion: compile()
  // refuses them.
  [[nodiscard]] std::optional<SymbolValues> valuesOf(std::span<const Argument> inputs) const;
  // The class of the sizes of a call.
  [[nodiscard]] ShapeClass classOf(std::span<const Argument> inputs, const std::optional<SymbolValues>& values) const;
  // Of a call that got a plan.
  void note(const SymbolValues& values);
  // The class, or that of constants if some op of the fusion needs to know more of its sizes.
  [[nodiscard]] ShapeClass plannable(ShapeClass wanted) const;

 private:
  // Why sizes are constants in this call: those of the fusion, and of arguments that are not dense.
  std::map<std::string, std::string> reasonsFor(std::span<const Argument> inputs) const;

  const Fusion& fusion_;
  std::string whyConstant_;                                // why no plan holds for several sizes; empty: some do
  std::map<std::string, std::string> constants_;           // by symbol: why it is a constant in each plan
  std::map<std::string, SymbolFacts> declared_;            // by symbol
  std::vector<SymbolicDim> symbolicDims_;                  // of the fusion
  std::map<std::string, std::optional<int64_t>> onlyOne_;  // by symbol: the value of all calls; nothing if it varies
};

}  // namespace meshfuse
