// A tile program compiled for a GPU and loaded into its context.
#pragma once

#include <cstdint>
#include <optional>
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

  // Asynchronous, in the context that is current; allocates nothing for up to 64 slots. slots: those of a Launch. refused: the address of a RefusedIndexRecord, for a kernel that
  // checks indices.
  void launch(std::span<const uint64_t> slots, RefusedIndexRecord* refused, cuda::Stream stream) const;
  // Later launches of the graph launch the kernel of this node with these slots.
  void set(cuda::GraphExec graph, cuda::GraphNode node, std::span<const uint64_t> slots,
           RefusedIndexRecord* refused) const;

 private:
  // Calls use(shape, all slots).
  template <class Use>
  void withArguments(std::span<const uint64_t> slots, RefusedIndexRecord* refused, const Use& use) const;
  CudaLaunchShape shapeFor(std::span<const uint64_t> slots) const;

  const CudaSource source_;
  std::vector<std::string> sizes_;             // by slot: its name, empty for other slots
  std::optional<CudaLaunchShape> knownShape_;  // if it depends on no slot
  const CudaModule module_;
};

}  // namespace meshfuse
