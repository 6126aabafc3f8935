// The memory of one simulated device: who owns which bytes, and which bytes have been written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace simgpu {

struct Allocation {
  uint64_t bytes = 0;
  uint64_t process = 0;
  std::string call;      // that made it
  bool isLive = true;    // false: freed by the host or in the order of its stream
  bool isFreed = false;  // the host has called free; the work may not have come so far
};

// Addresses are multiples of 256. Between two allocations lie at least 256 bytes that nobody owns. Memory that nobody owns and fresh memory
// hold poison: the bytes 0xd5 and 0xc5.
class Memory {
 public:
  Memory(uint64_t device, uint64_t bytes);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Nothing if the memory does not suffice.
  std::optional<uint64_t> allocate(uint64_t bytes, uint64_t process, std::string call);
  Allocation* at(uint64_t address);                 // that begins there; null if none does
  const Allocation* owner(uint64_t address) const;  // of this byte; null if it has none
  void poison(uint64_t address);                    // that of fresh memory
  void free(uint64_t address);                      // gives the bytes back

  // Why an access is wrong; empty if the bytes lie in one live allocation.
  std::string refusal(uint64_t begin, uint64_t end) const;
  bool contains(uint64_t address) const { return address >= base_ && address < base_ + total_; }

  void noteWritten(uint64_t begin, uint64_t end);
  // The first byte of the range that nobody has written.
  std::optional<uint64_t> unwritten(uint64_t begin, uint64_t end) const;

  uint64_t total() const { return total_; }
  uint64_t used() const { return used_; }
  const std::map<uint64_t, Allocation>& allocations() const { return allocations_; }

 private:
  uint64_t base_;
  uint64_t total_;
  uint64_t used_ = 0;
  unsigned char* written_;  // a bit for each byte; shared with the processes that run kernels
  std::map<uint64_t, Allocation> allocations_;
};

}  // namespace simgpu
