#include "device/cuda/routines/routine_program.h"

#include "base/error.h"
#include "ir/op_rule.h"
#include "ir/tensor_view.h"

namespace meshfuse {

std::optional<std::string_view> cudaRoutineName(const Expr& op) {
  using enum ExprKind;
  switch (op.kind()) {
    case Matmul:
    case Linear:
      return "cuBLASLt";
    case Scan:
    case ArgSort:
    case Scatter:
    case IndexPutAccumulate:
      return "CUDA routine";
    default:
      return std::nullopt;
  }
}

void expectCudaRoutine(const Expr& op) {
  check(ruleOf(op).executor != Executor::Library || cudaRoutineName(op).has_value(),
        "[cuda] {} has no kernel on a GPU so far; run it on the CPU: copy its operands with {}", ruleOf(op).name,
        ".to(DeviceId::cpu())");
}

RoutineProgram routineProgram(const Expr& op, const RoutineOptions& options) {
  RoutineProgram program;
  switch (op.kind()) {
    case ExprKind::Scan:
      program = scanProgram(op, options);
      break;
    case ExprKind::ArgSort:
      program = argSortProgram(op, options);
      break;
    case ExprKind::Scatter:
      program = scatterProgram(op, options);
      break;
    case ExprKind::IndexPutAccumulate:
      program = addRowsProgram(op, options);
      break;
    default:
      throwInternalError(fmt::format("[cuda] {} has no kernels written by hand", ruleOf(op).name));
  }
  program.name = fmt::format("{} {}", op.opName(), op.tensorOutput()->toString());
  for (const RoutineLaunch& l : program.launches) {
    check(l.blocks <= INT32_MAX,
          "[cuda] {} needs {} blocks of threads, a GPU has at most 2147483647; run it on the CPU", program.name,
          l.blocks);
  }
  return program;
}

}  // namespace meshfuse
