// The sizes of a program that all its ranks bind to the same values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "host/program_sizes.h"

namespace meshfuse {

class Communicator;

// The sizes that a program without symbols has; of another one sizesOf(program, values).
[[nodiscard]] std::shared_ptr<const ProgramSizes> sizesFor(const HostProgram& program,
                                                           const std::map<std::string, int64_t>& values);

// As sizesOf(). The ranks of a program that communicates exchange a message: different values of a symbol, or sizes that one rank cannot have,
// are the same UserError on all ranks, and the communicator stays usable. Called by all ranks. A program without symbols has its sizes
// already, and no rank exchanges a message.
[[nodiscard]] std::shared_ptr<const ProgramSizes> agreedSizes(const HostProgram& program,
                                                              const std::map<std::string, int64_t>& values,
                                                              Communicator& communicator);

}  // namespace meshfuse
