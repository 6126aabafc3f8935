// Memory of ncclMemAlloc, and with which communicators it is registered.
//
// NCCL moves the elements of registered memory without copies to buffers of its own. It expects that the calls that use the memory end before
// it is registered no more, and that it is registered no more before it is freed; both may wait for the device. So memory whose last owner is
// gone is kept until no call is under way. It does not count as used: CudaMemory lets it be freed before it refuses an allocation.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/api/nccl.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/driver/memory.h"

namespace meshfuse {

// Made by std::make_shared: the memory that it has allocated keeps it. allocate() and the end of memory are thread-safe; the other functions
// are for the thread that calls the communicators.
class RegisteredMemory : public std::enable_shared_from_this<RegisteredMemory> {
 public:
  // Both outlive it and its memory.
  RegisteredMemory(const CudaContext& context, CudaMemory& device) : context_(context), device_(device) {}

  // Null if NCCL has none. First frees the memory that its owners have given back. Precondition: no call is under way.
  std::shared_ptr<void> allocate(int64_t bytes);
  // Frees the memory that its owners have given back. Precondition: no call is under way.
  void freeGivenBack() noexcept;
  // Registers memory of allocate() with this communicator. The caller must not register it twice without withdraw() in between. False if
  // NCCL refuses, or the memory is not of allocate(). Precondition: no call is under way.
  bool enroll(void* memory, nccl::Communicator communicator);
  // It is registered with no communicator afterwards.
  void withdraw(void* memory) noexcept;
  // Before the communicators end: no memory is registered any more, and what was given back is freed; memory that is given back later is
  // freed at once.
  void close() noexcept;
  // The communicators have been aborted, and their registrations with them.
  void forget() noexcept;

 private:
  struct Registration {
    nccl::Communicator communicator = nullptr;
    void* handle = nullptr;
  };
  struct Piece {
    int64_t bytes = 0;
    std::vector<Registration> registrations;
    bool isGivenBack = false;
  };
  using Pieces = std::map<void*, Piece>;

  void giveBack(void* memory) noexcept;
  void withdrawLocked(Piece& piece) noexcept;
  Pieces::iterator freeLocked(Pieces::iterator piece) noexcept;

  const CudaContext& context_;
  CudaMemory& device_;
  std::mutex mutex_;
  Pieces pieces_;
  bool isClosed_ = false;
};

}  // namespace meshfuse
