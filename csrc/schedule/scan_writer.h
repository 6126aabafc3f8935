// ScanWriter: the writing of one kernel of the template scan. See scan.h for its structure.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/lowering.h"
#include "schedule/scan.h"

namespace meshfuse {

class ScanWriter {
 public:
  explicit ScanWriter(const ScanJudgement& judgement);
  KernelPlan write();

 private:
  // Threads of a block on each axis, powers of two. Those of k have a segment each.
  struct Threads {
    int64_t m = 1, k = 1, n = 1;
    int64_t all() const { return m * k * n; }
  };
  struct Space {
    int64_t id = 0;
    IntExpr m, k, n;  // its coordinates
  };

  Threads chooseThreads() const;
  Space scanning(const Threads& threads, int64_t vector);
  Space reading(const Threads& threads, int64_t vector);
  int64_t vectorOf(int64_t bytes) const;
  Lowering::Position position(const TensorView* tensor, const Space& at) const;
  const TensorView* exchangedOperand() const;
  const TensorView* exchangedResult() const;
  tile::ValueId scanTile(const Space& at, const Space& io, tile::ValueId before);
  tile::ValueId operandOf(const Space& at);
  void exchange(const TensorView* tensor, const Space& from, const Space& to);
  void storeOutputs(const Space& at);

  const ScanJudgement& j_;
  const Group& group_;
  const TensorView* operand_;
  const TensorView* result_;
  KernelPlan plan_;
  tile::Builder builder_;
  Lowering lowering_;
  int64_t M_, K_, N_;
  bool isInner_;    // lines lie along memory
  bool isCarried_;  // lines are longer than a tile
};

}  // namespace meshfuse
