#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>

#include <map>

#include "jit/orc/cpu_compiler.h"

namespace meshfuse {

namespace {

std::map<std::string, bool> parse(const std::string& features) {
  std::map<std::string, bool> map;
  for (size_t at = 0; at < features.size();) {
    size_t end = std::min(features.find(',', at), features.size());
    map[features.substr(at + 1, end - at - 1)] = features[at] == '+';
    at = end + 1;
  }
  return map;
}

std::string print(const std::map<std::string, bool>& map) {
  std::string text;
  for (const auto& [name, on] : map) {
    text += (text.empty() ? "" : ",") + std::string(on ? "+" : "-") + name;
  }
  return text;
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

CpuTarget narrowerTarget(const CpuTarget& target, int vectorBytes) {
  CpuTarget narrow;
  narrow.cpu = "x86-64";
  narrow.vectorBytes = std::min(vectorBytes, target.vectorBytes);
  std::map<std::string, bool> features = parse(target.features);
  for (auto& [name, on] : features) {
    bool wide =
        name.rfind("avx512", 0) == 0 || name.rfind("avx10", 0) == 0 || name.rfind("amx", 0) == 0 || name == "evex512";
    bool vex = name.rfind("avx", 0) == 0 || name == "fma" || name == "f16c" || name == "vaes" || name == "vpclmulqdq" ||
               name.rfind("sse4", 0) == 0 || name == "ssse3" || name == "sse3" || name == "xop" || name == "fma4" ||
               name == "gfni" || name.rfind("sha", 0) == 0 || name.rfind("sm", 0) == 0 || name == "aes" ||
               name == "pclmul";
    on = on && !wide && (vectorBytes >= 32 || !vex);
  }
  narrow.features = print(features);
  return narrow;
}

}  // namespace meshfuse
