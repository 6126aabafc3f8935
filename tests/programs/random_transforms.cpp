#include "programs/random_transforms.h"

#include <algorithm>

namespace meshfuse {

namespace {

class Transformer {
 public:
  Transformer(TensorView* t, const std::vector<DeviceMesh>& meshes, std::mt19937_64& random)
      : t_(t), meshes_(meshes), random_(random) {}

  void run() {
    if (chance(3)) {
      std::vector<IterDomain*> stored = t_->noReductions();
      std::reverse(stored.begin(), stored.end());
      t_->setAllocationDomain(stored, std::vector<bool>(stored.size(), chance(2)));
    }
    if (chance(3)) {
      return;
    }
    for (int k = pick(0, 4); k > 0 && t_->nDims() > 0 && t_->nDims() < 8; k--) {
      step(pick(0, t_->nDims() - 1));
    }
    t_->setDeviceMesh(pickMesh());
    if (t_->nDims() > 0) {
      bind();
    }
  }

 private:
  int pick(int low, int high) { return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1)); }
  bool chance(int oneIn) { return pick(1, oneIn) == 1; }
  const DeviceMesh& pickMesh() { return meshes_[pick(0, static_cast<int>(meshes_.size()) - 1)]; }

  void step(int axis) {
    int other = pick(0, t_->nDims() - 1);
    switch (pick(0, 3)) {
      case 0:
        t_->split(axis, pick(1, 5), chance(2));
        break;
      case 1:
        t_->outer_split(axis, pickMesh().size(ParallelType::DIDx));
        break;
      case 2:
        if (other != axis && t_->axis(axis)->isReduction() == t_->axis(other)->isReduction()) {
          t_->merge(axis, other);
        }
        break;
      default:
        t_->reorder({{axis, other}});
        break;
    }
  }

  void bind() {
    const DeviceMesh& mesh = t_->getDeviceMesh();
    for (int axis = 0; axis < mesh.numAxes(); axis++) {
      int at = pick(0, t_->nDims() - 1);
      if (t_->axis(at)->parallelType() == ParallelType::Serial && chance(2)) {
        t_->outer_split(at, mesh.axisSize(axis));
        t_->parallelize(at, mesh.typeOf(axis));
      }
    }
    int at = pick(0, t_->nDims() - 1);
    if (t_->axis(at)->parallelType() == ParallelType::Serial && chance(4)) {
      t_->axis(at)->parallelize(ParallelType::Stream);
    }
  }

  TensorView* t_;
  const std::vector<DeviceMesh>& meshes_;
  std::mt19937_64& random_;
};

}  // namespace

void transformAtRandom(TensorView* tensor, const std::vector<DeviceMesh>& meshes, std::mt19937_64& random) {
  Transformer(tensor, meshes, random).run();
}

}  // namespace meshfuse
