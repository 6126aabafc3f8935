#include "preseg_passes/random_program.h"

#include <algorithm>

#include "multidevice/sharding/random_state.h"
#include "ops/contraction.h"
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

std::vector<int64_t> sizesOf(const TensorView* tv) {
  std::vector<int64_t> sizes;
  for (const IntExpr& e : tv->shape()) {
    sizes.push_back(e.constValue());
  }
  return sizes;
}

}  // namespace

RandomProgram::RandomProgram(uint32_t seed, std::map<std::string, int64_t>& histogram, RandomProgramKind kind)
    : rng_(seed), histogram_(histogram), kind_(kind) {
  static const std::vector<DeviceMesh> kMeshes = {DeviceMesh::create({{"x", 2}}),
                                                  DeviceMesh::create({{"x", 4}}),
                                                  DeviceMesh::create({{"x", 2}, {"y", 2}}),
                                                  DeviceMesh::create({{"x", 2}, {"y", 4}}),
                                                  DeviceMesh::create({{"x", 2}, {"y", 2}, {"z", 2}}),
                                                  DeviceMesh::create({{"x", 3}}),
                                                  DeviceMesh::create({{"x", 3}, {"y", 2}}),
                                                  DeviceMesh::create({{"x", 8}})};
  mesh_ = kMeshes[rng_() % (kind.uneven ? kMeshes.size() : 5)];
  if (kind.parts) {
    mesh_ = rng_() % 2 == 0 ? DeviceMesh::create({{"x", 4}}) : DeviceMesh::create({{"x", 2}, {"y", 4}});
  }
  if (kind.symbolic) {
    mesh_ = rng_() % 2 == 0 ? DeviceMesh::create({{"x"}}) : DeviceMesh::create({{"x"}, {"y"}});
    mesh_ = rng_() % 3 == 0 ? mesh_.hint({{"x", 4}}) : mesh_;
  }
  const int inputs = 1 + static_cast<int>(rng_() % 3);
  for (int k = 0; k < inputs; k++) {
    TensorView* in = makeContigConcreteTensor(fusion_, shape(), DataType::Float);
    fusion_.addInput(in);
    if (k == 0 || rng_() % 3 != 0) {
      annotate(in);
    }
    tensors_.push_back(in);
  }
  const int ops = 2 + static_cast<int>(rng_() % 5);
  for (int k = 0; k < ops; k++) {
    if (TensorView* tv = randomOp()) {
      if (rng_() % 4 == 0) {
        annotate(tv);
        histogram_["annotated intermediate"]++;
      }
      tensors_.push_back(tv);
    }
  }
  fusion_.addOutput(tensors_.back()->isFusionInput() ? set(tensors_.back()) : tensors_.back());
  if (tensors_.size() > 3 && !tensors_[tensors_.size() - 2]->isFusionInput()) {
    fusion_.addOutput(tensors_[tensors_.size() - 2]);
  }
}

std::vector<int64_t> RandomProgram::shape() {
  static const std::vector<std::vector<int64_t>> kShapes = {{8},       {8, 4},  {4, 8},    {16, 8},
                                                            {4, 2, 8}, {8, 12}, {2, 16, 4}};
  static const std::vector<std::vector<int64_t>> kUneven = {{7},       {5, 4}, {3, 8},     {10, 7},
                                                            {3, 2, 5}, {8, 6}, {2, 11, 3}, {6, 10}};
  return kind_.uneven ? kUneven[rng_() % kUneven.size()] : kShapes[rng_() % kShapes.size()];
}

void RandomProgram::annotate(TensorView* tv) {
  if (std::any_of(tv->getLogicalDomain().begin(), tv->getLogicalDomain().end(),
                  [](const IterDomain* id) { return id->isBroadcast(); })) {
    return;
  }
  if (kind_.symbolic) {
    cutBySymbols(tv);
    return;
  }
  setShardState(tv, randomState(rng_, mesh_, sizesOf(tv), {rng_() % 3 == 0, false, kind_.uneven, kind_.parts}));
}

// Each axis cuts a dim of its own in blocks or cycles, or none; now and then both cut one dim in blocks.
void RandomProgram::cutBySymbols(TensorView* tv) {
  tv->setDeviceMesh(mesh_);
  const int dims = tv->nDims();
  if (mesh_.numAxes() == 2 && rng_() % 4 == 0) {
    const int dim = static_cast<int>(rng_() % static_cast<uint32_t>(dims));
    tv->outer_split(dim, mesh_.size("x") * mesh_.size("y"))->outer_split(dim, mesh_.size("x"));
    tv->parallelize(dim, mesh_.axis("x"))->parallelize(dim + 1, mesh_.axis("y"));
    return;
  }
  std::vector<int> axisOf(dims, -1);
  for (int axis = 0; axis < mesh_.numAxes(); axis++) {
    int& at = axisOf[rng_() % axisOf.size()];
    at = at < 0 && rng_() % 4 != 0 ? axis : at;
  }
  for (int dim = dims - 1; dim >= 0; dim--) {
    const int axis = axisOf[dim];
    const bool cyclic = axis >= 0 && rng_() % 4 == 0;
    if (axis >= 0) {
      tv->split(dim, mesh_.axisSize(axis), cyclic);
      tv->parallelize(cyclic ? dim + 1 : dim, mesh_.typeOf(axis));
    }
  }
}

