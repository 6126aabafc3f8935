// Random programs with random shardings on random meshes, the same for the same seed.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ir/fusion.h"

namespace meshfuse {

// What of a random program is unusual.
struct RandomProgramKind {
  bool uneven = false;    // sizes that the axes need not divide
  bool symbolic = false;  // meshes whose sizes are symbols, where any size may turn out not to divide a dim
  bool cleanUps = false;  // copies, casts to wider types, indices and windows of pads too, for the passes that clean up
  bool parts = false;     // parts of axes own digits
};

class RandomProgram {
 public:
  // `histogram` counts the ops that it builds.
  RandomProgram(uint32_t seed, std::map<std::string, int64_t>& histogram, RandomProgramKind kind = {});

  const Fusion& fusion() const { return fusion_; }

 private:
  std::vector<int64_t> shape();
  TensorView* pick() { return tensors_[rng_() % tensors_.size()]; }
  void annotate(TensorView* tv);
  void cutBySymbols(TensorView* tv);
  TensorView* named(const char* name, TensorView* tv);
  TensorView* reshaped(TensorView* a, std::vector<int64_t> sizes);
  TensorView* windowed(TensorView* a, const std::vector<int64_t>& sizes);
  TensorView* cleanedUp(TensorView* a, const std::vector<int64_t>& sizes);
  TensorView* randomOp();

  std::mt19937 rng_;
  std::map<std::string, int64_t>& histogram_;
  RandomProgramKind kind_;
  DeviceMesh mesh_;
  Fusion fusion_;
  std::vector<TensorView*> tensors_;
};

}  // namespace meshfuse
