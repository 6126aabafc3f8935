#include "base/error.h"
#include "device/cpu/onednn/contraction.h"
#include "device/cpu/onednn/double_product.h"
#include "device/cpu/onednn/few_rows_product.h"
#include "device/cpu/onednn/float_product.h"

namespace meshfuse {

std::optional<std::string> Contraction::refuse(const Expr&, const std::map<int64_t, Layout>&) {
  return "built without oneDNN";
}

Contraction::Contraction(const Expr&, const std::map<int64_t, Layout>&, int64_t) : blocks_({}) {
  throwInternalError("[contraction] built without oneDNN");
}

int64_t Contraction::workspaceBytes() const { return 0; }
void Contraction::run(ThreadPool&, std::span<void* const>, void*, void*) const {}
bool multipliesDoubles() { return false; }
bool multipliesFewRows(const MatrixProduct&) { return false; }
bool multipliesFloats(const ResultBlock&) { return false; }

}  // namespace meshfuse
