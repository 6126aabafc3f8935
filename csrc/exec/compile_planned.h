// The stages of one rank, of a planned program that never runs: only its steps and their memory are asked for.
#pragma once

#include <cstdint>
#include <memory>

namespace meshfuse {

class Device;
class Fusion;
class PassContext;
struct CompiledProgram;
struct PlannedProgram;

// Runs the passes after runPassesBeforeSizes() on an annotated program of constant sizes, with the context of those. The program is that of
// planProgram(), without its text and the identity on which ranks agree.
[[nodiscard]] std::shared_ptr<const PlannedProgram> planPropagated(std::shared_ptr<Fusion> propagated,
                                                                   PassContext& context);

// The program of rank `rank` of `ranks`, as compile() makes it if the ranks agree on `planned`. Arguments are contiguous and fit.
// Passes are not verified. UserError if a mesh has other ranks, or the device lacks a routine.
[[nodiscard]] CompiledProgram compilePlanned(const std::shared_ptr<const PlannedProgram>& planned, int64_t rank,
                                             int64_t ranks, const std::shared_ptr<Device>& device);

}  // namespace meshfuse
