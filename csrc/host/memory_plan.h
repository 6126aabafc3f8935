// Offsets in one arena for blocks with lifetimes: one block after the other, each at the lowest offset free during its whole life. Of three
// orders, the one with the smallest arena counts: the largest blocks first, those with most bytes times steps, the last ones of the program.
#pragma once

#include <cstdint>
#include <vector>

namespace meshfuse {

inline constexpr int64_t kArenaAlignment = 64;

struct MemoryBlock {
  int64_t bytes = 0;
  int64_t firstStep = 0;  // the block is alive from the step that writes it first
  int64_t lastStep = 0;   // to the step that uses it last, both included
  int64_t offset = 0;     // result

  bool meets(const MemoryBlock& other) const { return firstStep <= other.lastStep && other.firstStep <= lastStep; }
  int64_t end() const;  // a multiple of kArenaAlignment
  friend bool operator==(const MemoryBlock&, const MemoryBlock&) = default;
};

// Fills in offsets, multiples of kArenaAlignment; returns the arena's size. Two blocks with overlapping lifetimes do not overlap in
// memory. Deterministic: ties are resolved by position, then by order. UserError if the size does not fit in 64 bits.
int64_t planMemory(std::vector<MemoryBlock>& blocks);

}  // namespace meshfuse
