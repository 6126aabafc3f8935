// split_scans: a scan along a cut dim scans each block where it is; only one number for each block moves.
//
//   T0 [R, C] S1(x), n blocks              s = scan of each block, t = the last element of s; all t are gathered
//   T1 S1(x) = scan(T0, op, dim=1)    ->   before = the reduction of the t of earlier blocks
//                                          T1 = op(before, s)
//
// A rank receives n - 1 numbers for each line, in the type of the scan, in place of the other blocks. `before` is a reduction under a mask,
// not a difference of sums, so that infinities and NaN of the operand reach the elements that they reach in one scan, and so that max, min,
// products and bits work as sums do. Integers have the same bits as without the pass. Sums and products of a block leave it in the type of
// the scan, where one scan of Floats on a CPU continues in Double: if they leave the range of Float they are infinite, as in 0, 1 | 1e30, 1e30,
// whose last product is NaN. Sums of elements >= 0 may fall by a rounding from block to block. Ops after the scan share the kernel of the
// last line.
// Uneven blocks are filled with the identity. Other axes may cut other dims. If operand and result differ in how they are cut, the operand
// moves to the sharding of the result first, if this and the numbers take fewer bytes than a gather.
// A size that is a symbol must be proved to be in even parts. Bytes are those for the sizes of the call.
// It leaves a scan as it is, and decompose_reshardings gathers the dim, if the result is whole along the dim, or cyclic, or in parts of
// given sizes, or if the parts of a dim are unknown, or if blocks are so short that the numbers take as many bytes as the
// blocks. A remark states the scans that are cut, with the bytes, and the reason where a cut result is gathered.
// Runs after propagate_shardings, which cuts a free result like the operand. On exit a scan along a cut dim communicates nothing but the
// Redistributes of the numbers. Idempotent.
#pragma once

#include <optional>

#include "preseg_passes/dim_blocks.h"

namespace meshfuse {

class Expr;
class Fusion;
class PassContext;

bool splitScans(Fusion& fusion, PassContext& context);

// The blocks in which a scan is computed if operand and result have this sharding; nothing if the dim would be gathered, or if the op is no
// scan.
[[nodiscard]] std::optional<DimBlocks> scannedBlocks(const Expr& expr, const ShardState& state);
// The bytes of the numbers of so many blocks that a rank receives; `state`: of the result, for constant sizes.
[[nodiscard]] int64_t bytesOfTotals(const Expr& scan, int64_t parts, const ShardState& state);

}  // namespace meshfuse
