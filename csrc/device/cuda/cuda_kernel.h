// A tile program compiled for a GPU and loaded into its context.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codegen/cuda/emit.h"
#include "device/cuda/driver/module.h"
#include "device/device.h"

namespace meshfuse {

class CudaKernel final : public Kernel {
 public:
  CudaKernel(const CudaContext& context, const tile::Program& program, CudaSource source, std::string_view cubin);

  // Asynchronous, in the context that is current. slots: those of a Launch. refused: the address of a RefusedIndexRecord, for a kernel that
  // checks indices.
  void launch(std::span<const uint64_t> slots, RefusedIndexRecord* refused, cuda::Stream stream) const;

 private:
  const CudaSource source_;
  std::vector<std::string> sizes_;  // by slot: its name, empty for other slots
  const CudaModule module_;
};

}  // namespace meshfuse
