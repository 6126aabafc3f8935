// Annotations from the choices of a plan: meshes and bound loops on the inputs, and on other tensors where propagation would decide otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "autoplan/plan_graph.h"
#include "ir/planner_settings.h"

namespace meshfuse {

class Fusion;
class PassContext;
class TensorView;

// An annotated program through which the shardings have propagated: runPassesBeforeSizes() has run, and no later pass.
struct PropagatedProgram {
  std::shared_ptr<Fusion> program;
  std::shared_ptr<PassContext> context;  // of `program`
};

struct Annotations {
  std::vector<int64_t> tensors;  // ids, ascending
  PropagatedProgram propagated;  // with these annotations
};

// Splits the loop domain of a tensor without a mesh, and binds the outer loops.
void annotate(TensorView* tv, const Placement& placement, const DeviceMesh& mesh);

// The tensors to annotate: all inputs, and results that propagation would shard differently. Results of repeated layers
// are annotated together. A result that the other annotations imply has none; in programs of more than 1000 tensors, through which
// shardings propagate slowly, some may. `concrete`: the fusion of the graph, with constant sizes and the user's annotations.
// `planner`: the settings of the annotated program.
[[nodiscard]] Annotations tensorsToAnnotate(const Fusion& concrete, const PlanGraph& graph,
                                            const std::vector<int64_t>& choices, const PlannerSettings& planner);

}  // namespace meshfuse
