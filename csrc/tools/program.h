// Loads a .fir file as a fusion, with the values of its inputs.
#pragma once

#include <cstdint>
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

// UserError if the file cannot be read, or if it is malformed or breaks rules of the IR ("FILE:LINE:COLUMN: ...").
[[nodiscard]] std::unique_ptr<Fusion> loadProgram(const ProgramOptions& options);

// Loads a program over global tensors; UserError for the local program of one rank, as `meshfuse compile` writes it.
[[nodiscard]] std::unique_ptr<Fusion> loadGlobalProgram(const ProgramOptions& options);

// The sizes of --mesh, by axis.
[[nodiscard]] MeshSizes meshSizes(const ProgramOptions& options);
// The axes of --mesh in their order, with sizes.
[[nodiscard]] std::vector<DeviceMesh::Axis> meshAxes(const ProgramOptions& options);
// The values of --size, by symbol. UserError for a symbol that no input has.
[[nodiscard]] std::map<std::string, int64_t> symbolSizes(const Fusion& fusion, const ProgramOptions& options);

// Loads a global program and sets the sizes of all symbolic mesh axes: the sizes of --mesh, and for one axis left out, the size that makes
// a mesh of `ranks` ranks. `open`: receives the names of the symbolic axes.
[[nodiscard]] std::unique_ptr<Fusion> loadSizedProgram(const ProgramOptions& options, std::optional<int64_t> ranks,
                                                       std::vector<std::string>* open = nullptr);

// One entry for each input, as concretize takes them: the global shape of a tensor, from its .npy file or from --size; {value} of an
// Int scalar. UserError naming the symbols without a value.
[[nodiscard]] std::vector<std::vector<int64_t>> inputShapes(const Fusion& fusion, const ProgramOptions& options);

// Global values from files and flags, else random: floating tensors uniform in [-1, 1); integers in [0, 10), and below the extent of a
// dim that they index. An Int scalar must be given.
[[nodiscard]] std::vector<Argument> inputValues(const Fusion& fusion, const ProgramOptions& options);

// The files of --expect, by position of the output. UserError for an unknown output or a wrong type.
[[nodiscard]] std::map<size_t, Tensor> expectedOutputs(const Fusion& fusion, const std::vector<std::string>& texts);

// Whether some tensor is placed on a mesh.
[[nodiscard]] bool hasMesh(const Fusion& fusion);
// The number of ranks to run on: `asked`; else one more than the highest rank of the program's meshes, 1 without a mesh. UserError if
// `asked` is smaller than that, or if a mesh has an axis without a size.
[[nodiscard]] int64_t rankCount(const Fusion& fusion, std::optional<int64_t> asked);
// The number of virtual ranks, as above. UserError also if there are more than kMaxVirtualRanks.
[[nodiscard]] int64_t virtualRankCount(const Fusion& fusion, std::optional<int64_t> asked);

}  // namespace meshfuse
