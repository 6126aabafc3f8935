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
//   [20000, 384]             i0 a multiple of 16 from 16384 to 32767, i1 = 384: some tensor has 16 MiB or more, so the kernels
//                            should suit its size: between two powers of two; a multiple of 256, of 16, of 8, or none of them
//
// Sizes that vary and are equal are one symbol of the plan.
//
// On a mesh of n devices the classes are: multiples of 16*n, multiples of n from 2*n on, and all other numbers from 2 on. The redistributions
// of a class are those for the sizes of the call that is compiled; for other sizes of the class a plan alone may choose other ones, which give
// the same results. If no redistributions hold for the class, or constant sizes of that call have others, the sizes are constants. So are they
// if a tensor with a symbolic dim is in uneven parts.
#pragma once

#include <cstdint>
#include <deque>
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
  // By symbol of the fusion: a constant, or a multiple of a symbol of the plan with the facts of the class.
  SymbolSizes sizes = {};
  std::string whyConstant = {};  // why all sizes are constants, whether they vary or not; empty if they need not be
  std::map<std::string, std::string> reasons = {};  // by symbol: why a size that varies is a constant
  SymbolValues values = {};                         // in a call: of the symbols of the plan

  bool isConstant() const { return values.empty(); }
  // Of the symbols of the plan, for these values of the symbols of the fusion.
  [[nodiscard]] SymbolValues valuesFor(const SymbolValues& ofFusion) const;
  // The first of these reasons, by symbol of the fusion, for a size that is no constant of the class; empty if there is none.
  std::string whyNotFor(const std::map<std::string, std::string>& layouts) const;
  // One line for each symbol: "i0 is a multiple of 16 from 16 on", "i1 is 384, because linear T5 takes constant sizes".
  std::vector<std::string> toLines() const;
};

// Whether concretize() accepts each value of the symbol of a class between two that it accepts. It compares sizes with sizes, and a comparison
// of linear expressions that holds at two values holds between them. So there must be one symbol in which all sizes are linear, dims must
// have two elements or more and grow with it, and reshapes must keep the number of elements for all values. `ofClass`: the fusion for the class.
[[nodiscard]] bool acceptsBetween(const Fusion& ofClass);

// Whether a plan for the one holds for the other too.
[[nodiscard]] bool isSameClass(const ShapeClass& a, const ShapeClass& b);

// A dim that becomes a broadcast dim if it has one element.
struct SymbolicDim {
  int64_t tensor = 0;
  IntExpr extent;
};

// The sizes of a call.
struct CallSizes {
  std::vector<std::vector<int64_t>> global;  // of inputs, as globalSizes() gives them
  std::string assumed;                       // its lines about assumed sizes
  SymbolValues values;                       // by symbol
};

// By symbol: why a size is a constant in this call, because an argument of this rank is not row-major.
[[nodiscard]] std::map<std::string, std::string> layoutReasons(const Fusion& fusion, std::span<const Argument> inputs);

// The sizes of the calls of a fusion that got a plan. Ranks that make the same calls have the same one: it has nothing of their layouts.
class ShapeHistory {
 public:
  ShapeHistory(const Fusion& fusion, int64_t rank, int64_t ranks);
  // Nothing for arguments that do not fit the fusion: compile() refuses them.
  [[nodiscard]] std::optional<CallSizes> sizesOf(std::span<const Argument> inputs) const;
  // The class of the sizes of a call. `layouts`: layout reasons, if no peers take the same class.
  [[nodiscard]] ShapeClass classOf(std::span<const Argument> inputs, const std::optional<CallSizes>& sizes,
                                   const std::map<std::string, std::string>& layouts) const;
  // Of a call that got a plan.
  void note(const SymbolValues& values);
  // That a class has no plan: its calls have plans for constant sizes. Of the last kMostRefused classes; an older one is tried again.
  void refuse(const ShapeClass& refused, const std::string& why);
  static constexpr size_t kMostRefused = 64;

 private:
  // Whether a tensor of symbolic sizes has kLargeBytes or more. UserError if its bytes do not fit in 64 bits.
  bool isLarge(const SymbolValues& values) const;

  const Fusion& fusion_;
  const int64_t rank_;
  bool hasMeshes_ = false;  // that fit the ranks
  int64_t devices_ = 1;     // of the mesh
  std::deque<std::pair<ShapeClass, std::string>> refused_;
  std::string whyConstant_;                                // why no plan holds for several sizes; empty: some do
  std::map<std::string, std::string> constants_;           // by symbol: why it is a constant in each plan
  std::map<std::string, SymbolFacts> declared_;            // by symbol
  std::vector<SymbolicDim> symbolicDims_;                  // of the fusion
  std::vector<IntExpr> bytes_;                             // of its tensors of symbolic sizes
  std::map<std::string, std::optional<int64_t>> onlyOne_;  // by symbol: the value of all calls; nothing if it varies
};

}  // namespace meshfuse
