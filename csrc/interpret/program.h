// A run of the interpreter: bound sizes and scalars, and the arrays made so far.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "interpret/array.h"
#include "interpret/ops.h"
#include "ir/fusion.h"
#include "tensor/argument.h"

namespace meshfuse::reference {

// Whether a dim of this size repeats its element: a broadcast dim, or a symbolic dim of size 1.
[[nodiscard]] inline bool stretches(const IterDomain* dim, int64_t size) {
  return size == 1 && (dim->isBroadcast() || dim->isSymbolic());
}

enum class Keep : uint8_t { Results, All };  // the arrays that exist after a run: inputs and outputs, or all

class Program {
 public:
  // Checks the arguments and binds the symbols of the inputs' extents. UserError as interpret.h says.
  Program(const Fusion& fusion, std::span<const Argument> inputs, const Context& context, Keep keep);

  // Runs every op that the outputs need, in order.
  void run();
  const Array& array(const Val* tensor) const;
  const Fusion& fusion() const { return fusion_; }
  // Ids of the tensors whose arrays exist after run().
  std::vector<int64_t> ids() const;
  const Array& array(int64_t id) const { return arrays_.at(id); }
  int64_t evaluate(const IntExpr& expr) const;

 private:
  void bindTensor(int64_t k, const TensorView* tv, const Argument& argument);
  void bindScalar(int64_t k, const Val* val, const Argument& argument);
  void bindSymbol(const IntExpr& expr, int64_t value);
  void checkSizes(int64_t k, const TensorView* tv, const Tensor& tensor) const;
  Sizes evaluateAll(std::span<const IntExpr> exprs) const;
  Sizes sizesOf(const TensorView* tv) const;
  void checkAliases() const;
  // The array of a tensor or of a scalar; the array of a scalar is created on demand.
  const Array& operand(const Expr* expr, int64_t k);
  const Array& scalar(const Val* val);

  Array compute(const Expr* expr);
  Array computePoint(const Expr* expr);
  Array computeShape(const Expr* expr);
  Array computeSlice(const Expr* expr);
  Array computePad(const Expr* expr);
  Array computeCat(const Expr* expr);
  Array computeReduce(const Expr* expr);
  Array computeContraction(const Expr* expr);
  Array computeFactory(const Expr* expr);
  Array computeRandom(const Expr* expr);
  Array computeIndexing(const Expr* expr);
  Array computeScan(const Expr* expr);
  Array computeArgSort(const Expr* expr);
  Array computeScatter(const Expr* expr);
  Array computeIndexPut(const Expr* expr);
  // For scatter and index_put_accumulate: the position in the table's dim that each element of the index names; -1 if it is outside and
  // skipped.
  std::vector<int64_t> placesOf(const Expr* expr);
  Array computeRedistribute(const Expr* expr);

  const Fusion& fusion_;
  Context context_;
  Keep keep_;
  std::map<std::string, int64_t, std::less<>> symbols_;
  std::map<int64_t, Array> arrays_;  // by id, scalars included
};

}  // namespace meshfuse::reference
