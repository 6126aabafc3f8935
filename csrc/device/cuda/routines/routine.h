// The compiled kernels of a routine.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/api/routine.h"
#include "device/cuda/driver/module.h"
#include "device/cuda/routines/routine_program.h"

namespace meshfuse {

class KernelRoutine final : public CudaRoutine {
 public:
  using Compile = std::function<std::string(const CudaSource&)>;  // to a cubin
  KernelRoutine(const CudaContext& context, RoutineProgram program, const Compile& compile);

  const std::string& name() const override { return program_.name; }
  int64_t workspaceBytes() const override { return program_.workspaceBytes; }
  void run(std::span<void* const> operands, void* out, void* workspace, cuda::Stream stream) const override;

 private:
  const RoutineProgram program_;
  std::vector<std::unique_ptr<const CudaModule>> modules_;  // of the kernels
};

}  // namespace meshfuse
