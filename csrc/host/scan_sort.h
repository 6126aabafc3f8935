// ScanOrSort: scan and argsort on a CPU, line by line along one dim.
//
// Lines run on the caller's pool, each by one thread in the order of its elements, so the bits do not depend on the number of threads.
// Sums and products of Float are kept in Double on the way. Equal elements stay in their order, and so do NaNs, which are the largest.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "schedule/group.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

class Expr;
class ThreadPool;

class ScanOrSort {
 public:
  static bool does(const Expr& expr);
  // Extents must be constant. workers: of the pool of the runs.
  ScanOrSort(const Expr& expr, const std::map<int, Layout>& layouts, int workers);

  int64_t workspaceBytes() const;
  // out: contiguous; workspace: 64-byte aligned.
  void run(ThreadPool& pool, const void* in, void* out, void* workspace) const;

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
