// The largest programs and settings: a program, a file or an array beyond these limits is refused as a mistake, before there is memory for it.
#pragma once

#include <cstdint>

namespace meshfuse {

// Dims of an array or a tensor. Arrays of NumPy have at most 64.
inline constexpr int64_t kMostDims = 64;
// Bytes of one tensor of a program, over all ranks. The sum of up to 4096 such numbers, and the product of one with up to 4096 ranks, fit
// in 64 bits. A product with kMostDevices ranks does not fit: use mulExact().
inline constexpr int64_t kMostTensorBytes = int64_t{1} << 50;
// Ranks of a mesh. Each id of a rank is less than this number.
inline constexpr int64_t kMostDevices = int64_t{1} << 20;
// Bytes of a file that holds text: a program or a flight record.
inline constexpr int64_t kMostTextBytes = int64_t{1} << 26;
// Threads of a pool, and of a rank.
inline constexpr int64_t kMostThreads = 4096;
// Seconds that a rank waits for another one.
inline constexpr int64_t kMostDeadlineSeconds = 1'000'000;

}  // namespace meshfuse
