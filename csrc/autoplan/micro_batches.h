// microBatches: the program of one micro-batch, if a call runs its batch in equal parts one after the other.
//
//   T0 = input() : [32, 8]            T0 : [4, 8]                 a row of the batch each: a part of the batch
//   T1 = input() : [16, 8]            T1 : [16, 8]                whole, the same in all micro-batches
//   T2 = linear(T0, T1) : [32, 16]    T2 : [4, 16]                a part of the batch
//   T3 = sum(T2, {0}) : [r{32}, 16]   T3 : [r{4}, 16]             a sum, to which each micro-batch contributes
//   T4 = mul(T3, 0.1) : [16]          T4 : [16]                   made of sums: computed once, after the last micro-batch
//
// The batch is the first dim of the first input that is no parameter and not a scalar; all inputs but parameters with that first extent
// are cut. What this means for the other tensors follows from the strategies of the ops that read them, as for an axis of the mesh that
// cuts the batch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

namespace meshfuse {

class Fusion;

enum class MicroBatchRole : uint8_t {
  Whole,   // the same in all micro-batches
  Rows,    // of this micro-batch
  Sum,     // over all micro-batches: each contributes
  OfSums,  // computed once, after the last micro-batch
};

struct MicroBatches {
  std::unique_ptr<Fusion> program;          // tensors have the numbers that they have in the whole program
  std::map<int64_t, MicroBatchRole> roles;  // by number; of tensors of `program`
  int64_t count = 0;
};

// All sizes of the fusion are constants, and no tensor has a mesh. UserError, naming the op or the input: count below 2; it does not divide
// the batch; no input has a batch; an op combines elements of different rows of the batch, or an op on rows of the batch reads a sum.
[[nodiscard]] MicroBatches microBatches(const Fusion& concrete, int64_t count);

}  // namespace meshfuse
