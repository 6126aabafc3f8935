// ProgramSteps: the steps that a program becomes, as segmentation probably cuts it: kernels, library calls and views.
//
//   T2 = matmul(T0, T1)     step 0                               T2  in memory in steps 0 to 1
//   T3 = exp(T2)            step 1, a kernel                     T3  not in memory
//   T4 = add(T3, T2)        step 1                               T4  in memory in steps 1 to 2
//   T5 = matmul(T4, T1)     step 2
//
// Ops are placed in the order of the program, as by segment/segment.h: an op joins the kernels of its operands, unless the kernel would then
// wait for itself, or reduce other dims too. Templates may refuse other kernels, and a redistribution between two ops ends a kernel, but
// shardings are not known here: both make more steps.
#pragma once

#include <cstdint>
#include <map>
#include <set>

namespace meshfuse {

class Expr;
class Fusion;

struct ProgramSteps {
  int64_t count = 0;
  std::map<int64_t, int64_t> stepOf;  // by id of an op's result
  std::map<int64_t, int64_t> owner;   // by id of a view: the tensor whose memory it shares
  std::set<int64_t> stored;           // tensors that reach memory and own it

  int64_t ownerOf(int64_t tensor) const;
  bool isStored(int64_t tensor) const { return stored.contains(ownerOf(tensor)); }
};

// Of the ops with a tensor as result.
[[nodiscard]] ProgramSteps programSteps(const Fusion& fusion);

}  // namespace meshfuse
