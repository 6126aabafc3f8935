#include "device/device_info.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <ranges>

#include "base/ranges.h"
#include "digits/row_major.h"
#include "ir/tensor_view.h"

namespace meshfuse {

Layout layoutOf(const TensorView* tensor, const std::map<int64_t, Layout>& layouts) {
  const auto known = layouts.find(tensor->id());
  return known != layouts.end()
             ? known->second
             : Layout{rowMajorStrides(mapped(tensor->shape(), [](const IntExpr& extent) { return max(extent, 1); }))};
}

std::vector<int64_t> constantStrides(const TensorView* tensor, const std::map<int64_t, Layout>& layouts) {
  return mapped(layoutOf(tensor, layouts).strides, &IntExpr::constValue);
}

std::map<int64_t, Layout> substitute(std::map<int64_t, Layout> layouts,
                                     const std::function<std::optional<IntExpr>(std::string_view)>& replacement) {
  for (Layout& layout : std::views::values(layouts)) {
    std::ranges::transform(layout.strides, layout.strides.begin(),
                           [&](const IntExpr& stride) { return stride.substitute(replacement); });
  }
  return layouts;
}

namespace {

constexpr int64_t operator""_KiB(unsigned long long n) { return static_cast<int64_t>(n) << 10; }
constexpr int64_t operator""_MiB(unsigned long long n) { return static_cast<int64_t>(n) << 20; }

struct GpuRow {
  int architecture;
  int64_t lastCacheBytes;
  GpuFacts facts;
};

// The largest GPU of each architecture. Threads, registers and shared memory: NVIDIA's CUDA C++ Programming Guide, "Compute Capabilities",
// technical specifications. Multiprocessors, second cache, speed of the memory: NVIDIA's architecture papers and data sheets of the
// GPU. Accesses of 32 bytes: PTX ISA 8.8, "ld" and "st" (.v8 from sm_100 on).
constexpr GpuRow kGpus[] = {
    {80, 40_MiB, {108, 2048, 65536, 164_KiB, 163_KiB, 16, 2'039'000}},    // A100 80 GB
    {86, 6_MiB, {84, 1536, 65536, 100_KiB, 99_KiB, 16, 696'000}},         // A40
    {87, 4_MiB, {16, 1536, 65536, 164_KiB, 163_KiB, 16, 204'800}},        // Jetson AGX Orin
    {89, 96_MiB, {142, 1536, 65536, 100_KiB, 99_KiB, 16, 864'000}},       // L40S
    {90, 50_MiB, {132, 2048, 65536, 228_KiB, 227_KiB, 16, 3'352'000}},    // H100 SXM
    {100, 126_MiB, {148, 2048, 65536, 228_KiB, 227_KiB, 32, 8'000'000}},  // B200
    {120, 128_MiB, {188, 1536, 65536, 100_KiB, 99_KiB, 32, 1'792'000}},   // RTX PRO 6000 Blackwell
};

}  // namespace

std::optional<int> architectureNumber(std::string_view architecture) {
  if (!architecture.starts_with("sm_")) {
    return std::nullopt;
  }
  int number = 0;
  const char* const end = architecture.data() + architecture.size();
  const auto read = std::from_chars(architecture.data() + 3, end, number);
  const std::string_view variant(read.ptr, end);  // "a" of sm_90a
  const bool isName = read.ec == std::errc() && number > 0 && variant.size() <= 1 &&
                      variant.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string_view::npos;
  return isName ? std::optional(number) : std::nullopt;
}

std::vector<int> knownArchitectures() { return mapped(kGpus, &GpuRow::architecture); }

std::optional<DeviceInfo> DeviceInfo::ofArchitecture(std::string_view architecture) {
  const std::optional<int> number = architectureNumber(architecture);
  if (!number) {
    return std::nullopt;
  }
  const GpuRow* row = &kGpus[0];
  for (const GpuRow& later : kGpus) {
    row = later.architecture <= *number ? &later : row;
  }
  DeviceInfo info{.target = tile::Target::Gpu, .lastCacheBytes = row->lastCacheBytes, .gpu = row->facts};
  info.architecture = architecture;
  return info;
}

DeviceInfo DeviceInfo::hopper() { return *ofArchitecture("sm_90a"); }

std::string DeviceInfo::describe() const {
  if (target == tile::Target::Cpu) {
    return "";
  }
  const std::string speed =
      gpu.bytesPerMicrosecond == 0 ? "unknown speed" : fmt::format("{} GB/s at most", gpu.bytesPerMicrosecond / 1000);
  const std::string workspaces =
      knowsWorkspaces
          ? ""
          : fmt::format("; a matrix product is planned with a workspace of {} MiB, the most that it may need",
                        mostWorkspaceBytes >> 20);
  return fmt::format(
      "{}: {} multiprocessors, each with {} threads, {} registers and {} KiB of shared memory ({} KiB for a block); "
      "accesses of {} bytes; second cache of {} MiB, memory of {}{}",
      architecture, gpu.processors, gpu.threads, gpu.registers, gpu.sharedBytes >> 10, gpu.sharedBytesOfBlock >> 10,
      gpu.accessBytes, lastCacheBytes >> 20, speed, workspaces);
}

}  // namespace meshfuse
