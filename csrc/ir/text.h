// The text form of a Fusion: .fir files, dumps, golden tests, bug reports. Printing what was parsed gives the same text.
//
//   fusion {
//     mesh M0 {y: 2, x: 2} [0, 1, 2, 3]
//     T0 = input() : Float[i0, 16] contiguity[t, t] mesh M0 outer_split(0, 2) parallelize(0, DIDx) loop[DIDx{2}, ceilDiv(i0, 2), 16]
//     S1 = input() : Double
//     T2 = mul(T0, S1) : Float[i0, 16]
//     T3 = reduce(T2, op=sum) : Float[r{i0}, 16]
//     T4 = reshape(T3) : Float[4, 4]
//     output T4
//     alias T4 -> T0
//   }
//
// One line a value, in id order of definition. Dims are extents; r{..} a reduction, b{1} a broadcast, s{..} symbolic. A tensor
// with a root domain that is not implied by its op prints root[..]. contiguity is printed on inputs and where not all true;
// alloc[2, 0, 1] where memory order differs (positions in the stored shape, outermost first). loop[..] repeats what the
// transforms give, for the reader; a file in which it disagrees is rejected.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace meshfuse {

class Fusion;

// UserError "FILE:LINE:COLUMN: what, got, expected" on malformed text.
[[nodiscard]] std::unique_ptr<Fusion> parseFusion(std::string_view text, std::string_view file = "fusion");

// Every violated rule of the IR, one a line; empty if there are none: operand types and counts per op, shapes that follow from
// operands, domains connected root -> logical -> loop, no axis bound twice in one tensor, definitions before uses.
[[nodiscard]] std::vector<std::string> verify(const Fusion& fusion);

}  // namespace meshfuse
