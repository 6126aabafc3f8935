#include "device/cuda/routines.h"

#include "base/error.h"
#include "ir/op_rule.h"

namespace meshfuse {

std::optional<std::string_view> cudaRoutineName(const Expr& op) {
  return isContraction(op) ? std::optional<std::string_view>("cuBLASLt") : std::nullopt;
}

void expectCudaRoutine(const Expr& op) {
  check(ruleOf(op).executor != Executor::Library || cudaRoutineName(op).has_value(),
        "[cuda] {} has no kernel on a GPU so far; run it on the CPU: copy its operands with {}", ruleOf(op).name,
        ".to(DeviceId::cpu())");
}

}  // namespace meshfuse
