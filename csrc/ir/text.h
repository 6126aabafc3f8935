// The text form of a Fusion: .fir files, dumps, golden tests, bug reports. Parsing a text and printing the fusion gives the same text.
//
//   fusion {
//     mesh M0 {y: 2, x: 2} [0, 1, 2, 3]
//     T0 = input(x) : Float[i0, 16] contiguity[t, t] mesh M0 outer_split(0, 2) parallelize(0, DIDx)
//         loop[DIDx{2}, ceilDiv(i0, 2), 16]                                    (on one line)
//     S1 = input() : Double
//     T2 = mul(T0, S1) : Float[i0, 16]
//     T3 = reduce(T2, op=sum) : Float[r{i0}, 16]
//     T4 = reshape(T3) : Float[4, 4]
//     output T4 as y
//     output T2
//     alias T2 -> T0
//   }
//
// One line for each value, inputs first, then in topological order with ties by id; values keep their numbers, which may have gaps.
//
//   names          of inputs and outputs, if given: input(x), output T4 as y
//   dims           extents; r{..} a reduction, b{1} a broadcast, s{..} symbolic; p{2} contributions to a sum, one for each rank;
//                  p{2, max} contributions to another reduction
//   scalars        inline: 1.0 Double, 3 or i0*4 or ceilDiv(i0, 4) Int, true Bool; an input or a result has a line: S1
//   root[..]       a root domain other than the op implies, and the steps from it to the logical domain: see root_text.h
//   contiguity[..] on inputs, and if a flag is false
//   mesh M0 pinned the user set this mesh; printed after passes have placed other tensors
//   alloc[2, 0, 1] if the memory order is not row-major: positions in the stored shape, outermost first
//   inner_split(axis, factor)  outer_split(axis, factor)  partition(axis, [size of each part])  merge(axis)
//   reorder[new order of old axes]  parallelize(axis, DIDx)
//   loop[..]       the result of the transforms, for the reader; a file is rejected if the two differ
//   symbol i0 {lower: 1, upper: 64, divisor: 4}     if more is known than i0 >= 0 (for the size of a mesh axis: >= 1)
//   mesh M0 {dp: 2, tp: tp} []                      the size of tp is the symbol tp; `tp: tp hint 4` has a cost hint
//   planner {bound: 64, direct: fallback, forbid: all_to_all, alpha x: 2, beta x: 8, between: 4, memory: 4096}     see planner_settings.h
//   undefined()    instead of input(): the value is neither an input nor computed; the verifier reports it
//   # ...          a comment, to the end of the line
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace meshfuse {

class Fusion;

// UserError "FILE:LINE:COLUMN: error, got, expected" on malformed text.
[[nodiscard]] std::unique_ptr<Fusion> parseFusion(std::string_view text, std::string_view file = "fusion");

// Every violated rule of the IR, one in each line; empty if there are none: operand types and counts per op, shapes that follow from
// operands, domains connected root -> logical -> loop, no axis bound twice in one tensor, definitions before uses.
[[nodiscard]] std::vector<std::string> verify(const Fusion& fusion);

}  // namespace meshfuse
