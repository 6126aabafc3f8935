// Annotations from the choices of a plan: meshes and bound loops on the inputs, and on other tensors where propagation would decide otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "autoplan/plan_graph.h"

namespace meshfuse {

class Fusion;
class TensorView;

// Splits the loop domain of a tensor without a mesh, and binds the outer loops.
void annotate(TensorView* tv, const Placement& placement, const DeviceMesh& mesh);

// The ids of the tensors to annotate, ascending: all inputs, and results that propagation would shard differently. Results of repeated layers
// are annotated together. A result that the other annotations imply has none; in programs of more than 1000 tensors, through which
// shardings propagate slowly, some may. `concrete`: the fusion of the graph, with constant sizes and the user's annotations.
[[nodiscard]] std::vector<int64_t> tensorsToAnnotate(const Fusion& concrete, const PlanGraph& graph,
                                                     const std::vector<int64_t>& choices);

}  // namespace meshfuse
