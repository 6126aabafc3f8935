// ScanOrSort: scan and argsort on a CPU, line by line along one dim.
//
// Lines run on the caller's pool, each by one thread in the order of its elements, so the bits do not depend on the number of threads.
// Sums and products of Float are kept in Double on the way. Equal elements stay in their order, and so do NaNs, which are the largest.
#pragma once

#include <cstdint>
#include <vector>

#include "host/routine.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

class ScanOrSort : public Routine {
 public:
  static bool does(const Expr& expr);
  ScanOrSort(const Expr& expr, const RoutineOptions& options);

  int64_t workspaceBytes() const override;
  void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const override;

 private:
  // Where a line's elements are: of the operand, and of the contiguous result.
  struct Line {
    int64_t from = 0;
    int64_t to = 0;
  };
  Line line(int64_t number) const;
  template <class T, class Wide>
  void scan(ThreadPool& pool, const T* in, T* out) const;
  template <class Wide, class T, class Combine>
  void scanLines(ThreadPool& pool, const T* in, T* out, Wide identity, Combine combine) const;
  template <class T>
  void order(ThreadPool& pool, const T* in, int64_t* out, void* workspace) const;

  bool sorts_;
  ReduceOp reduce_;
  bool descending_ = false;
  DataType dtype_;
  std::vector<int64_t> outer_;    // extents of the other dims
  std::vector<int64_t> strides_;  // of the operand there
  std::vector<int64_t> targets_;  // of the result there
  int64_t lines_ = 1;
  int64_t extent_ = 1, wanted_ = 1;  // along the dim: of the operand, of the result
  int64_t stride_ = 1, resultStride_ = 1;
  int64_t workers_ = 1;
};

}  // namespace meshfuse
