// concretize: a copy of a fusion for one class of input sizes: all extents are constants in it, or expressions that hold for the whole class.
//
//   T0 = input() : Float[i0, 16], T1 = reshape(T0) : [s{4}, s{4*i0}]      i0 = 6      T0 : Float[6, 16], T1 : [4, 24] from splits
//
// Symbols are bound by matching the extents of tensor inputs with the given (global) shapes, and Int inputs with their values.
// Symbolic dims, which are made by reshape, slice, pad and expand, get their sizes; a dim of size 1 becomes a broadcast dim, so it
// stretches. If an expression stands for a size, a dim of symbolic structure must have 2 elements or more for all its values. A reshape must keep the number of elements, an expand stretches only dims of one element, and a size must satisfy the declared
// facts of its symbol. UserError if a shape does not fit the fusion or an op.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "digits/int_expr.h"

namespace meshfuse {

class Fusion;

using SymbolValues = std::map<std::string, int64_t>;
// By symbol of a fusion: what stands for it, a constant or an expression.
using SymbolSizes = std::map<std::string, IntExpr>;

// One entry for each fusion input. A tensor: its global shape; if its elements stand for sizes, they follow the shape in the same list. An
// Int scalar: its value, or nothing if it stays a run-time scalar. Other scalars: nothing.
[[nodiscard]] SymbolValues bindSymbols(const Fusion& fusion, std::span<const std::vector<int64_t>> sizes);
[[nodiscard]] std::unique_ptr<Fusion> concretize(const Fusion& fusion, const SymbolSizes& sizes);
[[nodiscard]] std::unique_ptr<Fusion> concretize(const Fusion& fusion, const SymbolValues& values);
[[nodiscard]] std::unique_ptr<Fusion> concretize(const Fusion& fusion, std::span<const std::vector<int64_t>> sizes);

}  // namespace meshfuse
