// Lowering: ops of a group -> values of a tile program. A value is created when another value or a store uses it.
//
// value(t, index) is the tile of tensor t at an index over the program's coordinates. Shape ops only rewrite the index
// (`reads.h`), and a tensor that is used twice at one index is computed once.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "schedule/coordinates.h"
#include "schedule/group.h"
#include "schedule/reads.h"
#include "tile/builder.h"

namespace meshfuse {

class Lowering {
 public:
  Lowering(const Group& group, tile::Builder& builder, KernelPlan& plan);

  using Position = std::vector<tile::Index>;  // one for each stored dim

  // Declares the tensor parameters: inputs in order, then outputs (an aliased output is its input's parameter, InOut). The output `flat`,
  // if given, is declared with one dim of all its elements and stride 1; it must be row-major in memory.
  void declareTensors(const TensorView* flat = nullptr);
  // The program's name for an extent or offset: constants stay, symbols of the fusion become size parameters. `others` are no symbols of the
  // fusion and stay.
  IntExpr size(const IntExpr& expr, std::span<const std::string> others = {});
  // The coordinates with the program's names of their extents' symbols.
  Coordinates withNames(Coordinates c);

  // The tile of `tensor` at `position`, spread over `space`.
  tile::ValueId value(const TensorView* tensor, const Position& position, int64_t space);
  // Stores an output at a position.
  void store(const TensorView* tensor, const Position& position, tile::ValueId value, tile::Cache cache);
  // `value` is the result of a reduction, which the scheduler computed: from now on value(t, ...) returns it, within the current scope.
  void bind(const TensorView* tensor, tile::ValueId value);
  // From now on value() of the tensor at `position` is a load of `param` at `place`, where the scheduler stored the tensor. At other
  // positions (which a slice or pad reads) the tensor is computed.
  void readFrom(const TensorView* tensor, const Position& position, int64_t param, Position place);
  // From now on loads outside of `where` give 0.
  void loadWithin(std::vector<tile::Pred> where);
  // value() of the tensor at `position` in `space` is this value, within the current scope.
  void provide(const TensorView* tensor, const Position& position, int64_t space, tile::ValueId value);
  // From now on the tensor is computed again at each use.
  void stopReading(const TensorView* tensor);

  // Values computed inside a loop body are not visible outside it. A popped scope may be pushed again if its values are still defined
  // there.
  using Scope = std::map<std::string, tile::ValueId>;
  void pushScope(Scope scope = {}) { scopes_.push_back(std::move(scope)); }
  Scope popScope() {
    Scope scope = std::move(scopes_.back());
    scopes_.pop_back();
    return scope;
  }

  int64_t tensorParam(const TensorView* tensor) const;

 private:
  tile::ValueId at(const TensorView* tensor, const Position& position, int64_t space);
  tile::ValueId compute(const TensorView* tensor, const Position& position, int64_t space);
  tile::ValueId load(const TensorView* tensor, const Position& position, int64_t space, tile::ValueId fill);
  tile::ValueId operand(const Val* val, DataType dtype, const Position& position, int64_t space);
  // The tensor at the position of a read where its conditions hold, else `otherwise`.
  tile::ValueId guarded(const TensorView* tensor, const Read& read, int64_t space, tile::ValueId otherwise);
  Read readOf(const Expr& expr, size_t operand, const Position& position);
  tile::ValueId point(const Expr& expr, const Position& position, int64_t space);
  tile::ValueId iota(const Expr& expr, const Position& position, int64_t space);
  tile::ValueId eye(const Expr& expr, const Position& position, int64_t space);
  tile::ValueId pad(const Expr& expr, const Position& position, int64_t space);
  tile::ValueId cat(const Expr& expr, const Position& position, int64_t space);
  tile::ValueId random(const Expr& expr, const Position& position, int64_t space);
  tile::ValueId gather(const Expr& expr, const Position& position, int64_t space);
  tile::ValueId embedding(const Expr& expr, const Position& position, int64_t space);

  const Group& group_;
  tile::Builder& builder_;
  KernelPlan& plan_;
  std::map<int64_t, int64_t> params_;  // Val id -> tensor parameter
  struct Stored {
    Position position;
    int64_t param;
    Position place;
  };
  std::map<int64_t, Stored> stored_;
  std::map<std::string, IntExpr> sizes_;
  std::vector<Scope> scopes_;
  std::vector<tile::Pred> guard_;  // the positions at which the current value is needed
  bool fills_ = false;             // loads outside of `guard_` give 0
};

}  // namespace meshfuse
