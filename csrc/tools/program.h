// A .fir file as a fusion, and the values of its inputs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "multidevice/mesh/device_mesh.h"
#include "tensor/argument.h"
#include "tools/options.h"

namespace meshfuse {

class Fusion;

// UserError if the file cannot be read, is malformed or breaks rules of the IR, each as "FILE:LINE:COLUMN: ...".
[[nodiscard]] std::unique_ptr<Fusion> loadProgram(const ProgramOptions& options);

// The same of a program over global tensors; UserError if it is what one rank does, as `meshfuse compile` writes it.
[[nodiscard]] std::unique_ptr<Fusion> loadGlobalProgram(const ProgramOptions& options);

// Of --mesh, by axis.
[[nodiscard]] MeshSizes meshSizes(const ProgramOptions& options);

// A global program with sizes for all mesh axes: those of --mesh, and where that leaves one open, what makes a mesh of `ranks` ranks. `open`:
// the names of axes that the program leaves open.
[[nodiscard]] std::unique_ptr<Fusion> loadSizedProgram(const ProgramOptions& options, std::optional<int> ranks,
                                                       std::vector<std::string>* open = nullptr);

// One entry an input, as concretize takes them: the global shape of a tensor, from its .npy file or from --size; {value} of an Int
// scalar. UserError naming the symbols that nothing gives a value.
[[nodiscard]] std::vector<std::vector<int64_t>> inputShapes(const Fusion& fusion, const ProgramOptions& options);

// Global values: the given files and numbers, else random ones. Floating tensors are uniform in [-1, 1); integers in [0, 10), and
// where they index a dim, below its extent; an Int scalar must be given.
[[nodiscard]] std::vector<Argument> inputValues(const Fusion& fusion, const ProgramOptions& options);

// The files of --expect, by position of the output. UserError on an unknown output and another type.
[[nodiscard]] std::map<size_t, Tensor> expectedOutputs(const Fusion& fusion, const std::vector<std::string>& texts);

// Whether some tensor is placed on a mesh.
[[nodiscard]] bool hasMesh(const Fusion& fusion);
// Number of ranks to run on: `asked`, or what the meshes of the program say. UserError if a mesh is not made of exactly these
// ranks.
[[nodiscard]] int rankCount(const Fusion& fusion, std::optional<int> asked);
// The same, of ranks that are threads of this process. UserError also if they are more than kMaxVirtualRanks.
[[nodiscard]] int virtualRankCount(const Fusion& fusion, std::optional<int> asked);

}  // namespace meshfuse
