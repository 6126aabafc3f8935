// What a cubin says about its kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace meshfuse::simt {

template <class T>
T numberAt(const std::string& bytes, size_t at) {
  T n = 0;
  std::memcpy(&n, bytes.data() + at, sizeof(T));
  return n;
}

// The bytes of local memory of a thread, from the sections .nv.info of a cubin: spilled registers lie there. -1 without any.
inline int64_t frameBytes(const std::string& elf) {
  constexpr uint32_t kInfo = 0x70000000;  // SHT_CUDA_INFO
  constexpr uint16_t kFrameSize = 0x1104;
  const auto headers = numberAt<uint64_t>(elf, 40);
  const auto size = numberAt<uint16_t>(elf, 58);
  const auto count = numberAt<uint16_t>(elf, 60);
  int64_t frame = -1;
  for (size_t k = 0; k < count; k++) {
    const size_t header = headers + k * size;
    const auto begin = numberAt<uint64_t>(elf, header + 24);
    const auto length = numberAt<uint64_t>(elf, header + 32);
    for (size_t at = begin; numberAt<uint32_t>(elf, header + 4) == kInfo && at + 4 <= begin + length;) {
      const auto attribute = numberAt<uint16_t>(elf, at);
      const bool sized = (attribute & 0xff) == 4;
      if (attribute == kFrameSize) {
        frame = std::max<int64_t>(frame, numberAt<uint32_t>(elf, at + 8));
      }
      at += 4 + (sized ? numberAt<uint16_t>(elf, at + 2) : 0);
    }
  }
  return frame;
}

}  // namespace meshfuse::simt
