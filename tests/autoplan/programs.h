// Programs without a mesh, for which plans are made.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ir/fusion.h"
#include "tensor/argument.h"

namespace meshfuse {

struct ProgramOfSearch {
  std::string name;
  std::function<std::unique_ptr<Fusion>()> build;
  // A product reads operands that are sharded in several ways, among which passes choose by themselves.
  bool productsMayDiffer = false;
};
inline void PrintTo(const ProgramOfSearch& program, std::ostream* out) { *out << program.name; }

// An MLP, attention, a transformer layer, a model with a large vocabulary, and backward programs.
[[nodiscard]] std::vector<ProgramOfSearch> plannedPrograms();

struct GptSizes {
  int64_t layers = 2;
  int64_t batch = 4;
  int64_t tokens = 8;
  int64_t features = 16;
  int64_t heads = 4;
  int64_t vocabulary = 32;
  DataType dtype = DataType::Float;
};
// Token numbers in, logits out.
[[nodiscard]] std::unique_ptr<Fusion> gpt(const GptSizes& sizes);

// Random values of all inputs; integers below 8.
[[nodiscard]] std::vector<Argument> valuesFor(const Fusion& fusion);

}  // namespace meshfuse
