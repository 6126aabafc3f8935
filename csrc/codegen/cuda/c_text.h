// Spelling of types, literals, casts and integer expressions in CUDA C++.
#pragma once

#include <set>
#include <string>

#include "digits/int_expr.h"
#include "tensor/dtype.h"
#include "tile/tile.h"

namespace meshfuse::cuda {

using Sections = std::set<std::string, std::less<>>;  // runtime functions used so far

// The type of an element in memory, and in a register tile.
[[nodiscard]] std::string_view storageType(DataType t);   // u16 for 16-bit floats, unsigned char for Bool
[[nodiscard]] std::string_view registerType(DataType t);  // u32 for 16-bit floats: the bits in the low half
// The type in which a reduction accumulates: Float for 16-bit floats; Int32 for narrower integers and Bool, because a shuffle
// moves at least 32 bits.
[[nodiscard]] DataType accumulatorType(DataType t);
// The token of a type in the names of runtime functions: F16.
[[nodiscard]] std::string capitalToken(DataType t);

// The runtime functions that move vectors of a type between registers and words.
[[nodiscard]] std::string wordsSection(DataType t);

[[nodiscard]] std::string floatLiteral(double value, DataType t, Sections& uses);  // any type, in its register form
[[nodiscard]] std::string integerLiteral(int64_t value, DataType t, Sections& uses);

// The result of an operation on elements of type `t`: C++ computes in int where an integer type is narrower, so it is cut to `t`.
[[nodiscard]] std::string narrowed(std::string text, DataType t);

// `text` needs no parentheses as an operand of any operator.
[[nodiscard]] std::string castText(const std::string& text, DataType from, DataType to, Sections& uses);

[[nodiscard]] std::string identityText(tile::Combiner combiner, DataType t);

// Of a variable that counts up to `count`.
[[nodiscard]] std::string_view counterType(const IntExpr& count);

// An expression without spaces at its ends; parenthesized() is safe as an operand. It is computed in 64 bits where int may not hold its value:
// symbols of bounded size are int.
[[nodiscard]] std::string exprText(const IntExpr& e, Sections& uses);
[[nodiscard]] std::string parenthesized(const IntExpr& e, Sections& uses);

// Drops a pair of parentheses around the whole text.
[[nodiscard]] std::string unwrapped(std::string text);

}  // namespace meshfuse::cuda
