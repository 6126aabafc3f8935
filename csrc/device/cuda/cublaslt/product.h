// A matmul or linear by cuBLASLt.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/api/cublaslt.h"
#include "device/cuda/api/routine.h"
#include "device/cuda/cublaslt/algorithms.h"
#include "device/cuda/cublaslt/library.h"
#include "device/device.h"
#include "device/matrix_product.h"

namespace meshfuse {

// In bytes, of the matrices of our row-major order.
struct ProductAlignments {
  uint32_t a = 1, b = 1, c = 1;
};

class CublasLtProduct final : public CudaRoutine {
 public:
  // The reason why the library does not take the op: the types, a layout without unit stride. Nothing if it takes the op.
  static std::optional<std::string> refuse(const Expr& op, const std::map<int64_t, Layout>& layouts);
  // InternalError if refused; DeviceError if this version of the library has no algorithm for it. The handle outlives the product.
  CublasLtProduct(const CublasLtHandle& handle, const Expr& op, const std::map<int64_t, Layout>& layouts);
  ~CublasLtProduct() override;

  const std::string& name() const override { return name_; }  // "linear 64x128x512 of Half"
  // A text of all that the choice of its algorithm depends on, besides the device and the library.
  const std::string& problem() const { return problem_; }
  int64_t workspaceBytes() const override;
  // The same of a product whose algorithm needs `bytes`.
  static int64_t plannedWorkspaceBytes(int64_t bytes);
  void run(std::span<void* const> operands, void* out, void* workspace, cuda::Stream stream) const override;

 private:
  // A call of the library: a batch at equal distances. Offsets are in bytes.
  struct Call {
    int64_t a = 0, b = 0, c = 0;
  };
  void describe();
  void takeAlgorithm(const ProductAlignments& alignments);
  ProductAlgorithm chooseAlgorithm(const ProductAlignments& alignments) const;
  bool serves(const ProductAlgorithm& algorithm) const;
  std::string problemOf(const ProductAlignments& alignments) const;
  void destroy() noexcept;

  const CublasLtHandle& handle_;
  const MatrixProduct p_;
  const std::string name_;
  std::string problem_;
  std::vector<Call> calls_;
  cublaslt::Product product_ = nullptr;
  cublaslt::MatrixLayout a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublaslt::Algorithm algorithm_ = {};
  int64_t workspaceBytes_ = 0;
  mutable std::mutex biasMutex_;  // the address of the bias is in product_ while a call is made
};

}  // namespace meshfuse
