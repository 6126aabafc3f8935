#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "base/ranges.h"
#include "device/cpu/orc/cpu_compiler.h"

namespace meshfuse {

namespace {

constexpr std::string_view kVex[] = {"fma", "f16c", "vaes", "vpclmulqdq", "ssse3", "sse3",
                                     "xop", "fma4", "gfni", "aes",        "pclmul"};

std::map<std::string, bool> parse(const std::string& features) {
  std::map<std::string, bool> map;
  for (int64_t at = 0; at < std::ssize(features);) {
    size_t end = std::min(features.find(',', at), features.size());
    map[features.substr(at + 1, end - at - 1)] = features[at] == '+';
    at = end + 1;
  }
  return map;
}

std::string print(const std::map<std::string, bool>& map) {
  return joined(map, ",", [](const auto& feature) { return (feature.second ? "+" : "-") + feature.first; });
}

}  // namespace

CpuTarget hostTarget() {
  CpuTarget target;
  target.cpu = llvm::sys::getHostCPUName().str();
  std::map<std::string, bool> features;
#if LLVM_VERSION_MAJOR >= 19
  llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
#else
  llvm::StringMap<bool> host;
  llvm::sys::getHostCPUFeatures(host);
#endif
  for (const auto& entry : host) {
    features[entry.first().str()] = entry.second;
  }
  target.features = print(features);
  bool wide = target.has("avx512f") && target.has("avx512bw") && target.has("avx512dq") && target.has("avx512vl");
  target.vectorBytes = wide ? 64 : target.has("avx2") ? 32 : 16;
  return target;
}

CpuTarget narrowerTarget(const CpuTarget& target, int64_t vectorBytes) {
  std::map<std::string, bool> features = parse(target.features);
  for (auto& [name, on] : features) {
    auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
    bool wide = std::ranges::any_of(std::to_array({"avx512", "avx10", "amx"}), begins) || name == "evex512";
    bool vex = std::ranges::any_of(std::to_array({"avx", "sse4", "sha", "sm"}), begins) || contains(kVex, name);
    on = on && !wide && (vectorBytes >= 32 || !vex);
  }
  return {.cpu = "x86-64", .features = print(features), .vectorBytes = std::min(vectorBytes, target.vectorBytes)};
}

}  // namespace meshfuse