TensorView* RandomProgram::named(const char* name, TensorView* tv) {
  histogram_[name]++;
  return tv;
}

TensorView* RandomProgram::reshaped(TensorView* a, std::vector<int64_t> sizes) {
  if (rng_() % 2 == 0 && sizes.size() > 1) {
    const size_t k = rng_() % (sizes.size() - 1);
    sizes[k] *= sizes[k + 1];
    sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(k) + 1);
  } else {
    const size_t k = rng_() % sizes.size();
    if (sizes[k] % 2 != 0) {
      return nullptr;
    }
    const int64_t factor = sizes[k] % 4 == 0 && rng_() % 2 == 0 ? 4 : 2;
    sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(k), sizes[k] / factor);
    sizes[k + 1] = factor;
    if (sizes.size() > 4) {
      return nullptr;
    }
  }
  return named("reshape", reshape(a, sizes));
}

TensorView* RandomProgram::windowed(TensorView* a, const std::vector<int64_t>& sizes) {
  const size_t k = rng_() % sizes.size();
  const int64_t n = sizes[k];
  std::vector<int64_t> starts(sizes.size(), 0);
  std::vector<int64_t> stops = sizes;
  std::vector<int64_t> steps(sizes.size(), 1);
  switch (rng_() % 4) {
    case 0:
      starts[k] = n / 2;
      break;
    case 1:
      stops[k] = n / 2;
      break;
    case 2:
      steps[k] = 2;
      break;
    default:
      starts[k] = n / 4;
      stops[k] = n - n / 4;
  }
  if (stops[k] - starts[k] < 2) {
    return nullptr;
  }
  return named("slice", slice(a, starts, stops, steps));
}

TensorView* RandomProgram::randomOp() {
  TensorView* a = pick();
  const std::vector<int64_t> sizes = sizesOf(a);
  const int rank = static_cast<int>(sizes.size());
  if (rank == 0) {
    return nullptr;
  }
  switch (rng_() % (kind_.cleanUps ? 16 : 12)) {
    case 0:
      return named("unary", sin(a));
    case 1: {
      for (TensorView* b : tensors_) {
        if (b != a && sizesOf(b) == sizes) {
          return named("binary", mul(a, b));
        }
      }
      return named("binary", add(a, a));
    }
    case 2:
      return rank > 1 ? named("transpose", transpose(a, 0, 1)) : nullptr;
    case 3:
    case 4:
      return reshaped(a, sizes);
    case 5: {
      TensorView* s = sum(a, {static_cast<int64_t>(rng_() % sizes.size())});
      return named("sum", s);
    }
    case 6:
      return named("max", max(a, {static_cast<int64_t>(rng_() % sizes.size())}));
    case 7: {
      TensorView* s = sum(a, {rank - 1}, true);
      return named("softmax-like", div(a, add(abs(s), 1.0)));
    }
    case 8:
      return windowed(a, sizes);
    case 9:
      return named("cat", cat({a, a}, static_cast<int64_t>(rng_() % sizes.size())));
    case 10:
      return named("pad", pad(a, std::vector<int64_t>{sizes[rank - 1], 0}));
    case 12:
    case 13:
    case 14:
    case 15:
      return cleanedUp(a, sizes);
    default: {
      for (TensorView* b : tensors_) {
        const std::vector<int64_t> other = sizesOf(b);
        if (other.size() == 2 && rank >= 2 && other[1] == sizes[rank - 1]) {
          return named("linear", linear(a, b));
        }
        if (other.size() == 2 && rank == 2 && other[0] == sizes[1]) {
          return named("matmul", matmul(a, b));
        }
      }
      return nullptr;
    }
  }
}

// What a pass will take away, repeat, or put something in front of.
TensorView* RandomProgram::cleanedUp(TensorView* a, const std::vector<int64_t>& sizes) {
  switch (rng_() % 4) {
    case 0:
      return named("set", set(a));
    case 3: {  // shifted by one, as a slice of a pad
      std::vector<int64_t> starts(sizes.size(), 0);
      std::vector<int64_t> stops = sizes;
      starts.back() = 2;
      stops.back() += 2;
      return named("slice of a pad", slice(pad(a, std::vector<int64_t>{1, 1}), starts, stops));
    }
    case 1: {
      TensorView* wide = castOp(DataType::Double, a);
      tensors_.push_back(castOp(DataType::Float, sin(wide)));
      return named("cast", castOp(DataType::Float, cos(wide)));
    }
    default: {
      const auto dim = static_cast<int64_t>(rng_() % sizes.size());
      TensorView* index = makeContigConcreteTensor(fusion_, {4}, DataType::Int);
      fusion_.addInput(index);
      return named("index", index_select(a, dim, index));
    }
  }
}

}  // namespace meshfuse
