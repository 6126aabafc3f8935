// Models whose best shardings a person can judge, in their usual sizes.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ir/fusion.h"

namespace meshfuse {

struct Model {
  std::string name;
  std::function<std::unique_ptr<Fusion>()> build;
};
inline void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

// A transformer with a large batch, with a long sequence and with a large vocabulary; experts with a capacity, two towers, and a deep and wide
// network.
[[nodiscard]] std::vector<Model> plannedModels();

}  // namespace meshfuse
