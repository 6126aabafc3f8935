#include "schedule/axes.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "digits/row_major.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

bool accessRunsThrough(const tile::TensorParam& tensor, const std::vector<tile::Index>& index,
                       const std::string& axis) {
  IntExpr offset = 0;
  for (int64_t d = 0; d < std::ssize(index); d++) {
    offset += index[d].expr * tensor.strides[d];
  }
  std::optional<LinearForm> form = offset.linearIn(axis);
  return form && form->slope.isConst();
}

bool statementsRunThrough(const tile::Program& program, const std::vector<tile::Stmt>& statements,
                          const std::string& axis) {
  return std::ranges::all_of(statements, [&](const tile::Stmt& s) {
    return (s.kind != tile::StmtKind::Store || accessRunsThrough(program.tensors[s.param], s.index, axis)) &&
           statementsRunThrough(program, s.body, axis);
  });
}

}  // namespace

std::vector<IntExpr> KernelAxes::dims(const Coordinates& c, const IntExpr& mAt, const IntExpr& kAt,
                                      const IntExpr& nAt) const {
  std::vector<IntExpr> result(c.extents.size(), IntExpr(0));
  auto spread = [&](const std::vector<int64_t>& axis, const IntExpr& at) {
    std::vector<IntExpr> index = delinearize(at, mapped(axis, [&](int64_t d) { return c.extents[d]; }));
    for (int64_t i = 0; i < std::ssize(axis); i++) {
      result[axis[i]] = index[i];
    }
  };
  spread(m, mAt);
  spread(k, kAt);
  spread(n, nAt);
  return result;
}

std::vector<KernelAxes> axesChoices(const Coordinates& c) {
  std::vector<int64_t> dims = filtered(c.order, [&](int64_t d) { return !c.extents[d].isConst(1); });
  auto reduced = [&](int64_t d) { return static_cast<bool>(c.reduced[d]); };
  size_t longest = 0;
  while (longest < dims.size() && reduced(dims[dims.size() - 1 - longest]) == reduced(dims.back())) {
    longest++;
  }
  std::vector<KernelAxes> choices;
  for (size_t length = longest; length > 0; length--) {
    KernelAxes a;
    a.innerReduced = reduced(dims.back());
    for (int64_t i = 0; i < std::ssize(dims); i++) {
      const IntExpr& extent = c.extents[dims[i]];
      if (i + length >= dims.size()) {
        a.n.push_back(dims[i]);
        a.N *= extent;
      } else if (reduced(dims[i])) {
        a.k.push_back(dims[i]);
        a.K *= extent;
      } else {
        a.m.push_back(dims[i]);
        a.M *= extent;
      }
    }
    choices.push_back(std::move(a));
  }
  if (choices.empty()) {
    choices.push_back({});
    choices.back().innerReduced = c.hasReduction();
  }
  return choices;
}

Lowering::Position positionOf(const Coordinates& c, const TensorView* tensor, const std::vector<IntExpr>& dims) {
  auto it = c.index.find(tensor->id());
  invariant(it != c.index.end(), "[axes] {} has no index", tensor->toString());
  auto dimNamed = [&](std::string_view symbol) -> std::optional<IntExpr> {
    for (int64_t d = 0; d < std::ssize(dims); d++) {
      if (symbol == dimSymbol(d)) {
        return dims[d];
      }
    }
    return std::nullopt;
  };
  return mapped(it->second, [&](const IntExpr& e) { return tile::Index{e.substitute(dimNamed)}; });
}

bool runsThrough(const tile::Program& program, const std::string& axis) {
  auto valueRunsThrough = [&](const tile::Value& v) {
    return v.kind != tile::ValueKind::Load || accessRunsThrough(program.tensors[v.param], v.index, axis);
  };
  return std::ranges::all_of(program.values, valueRunsThrough) && statementsRunThrough(program, program.body, axis);
}

}  // namespace meshfuse
