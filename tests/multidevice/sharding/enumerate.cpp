#include "multidevice/sharding/enumerate.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/operand_dims.h"

namespace meshfuse {

namespace {

constexpr int64_t kMaxElements = 4096;
constexpr int64_t kMaxDevices = 64;

using Index = std::vector<int64_t>;

// Sizes of the dims; nullopt if one is symbolic or all together are many.
std::optional<Index> constantSizes(const std::vector<IterDomain*>& ids) {
  Index sizes;
  int64_t all = 1;
  for (const IterDomain* id : ids) {
    if (!id->extent().isConst() || id->extent().constValue() > kMaxElements) {
      return std::nullopt;
    }
    sizes.push_back(id->extent().constValue());
    all *= sizes.back();
    if (all > kMaxElements) {
      return std::nullopt;
    }
  }
  return sizes;
}

// The value of a dim at an index of the base it is made of by splits and merges; nullopt where it is made of something else.
std::optional<int64_t> valueAt(const IterDomain* id, const std::vector<IterDomain*>& base, const Index& index) {
  for (size_t k = 0; k < base.size(); k++) {
    if (base[k]->id() == id->id()) {
      return index[k];
    }
  }
  const IdExpr* e = id->definition();
  if (e == nullptr) {
    return std::nullopt;
  }
  const std::optional<int64_t> in = valueAt(e->in[0], base, index);
  if (!in) {
    return std::nullopt;
  }
  switch (e->kind) {
    case IdExprKind::Merge: {
      const std::optional<int64_t> inner = valueAt(e->in[1], base, index);
      if (!inner || !e->in[1]->extent().isConst()) {
        return std::nullopt;
      }
      return *in * e->in[1]->extent().constValue() + *inner;
    }
    case IdExprKind::Split: {
      if (!e->out[1]->extent().isConst()) {
        return std::nullopt;
      }
      const int64_t inner = e->out[1]->extent().constValue();
      return id == e->out[0] ? *in / inner : *in % inner;
    }
    case IdExprKind::Partition: {
      int64_t start = 0;
      for (size_t part = 0; part < e->sizes.size(); part++) {
        if (!e->sizes[part].isConst()) {
          return std::nullopt;
        }
        const int64_t size = e->sizes[part].constValue();
        if (*in < start + size) {
          return id == e->out[0] ? static_cast<int64_t>(part) : *in - start;
        }
        start += size;
      }
      return std::nullopt;
    }
    case IdExprKind::Resize:
      return std::nullopt;
  }
  return std::nullopt;
}

std::vector<Index> coordinatesOf(const DeviceMesh& mesh) {
  std::vector<Index> at;
  for (int64_t device : mesh.devices()) {
    at.push_back(mesh.coordinates(device));
  }
  return at;
}

// By device, given their coordinates: whether it owns the index of the base; nullopt where a bound loop has no value.
std::optional<std::vector<bool>> ownersOf(const DeviceMesh& mesh, const std::vector<BoundLoop>& loops,
                                          const std::vector<Index>& at, const std::vector<IterDomain*>& base,
                                          const Index& index) {
  std::vector<bool> owns(at.size(), true);
  for (const BoundLoop& loop : loops) {
    const std::optional<int64_t> value = valueAt(loop.id, base, index);
    if (!value) {
      return std::nullopt;
    }
    // the whole coordinate, or a digit of it
    const ParallelType type = loop.id->parallelType();
    const int64_t below = mesh.below(type).constValue();
    const int64_t size = mesh.size(type).constValue();
    for (size_t d = 0; d < owns.size(); d++) {
      owns[d] = owns[d] && at[d][loop.axis] / below % size == *value;
    }
  }
  return owns;
}

// Flat indices of the operand that one index of the result reads.
std::vector<int64_t> readBy(const std::vector<OperandDim>& dims, const Index& sizes, const Index& index) {
  std::vector<int64_t> flat{0};
  for (size_t k = 0; k < dims.size(); k++) {
    std::vector<int64_t> next;
    for (int64_t i = 0; i < sizes[k]; i++) {
      const bool whole = dims[k].root == kUnmapped;
      const bool stretched = sizes[k] == 1 && !dims[k].window;
      if (whole || stretched || i == index[dims[k].root] + dims[k].offset.constValue()) {
        for (int64_t prefix : flat) {
          next.push_back(prefix * sizes[k] + i);
        }
      }
    }
    flat = std::move(next);
  }
  return flat;
}

// One flag an element of the operand, by device.
using Marks = std::vector<std::vector<bool>>;

std::optional<Marks> heldMarks(const TensorView* producer, const std::vector<IterDomain*>& stored, const Index& sizes) {
  const std::vector<Index> at = coordinatesOf(producer->getDeviceMesh());
  const std::vector<BoundLoop> loops = boundLoops(producer, stored);
  Marks held(at.size(), std::vector<bool>(product(sizes)));
  for (int64_t flat = 0; flat < product(sizes); flat++) {
    const std::optional<std::vector<bool>> owns =
        ownersOf(producer->getDeviceMesh(), loops, at, stored, unflatten(flat, sizes));
    if (!owns) {
      return std::nullopt;
    }
    for (size_t d = 0; d < held.size(); d++) {
      held[d][flat] = (*owns)[d];
    }
  }
  return held;
}

bool isSmallMesh(const DeviceMesh& mesh) {
  const std::optional<int64_t> many = mesh.devices().empty() ? std::nullopt : std::optional(mesh.numDevices());
  return many && *many <= kMaxDevices;
}

}  // namespace

int64_t product(const Index& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

Index unflatten(int64_t flat, const Index& sizes) {
  Index index(sizes.size());
  for (size_t k = sizes.size(); k-- > 0;) {
    index[k] = flat % sizes[k];
    flat /= sizes[k];
  }
  return index;
}

std::optional<EdgeRelation> enumerateEdge(const Expr* expr, int operand, const TensorView* result) {
  const TensorView* producer = expr->input(operand)->asTensor();
  if (!isSmallMesh(producer->getDeviceMesh()) || !isSmallMesh(result->getDeviceMesh()) || producer->isPartial()) {
    return std::nullopt;
  }
  const std::vector<OperandDim> dims = operandDims(expr, operand);
  const std::vector<IterDomain*> stored = producer->noReductions();
  const bool window = isWindow(*expr);
  const std::vector<IterDomain*>& base = window ? result->getLogicalDomain() : result->getRootDomain();
  const std::optional<Index> sizes = constantSizes(stored);
  const std::optional<Index> baseSizes = constantSizes(base);
  const bool plain = std::all_of(dims.begin(), dims.end(),
                                 [](const OperandDim& d) { return d.step.isConst(1) && d.offset.isConst(); });
  if (!sizes || !baseSizes || !plain || dims.size() != stored.size()) {
    return std::nullopt;
  }
  const std::optional<Marks> held = heldMarks(producer, stored, *sizes);
  if (!held) {
    return std::nullopt;
  }
  const DeviceMesh& from = producer->getDeviceMesh();
  const DeviceMesh& to = result->getDeviceMesh();
  const std::vector<Index> at = coordinatesOf(to);
  const std::vector<BoundLoop> loops = boundLoops(result, base);
  Marks needed(at.size(), std::vector<bool>(product(*sizes)));
  for (int64_t flat = 0; flat < product(*baseSizes); flat++) {
    const Index index = unflatten(flat, *baseSizes);
    const std::optional<std::vector<bool>> owns = ownersOf(to, loops, at, base, index);
    if (!owns) {
      return std::nullopt;
    }
    for (int64_t element : readBy(dims, *sizes, index)) {
      for (size_t d = 0; d < needed.size(); d++) {
        needed[d][element] = needed[d][element] || (*owns)[d];
      }
    }
  }
  bool aligned = true;
  for (size_t d = 0; d < needed.size(); d++) {
    const int64_t there = from.indexOf(to.devices()[d]);
    for (size_t e = 0; e < needed[d].size(); e++) {
      const bool has = there >= 0 && (*held)[there][e];
      if (needed[d][e] && !has) {
        return EdgeRelation::Comm;
      }
      aligned = aligned && needed[d][e] == has;
    }
  }
  return aligned ? EdgeRelation::Aligned : EdgeRelation::Local;
}

}  // namespace meshfuse
