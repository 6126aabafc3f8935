#include "device/cuda/nccl/registered_memory.h"

#include "base/error.h"
#include "device/cuda/nccl/library.h"

namespace meshfuse {

std::shared_ptr<void> RegisteredMemory::allocate(int64_t bytes) {
  freeGivenBack();
  const CurrentContext current(context_);
  const std::lock_guard lock(mutex_);
  void* memory = nullptr;
  if (ncclLibrary().memoryAllocate(&memory, static_cast<size_t>(bytes)) != nccl::Result::Success) {
    return nullptr;
  }
  device_.countOther(bytes);
  pieces_[memory].bytes = bytes;
  return {memory, [self = shared_from_this()](void* m) { self->giveBack(m); }};
}

void RegisteredMemory::freeGivenBack() noexcept {
  const std::lock_guard lock(mutex_);
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    it = it->second.isGivenBack ? freeLocked(it) : std::next(it);
  }
}

bool RegisteredMemory::enroll(void* memory, nccl::Communicator communicator) {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(memory);
  void* handle = nullptr;
  if (piece == pieces_.end() ||
      ncclLibrary().memoryRegister(communicator, memory, static_cast<size_t>(piece->second.bytes), &handle) !=
          nccl::Result::Success) {
    return false;
  }
  piece->second.registrations.push_back({communicator, handle});
  return true;
}

void RegisteredMemory::withdraw(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto piece = pieces_.find(memory); piece != pieces_.end()) {
    withdrawLocked(piece->second);
  }
}

void RegisteredMemory::withdrawLocked(Piece& piece) noexcept {
  for (const Registration& r : piece.registrations) {
    ncclLibrary().memoryDeregister(r.communicator,
                                   r.handle);  // fails only after an error, which another call has found
  }
  piece.registrations.clear();
}

RegisteredMemory::Pieces::iterator RegisteredMemory::freeLocked(Pieces::iterator piece) noexcept {
  try {
    const CurrentContext current(context_);
    withdrawLocked(piece->second);
    ncclLibrary().memoryFree(piece->first);
  } catch (const DeviceError&) {  // the device is gone, and the memory with it
  }
  return pieces_.erase(piece);
}

void RegisteredMemory::giveBack(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto piece = pieces_.find(memory);
  piece->second.isGivenBack = true;
  try {
    device_.countOther(-piece->second.bytes);
  } catch (const DeviceError&) {  // the device is gone, and the memory with it
  }
  if (isClosed_) {
    freeLocked(piece);
  }
}

void RegisteredMemory::close() noexcept {
  const std::lock_guard lock(mutex_);
  isClosed_ = true;
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    withdrawLocked(it->second);
    it = it->second.isGivenBack ? freeLocked(it) : std::next(it);
  }
}

void RegisteredMemory::forget() noexcept {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [memory, piece] : pieces_) {
      piece.registrations.clear();
    }
  }
  close();
}

}  // namespace meshfuse
